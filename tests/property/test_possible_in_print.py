"""Whatever is given of a study has no impossible number and no epsilon but its certificate's: screen, data, documents and pages.

Of every kind, by five protocols, under two budgets, on tables of which little can be said, and on eleven real data sets.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from quietmean.core.domain import CountVisibility
from quietmean.core.errors import InputError
from quietmean.graphs import ExecutionTrace
from quietmean.planning import Plan
from quietmean.planning.accuracy import stated_variance
from quietmean.planning.influence import influence_of
from quietmean.randomness import Seed
from quietmean.statistics import Columns, read_text, registry
from quietmean.studies import StudyOutcome, conclude
from quietmean.studies.agreement.study import StudyTerms
from support import real_data
from support.degenerate import KINDS, SEED, TABLES
from support.every_kind import COLUMNS
from support.every_output import texts_of
from support.possible import impossible, impossible_in
from support.promises import against_everybody, wrong_promises

Array = NDArray[np.float64]
PARTIES, EPSILONS = 6, (1.0, 0.3)
# The first two hide how many records a party has, too.
PROTOCOLS = ("cordp-dme", "packed-sharing", "central-dp", "gopa", "secagg")
HIDING = 4
# Texts that are made for programs.
DATA = ("JSON",)
Case = tuple[str, str]


def rows_of(source: str) -> tuple[Columns, Array]:
    return (COLUMNS, TABLES[source]) if source in TABLES else real_data.data_set(source)


@cache
def plan_of(source: str, text: str, epsilon: float, count: CountVisibility, protocol: str) -> tuple[StudyTerms, Plan]:
    columns, rows = rows_of(source)
    fields = {"name": "study", "epsilon": epsilon, "delta": 1e-6, "protocol": protocol, "colluding": 1, "accept_wide": True}
    fields |= {"column": [column.describe() for column in columns], "statistic": [read_text(text)]}
    if count == CountVisibility.PRIVATE:
        fields |= {"count": "private", "most_records": -(-len(rows) // PARTIES)}
    study = StudyTerms.parse(fields)
    # Medians of many bins need finer numbers than some protocols have at a small epsilon.
    with contextlib.suppress(InputError):
        return study, study.choice(PARTIES).plan
    study = StudyTerms.parse(fields | {"protocol": "packed-sharing"})
    return study, study.choice(PARTIES).plan


def outcome_of(source: str, study: StudyTerms, plan: Plan, seed: int) -> tuple[StudyOutcome, Array, float]:
    """A study of parties that share the rows by chance; and its mean without noise, with the weight of that."""
    rng, rows = np.random.default_rng((SEED, seed)), rows_of(source)[1]
    encoded = [study.workload.encode(rows[own]) for own in np.array_split(rng.permutation(len(rows)), PARTIES)]
    weights = np.array([each.weight for each in encoded])
    mean = np.sum([each.vector for each in encoded], axis=0) / weights.sum()
    trace = ExecutionTrace.everyone(plan.protocol.rounds, PARTIES)
    execution = plan.execution(Seed.public(f"possible {seed}"), trace, weights)
    noise = float(np.sqrt(stated_variance(execution))) * rng.standard_normal(len(mean))
    with np.errstate(all="ignore"):
        outcome = conclude(study.workload, plan.target, execution, mean + noise, influence=influence_of(plan, execution))
    return outcome, mean, float(weights.sum())


def faults(folder: Path, source: str, text: str, epsilon: float, place: int) -> Iterator[str]:
    """What is impossible in one study, in words; ``place``: of it among all, for its protocol, count and noise."""
    count = CountVisibility.PRIVATE if place % 2 else CountVisibility.PUBLIC
    protocol = PROTOCOLS[place % (HIDING if count == CountVisibility.PRIVATE else len(PROTOCOLS))]
    study, plan = plan_of(source, text, epsilon, count, protocol)
    outcome, mean, weight = outcome_of(source, study, plan, place)
    with np.errstate(all="ignore"):
        truth = study.workload.decode(mean, 0.0, weight) if place % 3 == 0 else None
    for answer in outcome.answers:
        yield from (f"answer: {fault}" for fault in impossible(answer, weight))
    everybody = against_everybody(plan, 0)
    for way, told in texts_of(folder, study, outcome, truth).items():
        if way not in DATA:
            yield from (
                f"{way}: {fault}" for fault in (*impossible_in(told, weight), *wrong_promises(told, plan, outcome, everybody))
            )


def found(folder: Path, source: str, text: str, place: int) -> list[str]:
    return [
        f"epsilon {epsilon}, {fault}"
        for number, epsilon in enumerate(EPSILONS)
        for fault in faults(folder, source, text, epsilon, place + number)
    ]


@pytest.mark.sampled(6)
@pytest.mark.parametrize(
    ("place", "source", "text"), [(at, *case) for at, case in enumerate((s, k.text) for s in TABLES for k in KINDS)]
)
def test_nothing_impossible_is_given_out(tmp_path: Path, place: int, source: str, text: str) -> None:
    wrong = found(tmp_path, source, text, place)
    assert not wrong, f"{len(wrong)}: " + "; ".join(wrong[:5])


@pytest.mark.slow
@pytest.mark.skipif(not real_data.is_here(), reason=real_data.MISSING)
@pytest.mark.parametrize(
    ("place", "source", "text"),
    [(at, *case) for at, case in enumerate((name, text) for name, texts in real_data.QUESTIONS.items() for text in texts)],
)
def test_nothing_impossible_is_given_out_of_real_data(tmp_path: Path, place: int, source: str, text: str) -> None:
    wrong = found(tmp_path, source, text, place)
    assert not wrong, f"{len(wrong)}: " + "; ".join(wrong[:5])


def test_every_kind_is_asked_of_real_data() -> None:
    asked = {read_text(text)["kind"] for texts in real_data.QUESTIONS.values() for text in texts}
    assert asked == set(registry()) == {one.name for one in KINDS}
    assert real_data.QUESTIONS.keys() == real_data.SETS.keys()
    assert len(real_data.SETS) == 11


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("a mean of nan", "'nan'"),
        ("sensitivity -0.0", "'-0.0'"),
        ("b/a 1.20 (95 % 1.30 to 1.10)", "reversed"),
        ("from −0.5 to −1.0", "reversed"),
        ("t = 0.2, p = 1.200", "p-value"),
        ("4,020 of 4,000 records are in the result", "more than there are"),
        ("no (102.3 %)", "percentage"),
        ("about −3 events", "number of events"),
        ("of 4,001 records", "number of records"),
    ],
)
def test_what_is_impossible_in_a_text_is_found(text: str, fault: str) -> None:
    assert any(fault in each for each in impossible_in(text, 4000.0)), text


def test_what_is_possible_in_a_text_is_not() -> None:
    text = "mean 1.20 (95 % -0.5 to 1.0), p < 0.001, 4,000 of 4,000 records, 0.0 % to 100 %, inf, -0.05, 3 of about 12 events"
    assert list(impossible_in(text, 4000.0)) == []
