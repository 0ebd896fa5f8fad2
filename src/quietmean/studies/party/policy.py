"""What a site takes part in: limits that hold for every study and every yes."""

from __future__ import annotations

import ipaddress
import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Literal, Self

from pydantic import BaseModel, ConfigDict, Field, NonNegativeInt, PositiveInt, ValidationError

from quietmean.core.codec import digest
from quietmean.core.domain import CountVisibility, PrivacyUnit, in_words_of
from quietmean.core.errors import InputError, named
from quietmean.core.file_kinds import FileKind
from quietmean.core.folders import configuration_folder, data_folder
from quietmean.core.portability import mode_of
from quietmean.core.readable import count_of
from quietmean.core.toml_files import decode_tables, fault, unreadable
from quietmean.node.net import is_never_dialled, number_of, parse_public_key
from quietmean.planning.stated_weights import StatedWeights
from quietmean.protocols import get_protocol
from quietmean.protocols.mechanism import is_private
from quietmean.statistics import Column, DeclaredColumn, get_statistic
from quietmean.studies.party.agreement import Agreement
from quietmean.studies.party.audit import AuditLog


class PolicyBudget(BaseModel):
    """What all studies of one data set may cost together, and the file that keeps the account."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    epsilon: float = Field(default=10.0, gt=0)
    delta: float = Field(default=1e-4, gt=0, lt=1)
    ledger: Path | None = None


class PolicyRules(BaseModel):
    """The table [policy] of a policy file. What is None is not limited. The defaults hold where a site has no policy file."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    largest_epsilon: float = Field(default=10.0, gt=0)
    largest_delta: float = Field(default=1e-4, gt=0, lt=1)
    # Of studies whose target is in nats, which are not differential privacy: none are allowed unless this is said.
    largest_nats: float = Field(default=0.0, ge=0)
    # So many of the parties, whichever they are, learn no more than the study says.
    least_colluding: int = Field(default=1, ge=0)
    smallest_parties: int = Field(default=2, ge=2)
    # Of this site: so that it is not recognised by what changes with it.
    smallest_records: int = Field(default=0, ge=0)
    # Of each party, as it says before the start: the fewest and the most, and which part of all one may have.
    records: tuple[NonNegativeInt, PositiveInt] | None = None
    largest_share: float = Field(default=1.0, gt=0, le=1)
    units: tuple[PrivacyUnit, ...] | None = None
    statistics: tuple[str, ...] | None = None
    protocols: tuple[str, ...] | None = None
    # Columns that no study may use.
    never: tuple[str, ...] = ()
    # What becomes of a study with persons who are in another account: both are charged, or the study is refused.
    people_in_two_accounts: Literal["charge", "refuse"] = "charge"
    # Names with * and ?, and networks such as 10.0.0.0/8, that this site may dial.
    hosts: tuple[str, ...] | None = None
    ports: tuple[int, ...] | None = None
    # Whether who sealed the study may be trusted for the keys of more parties than may collude.
    trust_convener: bool = True
    no_privacy: bool = True
    # Whether a query over the data of this site may let rows decide about others, as its owner declares.
    query_mixes_rows: bool = False
    # Whether the keys of a study must rest on ML-KEM-768 besides X25519.
    require_post_quantum: bool = False
    # Whether --yes is an answer, where nobody is there to be asked.
    unattended: bool = False
    # Public keys of the data owners, and how many of them must sign a study: no other yes counts then.
    approvers: tuple[str, ...] = ()
    approvals: int = Field(default=1, ge=1)

    @property
    def least_approvals(self) -> int:
        return self.approvals if self.approvers else 0


class Audit(BaseModel):
    """Where the site's audit log is; by default in the user's folder for data."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    log: Path | None = None


class _File(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    policy: PolicyRules = PolicyRules()
    budget: PolicyBudget | None = None
    audit: Audit = Audit()
    # Where this site has the folder of studies whose messages are files.
    folder: str | None = None
    column: tuple[DeclaredColumn, ...] = ()


@dataclass(frozen=True)
class Policy:
    """A site's policy on the studies in which it takes part.

    ``rules`` of a site, ``budget`` of each data set if it says one, and the bounds or levels with which columns may be used.

    ``path``: of the file; None for the limits that hold without one.
    """

    rules: PolicyRules = field(default_factory=PolicyRules)
    budget: PolicyBudget | None = None
    columns: tuple[Column, ...] = ()
    path: Path | None = None
    audit: Audit = field(default_factory=Audit)
    folder: str | None = None

    @classmethod
    def load(cls, path: Path | None = None) -> Self:
        """Read a policy from a file; by default policy.toml in the user's folder for settings, if there is one.

        Raises :class:`InputError` for a file that cannot be read, that others may write, or with an unknown field.
        """
        policy_path = configuration_folder() / "policy.toml" if path is None else path
        try:
            mode = mode_of(policy_path)
            content = policy_path.read_bytes()
        except OSError as error:
            if path is None and isinstance(error, FileNotFoundError):
                return cls()
            raise unreadable(policy_path, "policy", error) from None
        raw = decode_tables(content, policy_path, "policy", FileKind.POLICY)
        if mode & (stat.S_IWGRP | stat.S_IWOTH):
            raise InputError(f"policy {policy_path} can be written by others (mode {mode:04o}). Run chmod go-w {policy_path}.")
        try:
            file = _File.model_validate(raw)
        except ValidationError as error:
            raise InputError(f"policy {policy_path} is not as it should be ({_faults(error)}). Correct these fields.") from None
        # A name that nothing has would forbid everything, or nothing.
        for key in file.policy.approvers:
            parse_public_key(key)
        if len(set(file.policy.approvers)) < file.policy.least_approvals:
            raise InputError(
                f"policy {policy_path} wants {file.policy.approvals} approvals of fewer approvers. Name more, or want less."
            )
        if file.policy.records is not None and file.policy.records[0] > file.policy.records[1]:
            raise InputError(
                f"policy {policy_path} says records = {list(file.policy.records)}. Name the fewest first, then the most."
            )
        for name in file.policy.protocols or ():
            get_protocol(name)
        for name in file.policy.statistics or ():
            if (kind := get_statistic(name).name) != name:
                # Another name may mean less than all of the kind.
                raise InputError(f"policy {policy_path} allows {name!r}, which is another name of {kind}. Write {kind}.")
        return cls(file.policy, file.budget, file.column, policy_path, file.audit, file.folder)

    @property
    def digest(self) -> str:
        """SHA-256 of all that it says, hexadecimal."""
        rules = self.rules.model_dump(mode="json")
        budget = None if self.budget is None else self.budget.model_dump(mode="json")
        columns = [column.describe() for column in self.columns]
        audit = self.audit.model_dump(mode="json")
        return digest({"format": "quietmean-policy-1", "rules": rules, "budget": budget, "columns": columns, "audit": audit})

    @property
    def weights(self) -> StatedWeights:
        """Which weights this site lets parties state."""
        return StatedWeights(self.rules.records, self.rules.largest_share)

    @property
    def audit_log(self) -> AuditLog:
        return AuditLog(self.audit.log or data_folder() / "audit.jsonl")

    def ledger(self, named: Path | None = None) -> Path:
        """What studies are charged to: the one that somebody ``named``, the policy's, or the user's own."""
        return named or (None if self.budget is None else self.budget.ledger) or data_folder() / "ledger"

    @property
    def place(self) -> str:
        """Where the rules stand, for a sentence."""
        return f"the policy of this site, {self.path}" if self.path else "the limits of a site without a policy"

    def broken(self, contract: Agreement) -> list[str]:
        """A sentence for each rule that the study breaks, with the name of the rule."""
        return [f"{name}: {sentence}" for name, sentence in _broken(self.rules, self.columns, contract)]

    def refuse(self, contract: Agreement) -> None:
        """Raises :class:`InputError` for a study that breaks a rule; nothing has left this machine."""
        self._raise(self.broken(contract))

    def refuse_records(self, records: int, count: CountVisibility, unit: PrivacyUnit = PrivacyUnit.RECORD) -> None:
        """Raises :class:`InputError` where this site has too few records; of a private number always, if it has such a rule:
        whether it takes part would say something about it. Where a whole party is the unit its number is as private."""
        if (count == CountVisibility.PRIVATE or not unit.within_party) and self.rules.smallest_records:
            self._raise(
                [
                    "smallest_records: the study keeps numbers of records private, and whether this site takes part must not "
                    "tell whether it has enough. Set the rule to 0 for such studies."
                ]
            )
        if records < self.rules.smallest_records:
            fewer = in_words_of(unit, f"this site has fewer than {self.rules.smallest_records} records")
            self._raise([f"smallest_records: {fewer}"])

    def refuse_trust(self, trusted: Sequence[str]) -> None:
        """Raises :class:`InputError` where the convener alone vouches for the keys of ``trusted`` and must not."""
        if trusted and not self.rules.trust_convener:
            self._raise(
                [f"trust_convener: nobody compared the words with {', '.join(trusted)}; do, and name each in {named('compared')}"]
            )

    def _raise(self, broken: Sequence[str]) -> None:
        if broken:
            raise InputError(
                f"this study breaks rules of {self.place}: {'; '.join(broken)}. Nothing has left this machine. Ask its "
                "coordinator for other terms, or change the policy."
            )


# The name of a rule, and the sentence of who breaks it.
Broken = Iterator[tuple[str, str]]


def _broken(rules: PolicyRules, columns: Sequence[Column], agreement: Agreement) -> Broken:
    """Every rule that a study breaks, in the order in which they stand in a policy."""
    target, protocol, parties = agreement.target, agreement.plan.protocol, len(agreement.parties)
    yield from _too_dear(rules, agreement)
    if target.colluding < rules.least_colluding:
        assumed = count_of(target.colluding, "colluding party", "colluding parties")
        yield "least_colluding", f"the study protects against {assumed}, at least {rules.least_colluding} must be assumed"
    if (fewest := agreement.fewest) < rules.smallest_parties:
        take_part = "take part" if fewest == parties else "may start it"
        yield "smallest_parties", f"{fewest} parties {take_part}, at least {rules.smallest_parties} must"
    if rules.units is not None and target.unit not in rules.units:
        yield "units", f"the study protects one {target.unit}, allowed is {', '.join(rules.units)}"
    if (kinds := rules.statistics) is not None:
        for text in (text for kind, text in agreement.asks_for if kind not in kinds):
            yield "statistics", f"{text} is not allowed, these kinds are: {', '.join(kinds)}"
    # A site may have written another name of a protocol.
    if (names := rules.protocols) is not None and protocol.name not in {get_protocol(name).name for name in names}:
        yield "protocols", f"{protocol.name} is not allowed, these are: {', '.join(names)}"
    if not rules.no_privacy and not is_private(protocol):
        yield "no_privacy", (f"{protocol.name} protects nothing. This site refuses it, and no option changes that")
    if agreement.query.mixes_rows and not rules.query_mixes_rows:
        mixes = "the query over these data mixes rows, as they declare"
        yield "query_mixes_rows", f"{mixes}: allowed only where a policy says query_mixes_rows = true"
    if rules.require_post_quantum and not agreement.post_quantum:
        yield "require_post_quantum", f"the study's keys: {agreement.keys}"
    # Who transforms a column declares it, too.
    for name in sorted(set(rules.never) & {column.name for column in agreement.declared}):
        yield "never", f"column {name!r} must not be used"
    declared = {column.name: column for column in columns}
    for column in agreement.used:
        own = declared.get(column.name)
        if own is not None and _said(own) != _said(column):
            yield "column", f"column {column.name!r} is declared as {_said(column)}, at this site it is {_said(own)}"
    yield from _strange_places(rules, agreement)


def _too_dear(rules: PolicyRules, agreement: Agreement) -> Broken:
    target, epsilon, nats = agreement.target, rules.largest_epsilon, rules.largest_nats
    if target.nats is None:
        if target.epsilon > epsilon:
            yield "largest_epsilon", f"the study asks for epsilon {target.epsilon:g}, at most {epsilon:g} is allowed"
        elif not agreement.epsilon_a_priori <= epsilon * (1 + 1e-6) and is_private(agreement.plan.protocol):
            promised = f"nothing promises beforehand that it costs at most {epsilon:g}"
            yield "largest_epsilon", f"{promised}: {agreement.plan.a_priori.enforced_by}"
    elif not nats:
        asked = f"the study asks for {target.nats:g} nats, which are not differential privacy"
        yield "largest_nats", f"{asked}: allowed only where a policy says largest_nats"
    elif target.nats > nats:
        yield "largest_nats", f"the study asks for {target.nats:g} nats, at most {nats:g} are allowed"
    if target.delta > rules.largest_delta:
        yield "largest_delta", f"the study asks for delta {target.delta:g}, at most {rules.largest_delta:g} is allowed"


def _strange_places(rules: PolicyRules, agreement: Agreement) -> Broken:
    rehearsal = agreement.own.address is not None and _loopback(agreement.own.address[0])
    dialled = [(party, party.address) for party in agreement.others if party.address is not None]
    for party, (host, *_) in dialled:
        if is_never_dialled(host):
            yield "hosts", f"{party}, an address inside a machine or a network's own, to which quietmean never connects"
        elif _loopback(host) and not rehearsal:
            yield "hosts", f"{party}, on this very machine, which is for rehearsals only, where all parties are on it"
        elif rules.hosts is not None and not any(_matches(host, pattern) for pattern in rules.hosts):
            yield "hosts", f"{party}, allowed are: {', '.join(rules.hosts)}"
    for party, (_, port, *_) in dialled:
        if rules.ports is not None and port not in rules.ports:
            yield "ports", f"{party}, allowed are: {', '.join(map(str, rules.ports))}"


def _said(column: Column) -> str:
    if column.boolean:
        return "boolean"
    return f"levels {', '.join(column.described_levels)}" if column.levels else f"{column.low!r} to {column.high!r}"


def _loopback(host: str) -> bool:
    number = number_of(host)
    return number.is_loopback if number is not None else host == "localhost" or host.endswith(".localhost")


def _matches(host: str, allowed: str) -> bool:
    number = number_of(host)
    if number is None:
        return fnmatchcase(host.lower(), allowed.lower())
    try:
        return number in ipaddress.ip_network(allowed)
    except ValueError:
        return False


def _faults(error: ValidationError) -> str:
    tables: dict[str, type[BaseModel]] = {"policy": PolicyRules, "budget": PolicyBudget, "audit": Audit, "column": Column}
    return "; ".join(fault(detail, _File, tables) for detail in error.errors())
