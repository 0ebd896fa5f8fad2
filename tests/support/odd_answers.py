"""Answers whose numbers are odd: unknown, infinite, minus zero, beyond all bounds."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from hypothesis import strategies as st

from quietmean.statistics import Answer
from quietmean.statistics.estimate import HypothesisTest

ODD = (math.nan, math.inf, -math.inf, 0.0, -0.0, 1e300, -1e300, 1e-300, -3.0)


@st.composite
def odd_answers(draw: st.DrawFn, answer: Answer) -> Answer:
    """The answer with some of its numbers, or all, replaced by odd ones."""
    found = answer.estimates
    everywhere = draw(st.booleans())

    def numbers(like: np.ndarray[Any, Any]) -> Any:
        if everywhere:
            return np.full(like.shape, draw(st.sampled_from(ODD)))
        changed = np.array(like, dtype=np.float64).ravel()
        for place in draw(st.lists(st.integers(0, max(changed.size - 1, 0)), max_size=changed.size)) if changed.size else ():
            changed[place] = draw(st.sampled_from(ODD))
        return changed.reshape(like.shape)

    def data(one: Any) -> Any:
        if isinstance(one, Mapping):
            return {name: data(value) for name, value in one.items()}
        if isinstance(one, list | tuple):
            return [data(value) for value in one]
        if isinstance(one, float | int) and not isinstance(one, bool) and draw(st.booleans()):
            return draw(st.sampled_from((*ODD, None)))
        return one

    shape = (len(found.terms), 2)
    both = found.of_population
    # One field at a time, or all together.
    chosen = draw(st.sets(st.sampled_from(("value", "standard_error", "noise", "both", "range", "p", "tests", "summary"))))
    ends = found.low if "range" not in chosen else found.value
    tests = {
        name: HypothesisTest(
            draw(st.sampled_from(ODD)),
            tuple(draw(st.sampled_from(ODD)) for _ in one.degrees),
            *(one.p_value, one.method, one.symbol),
        )
        for name, one in found.tests.items()
    }
    columns = {
        "value": numbers(found.value) if "value" in chosen else found.value,
        "noise": np.abs(numbers(found.standard_error)) if "standard_error" in chosen else found.standard_error,
        "of_noise": numbers(np.zeros(shape)) if "noise" in chosen else found.of_noise,
        "low": ends,
        "high": found.high if "range" not in chosen else ends,
    }
    changed = found
    if "both" in chosen or both is not None:
        changed = replace(found, noise_only=False)
        columns["of_population"] = numbers(np.zeros(shape) if both is None else both) if "both" in chosen else np.asarray(both)
    if found.p_value is not None and found.test_statistic is not None:
        columns["statistic"] = numbers(found.test_statistic)
        columns["p_value"] = numbers(found.p_value) if "p" in chosen else found.p_value
    return replace(
        answer,
        estimates=replace(
            changed.with_columns(**columns),
            tests=tests if "tests" in chosen else found.tests,
            summary=data(found.summary) if "summary" in chosen else found.summary,
        ),
    )
