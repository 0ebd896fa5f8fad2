"""What the intervals of a study's answers cover, and how much of them is noise, in sentences."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from quietmean.core.readable import UNKNOWN, either_side, error_text, fixed, for_terminal
from quietmean.statistics.printed import shown
from quietmean.statistics.tails import about_noise
from quietmean.statistics.tidy import Interval, Term

ABOUT_THESE = "Intervals are about these records alone: they cover the privacy noise, not sampling."


def about_intervals(every: Sequence[Term]) -> Iterator[str]:
    """What the intervals that are shown cover, how much of them is noise, and which noise where it is not normal."""
    terms = [term for term in every if shown(term).interval != UNKNOWN]
    yield from _covered(terms)
    yield from filter(None, dict.fromkeys(about_noise(term.noise_quantile) for term in terms))


def _covered(terms: Sequence[Term]) -> Iterator[str]:
    if any(term.these_records for term in terms):
        yield ABOUT_THESE
        return
    sampled = [term for term in terms if _half(term.population)]
    alone = [term for term in terms if not _half(term.population) and _half(term.noise)]
    if not sampled:
        if alone:
            yield f"The interval{'s cover' if len(alone) > 1 else ' covers'} the privacy noise alone, not sampling."
        return
    if not any(_half(term.noise) for term in sampled):
        yield f"The interval{'s cover' if len(sampled) > 1 else ' covers'} sampling. No privacy noise was added."
    elif len(sampled) == 1:
        half = for_terminal(either_side(error_text(_half(sampled[0].noise))))
        days = " days" if sampled[0].since else ""
        yield f"The interval covers sampling and the privacy noise (noise alone: {half}{days})."
    else:
        parts = [_half(term.noise) / _half(term.population) for term in sampled]
        low, high = (fixed(100 * part, 0) for part in (min(parts), max(parts)))
        yield f"Intervals cover sampling and privacy noise (noise alone: {low if low == high else f'{low} to {high}'} % as wide)."
    if alone:
        yield 'Where "(noise only)" stands, sampling is not covered.'


def _half(ends: Interval) -> float:
    """Half the width of an interval; 0 where it is not known."""
    width = (ends[1] - ends[0]) / 2
    return width if math.isfinite(width) else 0.0
