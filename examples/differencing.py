"""The differencing attack: two studies that differ by one person, and what their difference says of that person.

The mean of all records and the mean of all but one are both harmless to look at. Their difference is the record. The covariance
of two columns is a function of means too, and gives it as well (sample means and covariances of federated analyses: Huth et al.,
Bioinformatics 39(9), 2023). This script does both to exact federated sums, which secure aggregation or secret sharing protect
only on their way, and to pairs of studies of quietmean with the same records.

    python examples/differencing.py
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from quietmean.graphs import ExecutionTrace
from quietmean.planning import Plan
from quietmean.planning.accuracy import noise_variance
from quietmean.randomness.insecure import InsecurePopulationNoise, insecure_seed
from quietmean.studies.agreement.study import StudyTerms

PARTIES, RECORDS, STUDIES = 10, 200, 200
# The covariance of two columns is a function of three means: of both, and of their product, a column of its own.
COLUMNS = {"age": (0, 100), "pressure": (60, 220), "age x pressure": (0, 22000)}
WIDTHS = np.array([high - low for low, high in COLUMNS.values()], dtype=np.float64)
# Who is in the first study of each pair and not in the second.
VICTIM = -1
Array = NDArray[np.float64]


@dataclass(frozen=True)
class Attack:
    """What an attacker finds of a ``record`` (3,): ``found`` (pairs of studies, 3), in the units of the columns.

    ``predicted`` (3,): the root mean squared error that the noise of a pair of studies makes, from their transcripts.
    """

    record: Array
    found: Array
    predicted: Array

    @property
    def error(self) -> Array:
        """Root mean squared error for each column, shape (3,): an estimate from all pairs."""
        found: Array = np.sqrt(((self.found - self.record) ** 2).mean(axis=0))
        return found


def make_records(seed: int = 7) -> Array:
    """Made-up patients: age in years, blood pressure in mmHg, and their product, shape (records, 3)."""
    random = np.random.default_rng(seed)
    age = random.uniform(20, 90, RECORDS)
    pressure = np.clip(90 + 0.6 * age + random.normal(0, 15, RECORDS), 60, 220)
    return np.column_stack([age, pressure, age * pressure])


def make_study(epsilon: float = 1.0) -> StudyTerms:
    """The means of the three columns. Local noise: the guarantee needs no trust in anybody."""
    columns = [{"name": name, "low": low, "high": high} for name, (low, high) in COLUMNS.items()]
    return StudyTerms.parse({"column": columns, "protocol": "local-dp", "epsilon": epsilon, "unit": "record"})


def difference(of_all: Array, of_all_but_one: Array) -> Array:
    """The record that one mean has and the other has not: n times the first less n - 1 times the second."""
    found: Array = RECORDS * of_all - (RECORDS - 1) * of_all_but_one
    return found


def means_and_covariance(means: Array) -> tuple[Array, float]:
    """What federated analyses publish: two means, and the covariance of the two columns (divided by n)."""
    return means[:2], float(means[2] - means[0] * means[1])


def means_again(published: tuple[Array, float]) -> Array:
    """The three means from what is published: the covariance hides nothing."""
    two, covariance = published
    return np.array([*two, covariance + two[0] * two[1]])


def attack_exact(records: Array) -> Attack:
    """Two exact federated analyses."""
    published = [means_and_covariance(part.mean(axis=0)) for part in (records, np.delete(records, VICTIM, axis=0))]
    found = difference(*(means_again(one) for one in published))
    return Attack(records[VICTIM], found[None], np.zeros(len(COLUMNS)))


def attack_private(records: Array, study: StudyTerms, pairs: int = STUDIES) -> Attack:
    """Pairs of studies of quietmean: the noise is insecure here, so that a seed gives the same pairs again."""
    plan = study.plan(PARTIES)
    tables = (records, np.delete(records, VICTIM, axis=0))
    answers = [[answer(plan, study, table, 2 * pair + place) for place, table in enumerate(tables)] for pair in range(pairs)]
    found = np.array([difference(first[0], second[0]) for first, second in answers])
    (_, with_it), (_, without) = answers[0]
    return Attack(records[VICTIM], found, math.hypot(RECORDS * with_it, (RECORDS - 1) * without) * WIDTHS)


def answer(plan: Plan, study: StudyTerms, records: Array, number: int) -> tuple[Array, float]:
    """The means of one study, shape (3,), and the standard deviation of their noise, as a part of the widths of the bounds."""
    encoded = [study.workload.encode(part, step=plan.value_step) for part in np.array_split(records, PARTIES)]
    weights = np.array([part.weight for part in encoded])
    values = np.array([plan.admit(part.vector, part.weight) for part in encoded])
    execution = plan.execution(insecure_seed(number), ExecutionTrace.everyone(plan.protocol.rounds, PARTIES), weights)
    mean = execution.estimate(execution.run_batch(values, InsecurePopulationNoise(number, PARTIES)))
    noise = math.sqrt(noise_variance(execution.transcript(), weights))
    answers = study.workload.decode(mean, noise, float(weights.sum()))
    return np.array([float(one.estimates.value[0]) for one in answers]), noise


def main() -> None:
    records, study = make_records(), make_study()
    exact, private = attack_exact(records), attack_private(records, study)
    print(f"{RECORDS} records of {PARTIES} parties; one person is in the first study and not in the second")
    print(f"{'':16}{'the record':>12}{'exact sums':>14}{'error with quietmean':>24}{'as the plan says':>20}{'bounds':>10}")
    rows = zip(COLUMNS, exact.record, exact.found[0], private.error, private.predicted, WIDTHS, strict=True)
    for name, record, found, error, predicted, width in rows:
        print(f"{name:16}{record:12.2f}{found:14.2f}{error:24.0f}{predicted:20.0f}{width:10.0f}")


if __name__ == "__main__":
    main()
