"""What each statistic says, on the page: its figure, the table behind it, its tests, and what is flagged."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from quietmean.core.readable import UNKNOWN, decimals_for, fixed, interval_text, p_text, plain
from quietmean.report.plots import plot
from quietmean.report.style import inline_svg
from quietmean.statistics import Answer
from quietmean.statistics.printed import printed_table

# A longer table is scrolled on the screen.
_TALL = 16


def answer_sections(answers: Sequence[Answer], truth: Sequence[Answer] | None) -> list[dict[str, Any]]:
    """One section for each statistic, in their order; ``truth`` without noise, where it is known."""
    exact: Sequence[Answer | None] = truth or [None] * len(answers)
    return [_section(place, answer, one) for place, (answer, one) in enumerate(zip(answers, exact, strict=True))]


def _section(place: int, answer: Answer, truth: Answer | None) -> dict[str, Any]:
    drawn = plot(answer)
    found = answer.estimates
    told = [] if found.completeness is None else [("records", str(found.completeness))]
    notes = list(dict.fromkeys(flag.message for flag in found.flags))
    if found.reason:
        notes.append(f"No interval of the population: {found.reason}.")
    return {
        "name": answer.statistic.text,
        "what": answer.statistic.summary,
        "figure": "" if drawn is None else inline_svg(drawn[0], f"answer-{place}", drawn[1]),
        **(_printed(found.summary) or _table(answer, truth)),
        "facts": told + _facts({name: one for name, one in found.summary.items() if name not in ("footnote", "heads", "groups")}),
        "tests": _tests(answer),
        "notes": [f"{note[:1].upper()}{note[1:]}{'' if note.endswith('.') else '.'}" for note in notes],
        "method": _method(answer),
    }


def _method(answer: Answer) -> str:
    found = answer.estimates
    how = f"{found.method[:1].upper()}{found.method[1:]}. It used {100 * answer.budget_part:.2g} % of the privacy budget."
    return f"{found.summary.get('footnote', '')} {how}".strip()


def _printed(summary: Mapping[str, Any]) -> dict[str, Any] | None:
    """A table that the statistic prints itself."""
    found = printed_table(summary)
    return None if found is None else {"heads": list(found.heads), "rows": [list(row) for row in found.rows], "tall": False}


def _table(answer: Answer, truth: Answer | None) -> dict[str, Any]:
    found = answer.estimates
    both = found.of_population
    heads = ["term", "estimate", "± noise"]
    heads.append("95 % for the noise")
    heads += [] if both is None else ["95 % for the population"]
    heads += [] if found.p_value is None else ["p"]
    heads += [] if truth is None else ["without noise"]
    rows = []
    for place, term in enumerate(found.terms):
        value, error = float(found.value[place]), float(found.standard_error[place])
        decimals = decimals_for(error)
        row = [term or answer.statistic.text, _number(value, decimals, error), _number(error, decimals, error)]
        row.append(interval_text(found.of_noise[place].tolist()) if math.isfinite(value) and math.isfinite(error) else UNKNOWN)
        if both is not None:
            row.append(interval_text(both[place].tolist()) if math.isfinite(value) else UNKNOWN)
        if found.p_value is not None:
            row.append(p_text(float(found.p_value[place])))
        if truth is not None:
            exact = float(truth.estimates.value[place])
            row.append(_number(exact, decimals if math.isfinite(error) else 3, 0.0))
        rows.append(row)
    return {"heads": heads, "rows": rows, "tall": len(rows) > _TALL}


def _number(value: float, decimals: int, error: float) -> str:
    return fixed(value, decimals) if math.isfinite(error) else UNKNOWN


def _tests(answer: Answer) -> list[str]:
    found = []
    for name, test in answer.estimates.tests.items():
        if not math.isnan(test.p_value):
            found.append(test.sentence(name))
    return found


def _facts(summary: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Further numbers about the whole, and by group: medians with their intervals, R squared and so on."""
    found: list[tuple[str, str]] = []
    for name, value in summary.items():
        if isinstance(value, Mapping):
            found += [(f"{name}: {_word(key)}", text) for key, one in value.items() if (text := _fact(one))]
        elif text := _fact(value):
            found.append((_word(name), text))
    return found


def _word(key: str) -> str:
    return key.replace("_", " ").replace("interval population", "(95 %)")


def _fact(value: Any) -> str:
    if isinstance(value, bool) or value is None:
        return ""
    if isinstance(value, int | float):
        return "" if math.isnan(value) else "not reached" if math.isinf(value) else plain(value, 4)
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {text}" for key, one in value.items() if (text := _fact(one)))
    if isinstance(value, list | tuple) and len(value) == 2:
        ends = [_fact(one) for one in value]
        return " to ".join(ends) if all(ends) else ""
    return value if isinstance(value, str) else ""
