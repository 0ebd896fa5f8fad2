"""The folder in which a client keeps what must outlive its process: agreement, key, options, and the round in progress.

Flower starts a client's app anew for each message. Nothing of this folder goes through Flower.
"""

from __future__ import annotations

import contextlib
import os
from functools import cached_property
from pathlib import Path

from quietmean.core.errors import InputError
from quietmean.core.portability import locked, open_private, replace_durably
from quietmean.flower.agreement import FlowerAgreement, FlowerContract
from quietmean.node.net import Identity

AGREEMENT, IDENTITY, SITE = "agreement.json", "identity.pem", "site.toml"
ACCOUNT, SESSION, _LOCK = "account.json", "session.state", "lock"


def make_home(folder: str | Path) -> str:
    """A new folder with a new key; its public key, to be put into the agreement. Raises :class:`InputError` if there is a key."""
    path = Path(folder)
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    identity = Identity.generate()
    identity.save(path / IDENTITY)
    return identity.public_key


class Home:
    """A client's folder with key and agreement. Raises :class:`InputError` if one is missing or does not fit the other."""

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        self.agreement = FlowerAgreement.load(self.folder / AGREEMENT)
        self.identity = Identity.load(self.folder / IDENTITY)
        self.party = self.agreement.party_of(self.identity.public_key)

    @cached_property
    def contract(self) -> FlowerContract:
        """What this client says yes to."""
        return FlowerContract.of(self.agreement, self.party)

    @property
    def site(self) -> Path:
        """What its site chooses for itself."""
        return self.folder / SITE

    @property
    def receipt(self) -> Path:
        """Where its receipt goes, unless its site says another place."""
        return self.folder / "receipt.json"

    @property
    def account(self) -> Path:
        return self.folder / ACCOUNT

    def locked(self) -> contextlib.AbstractContextManager[int]:
        """One message at a time: two at once could be answered from one state in two ways."""
        return locked(open_private(self.folder / _LOCK, os.O_RDWR | os.O_CREAT))

    def read(self) -> bytes | None:
        """The session as it was written last, or None before the first time."""
        try:
            return (self.folder / SESSION).read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise InputError(f"file {self.folder / SESSION} cannot be read ({error.strerror}): see to its rights") from None

    def write(self, content: bytes) -> None:
        """Replace the session durably: after a crash the file holds the old content or the new."""
        replace_durably(self.folder / SESSION, content)
