"""Ways in which files come to grief, drawn from a seed: by bytes, by words, and inside the checksums."""

from __future__ import annotations

import io
import json
import random
import re
import struct
import zipfile
import zlib
from collections.abc import Callable

Mutation = Callable[[random.Random, bytes], bytes]

NASTY_WORDS = [
    *("0", "-1", "nan", "inf", "-inf", "1e999", "1e-999", "abc", ".", "-", "", "true", "null", '"5"', "[]", "{}"),
    *("[[1]]", "9" * 5000, "99999999999", "4294967296", "0x10", "1,2", "é", "\u2028", "1_000", "٣", "\0", "%s"),
]
NASTY_BYTES = [
    b"\xff\xfe",
    b"\xe9",
    b"\0",
    b"[" * 3000,
    b" " * 5000,
    b"\n" * 5000,
    b"{" * 3000,
    b'"',
    b"\\",
    b"-" * 999,
]


def any_bytes(dice: random.Random, content: bytes) -> bytes:
    """Flip, cut, insert, repeat or overwrite bytes."""
    data = bytearray(content)
    for _ in range(dice.choice((1, 1, 1, 2, 4))):
        # Headers are short and decide everything, so half of the blows fall there.
        place = dice.randrange(len(data) + 1) if dice.random() < 0.5 else dice.randrange(min(len(data), 128) + 1)
        kind = dice.randrange(7)
        if kind == 0 and place < len(data):
            data[place] ^= 1 << dice.randrange(8)
        elif kind == 1 and place < len(data):
            data[place] = dice.choice((0, 1, 127, 128, 255, dice.randrange(256)))
        elif kind == 2:
            del data[place:]
        elif kind == 3:
            data[place:place] = dice.randbytes(dice.randrange(1, 20))
        elif kind == 4:
            del data[place : place + dice.randrange(1, 40)]
        elif kind == 5:
            data[place:place] = data[place : place + dice.randrange(1, 200)]
        else:
            extreme = dice.choice((b"\xff" * 4, b"\xff" * 8, b"\x7f\xff\xff\xff", b"\0" * 8, b"\xff\xff\xff\x7f"))
            data[place : place + len(extreme)] = extreme
    return bytes(data)


def words(dice: random.Random, content: bytes) -> bytes:
    """Replace numbers and lines of a text by what nobody should write there."""
    text = content.decode()
    kind = dice.randrange(8)
    numbers = list(re.finditer(r"[-+.\deE]*\d[-+.\deE]*|\w+", text))
    lines = text.splitlines(keepends=True)
    if kind <= 3 and numbers:
        chosen = dice.choice(numbers)
        return (text[: chosen.start()] + dice.choice(NASTY_WORDS) + text[chosen.end() :]).encode()
    if kind == 4 and lines:
        del lines[dice.randrange(len(lines))]
        return "".join(lines).encode()
    if kind == 5:
        dice.shuffle(lines)
        return "".join(lines).encode()
    if kind == 6:
        place = dice.randrange(len(content) + 1)
        return content[:place] + dice.choice(NASTY_BYTES) + content[place:]
    return text.encode(dice.choice(("utf-16", "utf-32", "utf-8-sig", "utf-16-le"))) + dice.choice((b"", b"\n\xe9\n"))


def json_values(dice: random.Random, content: bytes) -> bytes:
    """Replace or drop one value anywhere in a JSON document."""
    document = json.loads(content)
    places: list[tuple[dict | list, str | int]] = []

    def visit(node: object) -> None:
        items = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
        for key, value in items:
            places.append((node, key))  # type: ignore[arg-type]
            visit(value)

    visit(document)
    if not places:
        return b"[]"
    holder, key = dice.choice(places)
    if dice.random() < 0.2:
        del holder[key]  # type: ignore[arg-type]
    else:
        strange = (None, True, "x", "5", [], {}, [[1]], -1, 0, 10**12, 1e308, float("nan"), [1] * 9, {"a": 1}, 0.5)
        holder[key] = dice.choice(strange)  # type: ignore[index]
    return json.dumps(document).encode()


def png_chunks(dice: random.Random, content: bytes) -> bytes:
    """Change what is inside a PNG's chunks and write their checksums anew."""
    chunks, position = [], 8
    while position + 12 <= len(content):
        (length,) = struct.unpack(">I", content[position : position + 4])
        chunks.append([content[position + 4 : position + 8], content[position + 8 : position + 8 + length]])
        position += 12 + length
    kind = dice.randrange(6)
    if kind <= 1:
        chosen = dice.choice(chunks)
        chosen[1] = any_bytes(dice, chosen[1])
    elif kind == 2:
        header = bytearray(chunks[0][1].ljust(13, b"\0"))
        place = dice.choice((0, 4))
        header[place : place + 4] = struct.pack(">I", dice.choice((0, 1, 7, 9999, 70000, 2**31, 2**32 - 1)))
        chunks[0][1] = bytes(header)
    elif kind == 3:
        pixels = zlib.decompress(b"".join(data for name, data in chunks if name == b"IDAT"))
        packed = zlib.compress(any_bytes(dice, pixels))
        chunks = [chunk for chunk in chunks if chunk[0] != b"IDAT"]
        chunks.insert(-1, [b"IDAT", packed])
    elif kind == 4:
        chunks.insert(
            dice.randrange(len(chunks) + 1),
            [dice.choice((b"IDAT", b"PLTE", b"tEXt", b"iCCP", b"IHDR", b"tRNS", b"acTL")), dice.randbytes(30)],
        )
    else:
        del chunks[dice.randrange(len(chunks))]
    body = b"".join(
        struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data)) for name, data in chunks
    )
    return content[:8] + body


def zip_members(dice: random.Random, content: bytes) -> bytes:
    """Change the files inside a zip archive and pack them again."""
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        members = [[name, archive.read(name)] for name in archive.namelist()]
    chosen = dice.choice(members)
    kind = dice.randrange(5)
    if kind <= 2:
        chosen[1] = any_bytes(dice, chosen[1])
    elif kind == 3:
        chosen[0] = dice.choice(("other", "disparity", "../x.npy", "é.npy", "a/"))
    else:
        members.remove(chosen)
    stored = io.BytesIO()
    with zipfile.ZipFile(stored, "w", dice.choice((zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED))) as archive:
        for name, data in members:
            archive.writestr(name, data)
    return stored.getvalue()


def counted_json(prefix: int) -> Mutation:
    """Change the JSON header of a file that begins with ``prefix`` bytes and the header's length in eight."""

    def mutate(dice: random.Random, content: bytes) -> bytes:
        begin = prefix + 8
        length = int.from_bytes(content[prefix:begin], "little")
        header = content[begin : begin + length]
        changed = dice.choice((json_values, json_values, words))(dice, header)
        return content[:prefix] + len(changed).to_bytes(8, "little") + changed + content[begin + length :]

    return mutate


def safetensors_strings(dice: random.Random, content: bytes) -> bytes:
    """Change the JSON texts that our checkpoints keep inside a safetensors header."""
    length = int.from_bytes(content[:8], "little")
    header = json.loads(content[8 : 8 + length])
    texts = header["__metadata__"]
    name = dice.choice(list(texts))
    if name in ("config", "metadata"):
        changed = dice.choice((json_values, json_values, words))(dice, texts[name].encode())
        texts[name] = changed.decode("utf-8", "replace")
    else:
        texts[name] = dice.choice(NASTY_WORDS)
    stored = json.dumps(header).encode()
    return len(stored).to_bytes(8, "little") + stored + content[8 + length :]
