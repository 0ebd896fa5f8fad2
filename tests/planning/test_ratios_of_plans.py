"""A plan says both ends of the interval of a ratio, at the value that it is expected to have: for every kind that has one."""

from __future__ import annotations

import math
import re
from functools import cache

import numpy as np
import pytest

from quietmean.core.domain import PrivacyUnit
from quietmean.core.readable import for_terminal
from quietmean.statistics import Column, Columns, Statistic, Workload, parse_statistic, read_text
from quietmean.statistics.drawn_studies import Expected
from quietmean.statistics.estimates import Estimates
from quietmean.statistics.expectation import Expectation
from quietmean.statistics.simulated import reach_text
from quietmean.studies import StudyTerms
from quietmean.studies.outcome.forecast import Forecast
from support.every_kind import COLUMNS, all_statistics, random_rows

SEED, RECORDS = 20261130, 20_000
WITH_TIMES = Columns([*COLUMNS, Column(name="time", low=0, high=60)])
# Kinds whose headline is a ratio, with the value that it has: of a rate, what the made-up records give.
RATIOS = {
    "crosstab(sex, smoker)": 1.0,
    "crosstab(sex, smoker, expect=odds-ratio 2)": 2.0,
    "mantel-haenszel(sex, smoker, by=ended)": 1.0,
    "mantel-haenszel(sex, smoker, by=ended, expect=odds-ratio 0.5)": 0.5,
    "hazard-ratio(time, smoker, by=sex)": 1.0,
    "rates(smoker, age, by=sex)": 1.0,
    "rates(smoker, age, by=sex, expect=rate-ratio 1.5)": 1.5,
    "meta-analysis(crosstab(sex, smoker), by=ended)": 1.0,
    "meta-analysis(rates(smoker, age), by=ended)": math.nan,
}


def workload_of(text: str) -> tuple[Workload, Statistic]:
    statistic = parse_statistic(read_text(text))
    return Workload(WITH_TIMES, (statistic,), PrivacyUnit.RECORD), statistic


@cache
def expected(text: str) -> tuple[Expected, Expectation]:
    workload, _ = workload_of(text)
    expectation = Expectation(workload, 2.0, RECORDS, studies=25)
    return expectation.expected[0], expectation


def is_log(estimates: Estimates, term: str) -> bool:
    """Whether an interval reaches as many times below its estimate as above, which is found here from its ends."""
    index = estimates.terms.index(term)
    low, high = (estimates.of_noise if estimates.of_population is None else estimates.of_population)[index]
    value = float(estimates.value[index])
    if not (0 < low < value < high < math.inf and estimates.low[index] == 0 and math.isinf(estimates.high[index])):
        return False
    return abs(math.log(low * high / value**2)) < abs(math.log((low + high) / 2 / value))


@pytest.mark.parametrize("text", RATIOS)
def test_both_ends_are_those_of_the_studies_that_are_drawn(text: str) -> None:
    """Within a tenth of their logarithms, of 25 studies from a public seed."""
    term, expectation = expected(text)
    assert term.at is not None
    stated = RATIOS[text]
    assert term.at == stated or (math.isnan(stated) and 0 < term.at < 0.1)
    shown = for_terminal(reach_text(term.usual_width, term.at))
    low, high = map(float, shown.split(" to "))
    assert low < term.at < high
    drawn = _drawn(expectation, term)
    reaches = [math.log(ends[1] / ends[0]) / 2 for ends in drawn]
    assert math.log(high / low) / 2 == pytest.approx(np.median(reaches), rel=0.1)


def _drawn(expectation: Expectation, term: Expected) -> list[tuple[float, float]]:
    """The intervals of drawn studies, decoded once more."""
    assert isinstance(term.statistic, Statistic)
    source = expectation._studies_of(term.statistic)
    noise = expectation.noise / expectation.records
    means, added = source.drawn(0.25, expectation.records, 25)
    resolved = expectation.workload.with_columns(term.statistic)
    found = []
    with np.errstate(all="ignore"):
        for mean in means + noise * added:
            estimates = resolved.decode(source.decoder.of_quantities(mean, noise, expectation.records, None))
            assert is_log(estimates, term.term)
            assert estimates.of_population is not None
            low, high = map(float, estimates.of_population[estimates.terms.index(term.term)])
            found.append((low, high))
    return found


def test_every_kind_whose_headline_is_a_ratio_is_known() -> None:
    """A new kind that is shown on the scale of logarithms says so, and is in the list above."""
    rows = random_rows(np.random.default_rng(SEED), 4000, 0.0)
    found = set()
    for statistic in (*all_statistics(), *(workload_of(text)[1] for text in RATIOS if "hazard" not in text)):
        workload = Workload(COLUMNS, (statistic,), PrivacyUnit.RECORD)
        encoded = workload.encode(rows)
        with np.errstate(all="ignore"):
            (answer,) = workload.decode(encoded.vector / encoded.weight, 1e-9, encoded.weight)
        estimates = answer.estimates
        for term, entry in zip(estimates.terms, estimates.entries, strict=True):
            # A rate has a unit: how far it reaches is said in that, on either side.
            unit = statistic.name == "rates" and "ratio" not in term
            if entry.known and is_log(estimates, term) and not unit:
                assert entry.is_ratio, (statistic.text, term)
        if any(entry.is_ratio and entry.label in estimates.headline for entry in estimates.entries):
            found.add(statistic.name)
    assert {"crosstab", "mantel-haenszel", "hazard-ratio", "rates", "meta-analysis"} >= found
    assert len(found) >= 3


def test_a_plan_says_both_ends_and_how_to_state_another_ratio() -> None:
    fields = {"name": "s", "epsilon": 4.0, "delta": 1e-6, "protocol": "local-dp", "accept_wide": True}
    ask = ["crosstab(sex in {f, m}, ill in yes/no)", "crosstab(sex, drug in yes/no, expect=odds-ratio 2)", "mean(age in 0..9)"]
    study = StudyTerms.parse(fields | {"ask": ask})
    forecast = Forecast(study, study.choice(4).plan, 40_000)
    unstated, stated, mean = (for_terminal(line) for line in forecast.lines(forecast.needed(0.5, None)))
    assert re.search(r"interval 0\.\d+ to 1\.\d+ if it is 1 \(say yours: expect=odds-ratio 2\)", unstated)
    assert re.search(r"interval 1\.\d+ to 2\.\d+ if it is 2; for a width of 0.5 \(1.77 to 2.27\)", stated)
    assert "yours" not in stated + mean
    assert "interval +-" in mean
    details = [for_terminal(text) for text in (*forecast.sentences(), *forecast.shortly())]
    assert ["+-" in text for text in details] == [False, False, True] * 2
    assert all("if it is" in text for text in details if "crosstab" in text)


def test_a_width_without_an_end_has_one_end_of_a_ratio_at_0() -> None:
    assert for_terminal(reach_text(math.inf, 1.0)) == "0 to inf"
    assert for_terminal(reach_text(1.5, 1.0)) == "0.50 to 2.00"
    assert for_terminal(reach_text(1.5, None)) == "+-0.75"
