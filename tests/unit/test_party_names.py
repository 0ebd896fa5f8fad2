"""Keys and names have one spelling each, so that one key is one party and one name says who it is."""

from __future__ import annotations

import base64
import contextlib
import hashlib

import pytest
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from hypothesis import given
from hypothesis import strategies as st

from quietmean.core.errors import InputError
from quietmean.node import Identity, Roster, RosterEntry
from quietmean.node.net.identity import KEY_PREFIX, format_public_key, public_key_bytes, require_name, show_hidden
from support.refusals import refused, refused_rows

ADA, BEN = Identity.generate(), Identity.generate()
DIGITS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
PRIME = 2**255 - 19
# Ed25519's: the curve's coefficient, and the order of its base point.
CURVE, LARGE_ORDER = -121665 * pow(121666, -1, PRIME) % PRIME, 2**252 + 27742317777372353535851937790883648493


def respelt(key: str) -> str:
    """The same 32 bytes: the last base64 digit has two bits that no byte uses."""
    assert key.endswith("=")
    return f"{key[:-2]}{DIGITS[DIGITS.index(key[-2]) ^ 1]}="


def test_another_last_digit_is_the_same_key_and_refused() -> None:
    other = respelt(ADA.public_key)
    assert other != ADA.public_key
    assert base64.b64decode(other.removeprefix(KEY_PREFIX)) == public_key_bytes(ADA.public_key)
    with pytest.raises(InputError, match="spelt in another way"):
        Roster((RosterEntry("ada", ("127.0.0.1", 1), ADA.public_key), RosterEntry("ben", ("127.0.0.1", 2), other)))


@given(st.binary(min_size=32, max_size=32))
def test_a_key_has_one_spelling(raw: bytes) -> None:
    text = format_public_key(raw)
    with contextlib.suppress(InputError):
        # Refused are points of small order, the first ones that are drawn.
        assert public_key_bytes(text) == raw
    for wrong in (respelt(text), text.rstrip("="), f"{text}=", f"{text}\n", f" {text}", text.upper(), text.replace(":", ": ")):
        refused("", public_key_bytes, wrong)


def summed(first: tuple[int, int], other: tuple[int, int]) -> tuple[int, int]:
    """The sum of two points of Ed25519's curve."""
    (x, y), (u, v) = first, other
    both = CURVE * x * y * u * v % PRIME
    return (x * v + y * u) * pow(1 + both, -1, PRIME) % PRIME, (y * v + x * u) * pow(1 - both, -1, PRIME) % PRIME


def multiple(point: tuple[int, int], times: int) -> tuple[int, int]:
    total = (0, 1)
    for bit in f"{times:b}":
        total = summed(total, total)
        total = summed(total, point) if bit == "1" else total
    return total


def points_of_small_order() -> set[tuple[int, int]]:
    """All points whose order divides 8: multiples of one that is left of any point without its part of large order."""
    for y in range(2, 40):
        square = (y * y - 1) * pow(CURVE * y * y + 1, -1, PRIME) % PRIME
        roots = (pow(square, (PRIME + 3) // 8, PRIME) * factor % PRIME for factor in (1, pow(2, (PRIME - 1) // 4, PRIME)))
        for x in roots:
            if x * x % PRIME == square:
                left = multiple((x, y), LARGE_ORDER)
                points = {multiple(left, times) for times in range(8)}
                if len(points) == 8:
                    return points
    raise AssertionError


def forged(key: bytes, content: bytes) -> bytes | None:
    """A signature over the content that a ``key`` of small order takes, by who does not have it: one try in 8 or more."""
    own = Ed25519PrivateKey.generate()
    scalar = bytearray(hashlib.sha512(own.private_bytes_raw()).digest()[:32])
    scalar[0] &= 248
    scalar[31] = scalar[31] & 127 | 64
    signature = own.public_key().public_bytes_raw() + (int.from_bytes(scalar, "little") % LARGE_ORDER).to_bytes(32, "little")
    try:
        Ed25519PublicKey.from_public_bytes(key).verify(signature, content)
    except InvalidSignature:
        return None
    return signature


def test_keys_for_which_anybody_signs_are_refused() -> None:
    keys = {(y + sign * 2**255).to_bytes(32, "little") for _, y in points_of_small_order() for sign in (0, 1)}
    assert len(keys) == 10
    # One try in 8 succeeds at least: none of 200 does with a chance of 3e-12. Of the ten spellings two may be no points here.
    signed_for = [key for key in sorted(keys) if any(forged(key, b"anything") for _ in range(200))]
    assert len(signed_for) >= 8
    for key in keys | {y.to_bytes(32, "little") for y in (PRIME, PRIME + 1)}:
        refused("anybody could sign", public_key_bytes, format_public_key(key))


@pytest.mark.parametrize(
    "name",
    [
        "north",
        "Hôpital d’Évreux",
        "Klinikum Süd 3",
        "Αθήνα",
        "Київ-2",
        "東京ひのでクリニック",
        "서울 병원",
        "party 007",
        "a",
        "x" * 40,
        "3",
    ],
)
def test_names_that_are_in_use(name: str) -> None:
    assert require_name(name) == name


@refused_rows("names_that_mislead")
def test_names_that_mislead(name: str, message: str) -> None:
    with pytest.raises(InputError, match=message) as refusal:
        Roster((RosterEntry("ben", ("127.0.0.1", 1), BEN.public_key), RosterEntry(name, ("127.0.0.1", 2), ADA.public_key)))
    # What a screen shows of the message is what it says.
    assert str(refusal.value).isprintable()


@pytest.mark.parametrize(
    ("one", "other"),
    [("North", "north"), ("STRASSE", "straße"), ("a-b", "a‐b"), ("d'or", "d’or"), ("ｎorth", "north"), ("ﬁn", "fin")],
)
def test_names_that_look_alike(one: str, other: str) -> None:
    with pytest.raises(InputError, match="look alike"):
        Roster((RosterEntry(one, ("127.0.0.1", 1), BEN.public_key), RosterEntry(other, ("127.0.0.1", 2), ADA.public_key)))


@given(st.text(max_size=45))
def test_no_accepted_name_hides_anything(name: str) -> None:
    with contextlib.suppress(InputError):
        require_name(name)
        assert name.isprintable()
        assert 0 < len(name) <= 40
        return
    assert show_hidden(name).isprintable()
