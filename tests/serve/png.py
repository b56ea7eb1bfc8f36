"""PNG files of screenshots as rows of (r, g, b), and back: 8 bits a channel, not interlaced. Standard library only."""

import struct
import zlib


def read(data):
    at, size, packed = 8, None, b""
    while at < len(data):
        length, kind = struct.unpack(">I4s", data[at : at + 8])
        body = data[at + 8 : at + 8 + length]
        at += length + 12
        if kind == b"IHDR":
            size = struct.unpack(">IIBB", body[:10])
        elif kind == b"IDAT":
            packed += body
    width, height, depth, colour = size
    step = {2: 3, 6: 4}[colour]
    assert depth == 8
    raw, rows, above, line = zlib.decompress(packed), [], bytearray(width * step), width * step + 1
    for y in range(height):
        row = bytearray(raw[y * line + 1 : (y + 1) * line])
        unfilter(raw[y * line], row, above, step)
        rows.append([tuple(row[x : x + 3]) for x in range(0, len(row), step)])
        above = row
    return rows


def unfilter(kind, row, above, step):
    for i in range(len(row)):
        left = row[i - step] if i >= step else 0
        corner = above[i - step] if i >= step else 0
        if kind == 1:
            row[i] = (row[i] + left) & 255
        elif kind == 2:
            row[i] = (row[i] + above[i]) & 255
        elif kind == 3:
            row[i] = (row[i] + (left + above[i]) // 2) & 255
        elif kind == 4:
            p = left + above[i] - corner
            row[i] = (row[i] + min((left, above[i], corner), key=lambda v: abs(p - v))) & 255
