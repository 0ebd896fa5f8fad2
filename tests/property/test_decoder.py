"""What is read by blocks is what dense least squares reads: of every kind, of several together, and of wide tables."""

from __future__ import annotations

import numpy as np
import pytest

from quietmean.core.domain import CountVisibility, PrivacyUnit
from quietmean.core.errors import InputError
from quietmean.statistics import Column, Columns, Workload, parse_statistic, read_text
from quietmean.statistics.registry import registry
from support.dense_decoder import dense
from support.every_kind import COLUMNS, statistics_of

# Coarse: what is mixed into the bins that are rounded counts.
STEP = 2.0**-15
WIDE = Columns([Column(name=f"x{index}", low=0, high=1) for index in range(4)] + [Column(name="arm", levels=("a", "b"))])


def require_equal(workload: Workload, step: float = STEP) -> None:
    read, offset, spread = dense(workload, step)
    decoder, every = workload.decoder(step), np.arange(len(offset))
    assert np.abs(decoder.offset - offset).max() <= 1e-12 * max(1.0, np.abs(offset).max())
    for found in (decoder.read.columns(every), decoder.read.combined(np.eye(len(every))), decoder.read.times(np.eye(len(every)))):
        assert np.abs(found - read).max() <= 1e-12 * np.abs(read).max()
    assert np.abs(decoder.read.gram(every, every) - spread).max() <= 1e-12 * np.abs(spread).max()
    places = every[:: max(len(every) // 7, 1)]
    assert np.abs(decoder.read.gram(places, every) - spread[places]).max() <= 1e-12 * np.abs(spread).max()
    weights = np.cos(np.arange(3 * len(places))).reshape(3, -1)
    sums, columns = decoder.read.reached(weights, places)
    expected = weights @ read[places]
    assert np.abs(sums - expected[:, columns]).max() <= 1e-12 * np.abs(read).max() * len(places)
    assert np.abs(np.delete(expected, columns, axis=1)).max(initial=0.0) <= 1e-12 * np.abs(read).max()
    kept = decoder.read.kept(places)
    assert np.abs(kept.columns(every) - read[places]).max() <= 1e-12 * np.abs(read).max()


def test_what_is_asked_again_is_the_same_and_nobodys_to_change() -> None:
    read = Workload(WIDE, (parse_statistic(read_text("cdf(x0, bins=8)")),), PrivacyUnit.RECORD).decoder(STEP).read
    every = np.arange(read.shape[0])
    asked = [(every, every), (every[:3], every), (every, every[:3]), (every[1:4], every)]
    first = [read.gram(*places).copy() for places in asked]
    for _ in range(3):
        again = [read.gram(*places) for places in asked]
        for before, after in zip(first, again, strict=True):
            assert np.array_equal(before, after)
    assert read.gram(every, every) is read.gram(every.copy(), every)
    with pytest.raises(ValueError, match="read-only"):
        again[0] += 1.0


@pytest.mark.parametrize("count", list(CountVisibility), ids=str)
@pytest.mark.parametrize("kind", registry())
def test_of_every_kind(kind: str, count: CountVisibility) -> None:
    """Beside a mean, a count and bins of a column that it may share with them."""
    beside = [parse_statistic(read_text(text)) for text in ("mean(age)", "count(sex)", "cdf(age, bins=4)")]
    for statistic in statistics_of(registry()[kind]):
        asked = (statistic, *(one for one in beside if one.text != statistic.text))
        workload = Workload(COLUMNS, asked, PrivacyUnit.RECORD, None, count, 500)
        try:
            _ = workload.scales
        except InputError:
            # What needs a public number of records.
            assert count == CountVisibility.PRIVATE
            continue
        for step in (0.0, STEP):
            require_equal(workload, step)


@pytest.mark.parametrize("count", list(CountVisibility), ids=str)
@pytest.mark.parametrize(
    "texts",
    [
        [f"quantiles(x{index}, bins={60 + index})" for index in range(4)],
        ["quantiles(x0, bins=48)", "cdf(x0, bins=96)", "histogram(x0, bins=12)", "quantiles(x1, bins=48)"],
        ["cdf(x2, bins=30, where=x1 >= 0.5)", "count(where=x1 >= 0.5)", "quantiles(x3, bins=30)", "crosstab(arm, x1)"],
        ["quantiles(x0, bins=20, where=arm == 'a')", "mean(x0)", "mean(x1)", "mean(x2)", "linear-regression(x0 ~ x1 + x2)"],
    ],
    ids=["columns", "one-column", "conditions", "mixed"],
)
def test_of_several_tables(texts: list[str], count: CountVisibility) -> None:
    kept = []
    for statistic in (parse_statistic(read_text(text)) for text in texts):
        try:
            _ = Workload(WIDE, (statistic,), PrivacyUnit.RECORD, None, count, 500).scales
            kept.append(statistic)
        except InputError:
            continue
    assert len(kept) >= 3
    require_equal(Workload(WIDE, tuple(kept), PrivacyUnit.RECORD, None, count, 500))
