"""Every epsilon in a text, with the adversary that the words beside it name: what a reader takes it for."""

from __future__ import annotations

import html
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from quietmean.core.party import PartyId
from quietmean.graphs import ExecutionTrace
from quietmean.planning import Plan
from quietmean.randomness import Seed
from quietmean.studies import StudyOutcome

_NUMBER = re.compile(
    r"(?:epsilon|ε)\s*(?:=|≤|<=|of|is|at most)?\s*(?P<shown>inf(?:inite)?\b|∞|\d[\d,]*(?:\.\d+)?(?:e-?\d+)?)"
    r"|(?P<none>not bounded|no bound\b|nothing bounds)"
)
# What words stand for which adversary, the first that fits; a sentence that names none is about the planned number.
_WHOM = {
    "target": r"\btarget\b|asked for|\bbudget\b|of the account",
    "party": r"of one party together|whole party",
    "found": r"at least epsilon",
    "planned": r"all other contributors .*(of (these|the) \d+|colluding members)"
    r"|of (these|the) \d+ (members|institutions).* and all other contributors",
    "everybody": r"(whoever|no matter who) else|(whoever|anyone who) sees|whoever reads|everybody else|everyone else"
    r"|(the )?others? (parties )?(all )?collude"
    r"|all others|all other parties",
    "more members": r"more (collude|members)|more than \d+",
}
_BEFORE, _AFTER = (
    r"a priori|guaranteed|whatever happens|promised|costs? at most|it costs|guarantee",
    r"realised|who took part|this execution",
)
# What would do instead is no promise.
_ADVICE = "At least half of such studies show an answer with"
_ENDS = re.compile(r"; |(?<=[^.\d]\w)\. (?=[A-Z])|\n")


@dataclass(frozen=True)
class Printed:
    """An epsilon as it is printed: ``shown``, infinite where nothing bounds it, of ``whom`` and ``when``; ``digits`` behind the
    point."""

    shown: float
    digits: int
    whom: str
    when: str
    sentence: str

    def is_bound_of(self, true: float) -> bool:
        """Is it the number, rounded up to the digits that are shown?"""
        if math.isinf(true) or math.isinf(self.shown):
            return true == self.shown
        return -1e-9 * true <= self.shown - true <= 10.0**-self.digits * 1.0001


def printed_in(text: str) -> Iterator[Printed]:
    """All of them in their order."""
    for sentence in _ENDS.split(text):
        if re.search(_ADVICE, sentence):
            continue
        for found in _NUMBER.finditer(sentence):
            shown = (found["shown"] or "inf").replace(",", "")
            number = math.inf if shown.startswith(("inf", "∞")) else float(shown)
            whom = next((who for who, pattern in _WHOM.items() if re.search(pattern, sentence, re.IGNORECASE)), "planned")
            yield Printed(number, len(shown.partition(".")[2]), whom, _when(sentence, found.start()), sentence)


def _when(sentence: str, place: int) -> str:
    """The last word before the number that says when, else the first one behind it; before the start where there is none."""
    marks = [(mark.start(), "before") for mark in re.finditer(_BEFORE, sentence, re.IGNORECASE)]
    marks += [(mark.start(), "after") for mark in re.finditer(_AFTER, sentence, re.IGNORECASE)]
    earlier, later = [mark for mark in sorted(marks) if mark[0] < place], [mark for mark in sorted(marks) if mark[0] >= place]
    return (earlier[-1] if earlier else later[0] if later else (0, "before"))[1]


def lines_of_page(page: str) -> str:
    """What a reader of a page sees, a line for each block; pictures are left out."""
    text = re.sub(r"<style>.*?</style>|<svg.*?</svg>|<script>.*?</script>", " ", page, flags=re.DOTALL)
    text = re.sub(r"\s+", " ", text)
    text = re.sub(r"</(p|div|li|tr|h\d|details|section|summary|pre)>", "\n", text)
    return html.unescape(re.sub(r"<[^>]+>", " ", text)).replace("\u00a0", " ")


def wrong_promises(text: str, plan: Plan, outcome: StudyOutcome, everybody: float) -> list[str]:
    """Sentences with an epsilon that is not the one of the adversary whom it names. ``everybody``: before the start."""
    certificate = outcome.certificate
    found = certificate.max_epsilon if certificate.found is None else certificate.found.max_epsilon
    true: Mapping[tuple[str, str], tuple[float, ...]] = {
        ("planned", "before"): (plan.epsilon_a_priori,),
        ("planned", "after"): (outcome.epsilon, float(certificate.epsilon.min())),
        ("everybody", "before"): (everybody, outcome.everyone_else_epsilon),
        ("everybody", "after"): (outcome.everyone_else_epsilon,),
        **{("target", when): (plan.target.epsilon,) for when in ("before", "after")},
        **{("found", when): (found,) for when in ("before", "after")},
        **{
            ("party", when): (math.inf if outcome.party_epsilon is None else outcome.party_epsilon,)
            for when in ("before", "after")
        },
        **{("more members", when): (math.inf,) for when in ("before", "after")},
    }
    return [
        f"{each.whom} {each.when}: {each.shown} is not {true[each.whom, each.when]} in: {each.sentence.strip()[:200]}"
        for each in printed_in(text)
        if not any(each.is_bound_of(value) for value in true[each.whom, each.when])
    ]


def against_everybody(plan: Plan, party: PartyId) -> float:
    """From the certificate of an execution in which all stay: what all others learn together."""
    everyone = ExecutionTrace.everyone(plan.protocol.rounds, plan.target.parties)
    privacy = plan.execution(Seed.public("all others"), everyone).privacy(plan.target.delta)
    return privacy.against([other for other in range(plan.target.parties) if other != party]).epsilon_of(party)


def numbers_of(document: Any, names: Mapping[str, float]) -> list[str]:
    """Fields of plain JSON data with one of the ``names``, at any depth, that have another value."""
    if isinstance(document, list | tuple):
        return [wrong for each in document for wrong in numbers_of(each, names)]
    if not isinstance(document, Mapping):
        return []
    wrong = [wrong for each in document.values() for wrong in numbers_of(each, names)]
    for name, value in names.items():
        stated = float(document.get(name, value))
        if stated != value and not math.isclose(stated, value, rel_tol=1e-9):
            wrong.append(f"{name}: {stated} is not {value}")
    return wrong
