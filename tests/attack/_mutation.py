"""Damage to bytes: what wires, disks and editors do, and what someone with bad intentions tries."""

from __future__ import annotations

import numpy as np

# Pieces of text that readers stumble over.
_WORDS = "0 -1 -0 1e999 1e-999 nan inf 0x1p3 1_0 1:1 0:0 1: :1 ,1 1,1 +1 . e5 qid:1"
TOKENS = [word.encode() for word in _WORDS.split()]
TOKENS += [b"%d" % number for number in (2**31 - 1, 2**31, 2**63, 2**64, 10**400)]
TOKENS += [b"\n", b"\r\n", b"\r", b" ", b"\t", b"\x0c", b":", b",", b"#", b"\0", b"\xff", b"\xef\xbb\xbf"]


def flipped(content: bytes, rng: np.random.Generator, count: int = 1) -> bytes:
    """So many bits turned round."""
    damaged = bytearray(content)
    for _ in range(count):
        damaged[rng.integers(len(damaged))] ^= 1 << int(rng.integers(8))
    return bytes(damaged)


def mutated(content: bytes, rng: np.random.Generator, other: bytes = b"") -> bytes:
    """One to four changes of any kind; ``other`` lends pieces."""
    for _ in range(int(rng.integers(1, 5))):
        size = len(content)
        start, stop = sorted(int(i) for i in rng.integers(size + 1, size=2))
        stop = min(stop, start + int(rng.integers(1, 60)))
        piece = content[start:stop]
        match int(rng.integers(9)):
            case 0:
                content = flipped(content, rng, int(rng.integers(1, 4))) if size else content
            case 1:
                content = content[:start] + rng.bytes(stop - start) + content[stop:]
            case 2:
                content = content[:start] + content[stop:]
            case 3:
                content = content[:stop] + piece + content[stop:]
            case 4:
                content = content[:start]
            case 5:
                content += (
                    rng.bytes(int(rng.integers(1, 40)))
                    if rng.integers(2)
                    else bytes(int(rng.integers(1, 40)))
                )
            case 6 | 7:
                content = content[:start] + TOKENS[rng.integers(len(TOKENS))] + content[start:]
            case 8:
                begin = int(rng.integers(len(other) + 1))
                content = content[:start] + other[begin : begin + int(rng.integers(200))] + content[stop:]
    return content
