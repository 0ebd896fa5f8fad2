"""First screens: lines of 80 columns, the answer first, and those of ``quietmean verify``."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from quietmean.cli.console import NO, OK, gate_sentence, out, print_lines
from quietmean.core.domain import PrivacyUnit
from quietmean.core.readable import SCREEN, ShortFact, count_of, delta_shown, epsilon_shown, indented, listed, printable
from quietmean.privacy import CoalitionCertificate
from quietmean.privacy.analysis import WORTHLESS, is_worthless
from quietmean.privacy.guesses import guess_text, says_nothing
from quietmean.privacy.loss import EXACT

if TYPE_CHECKING:
    from pathlib import Path

    from quietmean.core.bounds import APriori
    from quietmean.core.party import PartyId
    from quietmean.privacy import Certificate, PrivacyAnalysis
    from quietmean.protocols.fields import Hints

BELOW = "    "
NEXT, THEN, OR = "Next      quietmean ", "Then      quietmean ", "Or        quietmean "
AGREE = "To agree  quietmean "
MORE = "More      the same command with --details"
# Where the text of a row begins that says something of a study.
_ROW = 13
# So many parties, and so many warnings, of more.
_WORST, _WARNINGS = 3, 3
# What two computations of one figure may differ by.
_ROUNDING = 1e-9


def with_remark(line: str, remark: str) -> list[str]:
    """A line that can be pasted or opened, with a remark behind it, or below it where both are longer than the screen."""
    whole = f"{line}    {remark}"
    return [whole] if len(whole) <= SCREEN else [line, " " * len("More      ") + remark]


def show_first(lines: Iterable[str], details: bool, below: Callable[[], None] | None = None) -> None:
    """Print a first screen; then, if its ``details`` are asked for, what is ``below``, and otherwise how to see them."""
    print_lines([*lines, *([] if details else [MORE])])
    if details and below is not None:
        out.print()
        below()


def rows(facts: Iterable[ShortFact]) -> list[str]:
    """The lines of what is said of a study, below its name, such as "  asks       mean(age)"."""
    shown = list(facts)
    indent = max(_ROW, *(len(printable(fact.key)) + 4 for fact in shown))
    return [line for fact in shown for line in indented(f"  {printable(fact.key)}", printable(fact.text), indent)]


@dataclass(frozen=True)
class ReceiptScreen:
    """What was recomputed of an execution file: ``document``, as for --json, and what its ``raw`` receipt says itself."""

    path: Path
    raw: Mapping[str, Any]
    hints: Hints
    analysis: PrivacyAnalysis
    certificate: Certificate | CoalitionCertificate
    document: Mapping[str, Any]
    names: Sequence[str]

    def lines(self) -> Iterator[str]:
        """The first screen."""
        document = self.document
        yield self._what()
        yield from self._verdict()
        certificate = self.certificate
        yield f"{BELOW}against {self._against()}"
        yield from self._worst_off()
        if isinstance(certificate, CoalitionCertificate):
            if certificate.found is not None:
                yield f"{BELOW}The worst of {certificate.found.tried:,} that were tried learns at least epsilon " + epsilon_shown(
                    certificate.at_least
                )
            yield f"{BELOW}{_if_all_others(self.analysis.alone, certificate.a_priori)}"
        yield from self._whole_party()
        if "gate" in document:
            yield f"{BELOW}{gate_sentence(document['gate'])}"
        if "at_epsilon" in document:
            worst = max((float(delta) for delta in document["delta"]), default=0.0)
            yield f"{BELOW}delta at epsilon {document['at_epsilon']:g}: {worst:.3g} for the worst party"
        disclosures = document["disclosures"]
        yield from (f"!   {sentence}" for sentence in disclosures[:_WARNINGS])
        if len(disclosures) > _WARNINGS:
            yield f"!   {len(disclosures) - _WARNINGS} more of these: --details"
        yield "The receipt alone cannot tell whether values or logs were false."
        yield f"More   each party's figure, {count_of(len(document['assumptions']), 'assumption')}: --details"

    def _against(self) -> str:
        if isinstance(self.certificate, CoalitionCertificate):
            return self.certificate.in_short()
        adversary = self.certificate.adversary
        if adversary.observed or not adversary.corrupt:
            return adversary.describe()
        names = [self._name(party) for party in sorted(adversary.corrupt)]
        return f"{names[0]} alone" if len(names) == 1 else f"{listed(names)} together"

    def _name(self, party: PartyId) -> str:
        return self.names[party] if self.names else f"party {party}"

    def _what(self) -> str:
        origin = self.raw.get("origin")
        finished = origin.get("finished") if isinstance(origin, Mapping) else None
        date = f", {finished[:10]}" if isinstance(finished, str) else ""
        protocol = f", {self.raw['protocol']}" if isinstance(self.raw.get("protocol"), str) else ""
        return f"{self.path}: {count_of(self.analysis.transcript.parties, 'party', 'parties')}{protocol}{date}"

    @property
    def _below(self) -> float | None:
        return self.analysis.terms.charge(self.certificate.max_mu).delta_below

    def _verdict(self) -> Iterator[str]:
        """Whether the receipt holds; then what the cost means, the other findings, and what to do where it does not hold."""
        findings = [*self._kept(), *self._as_stated()]
        failed = [text for held, text in findings if not held]
        lead, *rest = [*failed, *(text for held, text in findings if held)]
        yield f"{NO}This receipt does not hold. {lead}" if failed else f"{OK}This receipt holds. {lead}"
        found = self.certificate.max_epsilon
        if self.hints.nats is None and math.isfinite(found):
            yield f"{BELOW}{guess_text(found, self.analysis.delta, unit_of(self.raw))}"
        yield from (f"{BELOW}{text}" for text in rest)
        if failed:
            yield f"{BELOW}Do not rely on what it promises. Keep this file, and tell all parties."

    def _kept(self) -> Iterator[tuple[bool, str]]:
        """What was promised of the cost: whether it holds, and a sentence."""
        found, promised = self.certificate.max_epsilon, self.document.get("epsilon_a_priori")
        shown = f"epsilon {epsilon_shown(found)} (delta {delta_shown(self.analysis.delta, self._below)})"
        who = "for every party" if self._equal else "for the worst party"
        again = f"The realised cost is {shown} {who}"
        if self.hints.nats is not None or "mutual_information_nats" in self.document:
            yield from self._nats()
            if math.isinf(found):
                return
        target = self.hints.epsilon if self._of_target and self.hints.nats is None else None
        if math.isinf(found):
            yield False, f"No privacy: nothing bounds what they learn of a party ({shown})."
        elif promised is not None and _above(found, promised):
            yield False, f"{again}. That is more than the guaranteed epsilon {epsilon_shown(promised)}."
        elif target is not None and _above(found, target):
            yield False, f"{again}. That is above the target epsilon {epsilon_shown(target)}."
        elif promised is not None and not math.isinf(promised):
            yield True, f"{again}, as promised (<= {epsilon_shown(promised)})."
        else:
            within = f", within the target epsilon {epsilon_shown(target)}" if target is not None else ""
            yield True, f"{again}{within}. Nothing was guaranteed beforehand."

    def _as_stated(self) -> Iterator[tuple[bool, str]]:
        """A receipt that states less than what is recomputed of the same adversary does not hold."""
        found, result = self.certificate.max_epsilon, self.raw.get("result")
        if math.isinf(found) and self.hints.nats is not None:
            return
        if not (self._of_target and isinstance(result, Mapping) and isinstance(self.certificate, CoalitionCertificate)):
            return
        stated = result.get("epsilon")
        if not isinstance(stated, int | float) or result.get("delta") != self.analysis.delta:
            return
        if not _above(found, stated):
            yield True, f"The receipt itself states no less: realised epsilon {epsilon_shown(stated)}."
            return
        least = self.certificate.exhaustive or self.document["numbers"] == EXACT or _above(self.certificate.at_least, stated)
        if least and self.certificate.found is None:
            yield False, f"It states realised epsilon {epsilon_shown(stated)}, which is less than what it shows."
        else:
            yield True, f"It states realised epsilon {epsilon_shown(stated)}. The bound here is not as close."

    @property
    def _of_target(self) -> bool:
        """Is this the adversary, and the delta, of which the receipt's target is?"""
        size = self.certificate.size if isinstance(self.certificate, CoalitionCertificate) else None
        return size == self.hints.colluding and self.analysis.delta == self.hints.delta

    def _nats(self) -> Iterator[tuple[bool, str]]:
        """Mutual information of the worst party, and what was asked for."""
        document = self.document
        worst = max((float(nats) for nats in document.get("mutual_information_nats", ())), default=math.inf)
        target = self.hints.nats
        within = "" if target is None else f", target {target:g}"
        most = f"At most {epsilon_shown(worst)} nats a coordinate for every party"
        if target is not None and _above(worst, target):
            yield False, f"{most}. That is above the target {target:g}."
        else:
            yield True, f"{most}{within}."
        if target is not None:
            yield True, "This is an average over values, not differential privacy (epsilon is infinite)."

    @property
    def _equal(self) -> bool:
        """Do all parties have the figure that is shown?"""
        return len({epsilon_shown(float(epsilon)) for epsilon in self.document["epsilon"]}) <= 1

    def _worst_off(self) -> Iterator[str]:
        if self._equal:
            return
        document = self.document
        order = sorted(range(len(document["honest"])), key=lambda row: -float(document["epsilon"][row]))
        shown = [
            f"{self._name(document['honest'][row])} {epsilon_shown(float(document['epsilon'][row]))}" for row in order[:_WORST]
        ]
        more = f"; {count_of(len(order) - _WORST, 'other party', 'other parties')} with no more" if len(order) > _WORST else ""
        yield f"{BELOW}{', '.join(shown)}{more}"

    def _whole_party(self) -> Iterator[str]:
        """What the receipt says of all records of a party together, where one of them is protected."""
        result = self.raw.get("result")
        stated = result.get("certificate") if isinstance(result, Mapping) else None
        if not isinstance(stated, Mapping) or "whole_party_epsilon" not in stated or stated.get("unit") == PrivacyUnit.PARTY:
            return
        try:
            whole = float(stated["whole_party_epsilon"])
        except (TypeError, ValueError):
            return
        if math.isinf(whole) and math.isinf(max(map(float, self.document["epsilon"]), default=0.0)):
            yield f"{BELOW}A whole party is not protected, nor is one record of it."
        elif math.isinf(whole):
            yield f"{BELOW}A whole party is not protected. Only a study with --unit party does that."
        elif says_nothing(whole):
            yield f"{BELOW}A whole party is not protected (epsilon {epsilon_shown(whole)})."
        else:
            yield f"{BELOW}The receipt states epsilon {epsilon_shown(whole)} for all records of one party together."


def unit_of(raw: Mapping[str, Any]) -> str:
    """Return what a receipt protects one of; "party" where it says nothing."""
    result = raw.get("result")
    stated = result.get("certificate") if isinstance(result, Mapping) else None
    unit = stated.get("unit") if isinstance(stated, Mapping) else None
    return str(unit) if unit in list(PrivacyUnit) else str(PrivacyUnit.PARTY)


def _above(found: float, limit: float) -> bool:
    return found > limit * (1 + _ROUNDING) + _ROUNDING


def _if_all_others(alone: float, promised: APriori | None) -> str:
    if math.isinf(alone):
        return "If all others collude, nothing bounds what they learn."
    if says_nothing(alone):
        return f"If all others collude, hardly anything is protected (epsilon {epsilon_shown(alone)})."
    named = f" ({WORTHLESS})" if is_worthless(alone, promised) else ""
    return f"If all others collude: epsilon {epsilon_shown(alone)}{named}"
