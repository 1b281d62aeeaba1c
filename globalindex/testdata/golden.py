"""Writes the golden index files from docs/formats/file-index.md and docs/formats/keys.md alone, sharing no code with the package.

    pip install xxhash && python3 golden.py
"""
import json, struct, xxhash

M = (1 << 64) - 1


def splitmix64(v):
    z = (v + 0x9E3779B97F4A7C15) & M
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9 & M
    z = (z ^ (z >> 27)) * 0x94D049BB133111EB & M
    return z ^ (z >> 31)


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def packed(numbers):
    """numbers: (value, width) pairs; one long number, lowest bits first, as whole 8-byte words."""
    total, at = 0, 0
    for value, width in numbers:
        assert value < 1 << width
        total |= value << at
        at += width
    return total.to_bytes((at + 63) // 64 * 8, "little")


def bloom(hashes):
    blocks = [0] * max(1, -(-10 * len(hashes) // 512))
    for h in hashes:
        product = (h ^ h >> 32) * 0x9E3779B97F4A7C15 & M
        for i in range(6):
            blocks[h * len(blocks) >> 64] |= 1 << (product >> 55 - 9 * i & 511)
    return b"".join(b.to_bytes(64, "little") for b in blocks)


def index(kind, columns, files):
    entries = sorted(
        ((splitmix64(k) if kind == 1 else xxhash.xxh64_intdigest(bytes.fromhex(k))), f, r)
        for f, (_, keys) in enumerate(files) for r, k in enumerate(keys))
    buckets = 1
    while buckets < len(entries) // 4 + 2:
        buckets *= 2
    n = buckets.bit_length() - 1
    file_bits = max(len(files) - 1, 0).bit_length()
    row_bits = max(max((len(keys) for _, keys in files), default=0) - 1, 0).bit_length()
    starts = [sum(1 for h, _, _ in entries if h >> (64 - n) < b) for b in range(buckets + 1)]
    sections = (
        bloom([h for h, _, _ in entries]),
        packed((s, len(entries).bit_length()) for s in starts),
        packed(p for h, f, r in entries for p in ((h & (1 << 64 - n) - 1, 64 - n), (f, file_bits), (r, row_bits))),
    )
    lists = b"".join(struct.pack("<i", c) for c in columns)
    lists += b"".join(struct.pack("<QI", len(keys), len(path.encode())) + path.encode() for path, keys in files)
    lists += b"\0" * (-(56 + len(lists) + 4) % 64)
    header = struct.pack("<8sIIQQIIIBBBBII", b"pgmindex", 2, 56 + len(lists) + 4, len(entries), sum(map(len, sections)),
                         *map(crc32c, sections), kind, kind, n, row_bits, len(columns), len(files)) + lists
    return header + struct.pack("<I", crc32c(header)) + b"".join(sections)


def write(name, kind, columns, files):
    with open(name + ".pgmindex", "wb") as f:
        f.write(index(kind, columns, files))
    with open(name + ".json", "w") as f:
        json.dump({"kind": kind, "columns": columns,
                   "files": [{"path": p, "keys": [str(k) for k in keys]} for p, keys in files]}, f, indent=None)


def text(s):
    return "01" + len(s.encode()).to_bytes(1, "little").hex() + s.encode().hex()


def int4(v):
    return "01" + struct.pack("<i", v).hex()


write("empty", 1, [1], [("a.parquet", [])])
write("ints", 1, [1], [("warehouse/shop/orders-1.parquet", [1, 2, 3, 4, 5])])
write("negative", 1, [7], [("a.parquet", [-1, 0, 2**63 - 1, -(2**63), 42]), ("b.parquet", [100]), ("ü.parquet", list(range(1000, 1040)))])
write("composite", 2, [2, 1], [("a.parquet", [text("é") + int4(-7), text("") + int4(0), "00" + int4(1), text("") + "00", text("same") + int4(1), text("same") + int4(1)]),
                               ("b.parquet", [text("same") + int4(1)])])
write("thousand", 1, [3], [("f%d.parquet" % i, list(range(i * 1000, i * 1000 + 250))) for i in range(4)])
write("compacted", 1, [1], [("compacted.parquet", [10, 20, 40, 50])])
