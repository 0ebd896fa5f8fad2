"""What answers say beside their terms: restricted means, who was compared until when, heterogeneity, parts of the variance."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from quietmean.core.readable import UNKNOWN, fixed, interval_text, number_text, plain
from quietmean.statistics import Answer
from quietmean.statistics.compared import COMPARED, WITHOUT_SIGN, compared_in

Facts = list[tuple[str, str]]

# Digits of a number without a standard error.
_DIGITS = 3
_NAMES = {
    "r_squared": "R²",
    "adjusted_r_squared": "adjusted R²",
    "sigma": "residual standard deviation",
    "df": "degrees of freedom",
    "records": "complete records",
    "sites": "sites that are known",
}
# Facts that are numbers of records.
_COUNTS = ("complete records", "events until then")
# Entries of a summary that pages show in another place, or that are for programs.
_ELSEWHERE = ("table", "footnote", "heads", "at_risk", "exact", "extrapolated", COMPARED, WITHOUT_SIGN)


def facts_of(answer: Answer) -> Facts:
    """Names and texts, none empty."""
    summary = answer.estimates.summary
    facts = _OF_KINDS.get(answer.statistic.name, _plainly)(summary)
    if (answer.estimates.standard_error > 0).any():
        facts = [(name, _about(text) if name in _COUNTS else text) for name, text in facts]
    facts = [("compared", text) for text in compared_in(summary)] + facts
    counted = answer.counted
    return [
        (name.replace("records", counted), text.replace(" records end", f" {counted} end"))
        for name, text in facts
        if text and text != UNKNOWN
    ]


def _about(text: str) -> str:
    """Put "about" before the numbers of a text: counts of records are estimates."""
    return re.sub(r"(?<![\d,.])\d[\d,]*(?=, |$)", r"about \g<0>", text)


def _plainly(summary: Mapping[str, Any]) -> Facts:
    """Numbers and words by name; nothing of lists, which mean something else in each kind."""
    facts: Facts = []
    for name, value in summary.items():
        if name in _ELSEWHERE:
            continue
        if isinstance(value, Mapping):
            parts = [f"{key} {text}" for key, inner in value.items() if (text := _text(str(key), inner))]
            facts.append((_word(name), ", ".join(parts)))
        else:
            facts.append((_word(name), _text(name, value)))
    return facts


def _word(name: str) -> str:
    return _NAMES.get(name, name.replace("_", " "))


def _text(name: str, value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return ""
    return fixed(value, 0) if name in ("records", "sites", "df") else plain(value, _DIGITS)


def _number(value: Any) -> float:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else math.nan


def _survival(summary: Mapping[str, Any]) -> Facts:
    facts: Facts = []
    for arm, own in summary.items():
        if not isinstance(own, Mapping) or "restricted_mean" not in own:
            continue
        mean, error = _number(own["restricted_mean"]), _number(own.get("restricted_mean_standard_error"))
        if not math.isfinite(mean):
            continue
        ends = own.get("restricted_mean_interval_population")
        usable = error if 0 < error < math.inf else 0.0
        shown = interval_text(_pair(ends), usable or None)
        facts.append((f"{arm}: mean time up to the horizon", number_text(mean, usable) + _in_brackets(shown)))
    return [*facts, *_extent(summary.get("log-rank"))]


def _pair(ends: Any) -> tuple[float, float]:
    if isinstance(ends, Sequence) and not isinstance(ends, str) and len(ends) == 2:
        return _number(ends[0]), _number(ends[1])
    return math.nan, math.nan


def _in_brackets(shown: str) -> str:
    return "" if shown == UNKNOWN else f" (95 % {shown})"


def _extent(summary: Any) -> Facts:
    """Facts about a comparison of arms: up to when, and from which events."""
    if not isinstance(summary, Mapping):
        return []
    until, events = _number(summary.get("until")), summary.get("events")
    left_out, bins = _number(summary.get("records_left_out")), _number(summary.get("bins_left_out"))
    if not until > 0:
        # Nothing was compared, and a note says why.
        return []
    facts = []
    if math.isfinite(until):
        facts.append(("compared until", plain(until)))
    if isinstance(events, Mapping):
        facts.append(("events until then", ", ".join(f"{arm} {_count(_number(count))}" for arm, count in events.items())))
    if bins > 0 and math.isfinite(bins):
        whose = f"{fixed(bins, 0)} {'bin' if bins == 1 else 'bins'}"
        facts.append(("left out later", f"{whose}, where about {_count(left_out)} records end"))
    return facts


def _count(value: float) -> str:
    return UNKNOWN if math.isnan(value) else fixed(max(value, 0.0), 0)


def _heterogeneity(summary: Mapping[str, Any]) -> Facts:
    by_term = summary.get("heterogeneity")
    if not isinstance(by_term, Mapping):
        return _plainly(summary)
    return [(f"differences of sites{'' if term == 'all' else f', {term}'}", _sites(summary)) for term, summary in by_term.items()]


def _sites(summary: Any) -> str:
    if not isinstance(summary, Mapping):
        return ""
    tau = _number(summary.get("tau"))
    squared = tau**2 if abs(tau) < 1e100 else math.nan
    return heterogeneity_text(_number(summary.get("i_squared")), squared, _number(summary.get("sites")))


def heterogeneity_text(i_squared: float, tau_squared: float, sites: float = math.nan) -> str:
    """How much sites differ: "I² = 9 %, τ² = 0.33, 5 sites"."""
    parts = [f"I² = {fixed(100 * i_squared, 0)} %"] if math.isfinite(i_squared) else []
    parts += [f"τ² = {plain(tau_squared, _DIGITS)}"] if math.isfinite(tau_squared) else []
    parts += [f"{fixed(sites, 0)} sites"] if math.isfinite(sites) else []
    return ", ".join(parts)


def _site_effects(summary: Mapping[str, Any]) -> Facts:
    squared, tau, sites = (_number(summary.get(name)) for name in ("i_squared", "tau_squared", "sites"))
    return [("differences of sites", heterogeneity_text(squared, tau, sites))]


def _pca(summary: Mapping[str, Any]) -> Facts:
    facts: Facts = []
    lists = [summary.get(name) for name in ("proportion", "cumulative", "noise_turns_by_degrees")]
    parts, sums, turns = ([_number(value) for value in numbers] if isinstance(numbers, Sequence) else [] for numbers in lists)
    for component, part in enumerate(parts):
        if not math.isfinite(part):
            continue
        phrases = [f"{fixed(100 * part, 0)} % of the variance"]
        if component and component < len(sums) and math.isfinite(sums[component]):
            phrases.append(f"{fixed(100 * sums[component], 0)} % with those before")
        if component < len(turns) and math.isfinite(turns[component]):
            phrases.append(f"the noise turns it by {plain(turns[component], 2)}°")
        facts.append((f"PC{component + 1}", ", ".join(phrases)))
    return [*facts, ("complete records", _count(_number(summary.get("records"))))]


def _logistic(summary: Mapping[str, Any]) -> Facts:
    signs, ranking = summary.get("signs"), summary.get("ranking")
    facts: Facts = []
    if isinstance(signs, Mapping) and signs:
        facts.append(("signs beyond the noise", ", ".join(f"{name} {sign}" for name, sign in signs.items()).replace("-", "−")))
    if isinstance(ranking, Mapping) and ranking:
        facts.append(
            ("weights to rank by", ", ".join(f"{name} {plain(_number(weight), _DIGITS)}" for name, weight in ranking.items()))
        )
    return [*facts, ("complete records", _count(_number(summary.get("records"))))]


def _hidden(summary: Mapping[str, Any]) -> Facts:
    return []


_OF_KINDS: dict[str, Callable[[Mapping[str, Any]], Facts]] = {
    "survival": _survival,
    "hazard-ratio": _extent,
    "cumulative-incidence": _hidden,
    "site-effects": _site_effects,
    "meta-analysis": _site_effects,
    "mean": _heterogeneity,
    "proportion": _heterogeneity,
    "group-means": _heterogeneity,
    "rates": _heterogeneity,
    "pca": _pca,
    "logistic-regression": _logistic,
}
