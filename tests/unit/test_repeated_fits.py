"""What costs more than it seems: fits of the same records again, and bounds that are learned from them."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler

from quietmean.learning import KMeans, LogisticRegression, StandardScaler

BUDGET: dict[str, Any] = {"epsilon": 4.0, "delta": 1e-6, "parties": 4}
AGAIN, LEARNED = "spends its budget again", "learned from the data"


def records(seed: int, rows: int = 300) -> tuple[Any, Any]:
    numbers = np.random.default_rng(seed).normal(size=(rows, 3))
    return numbers, (numbers[:, 0] > 0).astype(int)


def logistic(bounds: Any = (-3, 3)) -> Any:
    return LogisticRegression(bounds=bounds, classes=[0, 1], **BUDGET)


def said(work: Callable[[], object]) -> list[warnings.WarningMessage]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        work()
    assert all(Path(each.filename).name == Path(__file__).name for each in caught), "the line of who called"
    return caught


def how_often(words: str, work: Callable[[], object]) -> int:
    return sum(words in str(each.message) for each in said(work))


def test_records_that_are_fitted_again_are_told() -> None:
    (rows, labels), (others, other_labels) = records(101), records(102)
    assert how_often(AGAIN, lambda: logistic().fit(rows, labels)) == 0
    assert how_often(AGAIN, lambda: logistic().fit(others, other_labels)) == 0, "other records"
    assert how_often(AGAIN, lambda: StandardScaler(bounds=(-3, 3), **BUDGET).fit(rows)) == 1, "another estimator"
    assert how_often(AGAIN, lambda: logistic().fit(rows[::-1], labels[::-1])) == 1, "in another order"
    assert how_often(AGAIN, lambda: logistic().fit(rows[:, :2], labels)) == 0, "other columns are not known again"


def test_every_fold_but_the_first_is_told() -> None:
    rows, labels = records(103, 600)
    assert how_often(AGAIN, lambda: cross_val_score(logistic(), rows, labels, cv=3)) == 2


def test_the_rounds_of_one_fit_are_one_fit() -> None:
    rows, _ = records(104)
    means = KMeans(n_clusters=2, rounds=3, bounds=(-3, 3), random_state=1, **BUDGET)
    assert how_often(AGAIN, lambda: [means.partial_fit(rows) for _ in range(3)]) == 0


def test_a_fit_that_is_refused_spent_nothing() -> None:
    rows, labels = records(105)
    with pytest.raises(ValueError, match="epsilon"):
        LogisticRegression(bounds=(-3, 3), classes=[0, 1], delta=1e-6, parties=4).fit(rows, labels)
    assert how_often(AGAIN, lambda: logistic().fit(rows, labels)) == 0


@pytest.mark.parametrize(
    ("scaled", "told"),
    [
        (lambda rows: MinMaxScaler().fit_transform(rows), 1),
        (lambda rows: (rows + 6) / 12, 0),
        (lambda rows: np.round(MinMaxScaler().fit_transform(rows)), 0),
        (lambda rows: np.column_stack([MinMaxScaler().fit_transform(rows)[:, :2], (rows[:, 2] + 6) / 12]), 0),
    ],
    ids=["learned", "public", "whole numbers reach their ends", "one column of three is public"],
)
def test_bounds_that_are_learned_from_the_data_are_told(scaled: Callable[[Any], Any], told: int) -> None:
    rows, labels = records(106)
    assert how_often(LEARNED, lambda: logistic((0, 1)).fit(scaled(rows), labels)) == told


def test_a_pipeline_that_learns_bounds_is_told() -> None:
    rows, labels = records(107)
    assert how_often(LEARNED, lambda: make_pipeline(MinMaxScaler(), logistic([(0, 1)] * 3)).fit(rows, labels)) == 1
