"""Keys that a site does not trust any more, and the revocation by which a key's owner says that it was lost or stolen."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import msgspec

from quietmean.core.errors import InputError, reason_of
from quietmean.core.folders import configuration_folder, require_folder
from quietmean.node.net import KEY_PREFIX, Identity, Purpose, public_key_bytes
from quietmean.studies.agreement.signed import Signed, read_signed
from quietmean.studies.agreement.study_keys import write_private


class _Body(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    key: str


def revocation(identity: Identity) -> bytes:
    """The content of a revocation file: anyone who has it can show that the key must not be trusted, and nothing else."""
    return Signed.sign(Purpose.REVOCATION, {"key": identity.public_key}, identity).to_file()


def revoked_key(source: str | Path) -> str:
    """The key of a revocation, from a file or a line. Raises :class:`InputError` unless that key signed it."""
    signed = read_signed(Purpose.REVOCATION, source)
    key = signed.decode(_Body).key
    if not signed.is_by(key):
        raise InputError(f"the revocation of {key} is not signed by that key: it was changed, or is not its owner's")
    return key


class Distrusted:
    """The keys that this site refuses, one a line in a file of its own. Nothing takes one off but an editor."""

    def __init__(self, path: Path | None = None) -> None:
        self.path = path or configuration_folder() / "distrusted"

    def keys(self) -> tuple[str, ...]:
        """Raises :class:`InputError` for a list that cannot be read: trusting everybody instead would be wrong."""
        try:
            lines = self.path.read_text(encoding="utf-8").splitlines()
        except FileNotFoundError:
            return ()
        except (OSError, UnicodeDecodeError) as error:
            raise InputError(f"the distrusted keys in {self.path} cannot be read ({reason_of(error)}): mend the file") from None
        keys = tuple(line.strip() for line in lines if line.strip() and not line.startswith("#"))
        for key in keys:
            public_key_bytes(key)
        return keys

    def add(self, source: str) -> str:
        """Distrust a key, given as its line or as a revocation; durable when this returns. Returns the key's line.

        Raises :class:`InputError` for what is not a key, and where it cannot be written.
        """
        key = source if source.startswith(KEY_PREFIX) else revoked_key(source)
        public_key_bytes(key)
        keys = self.keys()
        if key not in keys:
            require_folder(self.path.parent, "choose XDG_CONFIG_HOME")
        # One that stands there may not be on the disk: the folder's fsync may have failed.
        write_private(self.path, "".join(f"{line}\n" for line in dict.fromkeys((*keys, key))).encode())
        return key

    def refuse(self, holders: Iterable[tuple[str, str]]) -> None:
        """Raises :class:`InputError` if one of (what it is, key) is distrusted here."""
        keys = frozenset(self.keys())
        for holder, key in holders:
            if key in keys:
                raise InputError(f"{holder} has the key {key}, which this site distrusts ({self.path}): nothing is done with it")
