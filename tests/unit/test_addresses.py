"""Addresses of parties, relays and drops: one parser with one grammar, wherever an address is written."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from quietmean.cli import identity
from quietmean.cli.agreeing import EntryOptions
from quietmean.core.errors import InputError
from quietmean.node.net import Identity, Roster, format_address, parse_address, parse_place
from quietmean.node.relay import parse_entrance
from quietmean.studies.party.handing_in import require_drop
from support.refusals import refused_table

DIALLED = {
    "site.example:7001": ("site.example", 7001),
    "SITE.example:1": ("SITE.example", 1),
    "localhost:65535": ("localhost", 65535),
    "my_site-2:7001": ("my_site-2", 7001),
    "site.example.:7001": ("site.example.", 7001),
    "xn--bcher-kva.example:7001": ("xn--bcher-kva.example", 7001),
    "bücher.example:7001": ("bücher.example", 7001),
    "3com.example:7001": ("3com.example", 7001),
    "10.0.0.30:7001": ("10.0.0.30", 7001),
    "127.0.0.1:7001": ("127.0.0.1", 7001),
    "[2001:db8::1]:7001": ("2001:db8::1", 7001),
    "[::1]:7001": ("::1", 7001),
}
# What is written, and what its sentence says.
WRONG = {row["text"]: row["says"] for row in refused_table("addresses")}
# Fit to listen at, or to nothing at all, but nobody can dial them.
NEVER_DIALLED = (
    "0.0.0.0:7001", "[::]:7001", "224.0.0.1:7001", "255.255.255.255:7001", "169.254.169.254:80", "[fe80::1]:7001",
    "[fe80::1%eth0]:7001", "[ff02::1]:7001", "[::ffff:0.0.0.0]:7001", "[::ffff:169.254.169.254]:80",
)  # fmt: skip


def in_roster(text: str) -> object:
    """As ``check`` and ``join`` read it."""
    own, other = (Identity.generate().public_key for _ in range(2))
    path = Path("roster.toml")
    quoted = text.replace("\n", "\\n")
    path.write_text(
        f'[[party]]\nname = "a"\naddress = "{quoted}"\nkey = "{own}"\n'
        f'[[party]]\nname = "b"\naddress = "b.example:9"\nkey = "{other}"\n'
    )
    return Roster.load(path).entries[0].address


def at_keygen(text: str) -> object:
    identity.new_command(key=Path("a.key"), name="a", address=text)
    return parse_place(text)


def at_accept(text: str) -> object:
    EntryOptions(name="a", address=text).require_possible()
    return parse_place(text)


WHERE_DIALLED: dict[str, Callable[[str], object]] = {"roster": in_roster, "key new": at_keygen, "accept": at_accept}
WHERE_LISTENED: dict[str, Callable[[str], object]] = {
    "listen": parse_address,
    "entrance": parse_entrance,
}


@pytest.fixture(autouse=True)
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("place", [*WHERE_DIALLED, *WHERE_LISTENED])
@pytest.mark.parametrize("text", DIALLED)
def test_an_address_is_read_as_it_is_written(text: str, place: str) -> None:
    assert (WHERE_DIALLED | WHERE_LISTENED)[place](text) == DIALLED[text]


@pytest.mark.parametrize("text", DIALLED)
def test_an_address_is_written_as_it_is_read(text: str) -> None:
    assert format_address(parse_place(text)) == text
    assert format_address(parse_place(f"relay:{text}")) == f"relay:{text}"


@pytest.mark.parametrize("place", [*WHERE_DIALLED, *WHERE_LISTENED])
@pytest.mark.parametrize("text", WRONG)
def test_a_wrong_address_has_one_sentence_everywhere(text: str, place: str) -> None:
    if place in ("roster", "accept") and not text:
        pytest.skip("an empty field is a missing one")
    if place == "entrance" and text == ":7001":
        pytest.skip("a relay listens at all addresses of its machine so")
    with pytest.raises(InputError) as refused:
        (WHERE_DIALLED | WHERE_LISTENED)[place](text)
    assert WRONG[text] in str(refused.value)


@pytest.mark.parametrize("text", [text for text, says in WRONG.items() if says.startswith("Write ")])
def test_what_a_sentence_says_to_write_is_right(text: str) -> None:
    with pytest.raises(InputError) as refused:
        parse_place(text)
    advice = str(refused.value).rpartition("Write ")[2].rstrip(".")
    assert format_address(parse_place(advice)) == advice


@pytest.mark.parametrize("text", NEVER_DIALLED)
@pytest.mark.parametrize("relay", ["", "relay:"])
def test_what_nobody_can_dial_is_refused_where_it_would_be_dialled(text: str, relay: str) -> None:
    for read in WHERE_DIALLED.values():
        with pytest.raises(InputError, match="nobody can connect"):
            read(relay + text)


@pytest.mark.parametrize("text", ["0.0.0.0:7001", "[::]:7001", "[fe80::1%eth0]:7001"])
def test_all_addresses_of_a_machine_are_listened_at(text: str) -> None:
    for read in WHERE_LISTENED.values():
        assert read(text)


# A drop has a URL: its port may be left out, and it may have a path.
@pytest.mark.parametrize("text", [text for text in [*WRONG, *NEVER_DIALLED] if text != "nohost" and not re.search(r"\w/", text)])
def test_a_drop_has_an_address_of_the_same_grammar(text: str) -> None:
    with pytest.raises(InputError):
        require_drop(f"https://{text}")


@pytest.mark.parametrize(
    "text", ["https://drop.example", "https://drop.example/", "https://drop.example:8443", "http://127.0.0.1:80"]
)
def test_a_drop_is_found(text: str) -> None:
    assert require_drop(text) == f"{text.rstrip('/')}/contributions"
