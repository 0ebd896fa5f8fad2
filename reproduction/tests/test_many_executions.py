"""What the figures of IncA compute for very many executions at once, against one execution at a time."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest
from numpy.typing import NDArray

from quietmean.graphs import ExecutionTrace, Schedule, make_schedule
from quietmean.protocols.inca import IncA, Injection
from quietmean.randomness import BitStream
from quietmean.randomness.insecure import InsecurePopulationNoise, insecure_seed
from quietmean_reproduction.inca.connectivity import meets_precondition
from quietmean_reproduction.inca.many_runs import connected_rounds, distinct_receivers, first_rounds
from quietmean_reproduction.inca.telling import CORRUPT, DROPOUTS, claims, error_parts, secagg

Ints = NDArray[np.int64]


def stream(label: str) -> BitStream:
    return BitStream(insecure_seed(1, label))


def schedules(receivers: Ints, parties: int) -> list[Schedule]:
    """One for each run."""
    runs = receivers.shape[1] // parties
    tables = receivers.reshape(len(receivers), runs, parties) - parties * np.arange(runs)[:, None]
    return [Schedule(tables[:, run, :, None].astype(np.int32)) for run in range(runs)]


@pytest.mark.parametrize(("parties", "corrupt", "rounds"), [(6, [0, 2, 4], 3), (12, [1, 6, 9], 5)])
def test_the_first_connected_round_is_the_first_that_meets_the_precondition(
    parties: int, corrupt: list[int], rounds: int
) -> None:
    receivers = distinct_receivers(stream("first"), parties, 40, rounds)
    expected = np.zeros((40, len(corrupt)), dtype=np.int64)
    for run, schedule in enumerate(schedules(receivers, parties)):
        for place, count in enumerate(corrupt):
            guilty = np.arange(parties) < count
            prefixes = [Schedule(schedule.neighbours[:limit]) for limit in range(1, rounds + 1)]
            meets = [meets_precondition(prefix, guilty) for prefix in prefixes]
            expected[run, place] = meets.index(True) + 1 if any(meets) else 0
    assert (first_rounds(receivers, parties, corrupt) == expected).all()
    # Runs that all these rounds do not connect are among them, and several numbers of rounds.
    assert len(np.unique(expected)) >= 4
    assert not expected.all()


def test_receivers_are_distinct_others_and_every_pair_of_them_is_as_likely() -> None:
    """5 parties, 20 000 runs: all 12 ordered pairs of others, chi square with 11 degrees of freedom (error rate 1e-6 a party)."""
    receivers = distinct_receivers(stream("law"), 5, 20_000, 2).reshape(2, 20_000, 5) - 5 * np.arange(20_000)[:, None]
    for party in range(5):
        first, second = receivers[:, :, party]
        assert ((first != second) & (first != party) & (second != party)).all()
        counts = np.unique(5 * first + second, return_counts=True)[1]
        assert counts.size == 12
        assert ((counts - 20_000 / 12) ** 2).sum() / (20_000 / 12) < 48.0


def test_rounds_that_were_drawn_stay_and_later_ones_differ_from_them() -> None:
    begun = distinct_receivers(stream("begun"), 7, 30, 3)
    longer = distinct_receivers(stream("longer"), 7, 30, 6, begun)
    assert (longer[:3] == begun).all()
    assert all(len(set(column)) == 6 for column in longer.T.tolist())


def test_runs_that_need_more_than_the_usual_rounds_are_followed_to_the_limit() -> None:
    """Five honest of 30: one run in 50 needs more than the 13 rounds that are drawn first, one in 100 more than 16."""
    needed = connected_rounds(stream("late"), 30, [3, 15, 25], 400, 16)
    assert needed.shape == (400, 3)
    assert needed.min() >= 1
    assert needed.max() == 17
    assert ((needed[:, 2] > 13) & (needed[:, 2] <= 16)).any()
    assert (needed.mean(axis=0)[1:] > needed.mean(axis=0)[:-1]).all()


def test_expected_errors_after_gossip_are_those_of_simulated_runs() -> None:
    """9 parties, three of which leave: 20 000 coordinates of the population's own run (standard error 1 %); values exactly."""
    parties, coordinates = 9, 20_000
    online = np.ones((10, parties), dtype=np.bool_)
    online[3:, 2] = online[4:, 6] = online[8:, 5] = False
    trace = ExecutionTrace(online)
    seed = insecure_seed(4, "run")
    mixing = IncA(rounds=5, schedule="uniform", sigma_star=1.0, sigma_delta=1.0).draw_schedule(parties, seed)
    telling = make_schedule("uniform", seed.derive("telling"), parties, 4, 1)
    parts = error_parts(mixing, telling, trace)

    def errors(values: NDArray[np.float64], star: float, delta: float) -> NDArray[np.float64]:
        noise = InsecurePopulationNoise(5, parties)
        protocol = IncA(rounds=5, schedule="uniform", sigma_star=star, sigma_delta=delta)
        ones = np.ones(parties)
        held = protocol.batch(mixing, ExecutionTrace(trace.online[:6]), values, ones, noise)
        there = trace.online[5]
        plain = IncA(rounds=4, injection=Injection.plain(4), sigma_star=0.0, sigma_delta=0.0)
        after = ExecutionTrace(np.vstack([np.ones((1, parties), dtype=np.bool_), trace.online[6:]]))
        start = np.column_stack([np.where(there[:, None], held.vector, 0.0), np.where(there, held.weight, 0.0)])
        known = plain.batch(telling, after, start, ones, noise).vector[trace.finished]
        vector, weight = held.total()
        told = ((known[:, :-1] / known[:, -1:] - values.mean(axis=0)) ** 2).mean(axis=0)
        return np.array([told, (vector / weight - values.mean(axis=0)) ** 2])

    np.testing.assert_allclose(errors(np.eye(parties), 0.0, 0.0).sum(axis=1), parts[:, 0], rtol=1e-10)
    for place, levels in ((1, (1.0, 0.0)), (2, (0.0, 1.0))):
        simulated = errors(np.zeros((parties, coordinates)), *levels)
        error = simulated.std(axis=1) / np.sqrt(coordinates)
        assert (np.abs(simulated.mean(axis=1) - parts[:, place]) < 5 * error).all()
        assert (error < 0.02 * parts[:, place]).all()


def figure_7(**changes: float) -> pl.DataFrame:
    """Rows in which every error is larger by a fifth than that before; ``changes`` are of one error of IncA."""
    rows = secagg(seed=1)
    for row in rows:
        row["mse"] = 1.2 ** (CORRUPT.index(row["corrupt"]) + DROPOUTS.index(row["dropouts"]))
    known = {"method": "inca", "mse_standard_error": 0.01, "mse_spread": 0.1, "mse_without_telling": 1.0}
    ours = [row | known | {"mse": 2 * row["mse"]} for row in rows]
    for row in ours:
        if (row["calibration"], row["corrupt"], row["dropouts"]) == ("paper", 0.1, 0.1):
            row |= changes
    return pl.DataFrame(rows + ours, infer_schema_length=None)


def test_an_error_that_increases_does_so_at_every_step_by_its_interval() -> None:
    def verdicts(rows: pl.DataFrame) -> list[bool | None]:
        return [claim.agrees for claim in claims(rows)[:2]]

    assert verdicts(figure_7()) == [True, True]
    assert verdicts(figure_7(mse_standard_error=1.0)) == [None, None], "no step from or to it is beyond its interval"
    falls = claims(figure_7(mse=2.0))
    assert [claim.agrees for claim in falls[:2]] == [None, None]
    assert "IncA 8 of 9 steps up, 1 down; IncA with exact accounting 9 of 9 steps up, 0 down" in falls[1].why
