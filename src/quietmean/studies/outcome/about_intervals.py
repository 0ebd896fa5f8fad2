"""What the intervals of a study's answers cover, and how much of them is noise, in sentences."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from quietmean.core.readable import UNKNOWN, either_side, error_text, fixed, for_terminal
from quietmean.statistics.printed import shown
from quietmean.statistics.tails import about_noise
from quietmean.statistics.tidy import Interval, Term

ABOUT_THESE = "Intervals are about these records alone: they cover the privacy noise, not sampling."

# The most that is said, in times as wide.
_MOST = 10


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
        yield f"Intervals cover sampling and privacy noise, which makes them {_wider([_times(term) for term in sampled])}."
    if alone:
        yield 'Where "(noise only)" stands, sampling is not covered.'


def _times(term: Term) -> float:
    """The standard error over that without noise; infinite where noise is all of it."""
    part = min(term.noise_error / term.error, 1.0) if term.error > 0 else 0.0
    return math.inf if part == 1 else 1 / math.sqrt(1 - part**2)


def _wider(times: Sequence[float]) -> str:
    """How much wider noise makes intervals, in percent."""
    low, high = (100 * (min(each, _MOST) - 1) for each in (min(times), max(times)))
    ends = [f"{'over ' if each >= 100 * (_MOST - 1) else ''}{fixed(each, 0)}" for each in (low, high)]
    return f"{ends[0] if ends[0] == ends[1] else ' to '.join(ends)} % wider"


def _half(ends: Interval) -> float:
    """Half the width of an interval; 0 where it is not known."""
    width = (ends[1] - ends[0]) / 2
    return width if math.isfinite(width) else 0.0
