"""Table 1 as it is printed: mean (SD), n (%), p-values and standardised differences, with what the noise adds below it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

from quietmean.statistics.columns import MISSING, YES, Column
from quietmean.statistics.estimates import Flag, HypothesisTest
from quietmean.statistics.rows import Row

_LEAST_P = 0.001


def printed(
    columns: Iterable[Column],
    groups: Sequence[str],
    rows: Iterable[Row],
    tests: Mapping[str, HypothesisTest],
    flags: Sequence[Flag],
) -> list[dict[str, str]]:
    """One object for each line, with ``row``, a text for each group, ``p`` and ``smd``."""
    known = {(row.group, row.term): row for row in rows}
    few = {term: f"fewer than {flag.upper:g}" for flag in flags if flag.code == "few" and flag.upper for term in flag.terms}
    sizes = {group: known[group, "n"].value for group in groups}
    lines = [{"row": "N", **{group: _count(sizes[group]) for group in groups}}]
    for column in columns:
        name = column.name
        test, smd = tests.get(name), known.get(("smd", name))
        first = {"p": _p_value(test)} if test is not None else {}
        first |= {"smd": _number(smd.value, 2)} if smd is not None else {}
        if column.numeric:
            cells = {group: _mean(known[group, f"{name} mean"], known[group, f"{name} sd"]) for group in groups}
            lines.append({"row": f"{name}, mean (SD)", **cells, **first})
        else:
            for place, level in enumerate((YES,) if column.boolean else column.categories):
                shown = {}
                for group in groups:
                    shown[group] = few.get(f"{group} {name}:{level}") or _percent(
                        known[group, f"{name}:{level}"], sizes[group], known.get((group, f"{name} {MISSING}"))
                    )
                lines.append({"row": f"{name} = {level}, n (%)", **shown, **(first if place == 0 else {})})
        absent = {group: known.get((group, f"{name} {MISSING}")) for group in groups}
        if any(row is not None for row in absent.values()):
            texts = {
                group: few.get(f"{group} {name} {MISSING}") or ("" if row is None else _percent(row, sizes[group], None))
                for group, row in absent.items()
            }
            lines.append({"row": f"{name}, missing, n (%)", **texts})
    return lines


def footnote(columns: Iterable[Column], groups: Sequence[str], rows: Sequence[Row], compared: bool) -> str:
    """What the noise adds to a mean and to a percentage."""
    means = {row.term: max(other.noise for other in rows if other.term == row.term) for row in rows if row.term.endswith(" mean")}
    parts = [row.noise for row in rows if ":" in row.term and math.isfinite(row.noise)]
    told = [f"of the {term.removesuffix(' mean')} mean {_number(error, 2)}" for term, error in means.items()]
    told += [f"of a percentage {_number(100 * max(parts), 1)} points"] if parts else []
    noise = f"Privacy noise has a standard deviation of at most: {'; '.join(told)}." if told else ""
    tests = " P-values and intervals count it in; nothing is corrected for the number of tests." if len(groups) > 1 else ""
    return noise + tests + (" SMD: standardised difference, second group minus first." if compared else "")


def _count(value: float) -> str:
    return "-" if math.isnan(value) else f"{max(value, 0.0):.0f}"


def _number(value: float, digits: int) -> str:
    return f"{value:.{digits}f}" if math.isfinite(value) else "-"


def _mean(mean: Row, deviation: Row) -> str:
    digits = 1 if abs(mean.high - mean.low) >= 10 else 2
    return "-" if math.isnan(mean.value) else f"{mean.value:.{digits}f} ({_number(deviation.value, digits)})"


def _percent(part: Row, size: float, missing: Row | None) -> str:
    """A part of the present values of a group, or of all its records."""
    if math.isnan(part.value) or math.isnan(size):
        return "-"
    counted = size * (1.0 - missing.value) if missing is not None and not math.isnan(missing.value) else size
    value = min(max(part.value, 0.0), 1.0)
    return f"{max(counted * value, 0.0):.0f} ({100 * value:.1f})"


def _p_value(test: HypothesisTest) -> str:
    if math.isnan(test.p_value):
        return "-"
    return f"< {_LEAST_P:g}" if test.p_value < _LEAST_P else f"{test.p_value:.3f}"
