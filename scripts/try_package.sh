#!/usr/bin/env bash
# Build the wheel and the source distribution, install the wheel into an empty environment, predict the examples there.
set -euo pipefail
unset PYTHONPATH
cd "$(dirname "$0")/.."
: "${BIN:?where the programs of .venv are}"
rm -rf dist build/empty
"$BIN/python" -m build --outdir dist .   # the wheel is built from the source distribution, so that is whole too
"$BIN/python" -m venv build/empty
empty=$PWD/build/empty
"$empty/bin/pip" install --disable-pip-version-check --quiet -c constraints.txt dist/*.whl
cd "$empty"                              # away from the source tree: only the installed package can be imported
bin/matchattention predict --example --output result
for name in disparity.pfm disparity.png depth.png cloud.ply; do
  test -s "result/$name" || { echo "the installed package wrote no $name" >&2; exit 1; }
done
bin/matchattention predict --example --task flow --only flow --output motion
test -s motion/flow.flo || { echo "the installed package wrote no flow.flo" >&2; exit 1; }
bin/python -c "import matchattention, pathlib; assert (pathlib.Path(matchattention.__file__).parent / 'py.typed').exists()"
