"""Keys and the roster of parties, as each of them has them in a folder."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from quietmean.node import Identity, Roster, RosterEntry
from quietmean.node.net import Address, public_key_bytes


def write_roster(folder: Path, places: Mapping[str, Address]) -> Roster:
    """A fresh key NAME.key for each name in ``folder``, and its roster.toml. ``places``: where each is reached.

    The order of names is that of their keys, by which a seal numbers the parties.
    """
    entries = []
    identities = sorted((Identity.generate() for _ in places), key=lambda identity: public_key_bytes(identity.public_key))
    for identity, (name, address) in zip(identities, places.items(), strict=True):
        identity.save(folder / f"{name}.key")
        entries.append(RosterEntry(name, address, identity.public_key))
    roster = Roster(tuple(entries))
    (folder / "roster.toml").write_text(roster.to_toml())
    return roster


def on_this_machine(names: Iterable[str], ports: Iterable[int]) -> dict[str, Address]:
    """Each name at its port."""
    return {name: ("127.0.0.1", port) for name, port in zip(names, ports, strict=True)}
