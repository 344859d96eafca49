"""Put a file together that an export split: python scripts/join_parts.py EXPORT/model.safetensors rt.safetensors"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from matchattention.data.atomic import replacing
from matchattention.errors import InputError
from matchattention.training.parts import join_parts


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("source", type=Path, help="the name without .part0")
    parser.add_argument("target", type=Path)
    arguments = parser.parse_args()
    try:
        data = join_parts(arguments.source)
    except InputError as error:
        print(error, file=sys.stderr)
        return 2
    if data is None:
        print(f"there is no {arguments.source}.part0", file=sys.stderr)
        return 2
    with replacing(arguments.target) as temporary:
        temporary.write_bytes(data)
    print(f"{arguments.target}: {len(data) / 1e6:.1f} MB")
    return 0


if __name__ == "__main__":
    sys.exit(main())
