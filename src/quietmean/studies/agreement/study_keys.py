"""The secret halves of a party's keys for one study. They are random, in the party's store only, and in no second study."""

from __future__ import annotations

import base64
import contextlib
import os
import stat
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import msgspec
from cryptography.hazmat.primitives.asymmetric.mlkem import MLKEM768PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from quietmean.core.codec import decode_json
from quietmean.core.domain import Links
from quietmean.core.errors import InputError, named, reason_of
from quietmean.core.file_kinds import FileKind, kind_of_content, refuse_other
from quietmean.core.folders import configuration_folder, require_folder
from quietmean.core.outage import ONCE_MORE, refuse_outage
from quietmean.core.output import json_object, require_version
from quietmean.core.portability import mode_of, replace_durably
from quietmean.node.mailbox import Mailbox, mailbox_bytes
from quietmean.node.net import KEY_PREFIX, Identity, Purpose, public_key_bytes
from quietmean.randomness import Seed
from quietmean.studies.agreement.any_study import has_committee
from quietmean.studies.agreement.invitation import X25519_BYTES, Entry, Invitation
from quietmean.studies.agreement.signed import Signed, SignedParts, decode_base64, from_parts, read_bounded, read_signed
from quietmean.studies.agreement.voucher import Voucher

_FORMAT = "quietmean study keys 1"
_SEED_BYTES = 64


class _Given(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What this party contributed by file, and the keyed digest of the data that it is of, hexadecimal."""

    data: str
    contribution: SignedParts


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The content of the file of a party's keys for a study.

    ``sealed``: the digest of the one seal with which these keys may be used, once they have been; ``compared``: see below.
    """

    format: str
    entry: SignedParts
    exchange: str
    mailbox: str
    sealed: str | None
    compared: tuple[str, ...]
    seed: str = ""
    given: _Given | None = None
    encapsulation: str = ""
    voucher: str = ""


@dataclass(frozen=True)
class GivenContribution:
    """A party's one contribution by file, and the keyed digest of the data that it is of, hexadecimal."""

    data: str
    contribution: Signed


def require_role(invitation: Invitation, address: str, member: bool) -> None:
    """Raise :class:`InputError` for a member where there is no committee, and for the address of a contributor."""
    committee = has_committee(invitation.terms)
    if member and not committee:
        raise InputError(f"this study has no committee, all its parties are alike. Leave {named('member')} out.")
    if committee and not member and address:
        raise InputError(
            f"nobody connects to a contributor. Leave {named('address')} out, or give {named('member')} too if you hold shares."
        )


@dataclass(frozen=True)
class StudyKeys:
    """The keys of one party for one study, in ``path``: ``exchange`` and the two halves of ``mailbox``; and the entry with them.

    With hybrid links there is a third, ``encapsulation``, until this party has the result.

    ``sealed``: the digest of the seal that they are bound to, hexadecimal; None before the party has joined. ``compared``: names
    of parties with whom its words were compared before that. ``seed``: of the noise of a contribution by file; ``given``: that
    contribution, after which there is neither the seed nor ``exchange``. There is no ``mailbox`` after the result of a study by
    folder.

    ``voucher``: of a contributor whom no list names. No key is derived from the identity key. The repr shows no secret.
    """

    path: Path
    entry: Entry
    exchange: X25519PrivateKey | None = field(repr=False)
    mailbox: Mailbox | None = field(repr=False)
    sealed: str | None = None
    compared: tuple[str, ...] = ()
    seed: Seed | None = field(default=None, repr=False)
    given: GivenContribution | None = None
    encapsulation: MLKEM768PrivateKey | None = field(default=None, repr=False)
    voucher: Voucher | None = None

    @classmethod
    def make(
        cls,
        path: Path,
        invitation: Invitation,
        identity: Identity,
        name: str,
        address: str,
        before: Identity | None = None,
        member: bool = False,
        voucher: Voucher | None = None,
    ) -> StudyKeys:
        """Make fresh keys in a file with mode 0600, which is durable when this returns, and an entry with them.

        Where the file is there already, with an entry that says the same, that is the answer. Another one is replaced, unless
        its keys are bound to a seal. ``member``: of the committee, of a study that has one; a contributor to one gets no keys
        but a place for what it contributes. ``voucher``: what admits it instead of its entry, which then stays here.

        Raises :class:`InputError` then, for an impossible name or address, or if the file cannot be written.
        """
        require_role(invitation, address, member)
        committee = has_committee(invitation.terms)
        if path.exists():
            kept = cls.load(path)
            if kept.entry.says(identity, name, address, before, member):
                return kept.with_voucher(voucher)
            if kept.sealed is not None:
                raise InputError(
                    f"this party has joined the study sealed as {kept.sealed[:32]}. Ask for a new invitation, which "
                    "a new seal needs."
                )
        exchange, mailbox, encapsulation = None, None, None
        if member or not committee:
            exchange = X25519PrivateKey.generate()
            mailbox = MLKEM768PrivateKey.generate(), X25519PrivateKey.generate()
            encapsulation = MLKEM768PrivateKey.generate() if invitation.terms.keyed_by == Links.HYBRID else None
        entry = Entry.make(invitation, identity, name, address, _public(exchange, mailbox, encapsulation), before, member)
        keys = cls(path, entry, exchange, mailbox, encapsulation=encapsulation, voucher=voucher)
        keys._write()
        return keys

    @classmethod
    def load(cls, path: Path) -> StudyKeys:
        """Read the keys from their file.

        Raises :class:`InputError` if the file is missing, open to others, or holds something else.
        """
        try:
            mode = mode_of(path)
        except OSError:
            # They are called after the key file, which may have another name since.
            others = sorted(path.parent.glob(f"*-{path.name.rpartition('-')[2]}"))
            way = (
                f"Give the key file the name that it had when {others[0].name} was made, or give" if len(others) == 1 else "Give"
            )
            raise InputError(
                f"the keys of this party for this study are not in {path}. {way} {named('store')} with the "
                "folder of quietmean accept. If they are lost, ask for a new invitation."
            ) from None
        if mode & (stat.S_IRWXG | stat.S_IRWXO):
            raise InputError(f"key file {path} is open to others (mode {mode:04o}). Run chmod 600 {path}.")
        wrong = InputError(f"file {path} holds no keys of a study. Give the file that quietmean accept made.")
        content = read_bounded(path)
        require_version(json_object(content).get("format"), _FORMAT, f"file {path}")
        refuse_other(kind_of_content(content), f"file {path}", FileKind.STUDY_KEYS)
        raw = decode_json(content, _File, lambda reason: wrong)
        if raw.format != _FORMAT:
            raise wrong
        entry = Entry.verified(from_parts(Purpose.ENTRY, raw.entry, f"the entry in {path}"))

        def secret(text: str, size: int, what: str) -> bytes | None:
            return decode_base64(text, size, f"the {what} in {path}") if text else None

        exchange, given, mailbox, seed, encapsulation = None, None, None, None, None
        if raw.given is not None:
            contribution = from_parts(Purpose.CONTRIBUTION, raw.given.contribution, f"the contribution in {path}")
            given = GivenContribution(raw.given.data, contribution)
        elif entry.has_keys:
            own = decode_base64(raw.exchange, X25519_BYTES, f"the exchange key in {path}")
            exchange = X25519PrivateKey.from_private_bytes(own)
        if found := secret(raw.seed, 32, "seed"):
            seed = Seed(found)
        if found := secret(raw.mailbox, _SEED_BYTES + X25519_BYTES, "mailbox key"):
            kem, x25519 = found[:_SEED_BYTES], found[_SEED_BYTES:]
            mailbox = MLKEM768PrivateKey.from_seed_bytes(kem), X25519PrivateKey.from_private_bytes(x25519)
        if found := secret(raw.encapsulation, _SEED_BYTES, "encapsulation key"):
            encapsulation = MLKEM768PrivateKey.from_seed_bytes(found)
        voucher = Voucher.load(raw.voucher) if raw.voucher else None
        keys = cls(path, entry, exchange, mailbox, raw.sealed, raw.compared, seed, given, encapsulation, voucher)
        derived = {name: base64.b64encode(key).decode() for name, key in _public(exchange, mailbox, encapsulation).items()}
        if {**keys._in_entry, **derived} != keys._in_entry:
            raise InputError(f"the keys in {path} are not those of its entry: it was changed. Ask for a new invitation.")
        return keys

    def bind(self, sealed: str, compared: Sequence[str] = ()) -> StudyKeys:
        """The keys, bound to one seal for good, with whom its words were compared before; durable when this returns.

        Raises :class:`InputError` if they are bound to another seal.
        """
        self.require_free_for(sealed)
        return self._with(sealed=sealed, compared=tuple(sorted({*self.compared, *compared})))

    def with_voucher(self, voucher: Voucher | None) -> StudyKeys:
        """The keys with what admits this party, as the registrar made it last; durable when this returns."""
        return self._with(voucher=voucher)

    def with_seed(self) -> StudyKeys:
        """The keys with a seed for the noise of a contribution; durable when this returns."""
        return self if self.seed is not None else self._with(seed=Seed.from_os())

    def spent(self, given: GivenContribution) -> StudyKeys:
        """The keys with this party's contribution in place of seed and exchange key, in one step; durable when this returns."""
        return self._with(exchange=None, seed=None, given=given)

    def without_opening(self) -> StudyKeys:
        """The keys without those that open what others wrote or encapsulated; durable when this returns."""
        keys = replace(self, mailbox=None, encapsulation=None)
        keys._write()
        return keys

    def _with(self, **changes: Any) -> StudyKeys:
        """The keys with what has changed; durable when this returns."""
        keys = replace(self, **changes)
        if keys != self:
            keys._write()
        return keys

    def require_free_for(self, sealed: str) -> None:
        """Raises :class:`InputError` if the keys are bound to another seal than this one."""
        if self.sealed not in (None, sealed):
            raise InputError(
                f"the keys of this party belong to the study sealed as {(self.sealed or '')[:32]}, and the study here "
                f"as {sealed[:32]}. Ask its coordinator to invite again: what is sealed again is another study."
            )

    @cached_property
    def _in_entry(self) -> dict[str, str]:
        entry = self.entry
        return {"exchange": entry.exchange, "mailbox": entry.mailbox, "encapsulation": entry.encapsulation}

    def _write(self) -> None:
        mailbox = b"".join(key.private_bytes_raw() for key in self.mailbox or ())
        given = None if self.given is None else _Given(self.given.data, self.given.contribution.parts())
        file = _File(
            _FORMAT,
            self.entry.signed.parts(),
            exchange=_text(self.exchange),
            mailbox=base64.b64encode(mailbox).decode(),
            sealed=self.sealed,
            compared=self.compared,
            seed="" if self.seed is None else base64.b64encode(self.seed.secret).decode(),
            given=given,
            encapsulation=_text(self.encapsulation),
            voucher="" if self.voucher is None else self.voucher.signed.to_line(),
        )
        with _overwritten(self.path):
            write_private(self.path, msgspec.json.encode(file) + b"\n")


def _text(key: X25519PrivateKey | MLKEM768PrivateKey | None) -> str:
    return "" if key is None else base64.b64encode(key.private_bytes_raw()).decode()


@contextlib.contextmanager
def _overwritten(path: Path) -> Iterator[None]:
    """What the file held is overwritten once another has its name: deleted secrets do not stay where it was."""
    try:
        old = path.open("r+b")
    except OSError:
        yield
        return
    with old:
        yield
        size = os.fstat(old.fileno()).st_size
        old.write(bytes(size))
        old.flush()
        os.fsync(old.fileno())


def keys_path(identity_file: Path, invitation: str, store: Path | None = None) -> Path:
    """Where a party's keys for the study of one invitation (its digest) are: beside its identity, or in the folder ``store``."""
    folder = identity_file.parent if store is None else store
    return folder / f"{identity_file.stem}-{invitation[:16]}.studykeys"


def write_private(path: Path, content: bytes, then: str = ONCE_MORE) -> None:
    """Write a file with mode 0600, whole or not at all, and durably.

    Raises :class:`InputError` if that is not possible, and :class:`StorageError` where the disk is full or fails, which says
    what is ``then``.
    """
    try:
        replace_durably(path, content)
    except OSError as error:
        refuse_outage(error, path, then)
        raise InputError(f"file {path} cannot be written ({reason_of(error)}). Choose a writable place.") from None


def _public(
    exchange: X25519PrivateKey | None, mailbox: Mailbox | None, encapsulation: MLKEM768PrivateKey | None
) -> Mapping[str, bytes]:
    """The public halves of those that are there."""
    encoded = {} if mailbox is None else {"mailbox": mailbox_bytes(mailbox)}
    if exchange is not None:
        encoded["exchange"] = exchange.public_key().public_bytes_raw()
    if encapsulation is not None:
        encoded["encapsulation"] = encapsulation.public_key().public_bytes_raw()
    return encoded


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
        raise InputError(
            f"the revocation of {key} is not signed by that key, so it was changed, or is not its owner's. Ask its owner for it."
        )
    return key


class Distrusted:
    """The keys that this site refuses, one a line in a file of its own. Nothing takes one off but an editor."""

    def __init__(self, path: Path | None = None) -> None:
        self.path = path or configuration_folder() / "distrusted"

    def keys(self) -> tuple[str, ...]:
        """The keys that are not trusted.

        Raises :class:`InputError` for a list that cannot be read: trusting everybody instead would be wrong.
        """
        try:
            lines = self.path.read_text(encoding="utf-8").splitlines()
        except FileNotFoundError:
            return ()
        except (OSError, UnicodeDecodeError) as error:
            raise InputError(
                f"the distrusted keys in {self.path} cannot be read ({reason_of(error)}). Correct the file."
            ) from None
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
                raise InputError(
                    f"{holder} has the key {key}, which this site distrusts ({self.path}). Ask its owner for a new key, "
                    "nothing is done with this one."
                )
