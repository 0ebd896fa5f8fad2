"""Studies by file: every party writes one file, once, and anyone who has the files adds them up.

The account holds as if everybody saw the files of all parties: one that is missing, late, or added up again costs nothing more.
A party contributes once a session. Its noise follows from a seed in the file of its keys, the session and its data, so that the
same data give the same bytes again, also after a crash; other data would be a second message under the same pair noise, and are
refused by the ledger, by this site's register and by the keys, in which seed and exchange key are gone.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from quietmean.core.codec import digest
from quietmean.core.errors import InputError, ProtocolFailure, in_sentences
from quietmean.core.output import json_object, require_version
from quietmean.core.party import PartyId, Release
from quietmean.core.readable import percent_text
from quietmean.graphs import ExecutionTrace
from quietmean.node.committee import IdentitySigner, MailboxSealer
from quietmean.node.net import Identity
from quietmean.planning import Admitted, Plan
from quietmean.planning.influence import ReleasedSum
from quietmean.planning.release_bounds import PossibleReleases
from quietmean.protocols.committee.contribution import header_digest, make_contribution
from quietmean.protocols.committee.design import encode
from quietmean.protocols.committee.keys import raw_key
from quietmean.randomness import ExchangeKey, SecureNoise, Seed
from quietmean.statistics import Encoded
from quietmean.studies.agreement.contribution import AnotherStudyError, Contribution, session_of
from quietmean.studies.agreement.sealed import Sealed
from quietmean.studies.agreement.signed import Signed, decode_base64
from quietmean.studies.agreement.study_keys import GivenContribution, StudyKeys, write_private
from quietmean.studies.outcome.feasible import require_by_file
from quietmean.studies.outcome.outcome import StudyOutcome, conclude_possible
from quietmean.studies.party.executions import ONCE, Register, data_digest, registers

_IMPOSSIBLE = (
    "what {} released (digest {}) cannot be: no values within their bounds give it, with its weight and noise of the plan's size"
)
# No schedule of such a protocol is drawn: any seed gives the same one.
_NO_SEED = Seed.public("by file")
# Called with the digest of what is in the file before it is kept anywhere else; it charges a ledger, or raises.
Charge = Callable[[bytes], None]


def charge_id(sealed: Sealed, keys: StudyKeys) -> str:
    """What is charged once: this party in this session, whatever became of its store."""
    return digest({"format": "quietmean-by-file-1", "session": sealed.digest, "nonce": keys.entry.nonce})


@dataclass(frozen=True, eq=False)
class SharingContributor:
    """One party of a sealed study, about to contribute. ``register``: the folder of what this site contributed."""

    sealed: Sealed
    plan: Plan
    identity: Identity
    keys: StudyKeys
    register: Path = field(default_factory=registers)

    @property
    def study(self) -> str:
        """What is charged, once."""
        return charge_id(self.sealed, self.keys)

    def contribute(self, encoded: Encoded, charge: Charge = lambda content: None) -> Signed:
        """This party's contribution, durable in ledger, register and keys, in this order, when it is returned.

        After a crash the same data give the same bytes. Raises :class:`InputError` for other data, for keys that are of another
        session, and for a study that cannot be done by file.
        """
        require_by_file(self.plan)
        StudyKeys.load(self.keys.path).require_free_for(self.sealed.digest)
        entry = self.sealed.require_own(self.keys)
        value = self.plan.admit(encoded.vector, encoded.weight)
        data = data_digest(self.identity, "by file", self.sealed.digest, value)
        with Register(self.register).alone():
            keys = StudyKeys.load(self.keys.path)
            if keys.given is not None:
                if keys.given.data != data:
                    raise InputError(f"this party contributed other data to this study. See {keys.path}. {ONCE}")
                return keys.given.contribution
            keys = keys.bind(self.sealed.digest).with_seed()
            release = self._release(keys, value, data)
            contribution = Contribution.sign(self.sealed, self.plan, self.identity, release)
            content = bytes.fromhex(contribution.digest)
            charge(content)
            self._register(charge_id(self.sealed, keys), content, entry.name)
            self._spend(keys, GivenContribution(data, contribution))
            return contribution

    def _release(self, keys: StudyKeys, value: Admitted, data: str) -> Release:
        if keys.seed is None or keys.exchange is None:
            raise InputError(f"the keys in {keys.path} are used up. {ONCE}")
        session, name = self.sealed.digest, self.plan.protocol.name
        own = ExchangeKey(private=keys.exchange)
        public = [decode_base64(entry.exchange, 32, f"the exchange key of {entry.name}") for entry in self.sealed.entries]
        noise = SecureNoise(
            keys.seed.derive("by file", session, self.plan.digest, data),
            lambda other: own.shared_seed(public[other], f"by file {session} {name}"),
        )
        party = [entry.identity for entry in self.sealed.entries].index(self.identity.public_key)
        machine = self.plan.machine(self.plan.schedule(_NO_SEED), party, value, noise)
        release = machine.end_round(machine.start().state, [], frozenset()).release
        if release is None:
            raise RuntimeError("a protocol by file released nothing")
        return release

    def _register(self, study: str, content: bytes, name: str) -> None:
        Register(self.register).put(study, content, name)

    def _spend(self, keys: StudyKeys, given: GivenContribution) -> None:
        keys.spent(given)


@dataclass(frozen=True, eq=False)
class Combined:
    """The result of a study by file. ``digests``: of the contributions in it, by party; ``left_out``: (file, why), ``twice``:
    files that hold the same as another one."""

    outcome: StudyOutcome
    digests: dict[str, str]
    missing: tuple[str, ...]
    left_out: tuple[tuple[str, str], ...]
    twice: tuple[str, ...]

    @property
    def headline(self) -> str:
        """How many are in it, and by name who is not."""
        parties = len(self.digests) + len(self.missing)
        without = f"; NOT in it: {', '.join(self.missing)}" if self.missing else ""
        return f"{len(self.digests)} of {parties} parties are in this result{without}"

    @property
    def notes(self) -> list[str]:
        """The notes for people, beside the figures."""
        seen = "the privacy figures count the missing contributions as seen: they may still come"
        return [seen] if self.missing else []

    def to_json(self) -> dict[str, Any]:
        return {
            "headline": self.headline,
            "contributions": self.digests,
            "not_counted": list(self.missing),
            "left_out": [{"file": file, "reason": reason} for file, reason in self.left_out],
            "twice": list(self.twice),
        }


def combine(sealed: Sealed, plan: Plan, paths: Sequence[Path]) -> Combined:
    """Add up the contributions in files, and certify. The names of files say nothing; those that cannot be read are left out.

    Raises :class:`InputError`, with the file, for a contribution to another session or plan, and for two different ones of one
    party; :class:`ProtocolFailure` for fewer parties than the study is planned for.
    """
    require_by_file(plan)
    contributions: dict[PartyId, tuple[Path, Contribution]] = {}
    left_out, twice = [], []
    for path in paths:
        if not path.is_file():
            raise InputError(f"{path} {'is not a file' if path.exists() else 'does not exist'}. Name the contributions.")
        try:
            contribution = Contribution.load(path, sealed, plan)
        except AnotherStudyError as error:
            raise InputError(in_sentences(f"{path}: {error}", "Add up contributions of one study only")) from None
        except InputError as error:
            left_out.append((str(path), str(error)))
            continue
        first = contributions.setdefault(contribution.party, (path, contribution))
        if first[1].digest != contribution.digest:
            raise InputError(
                f"{first[0]} and {path} are two different contributions of {sealed.entries[contribution.party].name}: nobody can "
                "tell which one counts. Ask the party, and leave both out until then."
            )
        if first[0] != path:
            twice.append(str(path))
    names = [entry.name for entry in sealed.entries]
    _leave_out_weights(sealed, plan, contributions, left_out)
    if (possible := PossibleReleases.of(plan, plan.schedule(_NO_SEED))) is not None:
        for party, (path, contribution) in sorted(contributions.items()):
            if possible.cannot_be(party, contribution.release):
                left_out.append((str(path), _IMPOSSIBLE.format(names[party], contribution.digest)))
                del contributions[party]
    missing = frozenset(range(len(names))) - contributions.keys()
    least = plan.target.responding
    if len(contributions) < least:
        absent = ", ".join(names[party] for party in sorted(missing))
        reasons = "".join(f"; {file}: {reason}" for file, reason in left_out)
        raise ProtocolFailure(
            in_sentences(
                f"{len(contributions)} of {len(names)} parties contributed, and the study is planned for {least}",
                f"Wait for {absent}{reasons}",
            )
        )
    ordered = [(party, contributions[party][1]) for party in sorted(contributions)]
    _require_shares(sealed, plan, {party: contribution.release for party, contribution in ordered})
    outcome = _outcome(sealed, plan, {party: contribution.release for party, contribution in ordered}, missing)
    return Combined(
        outcome,
        {names[party]: contribution.digest for party, contribution in ordered},
        tuple(names[party] for party in sorted(missing)),
        tuple(left_out),
        tuple(twice),
    )


def _leave_out_weights(
    sealed: Sealed, plan: Plan, contributions: dict[PartyId, tuple[Path, Contribution]], left_out: list[tuple[str, str]]
) -> None:
    """Contributions of weights that nobody may state in this study."""
    stated, workload = sealed.study.weights, sealed.study.workload
    own = float(workload.most_records) if workload.hides_count else 1.0
    total = sum(contribution.release.weight for _, contribution in contributions.values())
    for party, (path, contribution) in sorted(contributions.items()):
        if why := stated.why_not(plan.target, contribution.release.weight, total, own):
            left_out.append((str(path), f"{sealed.entries[party].name} {why}"))
            del contributions[party]


def _require_shares(sealed: Sealed, plan: Plan, releases: Mapping[PartyId, Release]) -> None:
    """Raises :class:`ProtocolFailure` where one party has a larger part of what is left than the study lets it have."""
    total, largest = sum(release.weight for release in releases.values()), sealed.study.weights.largest_share
    for party, release in releases.items():
        if plan.target.unit.within_party and release.weight > largest * total:
            name, part = sealed.entries[party].name, percent_text(release.weight / total)
            raise ProtocolFailure(
                f"of all records in the contributions that are left {name} has {part}, more than "
                f"{percent_text(largest)} (largest_share). Wait for the others, without whom nothing is computed."
            )


def _outcome(sealed: Sealed, plan: Plan, releases: dict[PartyId, Release], missing: frozenset[PartyId]) -> StudyOutcome:
    total = plan.protocol.numbers().total([release.vector for release in releases.values()])
    # The weights of parties whose file is not here are unknown; nothing of theirs is in the result.
    weights = np.ones(plan.target.parties)
    for party, release in releases.items():
        weights[party] = release.weight
    everyone = ExecutionTrace.everyone(plan.protocol.rounds, plan.target.parties)
    execution = plan.execution(_NO_SEED, everyone, weights).without(missing)
    weight = sum(release.weight for release in releases.values())
    return conclude_possible(plan, sealed.study.workload, execution, ReleasedSum(total, weight))


_FORMAT = "quietmean handed in 1"


@dataclass(frozen=True)
class Submission:
    """What was contributed: the ``content`` of the file, which is public, and the keyed digest of the ``data`` that it is of."""

    content: bytes = field(repr=False)
    data: str

    @property
    def digest(self) -> str:
        """The digest of its header, hexadecimal: what members list and results name."""
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
                raise InputError(f"this party contributed other data to this study. See {self.stored_at}. {ONCE}")
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
                f"this party contributed to this study, and what it contributed is not in {self.stored_at}. Its keys "
                f"were restored or copied. {ONCE}"
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
            raise InputError(f"file {self.stored_at} cannot be read ({error.strerror}). Check your access rights.") from None
        head_fields: dict[str, Any] = dict(json_object(head))
        require_version(head_fields.get("format"), _FORMAT, f"file {self.stored_at}")
        stored = Submission(content, str(head_fields.get("data")))
        whole = (head_fields.get("format"), head_fields.get("session"), head_fields.get("checksum")) == (
            _FORMAT,
            self.sealed.digest,
            stored.checksum,
        )
        if not whole:
            raise InputError(f"file {self.stored_at} is not what this party contributed to this study, it was changed. {ONCE}")
        return stored
