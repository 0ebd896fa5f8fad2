"""What a site agrees to before the first byte: all that is asked, from whom it protects, what it costs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Self

from quietmean.core.assumptions import assumptions_json
from quietmean.core.errors import InputError
from quietmean.core.fact import Fact
from quietmean.core.party import PartyId
from quietmean.core.query_statement import QueryStatement
from quietmean.core.readable import a_coordinate, count_of
from quietmean.node.net import Identity, Roster, format_address
from quietmean.planning.automatic import Choice
from quietmean.planning.plan import Plan
from quietmean.privacy import Charge
from quietmean.privacy.facts import cost_text
from quietmean.privacy.mutual_information import revealed_variance
from quietmean.protocols import Target
from quietmean.protocols.eavesdropping import eavesdropping_text, is_random
from quietmean.protocols.interception import already_public
from quietmean.statistics import Column
from quietmean.studies.agreement.any_study import AnyStudy, require_study
from quietmean.studies.agreement.sealed import Sealed
from quietmean.studies.agreement.study import StudyTerms
from quietmean.studies.agreement.voucher import Voucher
from quietmean.studies.outcome.forecast import Forecast
from quietmean.studies.outcome.influence import StudyInfluence
from quietmean.studies.party.agreement import ASSUMED, Agreement, Signatory, place_of, signatories
from quietmean.studies.party.committee_words import BY_VOUCHER, CommitteeWords
from quietmean.studies.party.files import Files

_UNITS = {
    "record": "one record of one party",
    "party": "all that one party contributes",
    "person": "all rows of one person",
}
_ROWS = {"mean": "their mean", "first": "the first one", "last": "the last one"}


@dataclass(frozen=True, eq=False, repr=False)
class Contract(Agreement):
    """What ``party`` of the ``parties`` agrees to; ``sealed``: where study and parties came sealed by a convener.

    ``contributes``: by file, and connects to nobody.

    Nothing in it depends on anybody's data, so all parties of a study have the same, but for who they are and what the owner of
    their data declares of a query.
    """

    study: StudyTerms
    parties: tuple[Signatory, ...]
    party: PartyId
    choice: Choice
    sealed: Sealed | None = None
    contributes: bool = False
    query: QueryStatement = field(default_factory=QueryStatement)

    @classmethod
    def of(cls, files: Files, choice: Choice) -> Self:
        """For a party that connects to the others, or sends them files through a folder."""
        folder = files.study.by_folder
        parties = tuple(
            Signatory(entry.name, entry.public_key, None if folder else entry.address) for entry in files.roster.entries
        )
        return cls(files.study, parties, files.party, choice, files.sealed)

    @classmethod
    def by_file(cls, sealed: Sealed, identity: Identity, choice: Choice, voucher: Voucher | None = None) -> Self:
        """For the party with this key of a sealed study, or with a ``voucher``, which connects to nobody.

        Raises :class:`InputError` for another key.
        """
        own = next((entry.name for entry in sealed.entries if entry.identity == identity.public_key), None)
        if own is None and voucher is not None:
            voucher.require_for(sealed.invitation, identity.public_key)
            return cls._by_voucher(sealed, identity, choice)
        if own is None:
            raise InputError(f"the key {identity.public_key} is not in the sealed study: give the one with which you accepted")
        contract = replace(cls.for_party(own, sealed, choice), contributes=True)
        if contract.committee is None:
            return contract
        # Whoever hands in a file dials nobody.
        return replace(contract, parties=tuple(replace(party, address=None) for party in contract.parties))

    @classmethod
    def _by_voucher(cls, sealed: Sealed, identity: Identity, choice: Choice) -> Self:
        """For somebody whom no list names, behind all who have an entry."""
        parties = (
            *(Signatory(entry.name, entry.identity) for entry in sealed.entries),
            Signatory(BY_VOUCHER, identity.public_key),
        )
        return cls(sealed.study, parties, len(sealed.entries), choice, sealed, contributes=True)

    @property
    def committee(self) -> CommitteeWords | None:
        """Who opens the sum, of a study with a committee."""
        if self.study.committee is None:
            return None
        members = None if self.sealed is None else tuple(entry.name for entry in self.sealed.computing)
        return CommitteeWords(self.study.committee, members, self.study.workload)

    @classmethod
    def for_party(cls, name: str | None, agreed: Sealed | tuple[AnyStudy, Roster], choice: Choice) -> Self:
        """For the party of this name, by somebody without its key. Raises :class:`InputError` if there is none."""
        study, parties, sealed = signatories(agreed)
        return cls(require_study(study), parties, place_of(name, parties), choice, sealed)

    @property
    def _asked(self) -> StudyTerms:
        return self.study

    @property
    def target(self) -> Target:
        return self.plan.target

    @property
    def asks_for(self) -> list[tuple[str, str]]:
        return [(statistic.name, statistic.text) for statistic in self.study.workload.statistics]

    @property
    def used(self) -> Sequence[Column]:
        return tuple(self.study.workload.columns)

    @property
    def declared(self) -> Sequence[Column]:
        return self.study.columns

    @property
    def imputed(self) -> Sequence[Column]:
        """The columns whose missing cells count as the middle of their bounds."""
        return self.study.workload.imputed()

    @property
    def plans(self) -> list[Plan]:
        """Of all numbers of parties with which the study may start; the first one is for all."""
        return self.choice.plans

    @property
    def epsilon_a_priori(self) -> float:
        """Whoever is in: the largest of all plans."""
        return max(plan.epsilon_a_priori for plan in self.plans)

    @property
    def charge(self) -> Charge:
        """What is reserved for it, whoever is in."""
        charge = self.plan.charge
        for plan in self.plans[1:]:
            charge = charge.larger(plan.charge)
        return charge

    def _stated(self) -> dict[str, Any]:
        return {"format": "quietmean-contract-1", "study": self.study.tables()}

    def expected(self) -> list[str]:
        """How wide intervals will be, a sentence for each statistic; nothing where nobody said how many records there are."""
        records = self.study.public_records(len(self.parties))
        return [] if records is None else Forecast(self.study, self.plan, records).sentences()

    @cached_property
    def influence(self) -> StudyInfluence | None:
        """How far one party can move each answer, if all stay; None where nobody said how many records there are."""
        return StudyInfluence.of_study(self.study, self.plan)

    def _moved(self) -> list[str]:
        if self.influence is None:
            return [self._unknown]
        return self.influence.sentences()

    def _counts(self) -> str:
        """What is said of numbers of records; nothing where they are public."""
        workload = self.study.workload
        return (
            f"; numbers of {workload.counted} are private, with room for {workload.most_records} of each party"
            if workload.hides_count
            else ""
        )

    def _needs(self) -> list[tuple[str, str]]:
        """What it says of a site that it takes part, where the protocol has no weight 0."""
        if not (self.plan.protocol.traits.needs_records and self.target.unit.within_party):
            return []
        unit = self.target.unit
        return [("needs", f"Each site needs at least one {unit}. That a site takes part says that it has one.")]

    def _rows(self) -> str:
        """Which rows of a person count, and at how many parties one person may be; nothing where persons are not the unit."""
        workload = self.study.workload
        if not workload.of_persons:
            return ""
        which = f"the sum of {count_of(int(workload.rows), 'row')} at most" if workload.adds_rows else _ROWS[str(workload.rows)]
        sites = workload.sites_per_person
        return f" ({which} counts; at {sites} {'party' if sites == 1 else 'parties'} at most, which nobody checks)"

    @property
    def _unknown(self) -> str:
        counted = self.study.workload.counted
        return f"not known beforehand: the study does not say how many {counted} there are (records = ...)"

    def to_json(self) -> dict[str, Any]:
        """What ``quietmean contract --json`` prints. epsilon: a bound, unless it is said to be what the study asks for."""
        plan, target = self.plan, self.plan.target
        return {
            "study": self.study.name,
            "digest": self.digest,
            "sealed": self.sealed is not None,
            "party": self.own.name,
            "statistics": [statistic.text for statistic in self.study.workload.statistics],
            "columns": [column.describe() for column in self.study.workload.columns],
            "imputed": [column.name for column in self.imputed],
            "unit": str(target.unit),
            "neighbouring": str(target.neighbouring),
            **({"rows": self.study.rows, "sites_per_person": self.study.sites_per_person} if self.study.rows else {}),
            "epsilon_a_priori": self.epsilon_a_priori,
            "epsilon_asked": target.epsilon,
            **({} if target.nats is None else {"nats_asked": target.nats, "prior_sd": target.prior_sd}),
            **({} if plan.nats_kept is None else {"nats_a_priori": plan.a_priori.nats}),
            "delta": target.delta,
            "enforced_by": plan.a_priori.enforced_by,
            "colluding": target.colluding,
            **({} if target.eavesdropping is None else {"eavesdropping": target.eavesdropping}),
            "epsilon_if_all_others_collude": self.everybody_else,
            "dropouts": target.dropouts,
            "protocol": plan.protocol.name,
            "trust": plan.protocol.traits.trust,
            "why": self.choice.why,
            "parties": [_party_json(party) for party in self.parties],
            "relays": self.relays,
            "links": str(self.links),
            "post_quantum": self.post_quantum,
            "expected": self.expected(),
            "influence": None if self.influence is None else self.influence.to_json(),
            "plan": plan.digest,
            **self._quorum_json(),
            **self._deadlines_json(),
            **({} if self.committee is None else {"committee": self.committee.to_json()}),
            "assumptions": assumptions_json((*plan.assumptions, *self.query.assumptions)),
            **self.query.to_json(),
        }

    def _cost(self) -> str:
        """What is known beforehand, and of a target in nats, what is not."""
        plan, target = self.plan, self.plan.target
        promised = cost_text(self.epsilon_a_priori, target.delta)
        if target.nats is None:
            return f"{promised}, known beforehand, enforced by {plan.a_priori.enforced_by}"
        share = float(revealed_variance(target.nats))
        accepted = (
            f"{target.nats:g} nats {a_coordinate(target.dimension)}, {share:.4g} of the variance of a normal value of standard "
            f"deviation {target.prior_sd:g}: an average over values and no differential privacy, {promised}"
        )
        if plan.nats_kept is not None:
            return f"{accepted}; known beforehand, and enforced by {plan.a_priori.enforced_by}"
        return f"nothing that is known beforehand: {plan.a_priori.enforced_by}. If all first messages arrive, {accepted}"

    def _read(self) -> str:
        """What the target says of who reads messages, and what that means here; nothing where nobody does."""
        observer = self.plan.target.eavesdropping
        if observer is None:
            return ""
        anyway = already_public(self.plan.protocol, observer)
        if anyway is not None:
            return f"; {eavesdropping_text(observer)}, which tells nothing more: {anyway}"
        if not is_random(observer):
            return f"; {eavesdropping_text(observer)}"
        return (
            f"; {eavesdropping_text(observer)}, of which a public draw before the start decides which the figure of what "
            "happened is about: what is known beforehand, and charged, holds whichever are read"
        )

    def _against(self) -> str:
        """Who may collude, and see the result."""
        colluders = self._colluders()
        return f"{colluders}, and who sees the result{'' if self.committee is not None else self._read()}"

    def _colluders(self) -> str:
        return super()._colluders() if self.committee is None else self.committee.against

    @property
    def facts(self) -> tuple[Fact, Fact]:
        promised, others = super().facts
        # More than the committee's number is what ends its promise, whoever else colludes.
        return promised, others if self.committee is None else replace(others, sentence=self.committee.otherwise)

    def _together(self) -> list[tuple[str, str]]:
        """With whom it takes part, and if all of these collude."""
        if self.committee is not None:
            return [("if more collude", self.committee.otherwise), *self.committee.lines()]
        return [("if all others collude", self._left), (self._how(), _listed([str(party) for party in self.others]))]

    def lines(self) -> list[tuple[str, str]]:
        """What it is about, and what it says: for people."""
        plan, target = self.plan, self.plan.target
        collude, *together = self._together()
        expected = self.expected() or [self._unknown]
        cost = ("costs at most", self._cost())
        # What is not promised comes first.
        first = plan.above_target is not None
        return [
            ("study", self.study.name),
            *([cost] if first else []),
            ("asks for", _listed([statistic.text for statistic in self.study.workload.statistics])),
            ("of", _listed([_column(column, column in self.imputed) for column in self.used])),
            ("protects", f"{_UNITS[target.unit]}{self._rows()}, under {target.neighbouring}{self._counts()}"),
            *self._needs(),
            *([] if first else [cost]),
            ("against", self._against()),
            collude,
            (
                "protocol",
                f"{plan.protocol.name}, {plan.protocol.traits.trust}" + (f": {self.choice.why}" if self.choice.why else ""),
            ),
            *together,
            *self._connection_lines(),
            *(("expected", sentence) for sentence in expected),
            *(("one party can move", sentence) for sentence in self._moved()),
            *((ASSUMED, str(assumption)) for assumption in (*plan.assumptions, *self.query.assumptions)),
            ("digest", self.digest),
        ]


def _party_json(party: Signatory) -> dict[str, Any]:
    return {"name": party.name, "key": party.key, "address": None if party.address is None else format_address(party.address)}


def _column(column: Column, imputed: bool) -> str:
    if column.boolean:
        return f"{column.name} (yes or no)"
    domain = ", ".join(column.levels) or f"{column.low:g} to {column.high:g}"
    return f"{column.name} ({domain}{'; missing cells count as the middle here' if imputed else ''})"


def _listed(parts: Sequence[str]) -> str:
    return "; ".join(parts)
