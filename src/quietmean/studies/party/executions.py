"""What is charged once: one execution of a study, with one noise."""

from __future__ import annotations

import hashlib
import os
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Final

from quietmean.core.codec import digest
from quietmean.core.errors import InputError, reason_of
from quietmean.core.folders import configuration_folder, require_folder
from quietmean.core.outage import refuse_outage
from quietmean.core.portability import locked, open_private
from quietmean.node import NodeSettings
from quietmean.node.net import Identity, encode_vector
from quietmean.node.storage import Store
from quietmean.planning import Admitted
from quietmean.studies.agreement.study_keys import write_private


def has_begun(store: Path) -> bool:
    """Whether a party has begun with this store."""
    return store.exists() and store.stat().st_size > 0


def begun_execution(settings: NodeSettings) -> str:
    """Return what is charged of a study that has begun in the party's store, whatever its input is; empty where it has not."""
    nonce = Store.nonce_of(settings.store) if has_begun(settings.store) else None
    return "" if nonce is None else execution_of(settings.study, nonce)


def execution_id(settings: NodeSettings) -> str:
    """What is charged once: not the study as agreed but its noise, which lives in the party's store.

    A restart from the same store sends nothing new. From another store the same study draws fresh noise and costs as much again.
    """
    store = settings.open_store()
    try:
        return execution_of(settings.study, store.nonce)
    finally:
        store.close()


def seat_of(agreed: str, public_key: str) -> str:
    """The place of a party in what was agreed on: a second store of its key would have the same."""
    return digest({"format": "quietmean-seat-1", "agreed": agreed, "key": public_key})


def execution_of(study: str, nonce: bytes) -> str:
    """Return what is charged once, by the digest of what was agreed on, and what its noise can be recognised by."""
    return digest({"format": "quietmean-charge-1", "study": study, "nonce": nonce.hex()})


ONCE = "Make a new study for a correction, it is charged anew."


def data_digest(identity: Identity, way: str, session: str, value: Admitted) -> str:
    """What is contributed to a session by one ``way``. Keyed: it says nothing about the data, even to who tries all of them."""
    content = hashlib.sha256(encode_vector(value.vector)).digest()
    return identity.derive(way).derive("input", session, content, value.weight.hex()).secret.hex()


def registers() -> Path:
    """The folder of this user."""
    return configuration_folder() / "contributed"


@dataclass(frozen=True)
class Register:
    """A folder of this user: for each study, the digest of what was handed in."""

    folder: Path = field(default_factory=registers)

    def alone(self) -> AbstractContextManager[int]:
        """The context in which no other process of this user hands anything in.

        Raises :class:`InputError` for an unusable folder.
        """
        require_folder(self.folder, "choose XDG_CONFIG_HOME", 0o700)
        try:
            return locked(open_private(self.folder / "lock", os.O_RDWR | os.O_CREAT))
        except OSError as error:
            refuse_outage(error, self.folder / "lock")
            raise InputError(f"folder {self.folder} cannot be used ({reason_of(error)}). Choose XDG_CONFIG_HOME.") from None

    def get(self, study: str) -> bytes | None:
        """The digest for a study; None where nothing was handed in. Raises :class:`InputError` if it cannot be read."""
        path = self.folder / study
        try:
            return bytes.fromhex(path.read_text().strip())
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or "it was changed"
            raise InputError(
                f"what this site contributed cannot be read in {path} ({reason}). Check your access rights."
            ) from None

    def put(self, study: str, content: bytes, name: str) -> None:
        """Durable when this returns. Raises :class:`InputError` where something else was handed in."""
        registered = self.get(study)
        if registered not in (None, content):
            raise InputError(
                f"{name} contributed something else to this study from this machine. See {self.folder / study}, its "
                f"keys were restored or copied. {ONCE}"
            )
        # What stands there may not be on the disk: the folder's fsync may have failed.
        write_private(self.folder / study, f"{content.hex()}\n".encode())


# What imports itself late: for start-up, for names of hosts, for certificates, for the answers. A test holds this to what runs.
USED_AFTER_THE_CHARGE: Final = (
    "concurrent.futures.thread",
    "cryptography.hazmat.backends.openssl.backend",
    "encodings.cp437",
    "encodings.idna",
    "importlib.readers",
    "quietmean.statistics.printed",
    "quietmean.transcript.symbols",
    "scipy.sparse.csgraph",
)


def import_ahead() -> None:
    """Import them. Raises what an import raises where no memory is left; nothing was paid or sent then."""
    for module in USED_AFTER_THE_CHARGE:
        import_module(module)
