"""Keys and names have one spelling each, so that one key is one party and one name says who it is."""

from __future__ import annotations

import base64
import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quietmean.core.errors import InputError
from quietmean.node import Identity, Roster, RosterEntry
from quietmean.node.net.identity import KEY_PREFIX, format_public_key, public_key_bytes, require_name, show_hidden
from support.refusals import refused, refused_rows
from support.small_order import PRIME, forged, keys_of_small_order

ADA, BEN = Identity.generate(), Identity.generate()
DIGITS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"


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


def test_keys_for_which_anybody_signs_are_refused() -> None:
    keys = keys_of_small_order()
    # One try in 8 succeeds at least: none of 200 does with a chance of 3e-12. Of the ten spellings two may be no points here.
    assert sum(forged(key, b"anything") is not None for key in keys) >= 8
    for key in (*keys, *(y.to_bytes(32, "little") for y in (PRIME, PRIME + 1))):
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
