"""The page that explains a certificate: who pays what, what protects the worst-off party, who could harm it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
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
from quietmean.report.curves import coalitions_figure, curve_caption
from quietmean.report.exchange import MOST_PARTIES, exchange_figure, message_table, statement
from quietmean.report.explain import EpsilonAtSize, Explanation, explain, has_static_neighbours
from quietmean.report.officer import OfficerPage
from quietmean.report.pictures import bars
from quietmean.report.released import ReportFacts
from quietmean.report.rendering import page_at, render_page
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
    """``epsilons`` belong to ``parties``."""

    execution: Execution
    privacy: PrivacyAnalysis
    explanation: Explanation
    coalitions: CoalitionCertificate | None
    parties: Sequence[PartyId]
    epsilons: Array
    stated: ReportFacts

    @property
    def officer(self) -> OfficerPage:
        """The first part of the page: for the data owner."""
        certificate = self.coalitions or self.explanation.certificate
        return OfficerPage(self.execution, self.privacy, certificate, self.stated, self._commands())

    def _short(self, party: PartyId) -> str:
        return self.stated.names[party] if self.stated.names else f"{party}"

    def name(self, party: PartyId) -> str:
        """A party's name; its number where no names are stated."""
        return self.stated.names[party] if self.stated.names else f"party {party}"

    def render(self) -> str:
        owners = self.officer
        return render_page(
            "certificate",
            digest(self.execution.to_json()),
            **owners.heading()
            | {"summary": f"{owners.summary} It begins with what matters to a decision; reasons and pictures come after it."},
            officer=owners.sections(),
            execution=self._summary(),
            cost=self._cost(),
            curve=self._curve(),
            protection=self._protection(),
            crowd=self._crowd(),
        )

    def _summary(self) -> str:
        rounds = self.execution.schedule.rounds
        exchanged = f"{count_of(rounds, 'round')} of exchange" if rounds else "no exchange"
        return f"{self.execution.protocol.name}, {count_of(self.execution.parties, 'party', 'parties')}, {exchanged}."

    def _against(self) -> str:
        return words.named(
            self.coalitions.describe() if self.coalitions else self.explanation.adversary.describe(), self.stated.names
        )

    def _cost(self) -> dict[str, Any]:
        worst, median = float(self.epsilons.max()), float(np.sort(self.epsilons)[len(self.epsilons) // 2])
        return {
            "heading": self._cost_heading(worst),
            "against": f"Against {self._against()}.{self._who_learns()}",
            "cards": [
                words.card("worst party, as it happened", worst, f"against {self._against()}"),
                words.card("median party, as it happened", median, "against the same"),
                words.card(
                    "an outsider, as it happened",
                    self.explanation.curve[0].worst,
                    "worst party against who sees only what is published",
                ),
                words.card("if everybody else colludes, as it happened", self.privacy.alone, self._alone_note()),
            ],
            "disclosures": [
                words.sentence(words.named(text, self.stated.names))
                for text in self.explanation.certificate.information.disclosures()[:_MOST_GROUPS]
            ],
            "more_disclosures": max(0, len(self.explanation.certificate.information.disclosures()) - _MOST_GROUPS),
            "meaning": words.odds(worst, self.privacy.delta, "one unit of the worst-off party"),
            "bars": bars([self.name(party) for party in self.parties], self.epsilons),
            "figure_heading": words.spread(self.epsilons),
            "figure_note": self._figure_note(),
        }

    def _figure_note(self) -> str:
        if self.coalitions is None:
            return "Each bar is one honest party's ε."
        if self.coalitions.found is None:
            return "Each bar is one party's largest ε over all coalitions tried that it is not in."
        return (
            "Each bar is one party's ε at most, whichever coalition that it is not in: a bound. The worst coalition of "
            f"{self.coalitions.tried} that were tried reaches ε = {words.rounded_up(self.coalitions.at_least)}; what follows is "
            "about that one."
        )

    def _who_learns(self) -> str:
        explanation = self.explanation
        if self.coalitions is None or not explanation.adversary.corrupt or not explanation.certificate.information.disclosures():
            return ""
        return f" This is what {_members(explanation, self.stated.names)} learns exactly:"

    def _alone_note(self) -> str:
        trusted = sorted(self.privacy.trusted)
        if trusted:
            return f"{words.listed([f'party {party}' for party in trusted])}, which this protocol trusts, included"
        return "only the noise that a party keeps for itself remains"

    def _cost_heading(self, worst: float) -> str:
        if math.isinf(worst):
            return "This execution does not protect everybody: ε has no bound"
        cost = f"ε = {words.rounded_up(worst)} at δ = {words.power(self.privacy.delta)}"
        if len(self.epsilons) > 1 and float(self.epsilons.min()) > worst * (1 - 1e-6):
            return f"Every party pays {cost}"
        if self.coalitions is not None and self.coalitions.found is not None:
            return f"No party pays more than {cost}"
        return f"{capital(self.name(self.explanation.party))} pays most: {cost}"

    def _curve(self) -> dict[str, Any]:
        curve, trusted = self.explanation.curve, sorted(self.privacy.trusted)
        size = self.coalitions.size if self.coalitions else None
        figure = coalitions_figure(curve, self.privacy.alone, size)
        caption = curve_caption(curve, trusted)
        if size is not None:
            caption += " The grey band marks the coalitions that the certificate is about."
        heading = _curve_heading(curve)
        return {
            "heading": heading,
            "caption": caption,
            "figure": inline_svg(figure, "curve", heading),
            "rows": _curve_rows(curve),
        }

    def _protection(self) -> dict[str, Any]:
        explanation = self.explanation
        party_name = self.name(explanation.party)
        against = (
            self._against()
            if explanation.adversary.observed or not explanation.adversary.corrupt
            else _members(explanation, self.stated.names)
        )
        return {
            "heading": self._protection_heading(),
            "setting": f"All of this is about {party_name}, against {against}: ε = {words.rounded_up(explanation.epsilon)}.",
            "lost": math.isinf(explanation.epsilon),
            "messages": self._message_rows(),
            "messages_note": self._messages_note(),
            "neighbours": self._neighbour_rows(),
            "neighbours_note": self._neighbours_note(),
        }

    def _commands(self) -> list[str]:
        adversary = self.explanation.adversary
        members = ",".join(f"{party}" for party in sorted(adversary.corrupt))
        # What the target says is read is in the file.
        more = adversary.observed - self.execution.eavesdropper.observed
        named = f' --corrupt "{members}"' + (" --observed observed.json" if more else "")
        certified = f" --colluding {self.coalitions.size}" if self.coalitions else named
        return [
            f"quietmean certify execution.json{certified} --delta {self.privacy.delta:g}",
            f"quietmean attack execution.json --target {self.explanation.party}{named} --delta {self.privacy.delta:g}",
        ]

    def _protection_heading(self) -> str:
        explanation = self.explanation
        if math.isinf(explanation.epsilon):
            return f"Nothing protects {self.name(explanation.party)}"
        if not explanation.unseen or explanation.all_intercepted <= explanation.epsilon * (1 + _GROWTH):
            return f"Only its own noise protects {self.name(explanation.party)}"
        messages = count_of(
            explanation.unseen,
            "message that the adversary does not see protects",
            "messages that the adversary does not see protect",
        )
        return f"{messages} {self.name(explanation.party)}"

    def _message_rows(self) -> list[list[str]]:
        explanation, rows = self.explanation, []
        for message in explanation.messages[:_MOST_MESSAGES]:
            if not message.epsilon > explanation.epsilon * (1 + _GROWTH):
                break
            receivers = words.listed([self.name(receiver) for receiver in message.receivers], most=4)
            rows.append(
                [
                    f"{self.name(message.sender)} to {receivers}",
                    f"{message.round}",
                    words.rounded_up(explanation.epsilon),
                    words.rounded_up(message.epsilon),
                ]
            )
        return rows

    def _messages_note(self) -> str:
        explanation = self.explanation
        if math.isinf(explanation.epsilon) or not explanation.unseen:
            return ""
        tried = (
            ""
            if len(explanation.messages) == explanation.unseen
            else f" {len(explanation.messages)} of the {explanation.unseen} were tried."
        )
        if not any(message.epsilon > explanation.epsilon * (1 + _GROWTH) for message in explanation.messages):
            return f"No single message matters: its ε stays the same whichever of them is intercepted.{tried}"
        together = (
            ""
            if explanation.unseen == 1
            else f" All {explanation.unseen} together: ε = {words.rounded_up(explanation.all_intercepted)}."
        )
        return f"Its ε if one more message were intercepted; the most harmful first.{together}{tried}"

    def _neighbour_rows(self) -> list[list[str]]:
        explanation = self.explanation
        return [
            [
                self.name(neighbour.party),
                f"{neighbour.messages}",
                words.rounded_up(explanation.epsilon),
                words.rounded_up(neighbour.epsilon),
            ]
            for neighbour in explanation.neighbours[:_MOST_NEIGHBOURS]
            if neighbour.epsilon > explanation.epsilon * (1 + _GROWTH)
        ]

    def _neighbours_note(self) -> str:
        explanation = self.explanation
        if math.isinf(explanation.epsilon) or not explanation.neighbours:
            return ""
        tried = len(explanation.neighbours)
        which = "" if tried == explanation.candidates else f" The {tried} parties that exchanged most with it were tried."
        if explanation.neighbours[0].epsilon <= explanation.epsilon * (1 + _GROWTH):
            return f"Nobody: its ε stays the same no matter who else colludes.{which}"
        return f"Its ε if one more party colluded; the most harmful first.{which}"

    def _crowd(self) -> dict[str, Any] | None:
        """Say how the honest parties hide behind each other: for protocols in which all exchange and release."""
        execution, corrupt = self.execution, self.explanation.adversary.corrupt
        releasers = execution.protocol.traits.releasers(execution.parties)
        if not execution.schedule.rounds or len(releasers) < execution.parties:
            return None
        names = self.stated.names or [f"{party}" for party in range(execution.parties)]
        figure = exchange_figure(execution, corrupt, self.stated.names or None, title=False)
        heads, rows = message_table(execution, corrupt, names)
        return {
            "heading": _crowd_heading(self.explanation.groups, execution.protocol.traits.private),
            "notes": self._crowd_notes(),
            "warning": _static_warning(execution, self.explanation.watched, self.stated.names),
            "figure": inline_svg(figure, "exchange", statement(execution, corrupt)),
            "caption": self._crowd_caption(),
            "heads": heads,
            "rows": rows,
        }

    def _crowd_caption(self) -> str:
        parts = [
            f"{statement(self.execution, self.explanation.adversary.corrupt)}.",
            "An arrow leaves its sender after one round and arrives in the next.",
        ]
        if self.execution.parties > MOST_PARTIES:
            parts.append(f"{MOST_PARTIES} of {self.execution.parties} parties are drawn.")
        if self.explanation.adversary.observed:
            parts.append("Intercepted messages are not marked.")
        return " ".join(parts)

    def _crowd_notes(self) -> list[str]:
        groups = self.explanation.groups
        if not self.execution.protocol.traits.private:
            return ["This protocol adds no noise, so being connected protects nobody."]
        if len(groups) == 1:
            return [
                "Any two honest parties are connected by messages that the adversary did not see. So the noise that cancels in "
                "the sum hides each of them behind all the others, and the sum itself keeps the noise that stays."
            ]
        shown = [words.listed([self._short(party) for party in group], most=16) for group in groups[:_MOST_GROUPS]]
        more = f", and {count_of(len(groups) - _MOST_GROUPS, 'more group')}" if len(groups) > _MOST_GROUPS else ""
        return [
            f"The groups are: {'; '.join(shown)}{more}.",
            "Between groups the adversary saw every message. Within a group the noise that cancels hides its members behind each "
            "other, but the sum of a group has only the noise that stays; a party on its own has nothing else.",
        ]


def _members(explanation: Explanation, names: Sequence[str]) -> str:
    corrupt = sorted(explanation.adversary.corrupt)
    members = [names[party] if names else f"{party}" for party in corrupt]
    if len(members) > 1:
        return f"the coalition of {words.listed(members)}"
    return members[0] if names else f"party {members[0]}"


def _curve_rows(curve: Sequence[EpsilonAtSize]) -> list[list[str]]:
    return [
        [
            f"{point.size}",
            words.rounded_up(point.worst),
            words.rounded_up(point.median),
            f"{'all ' if point.exhaustive else ''}{point.tried}",
        ]
        for point in curve
    ]


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
    if not private:
        return "Nobody hides in the crowd"
    honest = sum(len(group) for group in groups)
    if honest == 1:
        return "Only one party is honest"
    if len(groups) == 1:
        return f"All {honest} honest parties hide in one crowd"
    return f"The {honest} honest parties fall apart into {len(groups)} groups"


def _static_warning(execution: Execution, watched: Sequence[PartyId], names: Sequence[str]) -> str:
    if not has_static_neighbours(execution):
        return ""
    if len(watched) >= 2:
        party_names = words.listed([names[party] if names else f"{party}" for party in watched])
        return (
            f"Every party sends to the same others in every round, and the adversary saw all that parties {party_names} sent and "
            "received. More rounds do not help them (IncA, Theorem 4.9): take a schedule whose neighbours change."
        )
    return (
        "Every party sends to the same others in every round: one whose neighbours all collude is never hidden. A schedule whose "
        "neighbours change avoids that."
    )
