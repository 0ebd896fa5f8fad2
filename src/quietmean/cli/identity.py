"""``quietmean keygen``: a party's identity."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from quietmean.cli.console import out, print_json


def command(
    *,
    key: Path = Path("quietmean.key"),
    name: str = "me",
    address: str = "127.0.0.1:7000",
    json: Annotated[bool, Parameter(negative="")] = False,
) -> None:
    """Make this party's identity: a private key file (mode 0600), and a public entry to hand to the others.

    Parameters
    ----------
    key
        Where to write the private key; an existing file is never overwritten.
    name
        This party's name in the roster.
    address
        HOST:PORT where the others reach this party.
    json
        One JSON document on standard output.
    """
    from quietmean.node.net import Identity

    identity = Identity.generate()
    identity.save(key)
    if json:
        print_json({"key": str(key), "public_key": identity.public_key, "name": name, "address": address})
        return
    out.print(f"# {key} holds the private key: keep it to yourself. Hand out this entry of roster.toml:", markup=False)
    out.print(f'[[party]]\nname = "{name}"\naddress = "{address}"\nkey = "{identity.public_key}"', markup=False)
