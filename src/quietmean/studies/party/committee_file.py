"""A contribution to a committee: one file, made once, and given again as it is.

Its masks are fresh, so it cannot be made again: the file is durable before the ledger knows it, and leaves only once ledger and
register do. Other data are refused by the file, by the ledger and by the register.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from quietmean.core.codec import digest
from quietmean.core.errors import InputError
from quietmean.core.output import json_object, require_version
from quietmean.node.committee import IdentitySigner, MailboxSealer
from quietmean.node.net import Identity
from quietmean.planning import Admitted, Plan
from quietmean.protocols.committee.contribution import header_digest, make_contribution
from quietmean.protocols.committee.encoding import encode
from quietmean.protocols.committee.keys import raw_key
from quietmean.randomness import Seed
from quietmean.statistics import Encoded
from quietmean.studies.agreement.committee_session import session_of
from quietmean.studies.agreement.sealed import Sealed
from quietmean.studies.agreement.study_keys import StudyKeys, write_private
from quietmean.studies.party.by_file import Charge
from quietmean.studies.party.executions import ONCE, Register, data_digest

_FORMAT = "quietmean handed in 1"


@dataclass(frozen=True)
class Submission:
    """What was contributed: the ``content`` of the file, which is public, and the keyed digest of the ``data`` that it is of."""

    content: bytes = field(repr=False)
    data: str

    @property
    def digest(self) -> str:
        """That of its header, hexadecimal: what members list and results name."""
        return (header_digest(self.content) or b"").hex()

    @property
    def checksum(self) -> str:
        """SHA-256 of all of it, hexadecimal."""
        return hashlib.sha256(self.content).hexdigest()

    def to_file(self) -> bytes:
        return self.content


@dataclass(frozen=True)
class CommitteeContributor:
    """A contributor of a sealed study with a committee, with its keys for it."""

    sealed: Sealed
    plan: Plan
    identity: Identity
    keys: StudyKeys
    register: Register = field(default_factory=Register)

    @property
    def stored_at(self) -> Path:
        """Where the file is kept, beside the keys for this study."""
        return self.keys.path.with_suffix(".contributed")

    @property
    def study(self) -> str:
        """What is charged, once: this party's part in the session, whatever its store."""
        return digest({"format": "quietmean-committee-1", "session": self.sealed.digest, "identity": self.identity.public_key})

    @property
    def has_contributed(self) -> bool:
        """Whether the file is there, which the same data give again, also when it is late."""
        return self.stored_at.exists()

    def contribute(self, encoded: Encoded, charge: Charge = lambda content: None) -> Submission:
        """This party's contribution, durable in its file, the ledger and the register, in this order, when it is returned.

        The same data give the same bytes. Raises :class:`InputError` for other data, and for a store that is not the one with
        which this party contributed.
        """
        entry = self.sealed.require_own(self.keys)
        value = self.plan.admit(encoded.vector, encoded.weight)
        data = data_digest(self.identity, "to a committee", self.sealed.digest, value)
        with self.register.alone():
            StudyKeys.load(self.keys.path).bind(self.sealed.digest)
            stored = self._stored()
            if stored is None:
                self._refuse_new_store()
                stored = self._make(value, data)
            if stored.data != data:
                raise InputError(f"this party contributed other data to this study, see {self.stored_at}: {ONCE}")
            content = bytes.fromhex(stored.digest)
            try:
                charge(content)
            except InputError:
                if self.register.get(self.study) is None:
                    # It has not left: mended data may follow.
                    self.stored_at.unlink(missing_ok=True)
                raise
            self.register.put(self.study, content, entry.name)
            return stored

    def _refuse_new_store(self) -> None:
        if self.register.get(self.study) is not None:
            raise InputError(
                f"this party contributed to this study, and what it contributed is not in {self.stored_at}: its keys were "
                f"restored or copied; {ONCE}"
            )

    def _make(self, value: Admitted, data: str) -> Submission:
        session = session_of(self.sealed, self.plan)
        seed = Seed.from_os()
        layout = session.layout_of(False, value.weight, raw_key(self.identity.public_key))
        numbers = encode(session.parameters, value.vector, value.weight, seed, layout)
        voucher = None if self.sealed.lists(self.identity.public_key) else self.keys.voucher
        admission = None if voucher is None else voucher.admission
        signer, sealer = IdentitySigner(self.identity), MailboxSealer()
        content = make_contribution(session, signer, sealer, numbers, value.weight, seed, admission)
        numbers.fill(0)
        handed_in = Submission(content, data)
        head = json.dumps({"format": _FORMAT, "session": self.sealed.digest, "data": data, "checksum": handed_in.checksum})
        write_private(self.stored_at, head.encode() + b"\n" + content)
        return handed_in

    def _stored(self) -> Submission | None:
        try:
            head, _, content = self.stored_at.read_bytes().partition(b"\n")
        except FileNotFoundError:
            return None
        except OSError as error:
            raise InputError(f"file {self.stored_at} cannot be read ({error.strerror}): mend your rights") from None
        head_fields: dict[str, Any] = dict(json_object(head))
        require_version(head_fields.get("format"), _FORMAT, f"file {self.stored_at}")
        stored = Submission(content, str(head_fields.get("data")))
        whole = (head_fields.get("format"), head_fields.get("session"), head_fields.get("checksum")) == (
            _FORMAT,
            self.sealed.digest,
            stored.checksum,
        )
        if not whole:
            raise InputError(f"file {self.stored_at} is not what this party contributed to this study: it was changed; {ONCE}")
        return stored
