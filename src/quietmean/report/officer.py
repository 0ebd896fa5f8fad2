"""The privacy page: what is protected, from whom, under which assumptions, how much, and what is left.

It is a page of its own after a study, and the first part of the page that explains a certificate. Its sentences come from here;
those on each epsilon from :mod:`quietmean.privacy.analysis` by way of ``words``, those on what is assumed from
:mod:`quietmean.core.assumptions`. Their order is in ``templates/officer_sections.html``.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from quietmean.core import readable
from quietmean.core.assumptions import for_unit, ranked
from quietmean.core.bounds import APriori
from quietmean.core.domain import Neighbouring, in_words_of
from quietmean.core.output import Output
from quietmean.core.readable import Fact, count_of
from quietmean.privacy import Certificate, CoalitionCertificate, PrivacyAnalysis
from quietmean.privacy.analysis import privacy_facts
from quietmean.protocols.execution import Execution
from quietmean.protocols.mechanism import is_private, unprotected
from quietmean.report import words
from quietmean.report.released import (
    ReportFacts,
    SummaryCard,
    against_whom,
    bound,
    how_sure,
    keeps_nats,
    many_estimates,
    nats_cards,
    records_in,
    remaining,
    verdict_in_nats,
    what_is_left,
    what_it_cost,
    who_is_left_out,
)
from quietmean.report.words import page_at, render_page
from quietmean.statistics.printed import capital
from quietmean.statistics.tails import about_noise

if TYPE_CHECKING:
    from quietmean.ledger import Account

# Chances of a right guess before anything is published.
_CHANCES = (0.5, 0.1, 0.01)
# What rounding may add to an epsilon over its target, or over what was promised.
_ROUNDING = 1e-6
_MOST_RELEASED, _MOST_ENTRIES = 60, 20
_HIDDEN = {
    Neighbouring.REPLACEMENT: "whether that unit has one value or any other within the public bounds",
    Neighbouring.ADD_REMOVE: "whether that record is there or not, and so what it holds, and how many records a party has",
}
_COUNTS = "how many records each party has, "


@dataclass(frozen=True, eq=False)
class OfficerPage:
    """What the page shows. ``certificate``: against all coalitions of a size, or against one adversary."""

    execution: Execution
    privacy: PrivacyAnalysis
    certificate: Certificate | CoalitionCertificate
    stated: ReportFacts = field(default_factory=ReportFacts)
    commands: Sequence[str] = ("quietmean verify receipt receipt.json",)

    @property
    def mu(self) -> float:
        """The realised mu, of the worst-off party; infinite if that is not bounded."""
        return self.certificate.max_mu

    def heading(self) -> dict[str, Any]:
        """How the page begins."""
        return {"title": self.stated.title, "summary": self.summary, "first": self.first(self._how_sure())}

    def sections(self) -> dict[str, Any]:
        """What the template fills in."""
        return {
            "cost": self.cost(),
            "protected": self._protected(),
            "meaning": self._meaning(),
            "released": self._released(),
            "influence": list(self.stated.influence),
            "budget": self._budget(),
            "attendance": self._attendance(),
            "assumptions": self.assumptions,
            "guarantee": self.privacy.guarantee,
            "commands": list(self.commands),
        }

    @property
    def assumptions(self) -> list[dict[str, str]]:
        """All that is taken for granted: what people must hold first, and who they are."""
        assumed = for_unit(self.certificate.assumptions, self.stated.unit or "", self.stated.sites_per_person)
        listed = ranked((*assumed, *self.stated.stamps.query.assumptions))
        return [{**one.to_json(), "who": one.held_by} for one in listed]

    @property
    def summary(self) -> str:
        """Say of which study the page is, and for whom."""
        parties = count_of(self.execution.parties, "party", "parties")
        ended = f", finished {words.moment(self.stated.stamps.finished)}" if self.stated.stamps.finished else ""
        return f"Privacy of a study of {parties} ({self.execution.protocol.name}){ended}. For the data controller."

    def first(self, how_sure: SummaryCard, no_ledger: str = "") -> list[SummaryCard]:
        """What is to be seen at a glance; ``how_sure``: of the numbers; ``no_ledger``: why none is charged."""
        return [
            how_sure,
            who_is_left_out(
                self.execution,
                self.names,
                self._records,
                self.stated.stamps.absent,
                self.stated.counts,
                self.stated.lacking,
            ),
            what_it_cost(self.privacy, self.certificate.a_priori, self.certificate.max_epsilon),
            against_whom(self.adversary, self.privacy.alone),
            what_is_left(self.stated.account, no_ledger),
        ]

    @property
    def _records(self) -> int | None:
        """How many records all parties have, where these are the unit and their number is public."""
        by_record = self.stated.unit in ("record", "person") and self.execution.neighbouring == Neighbouring.REPLACEMENT
        return round(self.execution.weights.sum()) if by_record else None

    def _how_sure(self) -> SummaryCard:
        """The first numbers, or, where they are many terms of statistics, in how many the noise is the smaller error."""
        released = self.stated.released
        smaller = [number.smaller for number in released if number.smaller is not None]
        if smaller and any(row.term for row in released):
            note = "Each has its standard error below, and both intervals in the report."
            return many_estimates(smaller, "released numbers", note)
        names, values, errors = ([getattr(number, key) for number in released] for key in ("name", "estimate", "error"))
        note = "The standard errors are those of the noise added for privacy." if names else ""
        return how_sure(names, values, errors, note)

    @property
    def names(self) -> Sequence[str]:
        """The parties' names; their numbers where no names are stated."""
        return self.stated.names or [f"party {party}" for party in range(self.execution.parties)]

    # --- how much ---

    def cost(self) -> dict[str, Any]:
        """What it cost, against whom, and whether that is as it was promised."""
        promised, spent = self.certificate.a_priori, self.certificate.max_epsilon
        facts = self._facts
        cards = words.cards_of(facts, self.stated.names)
        if self.stated.target is not None:
            cards.append(words.card("target", self.stated.target, "what the parties asked for when the noise was chosen"))
        cards += nats_cards(self._nats, self.adversary)
        verdict, sentences = self._verdict(promised, spent), words.sentences_of(facts, self.stated.names)
        return {"heading": self._cost_heading(promised), "verdict": verdict, "cards": cards, "sentences": sentences}

    @cached_property
    def _facts(self) -> tuple[Fact, ...]:
        stated = self.stated
        return privacy_facts(self.privacy, self.certificate, stated.unit or "", stated.party_epsilon, stated.counts)

    @cached_property
    def _nats(self) -> dict[str, Any] | None:
        """What coalitions learnt, for a target in nats, computed from the execution alone."""
        if self.stated.nats is None or not isinstance(self.certificate, CoalitionCertificate):
            return None
        return self.privacy.nats_of_target(self.certificate.size, self.stated.nats)

    def _cost_heading(self, promised: APriori | None) -> str:
        delta, spent = words.power(self.privacy.delta), self.certificate.max_epsilon
        as_happened = f"realised {bound(spent)}"
        if promised is None:
            return f"{capital(as_happened)} (δ = {delta}); nothing was guaranteed before the start"
        guaranteed = bound(self.privacy.terms.epsilon_promised(promised))
        if guaranteed == bound(spent):
            return f"{capital(words.BOTH)}: {guaranteed} (δ = {delta})"
        return f"Guaranteed {guaranteed}, {as_happened} (δ = {delta})"

    def _verdict(self, promised: APriori | None, spent: float) -> dict[str, Any]:
        if self._nats is not None:
            return {"kept": keeps_nats(self._nats), "text": verdict_in_nats(self._nats)}
        if math.isinf(spent):
            return {"kept": False, "text": "Something is given away exactly: no bound holds for everybody."}
        if promised is not None and math.isinf(promised.mu):
            return {"kept": False, "text": "Nothing bounded the loss before the start; what happened turned out to be bounded."}
        if promised is not None and spent > self.privacy.terms.epsilon_promised(promised) * (1 + _ROUNDING):
            return {"kept": False, "text": "This execution cost more than was promised. Stop, and have it looked at."}
        target = math.inf if self.stated.target is None else self.stated.target * (1 + _ROUNDING)
        if spent > target:
            return {"kept": False, "text": "This execution cost more than the target, though not more than was promised."}
        if promised is not None and self.privacy.terms.epsilon_promised(promised) > target:
            text = "What happened is within the target, but more than the target was all that could be promised beforehand."
            return {"kept": False, "text": text}
        return {
            "kept": True,
            "text": "What happened cost no more than what was promised." if promised else "The loss is bounded.",
        }

    # --- what, and from whom ---

    def _protected(self) -> dict[str, Any]:
        protocol = self.execution.protocol
        unit = words.UNITS.get(
            self.stated.unit or "", "one unit of one party: the file does not say whether a record or a whole party"
        )
        private = self.execution.neighbouring == Neighbouring.ADD_REMOVE
        counts = in_words_of(self.stated.unit or "", _COUNTS)
        rows = [
            ("Protected", unit),
            ("Hidden", in_words_of(self.stated.unit or "", _HIDDEN[self.execution.neighbouring])),
            ("From whom", self.adversary),
            ("Trusted", words.named(protocol.traits.trust, self.stated.names)),
            ("How", protocol.traits.summary),
            ("Claim", self.privacy.guarantee),
            ("Not hidden", f"who took part and when, who sent to whom, {'' if private else counts}columns and bounds"),
        ]
        if self.stated.admitted:
            rows.append(("Admitted", self.stated.admitted))
        if not is_private(protocol):
            rows[0] = ("Not protected", unit)
            rows.insert(0, ("Warning", unprotected(protocol)))
        return {"heading": f"What is {'' if is_private(protocol) else 'not '}protected: {unit.split(':')[0]}", "rows": rows}

    @property
    def adversary(self) -> str:
        """The adversary in words."""
        if isinstance(self.certificate, CoalitionCertificate):
            return words.named(self.certificate.describe(), self.stated.names)
        return words.named(self.certificate.adversary.describe(), self.stated.names)

    # --- what epsilon means ---

    def _meaning(self) -> dict[str, Any]:
        promised, spent = self.certificate.a_priori, self.certificate.max_epsilon
        columns = [("guaranteed", self.privacy.terms.epsilon_promised(promised), promised.mu)] if promised is not None else []
        if not columns or words.rounded_up(columns[0][1]) != words.rounded_up(spent):
            columns.append(("realised", spent, self.mu))
        first, epsilon, mu = columns[0]
        return {
            "heading": _meaning_heading(first, epsilon),
            "sentences": self._meaning_sentences(first, epsilon),
            "average": self._average(first, epsilon, mu),
            "heads": ["chance that a guess is right, before", *(f"after, {title}, at most" for title, _, _ in columns)],
            "rows": [[_percent(chance), *(_percent(_posterior(chance, each)) for _, each, _ in columns)] for chance in _CHANCES],
        }

    def _meaning_sentences(self, name: str, epsilon: float) -> list[str]:
        delta = words.power(self.privacy.delta)
        if math.isinf(epsilon):
            return ["Without a bound nothing can be said about what somebody can find out."]
        return [
            (
                "Take a person whose data are one such unit. Somebody wants to know whether these data are theirs or "
                "somebody else's, or which of two values they have. All that this adversary sees changes the odds of any "
                f"such guess. The factor is at most {words.factor_up(words.factor_of(epsilon))} (e to the power ε, {name}"
                f"), except with a probability of about δ = {delta}."
            ),
            (
                "That holds for any other knowledge and any computation of the adversary. It does not forbid "
                "conclusions that would be drawn without this person's data just as well."
            ),
        ]

    def _average(self, name: str, epsilon: float, mu: float) -> str:
        if math.isinf(epsilon):
            return ""
        advantage = float(self.privacy.terms.deltas(np.array([mu]), 0.0)[0])
        return (
            "The table is about the most telling outcome that there may be. On average over what may be published, a guess "
            f"between two equally likely values is right with a probability of at most {_percent(0.5 + advantage / 2)} ({name})."
        )

    # --- what was published ---

    def _released(self) -> dict[str, Any]:
        listed = self.stated.released[:_MOST_RELEASED]
        # Statistics of one number share a table with their neighbours.
        by_statistic = itertools.groupby(listed, key=lambda row: row.statistic if row.term else "")
        tables = [
            {"name": name, "rows": [[row.term or row.statistic, *row.texts] for row in each]} for name, each in by_statistic
        ]
        count = len(self.stated.released)
        heading = f"Released: {count_of(count, 'number')}" if count else "What was released"
        these = any(number.these_records for number in listed)
        covers = "covers the noise alone, as the study is about these records" if these else "counts sampling, too"
        note = f"Each with noise for privacy, whose standard error stands beside it; the interval {covers}."
        note += "".join(f" {said}" for said in dict.fromkeys(about_noise(number.noise_quantile) for number in listed) if said)
        if not count:
            note = "The file does not say what was computed. What every party publishes at the end is public; a receipt lists it."
        if any(not math.isfinite(number.estimate) for number in listed):
            note += " Of what the noise hides nothing is known, or only that it is below a number."
        if count > _MOST_RELEASED:
            note += f" The first {_MOST_RELEASED} are shown; the report has all."
        return {"heading": heading, "tables": tables, "note": note}

    # --- the budget ---

    def _budget(self) -> dict[str, Any]:
        account = self.stated.account
        if account is None:
            return {
                "heading": "No ledger is stated: what is left of a budget is not known here",
                "rows": [],
                "entries": [],
                "notes": [
                    "Every study of the same data adds to what is known about them. A ledger keeps a budget for a data "
                    "set and refuses what goes beyond. verify receipt --ledger --account puts it on this page.",
                    self._refund(None),
                ],
            }
        budget = account.budget
        at = f"at δ = {words.power(budget.delta)}"
        left = remaining(account)
        rows = [
            ("Account", f"{account.name}: one {account.unit} of data set {account.data_set}, {account.relation}"),
            ("Given", f"ε = {readable.plain(budget.epsilon)} {at}, for all studies together"),
            ("Used", f"ε = {words.rounded_up(account.charged_epsilon)} {at}; studies that did not end count as promised"),
            ("Left", f"ε = {left} {at}"),
        ]
        if account.frozen is not None:
            rows.append(("Frozen", f"since {account.frozen.since}: {account.frozen.reason}"))
        used = f"ε = {words.rounded_up(account.charged_epsilon)} of {readable.plain(budget.epsilon)} is used, {left} is left"
        return {
            "heading": f"Budget: {used}",
            "rows": rows,
            "entries": [
                [
                    entry.name,
                    entry.reserved_at[:10],
                    "final" if entry.settled else "reserved",
                    words.rounded_up(budget.epsilon_of(entry.reserved)),
                    words.rounded_up(budget.epsilon_of(entry.charged)),
                ]
                for entry in account.entries[-_MOST_ENTRIES:]
            ],
            "notes": [
                "Epsilons of single studies do not add up to the one of all: their mu adds up by squares. The account "
                "certifies the budget as a whole, not an ε at a moment that somebody picks.",
                self._refund(account),
            ],
        }

    def _refund(self, account: Account | None) -> str:
        rule = "Refund rule: the guaranteed cost is reserved before the first message leaves"
        if account is not None and not account.gives_back:
            return f"{rule}, and this account never gives anything back."
        if not self.execution.refunds:
            return f"{rule}, and all of it stays charged: with this protocol and these numbers nothing is given back."
        return (
            f"{rule}. Afterwards the account is charged the realised cost, if that is less. This is right only if who took part "
            "did not depend on the values. An account made with the option '--refund never' always pays the guaranteed cost."
        )

    # --- who took part ---

    def _attendance(self) -> dict[str, Any]:
        trace, contributors = self.execution.trace, self.execution.contributors()
        everybody = np.ones(self.execution.parties, dtype=np.bool_)
        rows = [
            ("Parties", self._listed(everybody)),
            ("Counted in the result", "all of them" if contributors.all() else self._listed(contributors)),
            ("Not counted", self._listed(~contributors) or "nobody"),
            ("Left before the end", self._listed(~trace.finished) or "nobody"),
        ]
        if (records := self._records) is not None:
            inside = records_in(self.execution, records)
            rows.insert(2, (capital(self.stated.counts), f"{inside:,} of {records:,} are counted"))
        rows += self.stated.stamps.rows
        counted, parties = int(contributors.sum()), self.execution.parties
        return {"heading": f"Who took part: {counted} of {parties} parties are counted", "rows": rows}

    def _listed(self, chosen: np.ndarray[Any, np.dtype[np.bool_]]) -> str:
        return words.listed([self.names[party] for party in np.nonzero(chosen)[0].tolist()], most=40)


def write_officer_page(page: OfficerPage, path: Path, force: bool = False) -> None:
    """Write the page as one HTML file that needs nothing else. The same page gives the same bytes.

    It takes the place of an earlier page of the same study, and with ``force`` of any such page. Raises :class:`InputError` for
    another file that is there.
    """
    officer_page_at(path, page.stated.stamps.whose, force).write(render_officer_page(page).encode())


def render_officer_page(page: OfficerPage) -> str:
    """The page as text."""
    return render_page("privacy page", page.stated.stamps.whose, **page.heading(), officer=page.sections())


def officer_page_at(path: Path, whose: str, force: bool = False) -> Output:
    """Where the page goes; ``whose``: see :func:`study_and_party`."""
    return page_at(path, "privacy page", whose, force)


def _meaning_heading(name: str, epsilon: float) -> str:
    if math.isinf(epsilon):
        return "What ε without a bound means"
    figure, factor = words.rounded_up(epsilon), words.factor_up(words.factor_of(epsilon))
    return f"What ε = {figure} ({name}) means: odds change by a factor of {factor} at most"


def _posterior(chance: float, epsilon: float) -> float:
    """The largest chance after odds of ``chance`` have grown by e^epsilon."""
    return 1.0 if math.isinf(epsilon) else chance / (chance + (1 - chance) / words.factor_of(epsilon))


def _percent(chance: float) -> str:
    """Rounded up to a tenth."""
    return f"{math.ceil(min(chance, 1.0) * 1000 * (1 - 1e-12)) / 10:g}\u00a0%"
