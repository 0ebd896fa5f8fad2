"""Finished studies without a network: what a party would know if this execution had been its study."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from quietmean.core.domain import PrivacyUnit
from quietmean.node import SeriesProgress
from quietmean.planning.accuracy import noise_variance
from quietmean.protocols import Target
from quietmean.protocols.execution import Execution
from quietmean.sessions.receipt import receipt_of
from quietmean.statistics import Answer, Column, Columns, Workload
from quietmean.statistics.kinds.means import Mean
from quietmean.studies import StudyOutcome, StudyTerms, conclude
from quietmean.studies.outcome.outcome import StudyRun
from quietmean.studies.party.session_contract import SessionContract
from quietmean.testing import example_execution
from support.every_kind import with_every_kind
from support.workloads import workload_of

DELTA = 1e-6


def studied(execution: Execution, colluding: int) -> StudyOutcome:
    """A study of the mean of one column, of whole parties, against so many colluders."""
    workload = Workload(Columns([Column(name="age", low=0, high=1)]), (Mean(column="age"),), PrivacyUnit.PARTY)
    target = Target(execution.parties, 1.0, DELTA, 1, execution.sensitivity, colluding=colluding, unit=PrivacyUnit.PARTY)
    return conclude(workload, target, execution, np.full(workload.dimension, 0.5))


COLUMNS = Columns(
    [
        Column(name="x", low=0, high=10, missing="indicator"),
        Column(name="y", low=0, high=10),
        Column(name="arm", levels=("a", "b", "nobody")),
        Column(name="cause", levels=("none", "p", "q")),
        Column(name="yes", boolean=True),
        Column(name="risk", low=0, high=1),
        Column(name="other", boolean=True),
    ]
)
# A name and a level that pages have to write as they are, and one that is long.
NASTY, LONG = "<b>one</b> & none", "a_level_with_a_name_that_is_as_long_as_some_registers_have_them"
ODD = Columns(
    [
        Column(name="x", low=0, high=3650, since="2015-01-01", missing="indicator"),
        Column(name="y", low=0, high=10),
        Column(name="arm", levels=(NASTY, LONG, "nobody")),
        Column(name="cause", levels=("none", "null", "nan")),
        Column(name="yes", boolean=True),
        Column(name="risk", low=0, high=1),
        Column(name="other", boolean=True),
    ]
)
# One of each kind; of one that is not here, what is found by trying.
EVERY_KIND = tuple(
    with_every_kind(
        (
            "mean(x)",
            "sum(x)",
            "count(x)",
            "variance(x)",
            "proportion(cause)",
            "histogram(x, bins=4)",
            "cdf(x, bins=4)",
            "quantiles(x, bins=8)",
            "crosstab(arm, yes)",
            "group-means(x, by=arm)",
            "correlation(x, y, risk)",
            "covariance(x, y)",
            "linear-regression(y ~ x + arm)",
            "survival(x, yes, by=arm, bins=4)",
            "table-1(by=arm)",
            "rates(yes, x, by=arm)",
            "logistic-regression(yes ~ x + arm)",
            "pca(x, y, risk)",
            "roc(risk, yes, bins=4)",
            "calibration(risk, yes, bins=4)",
            "mann-whitney(x, by=yes, bins=4)",
            "hazard-ratio(x, yes, by=arm, bins=4)",
            "restricted-mean(x, yes, by=arm, bins=4)",
            "cumulative-incidence(x, cause, by=arm, bins=4)",
            "site-effects(x, by=cause)",
            "spearman(x, y, bins=6)",
            "kruskal-wallis(x, by=cause, bins=8)",
            "meta-analysis(crosstab(yes, other), by=cause)",
            "paired-difference(x, y)",
            "bland-altman(x, y)",
            "icc(x, y)",
            "mcnemar(yes, other)",
            "kappa(yes, other)",
            "trend(yes, by=cause)",
            "mantel-haenszel(yes, other, by=cause)",
            "synthetic-table(x, arm, yes, pairs=x:arm, bins=4)",
        ),
        COLUMNS,
    )
)
PARTIES = 6


def records_of(count: int = 2000, seed: int = 8) -> NDArray[np.float64]:
    """Records of COLUMNS: every eighth x is missing, and nobody is in the last arm."""
    rng = np.random.default_rng(seed)
    numbers = rng.uniform(0, 10, (count, 2))
    numbers[::8, 0] = np.nan
    levels = [rng.integers(0, one, count) for one in (2, 3, 2)]
    return np.column_stack([numbers, *levels, rng.random(count), rng.integers(0, 2, count)]).astype(np.float64)


def finished(
    *texts: str,
    noise: float = 0.05,
    columns: Columns = COLUMNS,
    records: NDArray[np.float64] | None = None,
    seed: int = 1,
    these_records: bool = False,
) -> StudyOutcome:
    """A study of these statistics between parties without a network; ``noise``: of one party, in one coordinate.
    ``these_records``: are the answers about no others?"""
    table = records_of() if records is None else records
    workload = replace(workload_of(columns, *texts), these_records=these_records)
    bare = example_execution("inca", PARTIES, rounds=4, sigma_star=noise, sigma_delta=2 * noise)
    execution = Execution(bare.protocol, bare.schedule, bare.trace, workload.sensitivity, np.full(PARTIES, len(table) / PARTIES))
    target = Target(PARTIES, 2.0, DELTA, workload.dimension, execution.sensitivity, colluding=1, unit=PrivacyUnit.RECORD)
    error = float(np.sqrt(noise_variance(execution.in_result.transcript(), execution.weights)))
    mean = workload.of_records(table).mean(axis=0) + error * np.random.default_rng(seed).standard_normal(workload.dimension)
    return conclude(workload, target, execution, mean)


def run_of(title: str, outcome: StudyOutcome, names: Sequence[str] = (), **more: Any) -> StudyRun:
    """The record of a run with this outcome, whose study has this name."""
    took = {"messages": 1, "bytes": 1, "seconds": 1.0}
    return StudyRun(StudyTerms.model_construct(name=title), outcome, tuple(names), **{**took, **more})


def truth_of(outcome: StudyOutcome, records: NDArray[np.float64] | None = None) -> tuple[Answer, ...]:
    """Its answers without noise."""
    table = records_of() if records is None else records
    return outcome.workload.decode(outcome.workload.of_records(table).mean(axis=0), 0.0, float(len(table)))


def session_receipt(contract: SessionContract, counted: Sequence[int], origin: Mapping[str, Any]) -> dict[str, Any]:
    """The receipt of a party that began all rounds of a session; ``counted``: in how many means each party is."""
    part, rounds = contract.of_those_in(None), contract.study.rounds
    progress = SeriesProgress(current=rounds, begun=rounds, results=max(counted), counted=tuple(counted), left=True)
    return receipt_of(part, progress, part.terms.charge(rounds), origin)


def odd_records() -> NDArray[np.float64]:
    """Most of x is missing."""
    table = records_of()
    table[:, 0] *= 365
    table[np.arange(len(table)) % 5 > 0, 0] = np.nan
    return table
