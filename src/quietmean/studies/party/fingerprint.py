"""A sealed study in eight words, or in twenty characters, for people to compare by telephone.

Who convenes a study writes the whole of it, and could look for two versions with the same words: a birthday search, which for
b bits needs 2^(b/2) trials. So the words have 88 bits, and each trial takes scrypt with N = 2^17, r = 8, p = 1: half a second and
128 MiB.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import TypeAlias

WORDS, WORD_BITS = 8, 11
CHARACTERS, CHARACTER_BITS = 20, 5
_BASE32 = "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567"
# The first bits of the same 13 bytes are spelt in both ways.
_BYTES = 13
_SALT = b"quietmean words 1\0"
_COST, _BLOCK, _PARALLEL = 2**17, 8, 1
_MEMORY = 256 * 2**20
Stretch: TypeAlias = Callable[[bytes], bytes]


@dataclass(frozen=True)
class Fingerprint:
    """A digest in words and characters, for people to compare.

    ``words``: 8 of the BIP-39 list, 88 bits; ``characters``: 20 of base32, 100 bits, of which the first 88 are the words.
    """

    words: tuple[str, ...]
    characters: str

    @property
    def spoken(self) -> str:
        """The words, to be read out."""
        return " ".join(self.words)

    @property
    def grouped(self) -> str:
        """The characters in fives, to be read out."""
        return "-".join(self.characters[start : start + 5] for start in range(0, CHARACTERS, 5))


def stretched(digest: bytes) -> bytes:
    """13 bytes that take scrypt to compute (N = 2^17, r = 8, p = 1)."""
    return hashlib.scrypt(digest, salt=_SALT, n=_COST, r=_BLOCK, p=_PARALLEL, maxmem=_MEMORY, dklen=_BYTES)


def fingerprint(digest: str, stretch: Stretch = stretched) -> Fingerprint:
    """Return the words for the digest of a sealed study (hexadecimal). ``stretch``: makes 13 bytes of its 32."""
    bits = int.from_bytes(stretch(bytes.fromhex(digest)), "big")
    words, total = _word_list(), 8 * _BYTES
    return Fingerprint(
        tuple(words[number] for number in _parts(bits, total, WORDS, WORD_BITS)),
        "".join(_BASE32[number] for number in _parts(bits, total, CHARACTERS, CHARACTER_BITS)),
    )


def _parts(bits: int, total: int, count: int, width: int) -> list[int]:
    """The first ``count`` groups of ``width`` bits of a number of ``total`` bits."""
    return [bits >> (total - width * (index + 1)) & (2**width - 1) for index in range(count)]


@cache
def _word_list() -> list[str]:
    from mnemonic import Mnemonic

    return Mnemonic("english").wordlist
