"""The page that explains a certificate: who pays what, what protects the worst-off party, who could harm it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from shlex import quote
from typing import Any

import numpy as np

from quietmean.core.arrays import Array
from quietmean.core.codec import digest
from quietmean.core.output import Output
from quietmean.core.party import PartyId
from quietmean.core.readable import count_of
from quietmean.privacy import Adversary, CoalitionCertificate, PrivacyAnalysis
from quietmean.protocols.execution import Execution
from quietmean.report import words
from quietmean.report.canvas import inline_svg
from quietmean.report.curves import EpsilonAtSize, Explanation, coalitions_figure, curve_caption, explain, has_static_neighbours
from quietmean.report.exchange import MOST_PARTIES, exchange_figure, message_table, statement
from quietmean.report.officer import OfficerPage
from quietmean.report.pictures import bars
from quietmean.report.released import ReportFacts
from quietmean.report.words import page_at, render_page
from quietmean.statistics.printed import capital

_MOST_MESSAGES, _MOST_NEIGHBOURS = 6, 5
# An epsilon that grows by less than this share has not grown.
_GROWTH = 1e-6
_MOST_GROUPS = 6


def write_certificate_report(
    execution: Execution,
    path: Path,
    *,
    delta: float,
    size: int = 0,
    adversary: Adversary | None = None,
    stated: ReportFacts | None = None,
    force: bool = False,
) -> None:
    """Write one HTML file that needs nothing else: against ``adversary``, or else against coalitions of ``size`` parties.

    ``stated``: what the receipt says besides the execution. The page takes the place of an earlier one of the same execution, and
    with ``force`` of any such page. Raises :class:`InputError` for another file that is there.
    """
    page = certificate_page(execution, delta=delta, size=size, adversary=adversary, stated=stated)
    certificate_page_at(path, execution, force).write(page.render().encode())


def certificate_page_at(path: Path, execution: Execution, force: bool = False) -> Output:
    """Where the page about an execution goes."""
    return page_at(path, "certificate", digest(execution.to_json()), force)


def certificate_page(
    execution: Execution,
    *,
    delta: float,
    size: int = 0,
    adversary: Adversary | None = None,
    stated: ReportFacts | None = None,
) -> CertificatePage:
    """What :func:`write_certificate_report` shows, as data."""
    privacy, stated = execution.privacy(delta), stated or ReportFacts()
    if adversary is not None:
        explanation = explain(execution, adversary, delta)
        return CertificatePage(
            execution, privacy, explanation, None, explanation.certificate.honest, explanation.certificate.epsilon, stated
        )
    coalitions = privacy.coalitions(size)
    explanation = explain(execution, coalitions.worst_adversary, delta, coalitions.size)
    explanation = replace(explanation, curve=[_at_least(point, coalitions) for point in explanation.curve])
    return CertificatePage(execution, privacy, explanation, coalitions, range(execution.parties), coalitions.epsilon, stated)


def _at_least(point: EpsilonAtSize, coalitions: CoalitionCertificate) -> EpsilonAtSize:
    """Where the certificate itself tried coalitions of this size, the curve is at least as high."""
    if point.size != coalitions.size:
        return point
    worst = max(point.worst, coalitions.at_least)
    return replace(point, worst=worst, tried=max(point.tried, coalitions.tried), exhaustive=coalitions.exhaustive)


@dataclass(frozen=True, eq=False)
class CertificatePage:
    """The page about the certificate of an execution.

    ``epsilons`` belong to ``parties``.
    """

    execution: Execution
    privacy: PrivacyAnalysis
    explanation: Explanation
    coalitions: CoalitionCertificate | None
    parties: Sequence[PartyId]
    epsilons: Array
    stated: ReportFacts

    @cached_property
    def officer(self) -> OfficerPage:
        """The first part of the page: for the data owner."""
        certificate = self.coalitions or self.explanation.certificate
        return OfficerPage(self.execution, self.privacy, certificate, self.stated, self._commands())

    def name(self, party: PartyId) -> str:
        """A party's name; its number where no names are stated."""
        return self.officer.names[party]

    def _listed(self, parties: Iterable[PartyId], most: int = 12) -> str:
        """Names in one line; without names the numbers alone."""
        return words.listed([self.stated.names[party] if self.stated.names else f"{party}" for party in parties], most)

    def render(self) -> str:
        owners = self.officer
        return render_page(
            "certificate",
            digest(self.execution.to_json()),
            **owners.heading(),
            officer=owners.sections(),
            page=self,
            cost=self._cost(),
            curve=self._curve(),
            protection=self._protection(),
            crowd=self._crowd(),
        )

    def _members(self) -> str:
        corrupt = sorted(self.explanation.adversary.corrupt)
        return f"the coalition of {self._listed(corrupt)}" if len(corrupt) > 1 else self.name(corrupt[0])

    # --- what it costs ---

    def _cost(self) -> dict[str, Any]:
        worst, median = float(self.epsilons.max()), float(np.sort(self.epsilons)[len(self.epsilons) // 2])
        against, coalitions = self.officer.adversary, self.coalitions
        trusted = words.listed([f"party {party}" for party in sorted(self.privacy.trusted)])
        disclosures = self.explanation.certificate.information.disclosures()
        cards = (
            ("worst party, realised", worst, f"against {against}"),
            ("median party, realised", median, "against the same"),
            (
                "an outsider, realised",
                self.explanation.curve[0].worst,
                "worst party, against someone who sees only what is published",
            ),
            (
                "if all others collude, realised",
                self.privacy.alone,
                f"{trusted}, which this protocol trusts, included"
                if trusted
                else "only the noise that a party keeps for itself remains",
            ),
        )
        return {
            "heading": self._cost_heading(worst),
            "against": against,
            "learns": self._members() if coalitions and self.explanation.adversary.corrupt and disclosures else "",
            "cards": [words.card(*card) for card in cards],
            "disclosures": [words.sentence(words.named(text, self.stated.names)) for text in disclosures[:_MOST_GROUPS]],
            "more_disclosures": max(0, len(disclosures) - _MOST_GROUPS),
            "meaning": words.odds(worst, self.privacy.delta, "one unit of the worst-off party"),
            "bars": bars([self.name(party) for party in self.parties], self.epsilons),
            "figure_heading": words.spread(self.epsilons),
            "found": coalitions and coalitions.found is not None and words.rounded_up(coalitions.at_least),
        }

    def _cost_heading(self, worst: float) -> str:
        if math.isinf(worst):
            return "This execution does not protect everybody: ε has no bound"
        cost = f"ε = {words.rounded_up(worst)} at δ = {words.power(self.privacy.delta)}"
        if len(self.epsilons) > 1 and float(self.epsilons.min()) > worst * (1 - 1e-6):
            return f"Every party pays {cost}"
        if self.coalitions is not None and self.coalitions.found is not None:
            return f"No party pays more than {cost}"
        return f"{capital(self.name(self.explanation.party))} pays most: {cost}"

    def _commands(self) -> list[str]:
        adversary = self.explanation.adversary
        members = ",".join(f"{party}" for party in sorted(adversary.corrupt))
        # What the target says is read is in the file.
        more = adversary.observed - self.execution.eavesdropper.observed
        named = f' --corrupt "{members}"' + (" --observed observed.json" if more else "")
        certified = f" --colluding {self.coalitions.size}" if self.coalitions else named
        return [
            f"quietmean verify receipt {quote(self.stated.file)}{certified} --delta {self.privacy.delta:g}",
            f"quietmean verify attack {quote(self.stated.file)} --target {self.explanation.party}{named} "
            f"--delta {self.privacy.delta:g}",
        ]

    # --- what more colluders would learn ---

    def _curve(self) -> dict[str, Any]:
        curve, heading = self.explanation.curve, _curve_heading(self.explanation.curve)
        figure = coalitions_figure(curve, self.privacy.alone, self.coalitions.size if self.coalitions else None)
        return {
            "heading": heading,
            "figure": inline_svg(figure, "curve", heading),
            "caption": curve_caption(curve, sorted(self.privacy.trusted)),
            "rows": [
                [
                    f"{point.size}",
                    words.rounded_up(point.worst),
                    words.rounded_up(point.median),
                    f"{'all ' if point.exhaustive else ''}{point.tried}",
                ]
                for point in curve
            ],
        }

    # --- what protects the worst-off party ---

    def _protection(self) -> dict[str, Any]:
        found = self.explanation
        lost, now = math.isinf(found.epsilon), words.rounded_up(found.epsilon)
        by_coalition = found.adversary.corrupt and not found.adversary.observed
        return {
            "heading": self._protection_heading(),
            "name": self.name(found.party),
            "against": self._members() if by_coalition else self.officer.adversary,
            "now": now,
            "lost": lost,
            "tried_messages": bool(found.unseen) and not lost,
            "messages": [
                [
                    f"{self.name(message.sender)} to {words.listed([self.name(party) for party in message.receivers], most=4)}",
                    f"{message.round}",
                    now,
                    words.rounded_up(message.epsilon),
                ]
                for message in found.messages[:_MOST_MESSAGES]
                if self._grown(message.epsilon)
            ],
            "all_intercepted": words.rounded_up(found.all_intercepted),
            "tried_neighbours": bool(found.neighbours) and not lost,
            "neighbours": [
                [self.name(other.party), f"{other.messages}", now, words.rounded_up(other.epsilon)]
                for other in found.neighbours[:_MOST_NEIGHBOURS]
                if self._grown(other.epsilon)
            ],
        }

    def _grown(self, epsilon: float) -> bool:
        return epsilon > self.explanation.epsilon * (1 + _GROWTH)

    def _protection_heading(self) -> str:
        found, name = self.explanation, self.name(self.explanation.party)
        if math.isinf(found.epsilon):
            return f"Nothing protects {name}"
        if not found.unseen or not self._grown(found.all_intercepted):
            return f"Only its own noise protects {name}"
        unseen = "that the adversary does not see"
        return f"{count_of(found.unseen, f'message {unseen} protects', f'messages {unseen} protect')} {name}"

    # --- how the honest parties hide behind each other ---

    def _crowd(self) -> dict[str, Any] | None:
        """Facts about the groups of honest parties: for protocols in which all exchange and release."""
        execution, found = self.execution, self.explanation
        releasers = execution.protocol.traits.releasers(execution.parties)
        if not execution.schedule.rounds or len(releasers) < execution.parties:
            return None
        corrupt = found.adversary.corrupt
        names = self.stated.names or [f"{party}" for party in range(execution.parties)]
        figure, shows = exchange_figure(execution, corrupt, self.stated.names or None, title=False), statement(execution, corrupt)
        heads, rows = message_table(execution, corrupt, names)
        rows, alike = words.alike(rows)
        return {
            "heading": _crowd_heading(found.groups, execution.protocol.traits.private),
            "private": execution.protocol.traits.private,
            "groups": [self._listed(group, 16) for group in found.groups[:_MOST_GROUPS]],
            "more": len(found.groups) - _MOST_GROUPS,
            "static": has_static_neighbours(execution),
            "watched": self._listed(found.watched) if len(found.watched) >= 2 else "",
            # A picture of all arrows would be black.
            "figure": "" if execution.protocol.traits.sends_to_all else inline_svg(figure, "exchange", shows),
            "shows": shows,
            "drawn": MOST_PARTIES,
            "heads": heads,
            "rows": rows,
            "alike": alike,
        }


def _curve_heading(curve: Sequence[EpsilonAtSize]) -> str:
    first, last = curve[0], curve[-1]
    colluders = count_of(last.size, "colluder")
    if math.isinf(first.worst):
        return "Even an outsider learns something exactly"
    if last.worst <= first.worst * (1 + 1e-3):
        return f"Up to {colluders} learn no more than an outsider"
    grown = "no bound" if math.isinf(last.worst) else f"ε = {words.rounded_up(last.worst)}"
    return f"From ε = {words.rounded_up(first.worst)} against an outsider to {grown} against {colluders}"


def _crowd_heading(groups: Sequence[Sequence[PartyId]], private: bool) -> str:
    honest = sum(len(group) for group in groups)
    if not private:
        return "Nobody hides in the crowd"
    if honest == 1:
        return "Only one party is honest"
    if len(groups) == 1:
        return f"All {honest} honest parties hide in one crowd"
    return f"The {honest} honest parties fall apart into {len(groups)} groups"
