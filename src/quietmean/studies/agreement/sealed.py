"""A sealed study: invitation, entries and 32 random bytes, signed by the convener. It is what all parties have in common."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

import msgspec

from quietmean.core.codec import canonical_json
from quietmean.core.domain import Links
from quietmean.core.errors import InputError, named
from quietmean.core.file_kinds import FileKind, kind_of_file, refuse_other
from quietmean.node.net import Identity, Purpose, Roster, Seal, require_distinct
from quietmean.planning.automatic import Choice
from quietmean.randomness import fresh_bytes
from quietmean.studies.agreement.any_study import AnyStudy, has_committee
from quietmean.studies.agreement.invitation import Entry, Invitation
from quietmean.studies.agreement.signed import Signed, SignedParts, decode_base64, from_parts, is_signed_document, read_signed
from quietmean.studies.agreement.study import StudyTerms
from quietmean.studies.agreement.study_keys import StudyKeys
from quietmean.studies.agreement.voucher import vouching_of

INSTANCE_BYTES = 32
# A contributor's entry takes some 700 bytes.
_LARGEST = 64 * 2**20
_FORMAT = "quietmean sealed 1"


class _Body(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    conveners: tuple[str, ...]
    entries: tuple[SignedParts, ...]
    instance: str
    invitation: SignedParts
    program: str = ""


@dataclass(frozen=True)
class Sealed:
    """A sealed study that was verified: every signature in it, and that its entries are for its invitation.

    ``entries`` are in the order of their raw key bytes, which numbers the parties. ``conveners``: identity keys of those who
    compute, in the order in which they may propose who takes part. ``instance``: 32 random bytes in base64; the same study
    sealed again is another. ``program``: SHA-256, hexadecimal, of the public program that encodes a record; empty without one.
    """

    signed: Signed
    invitation: Invitation
    entries: tuple[Entry, ...]
    conveners: tuple[str, ...]
    instance: str
    program: str = ""

    @classmethod
    def make(cls, invitation: Invitation, entries: Sequence[Entry], convener: Identity) -> Sealed:
        """Seal a study. Raises :class:`InputError` if it is not this convener's, or where :meth:`verified` does."""
        if invitation.convener != convener.public_key:
            raise InputError(
                f"the invitation is by {invitation.convener}, your key is {convener.public_key}. Ask its coordinator to seal."
            )
        ordered = sorted(entries, key=lambda entry: entry.identity_bytes)
        identities = [entry.identity for entry in _computing(invitation, ordered)]
        first = [key for key in identities if key == convener.public_key]
        body = _Body(
            conveners=tuple(first + [key for key in identities if key not in first]),
            entries=tuple(entry.signed.parts() for entry in ordered),
            instance=base64.b64encode(fresh_bytes(INSTANCE_BYTES)).decode(),
            invitation=invitation.signed.parts(),
        )
        return cls.verified(Signed.sign(Purpose.SEAL, msgspec.to_builtins(body), convener))

    def with_program(self, program: str, convener: Identity) -> Sealed:
        """The same study, signed with the digest of the ``program`` that encodes a record."""
        body = msgspec.structs.replace(self.signed.decode(_Body), program=program)
        sealed = Sealed.verified(Signed.sign(Purpose.SEAL, msgspec.to_builtins(body), convener))
        # What was calibrated for it holds of the same parties.
        sealed._choices.update(self._choices)
        return sealed

    @classmethod
    def load(cls, source: str | Path) -> Sealed:
        """Read a sealed study from a file or a line of text. Raises :class:`InputError` that says what is wrong with it."""
        return _verified(read_signed(Purpose.SEAL, source, _LARGEST))

    @classmethod
    def verified(cls, signed: Signed) -> Sealed:
        """Verify a sealed study.

        Raises :class:`InputError` that names the invitation, the entry or the seal that is not as it was signed.
        """
        body = signed.decode(_Body)
        invitation = Invitation.verified(from_parts(Purpose.INVITATION, body.invitation, "the invitation in the sealed study"))
        if not signed.is_by(invitation.convener):
            raise InputError(
                f"the sealed study does not match the signature of its coordinator {invitation.convener}: it was "
                "changed on the way. Ask for it again."
            )
        entries = tuple(
            Entry.verified(from_parts(Purpose.ENTRY, parts, f"entry {number} of the sealed study"))
            for number, parts in enumerate(body.entries, 1)
        )
        _require_fitting(invitation, entries)
        computing = {entry.identity for entry in _computing(invitation, entries)}
        if len(set(body.conveners)) < len(body.conveners) or set(body.conveners) != computing:
            raise InputError("the order of coordinators in the sealed study does not name every party once. Seal it again.")
        decode_base64(body.instance, INSTANCE_BYTES, "the instance of the sealed study")
        return cls(signed, invitation, entries, body.conveners, body.instance, body.program)

    @cached_property
    def digest(self) -> str:
        """SHA-256, hexadecimal, of study, parties with all their keys, order of conveners and instance; not of addresses."""
        return hashlib.sha256(self.content).hexdigest()

    @property
    def content(self) -> bytes:
        """The canonical bytes of which :attr:`digest` is the digest."""
        return canonical_json({"format": _FORMAT, "invitation": self.invitation.digest, **self._own_fields()})

    @property
    def terms(self) -> AnyStudy:
        return self.invitation.terms

    @property
    def study(self) -> StudyTerms:
        """The study that was sealed. Raises :class:`InputError` where it is a session."""
        return self.invitation.study

    @cached_property
    def computing(self) -> tuple[Entry, ...]:
        """The parties that exchange messages, in order: the members of its committee, where it has one, else all."""
        return _computing(self.invitation, self.entries)

    @property
    def admitted(self) -> int:
        """How many may take part: those with an entry, and those with a voucher."""
        vouching = vouching_of(self.invitation)
        return len(self.entries) + (0 if vouching is None else vouching.number)

    def choice(self, *, no_privacy: bool = False) -> Choice:
        """The plan for all who may take part, calibrated when it is first asked for. Raises as :meth:`StudyTerms.choice` does."""
        if no_privacy not in self._choices:
            self._choices[no_privacy] = self.study.choice(self.admitted, no_privacy=no_privacy)
        return self._choices[no_privacy]

    @cached_property
    def _choices(self) -> dict[bool, Choice]:
        return {}

    @property
    def by_file(self) -> bool:
        """Whether each party hands in one file, as somebody gave no address where parties would connect."""
        connect = isinstance(self.terms, StudyTerms) and self.terms.committee is None and not self.terms.by_folder
        return connect and not all(entry.address for entry in self.entries)

    def lists(self, identity: str) -> bool:
        """Whether there is an entry with this identity key."""
        return any(entry.identity == identity for entry in self.entries)

    @cached_property
    def roster(self) -> Roster:
        """Who exchanges messages, dialled unless these are files. Raises :class:`InputError` if one gave no address for that."""
        places = {entry.identity: index for index, entry in enumerate(self.computing)}
        seal = Seal(self.digest, tuple(places[key] for key in self.conveners), self.fields())
        folder = self.terms.by_folder
        return Roster(tuple(entry.in_roster(index if folder else None) for index, entry in enumerate(self.computing)), seal)

    def fields(self) -> dict[str, Any]:
        """All that the digest covers, in plain data: to name what differs from another sealed study."""
        return {**self.invitation.fields(), **self._own_fields()}

    def require_own(self, keys: StudyKeys) -> Entry:
        """The party's own entry. Raises :class:`InputError` unless it is in the seal as the party signed it, or has a voucher."""
        own = keys.entry
        matching = [entry for entry in self.entries if entry.identity == own.identity]
        if not matching and keys.voucher is not None:
            keys.voucher.require_for(self.invitation, own.identity)
            return own
        if not matching:
            raise InputError(
                f"your entry, {own.name!r} with key {own.identity}, is not in the sealed study. Tell its coordinator."
            )
        (entry,) = matching
        if entry.signed.body != own.signed.body:
            names = ("name", "exchange", "mailbox", "encapsulation", "nonce", "address", "formerly", "invitation")
            changed = [name for name in names if getattr(entry, name) != getattr(own, name)]
            raise InputError(
                f"your entry in the sealed study is another one than you signed last ({', '.join(changed)}). "
                "Send the coordinator your entry again, it has to seal again."
            )
        return entry

    def holders(self) -> list[tuple[str, str]]:
        """Who has which identity key, or had it before: all keys that a site may distrust."""
        holders = [("the coordinator", self.invitation.convener)]
        if (vouching := vouching_of(self.invitation)) is not None:
            holders.append(("the registrar", vouching.registrar))
        for entry in self.entries:
            holders.append((f"party {entry.name!r}", entry.identity))
            if entry.formerly is not None:
                holders.append((f"party {entry.name!r}, which vouches for its new key with an old one,", entry.formerly))
        return holders

    def _own_fields(self) -> Mapping[str, Any]:
        return {
            "parties": [entry.fields() for entry in self.entries],
            "conveners": list(self.conveners),
            "instance": self.instance,
            **({"program": self.program} if self.program else {}),
        }


def sealed_with_committee(path: Path) -> Sealed | None:
    """The sealed study in a file, where it has a committee; None for anything else. Raises :class:`InputError` if it is not as
    its convener signed it, or not there."""
    if path.is_dir():
        raise InputError(f"{path} is a folder, not a sealed study. Name the file.")
    sealed = Sealed.load(path) if is_signed_document(path) or not path.exists() else None
    if sealed is None:
        refuse_other(kind_of_file(path), f"file {path}", FileKind.SEALED, FileKind.STUDY, FileKind.SESSION)
    return sealed if sealed is not None and has_committee(sealed.terms) else None


def _require_fitting(invitation: Invitation, entries: Sequence[Entry]) -> None:
    """Raises :class:`InputError` for entries of another invitation, in another order, or with something that must be unique."""
    if len(entries) < 2:
        raise InputError(f"the study has {len(entries)} entry. Add those of at least 2 parties.")
    for entry in entries:
        if entry.invitation != invitation.digest:
            raise InputError(f"the entry of {entry.name!r} is for another invitation. Ask for one for this invitation.")
    computing = _require_roles(invitation, entries)
    for field in ("identity", "name", "nonce"):
        _require_unique(field, entries)
    for field in ("exchange", "mailbox"):
        _require_unique(field, computing)
    _require_unique("encapsulation", [entry for entry in entries if entry.encapsulation])
    if invitation.terms.keyed_by == Links.HYBRID:
        for entry in computing:
            if not entry.encapsulation:
                raise InputError(
                    f"the entry of {entry.name!r} has no ML-KEM-768 key, which hybrid links need. Ask it to accept "
                    "again, with a version of quietmean that knows them."
                )
    require_distinct(entry.name for entry in entries)
    _require_unique("address", [entry for entry in entries if entry.address and not entry.at_relay])
    keys = [entry.identity_bytes for entry in entries]
    if keys != sorted(keys):
        raise InputError("the entries of the sealed study are not in the order of their keys. Seal it again.")


def _computing(invitation: Invitation, entries: Sequence[Entry]) -> tuple[Entry, ...]:
    return tuple(entry for entry in entries if entry.member) if has_committee(invitation.terms) else tuple(entries)


def _require_roles(invitation: Invitation, entries: Sequence[Entry]) -> tuple[Entry, ...]:
    """Require that parties have the roles by which messages are exchanged.

    Raises :class:`InputError` for another number of members than the study has, and for keys that do not fit an entry's role.
    """
    committee = invitation.study.committee if has_committee(invitation.terms) else None
    for entry in entries:
        if entry.member and committee is None:
            raise InputError(f"{entry.name!r} accepted as a member, and the study has no committee. Ask for another entry.")
        if not entry.has_keys and (entry.member or committee is None):
            raise InputError(f"the entry of {entry.name!r} has no keys for messages to it. Ask for another.")
        if entry.has_keys and not entry.member and committee is not None:
            raise InputError(f"the entry of the contributor {entry.name!r} has keys that nobody would use. Ask for another.")
    computing = _computing(invitation, entries)
    if committee is not None and len(computing) != committee.members:
        names = ", ".join(entry.name for entry in computing) or "nobody"
        raise InputError(
            f"the study has a committee of {committee.members}, and {len(computing)} accepted with "
            f"{named('member')} ({names}). Add the entries that are missing, or write another number of "
            "members and invite again."
        )
    return computing


def _require_unique(field: str, entries: Sequence[Entry]) -> None:
    holders: dict[str, Entry] = {}
    for entry in entries:
        before = holders.setdefault(getattr(entry, field), entry)
        if before is not entry:
            raise InputError(
                f"the entries of {before.name!r} and {entry.name!r} have the same {field}. Give every party its own."
            )


@lru_cache(maxsize=2)
def _verified(signed: Signed) -> Sealed:
    """A command reads its study several times, and each party's entry takes half a millisecond to verify."""
    return Sealed.verified(signed)
