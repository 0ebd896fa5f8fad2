"""What a site agrees to before the first byte: all that is asked, from whom it protects, what it costs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import starmap
from typing import Any, Self

from quietmean.core.errors import InputError
from quietmean.core.readable import Fact, ShortFact, a_coordinate, count_of
from quietmean.node.net import Identity, Roster
from quietmean.planning.automatic import Choice
from quietmean.planning.plan import Plan
from quietmean.privacy import Charge
from quietmean.privacy.analysis import cost_text
from quietmean.privacy.mutual_information import revealed_variance
from quietmean.protocols import Target
from quietmean.protocols.interception import already_public
from quietmean.protocols.target import eavesdropping_text, is_random
from quietmean.statistics import Column, Workload
from quietmean.studies.agreement.any_study import AnyStudy, column_text, require_study
from quietmean.studies.agreement.deadlines import CommitteeTerms, in_hours, in_words
from quietmean.studies.agreement.sealed import Sealed
from quietmean.studies.agreement.study import StudyTerms
from quietmean.studies.agreement.voucher import Voucher
from quietmean.studies.outcome.forecast import Forecast
from quietmean.studies.outcome.influence import StudyInfluence
from quietmean.studies.party.agreement import Agreement, ContractFact, Signatory, place_of, signatories
from quietmean.studies.party.first_screen import always_facts

# What a party is called that no list names.
BY_VOUCHER = "by voucher"
_EACH = "the members, that each number of a contribution, and of each member's noise, is within its bounds, without learning it"


@dataclass(frozen=True)
class CommitteeWords:
    """The words of a contract on its committee.

    ``members``: their names, where the study is sealed. ``workload``: what the study asks for.
    """

    terms: CommitteeTerms
    members: tuple[str, ...] | None
    workload: Workload

    @property
    def against(self) -> str:
        """Who may collude without learning more than is stated."""
        return f"{self.terms.committee.against(self.members)} and all other contributors together"

    @property
    def otherwise(self) -> str:
        """What more colluders learn."""
        colluding = self.terms.colluding
        return f"more than {colluding} of the members together can read every contribution"

    @property
    def liars(self) -> str:
        """What members that lie can do."""
        gone, colluding = self.terms.gone, self.terms.colluding
        if self.terms.committee.corrects:
            return (
                f"there is a right result with up to {gone} of them gone or lying, but for contributions that up to {colluding} "
                "leave out"
            )
        return (
            f"there is a result with up to {gone} of them gone; up to {colluding} that lie can prevent it or have it refused, "
            "never falsify the sum"
        )

    @property
    def checked(self) -> str:
        """What members know of a contribution without learning it; empty where nothing is checked."""
        if not self.terms.verified:
            return ""
        full = [statistic.text for statistic in self.workload.statistics if self.workload.is_stated_in_full(statistic)]
        rest = [statistic.text for statistic in self.workload.statistics if statistic.text not in full]
        if not self.workload.statistics:
            return f"{_EACH}: a made-up contribution counts as no more than its weight"
        records = "one record, with all products" if self.terms.products else "as many records"
        listed = [
            *([f"of {'; '.join(full)} also that they are those of {records}"] if full else []),
            *([f"of {'; '.join(rest)} these bounds only"] if rest else []),
        ]
        return f"{_EACH}; {', '.join(listed)}"

    @property
    def admits(self) -> str:
        """Who besides those on the list may contribute, and what those who let them in can do; empty where nobody else may."""
        terms = self.terms
        if terms.vouchers is None:
            return ""
        registrar = "" if terms.registrar is None else f"{terms.registrar} "
        return (
            f"besides the listed parties up to {terms.vouchers} whose keys the registrar {registrar}"
            "certified, with one contribution each. Anybody who has such a key can make it. A registrar that lies "
            "can contribute in the place of all of them and so move the result. It learns nothing more than all "
            "other contributors together"
        )

    def lines(self) -> list[tuple[str, str]]:
        """The words on the committee for people, in lines."""
        terms = self.terms
        holders = f"the {terms.members} members" if self.members is None else ", ".join(self.members)
        return [
            (
                "contributes",
                f"one file, until {in_words(terms.contribute_by)}, with a part encrypted to each of {holders}; it may travel "
                "anyhow, and shows who contributed, when and with which weight",
            ),
            (
                "opens",
                f"the members, from {in_hours(terms.grace)} after that on, one sum, once, with the noise of "
                f"{terms.committee.dealings} of them; {self.liars}",
            ),
            *([("checks", self.checked)] if self.checked else []),
            *([("admits", self.admits)] if self.admits else []),
        ]

    def to_json(self) -> dict[str, Any]:
        """The words on the committee as plain JSON data."""
        members = {} if self.members is None else {"names": list(self.members)}
        checked = {"checked": self.checked} if self.checked else {}
        admits = {"admits": self.admits} if self.admits else {}
        return {**self.terms.describe(), **members, "against": self.against, "otherwise": self.otherwise, **checked, **admits}


_UNITS = {
    "record": "one record of one party",
    "party": "all that one party contributes",
    "person": "all rows of one person",
}
_ROWS = {"mean": "their mean", "first": "the first one", "last": "the last one"}


@dataclass(frozen=True, eq=False, repr=False)
class Contract(Agreement):
    """A study. ``choice``: the plans of all numbers of parties with which it may start."""

    study: StudyTerms
    choice: Choice = field(kw_only=True)

    @classmethod
    def for_party(cls, name: str | None, agreed: Sealed | tuple[AnyStudy, Roster], choice: Choice) -> Self:
        """The contract for the party of this name. Raises :class:`InputError` if there is none."""
        study, parties, sealed = signatories(agreed)
        return cls(require_study(study), parties, place_of(name, parties), sealed, choice=choice)

    @classmethod
    def by_file(cls, sealed: Sealed, identity: Identity, choice: Choice, voucher: Voucher | None = None) -> Self:
        """For the party with this key of a sealed study, or with a ``voucher``, which connects to nobody.

        Raises :class:`InputError` for another key.
        """
        _, parties, _ = signatories(sealed)
        if sealed.study.committee is not None:
            # Who hands in a file dials nobody.
            parties = tuple(replace(party, address=None) for party in parties)
        own = identity.public_key
        if not sealed.lists(own):
            if voucher is None:
                raise InputError(f"the key {own} is not in the sealed study. Give the one with which you accepted.")
            voucher.require_for(sealed.invitation, own)
            # Somebody whom no list names, behind all who have an entry.
            parties = (*parties, Signatory(BY_VOUCHER, own))
        party = [each.key for each in parties].index(own)
        return cls(sealed.study, parties, party, sealed, contributes=True, choice=choice)

    @property
    def committee(self) -> CommitteeWords | None:
        """Who opens the sum, of a study with a committee."""
        if self.study.committee is None:
            return None
        members = None if self.sealed is None else tuple(entry.name for entry in self.sealed.computing)
        return CommitteeWords(self.study.committee, members, self.study.workload)

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
        """The plans of all numbers of parties with which the study may start; the first one is for all."""
        return self.choice.plans

    @property
    def epsilon_a_priori(self) -> float:
        return max(plan.epsilon_a_priori for plan in self.plans)

    @property
    def charge(self) -> Charge:
        charge = self.plan.charge
        for plan in self.plans[1:]:
            charge = charge.larger(plan.charge)
        return charge

    def _stated(self) -> dict[str, Any]:
        return {"format": "quietmean-contract-1", "study": self.study.tables()}

    @cached_property
    def forecast(self) -> Forecast | None:
        """How wide intervals will be; None where nobody said how many records there are."""
        records = self.study.public_records(len(self.parties))
        return None if records is None else Forecast(self.study, self.plan, records)

    def expected(self) -> list[str]:
        """How wide intervals will be, a sentence for each statistic; nothing where that is not known."""
        return [] if self.forecast is None else self.forecast.sentences()

    @property
    def always(self) -> tuple[ShortFact, ...]:
        return always_facts(self)

    def expected_shortly(self) -> list[str]:
        return (
            ["not known: the study does not say how many records there are"] if self.forecast is None else self.forecast.shortly()
        )

    @cached_property
    def influence(self) -> StudyInfluence | None:
        """How far one party can move each answer, if all stay; None where nobody said how many records there are."""
        return StudyInfluence.of_study(self.study, self.plan)

    def _counts(self) -> str:
        """What is said of numbers of records; nothing where they are public."""
        workload = self.study.workload
        return (
            f"; numbers of {workload.counted} are private, with room for {workload.most_records} of each party"
            if workload.hides_count
            else ""
        )

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

    @property
    def _why(self) -> str:
        return self.choice.why or ""

    def _title(self) -> ContractFact:
        query = self.query.to_json()
        return ContractFact(
            "study", self.study.name, study=self.study.name, sealed=self.sealed is not None, why=self.choice.why, **query
        )

    def _question(self) -> Iterator[ContractFact]:
        study, target, plan = self.study, self.target, self.plan
        texts = [statistic.text for statistic in study.workload.statistics]
        yield ContractFact("asks for", "; ".join(texts), statistics=texts)
        columns, imputed = [column.describe() for column in self.used], [column.name for column in self.imputed]
        shown = "; ".join(_column(column, column.name in imputed) for column in self.used)
        yield ContractFact("of", shown, columns=columns, imputed=imputed)
        yield ContractFact(
            "protects",
            f"{_UNITS[target.unit]}{self._rows()}; {target.neighbouring.text}{self._counts()}",
            unit=str(target.unit),
            neighbouring=str(target.neighbouring),
            # A bound, unless it is said to be what the study asks for.
            epsilon_asked=target.epsilon,
            dropouts=target.dropouts,
            **({"rows": study.rows, "sites_per_person": study.sites_per_person} if study.rows else {}),
            **({} if target.nats is None else {"nats_asked": target.nats, "prior_sd": target.prior_sd}),
            **({} if plan.nats_kept is None else {"nats_a_priori": plan.a_priori.nats}),
            **({} if target.eavesdropping is None else {"eavesdropping": target.eavesdropping}),
        )
        if plan.protocol.traits.needs_records and target.unit.within_party:
            # The protocol has no weight 0.
            unit = target.unit
            yield ContractFact("needs", f"Each site needs at least one {unit}. That a site takes part says that it has one.")

    def _answer(self) -> list[ContractFact]:
        expected, moved = self.expected(), self.influence
        return [
            ContractFact("expected", *(expected or [self._unknown]), expected=expected),
            ContractFact(
                "one party can move",
                *([self._unknown] if moved is None else moved.sentences()),
                influence=None if moved is None else moved.to_json(),
            ),
        ]

    def _cost(self) -> str:
        """What is known beforehand, and of a target in nats, what is not."""
        plan, target = self.plan, self.plan.target
        if target.nats is None:
            return super()._cost()
        promised = cost_text(self.epsilon_a_priori, target.delta)
        share = float(revealed_variance(target.nats))
        accepted = (
            f"{target.nats:g} nats {a_coordinate(target.dimension)} on average over values, {share:.4g} of "
            f"the variance of a normal value of standard deviation {target.prior_sd:g}. That is not "
            f"differential privacy: {promised}"
        )
        if plan.nats_kept is not None:
            return f"{accepted}; guaranteed before the start, enforced by {plan.a_priori.enforced_by}"
        return f"nothing is guaranteed before the start ({plan.a_priori.enforced_by}). If all first messages arrive: {accepted}"

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
            f"; {eavesdropping_text(observer)}. A public draw decides which messages the realised figure "
            "covers. The guaranteed figure, which is charged, covers all of them"
        )

    def _against(self) -> str:
        return super()._against() + ("" if self.committee is not None else self._read())

    def _colluders(self) -> str:
        return super()._colluders() if self.committee is None else self.committee.against

    @property
    def promises(self) -> tuple[Fact, Fact]:
        promised, others = super().promises
        # More than the committee's number is what ends its promise, with or without other colluders.
        return promised, others if self.committee is None else replace(others, sentence=self.committee.otherwise)

    def _if_more(self) -> ContractFact:
        fact = super()._if_more()
        return fact if self.committee is None else ContractFact("if more collude", self.committee.otherwise, **fact.fields)

    def _together(self) -> list[ContractFact]:
        if self.committee is None:
            return super()._together()
        return [ContractFact("", committee=self.committee.to_json()), *starmap(ContractFact, self.committee.lines())]


def _column(column: Column, imputed: bool) -> str:
    return column_text(column, "a missing cell counts as the middle of the bounds" if imputed else "")
