"""Messages in files where everybody sends to everybody: what they have in common is named, and nothing is lost."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from quietmean.core.errors import InputError
from quietmean.graphs import ExecutionTrace
from quietmean.protocols.execution import Execution
from quietmean.testing import example_execution
from support.effort import examples


def packed(parties: int, ballots: int = 3, **more: Any) -> Execution:
    return example_execution(
        "packed-sharing",
        parties,
        members=parties,
        colluding=1,
        colluding_members=1,
        secrets=1,
        minimum=2,
        gone=0,
        ballots=ballots,
        step=2.0**-6,
        sigma=1.0,
        clip=1.0,
        dimension=1,
        **more,
    )


def listed_one_by_one(execution: Execution) -> dict[str, Any]:
    """As files of before have it."""
    schedule, trace = execution.schedule, execution.trace
    document = execution.to_json() | {"neighbours": schedule.to_lists()}
    if trace.lost is not None:
        places = np.argwhere(trace.lost).tolist()
        document["lost"] = [[t + 1, i, int(schedule.neighbours[t, i, slot])] for t, i, slot in places]
    if unused := trace.unused(schedule):
        document["seen"] = [list(message) for message in unused]
    return document


def assert_same(one: Execution, other: Execution) -> None:
    """The same messages arrived and were seen, and the certificates are the same numbers."""
    np.testing.assert_array_equal(one.schedule.neighbours, other.schedule.neighbours)
    np.testing.assert_array_equal(one.trace.delivered(one.schedule), other.trace.delivered(other.schedule))
    assert one.trace.unused(one.schedule) == other.trace.unused(other.schedule)
    assert one.to_json() == other.to_json()
    assert one.privacy(1e-6).coalitions(1).mu.tolist() == other.privacy(1e-6).coalitions(1).mu.tolist()


@st.composite
def histories(draw: st.DrawFn) -> Execution:
    """Some messages of a few rounds are lost: single ones, all of a sender or to a receiver, or all; some of them were seen."""
    execution = packed(draw(st.integers(2, 6)), ballots=1, permanent=draw(st.sampled_from([0.0, 0.4])))
    shape = execution.schedule.neighbours.shape
    chance = np.random.default_rng(draw(st.integers(0, 2**32)))
    masks = []
    for _ in range(2):
        mask = chance.random(shape) < draw(st.sampled_from([0.0, 0.1, 0.9]))
        mask |= chance.random((shape[0], 1, 1)) < 0.3
        mask |= chance.random((shape[0], shape[1], 1)) < 0.2
        mask |= np.isin(execution.schedule.neighbours, chance.integers(0, shape[1], 1)) & (chance.random((shape[0], 1, 1)) < 0.4)
        masks.append(mask & (execution.schedule.neighbours >= 0))
    return execution.with_trace(ExecutionTrace(execution.trace.online, masks[0], seen=masks[1]))


@given(histories())
@settings(max_examples=examples(60), deadline=None)
def test_nothing_is_lost_and_lists_of_before_are_read_alike(execution: Execution) -> None:
    again = Execution.from_json(json.loads(json.dumps(execution.to_json())))
    assert_same(again, execution)
    assert_same(Execution.from_json(listed_one_by_one(execution)), execution)


def test_what_messages_have_in_common_is_named() -> None:
    """Round 5 is lost to party 2, 6 all of party 0, 7 altogether, and two messages more."""
    execution = packed(4)
    lost = np.zeros(execution.schedule.neighbours.shape, dtype=np.bool_)
    neighbours = execution.schedule.neighbours
    lost[4] = neighbours[4] == 2
    lost[5, 0] = True
    lost[6] = True
    lost[7, 1] = neighbours[7, 1] == 3
    lost[8, 2] = neighbours[8, 2] == 0
    document = execution.with_trace(ExecutionTrace(execution.trace.online, lost)).to_json()
    assert [entry for entry in document["neighbours"] if entry != "all"] == [execution.schedule.to_lists()[2]]
    assert document["lost"] == [[5, None, 2], [6, 0, None], [7, None, None], [8, 1, 3], [9, 2, 0]]


@pytest.mark.slow
def test_a_usual_run_of_many_parties_has_a_small_file() -> None:
    """120 parties of which ten left; nothing is sent after round 5 but to one that was away: 0.3 % of the listed size."""
    execution = packed(120, ballots=5)
    online = execution.trace.online.copy()
    online[4:, :10] = False
    online[5, 20] = False
    lost = np.zeros(execution.schedule.neighbours.shape, dtype=np.bool_)
    lost[5:] = execution.schedule.neighbours[5:] >= 0
    lost[5] &= execution.schedule.neighbours[5] != 20
    trace = ExecutionTrace(online, lost)
    real = execution.with_trace(trace.all_handed(execution.schedule))
    document = real.to_json()
    assert_same(Execution.from_json(document), real)
    # Who was online is listed as ever.
    small, large = (len(json.dumps({**one, "online": []})) for one in (document, listed_one_by_one(real)))
    assert small < 10_000
    assert small < 0.003 * large


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"lost": [[11, None, None]]}, r"lost message \[11, null, null\] is not in the schedule"),
        ({"lost": [[0, None, None]]}, "not in the schedule"),
        ({"lost": [[1, None, 4]]}, r"\[1, null, 4\]"),
        ({"seen": [[1, 4, None]]}, r"seen message \[1, 4, null\]"),
        ({"seen": [[1, -1, None]]}, "not in the schedule"),
        ({"lost": [[None, 1, 2]]}, "'lost' is not as it should be"),
        ({"lost": [[1, 2]]}, "'lost' is not as it should be"),
        ({"neighbours": ["every"] * 10}, "'neighbours' is not as it should be"),
        ({"neighbours": ["all"] * 9}, "neighbours has 9 rounds"),
    ],
)
def test_wrong_lists_are_refused(change: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words):
        Execution.from_json(packed(4).to_json() | change)


def test_other_protocols_list_their_messages_as_before() -> None:
    execution = example_execution("inca", 3, rounds=2, sigma_star=1.0, sigma_delta=1.0, schedule="complete", out_degree=2)
    lost = np.ones(execution.schedule.neighbours.shape, dtype=np.bool_)
    document = execution.with_trace(replace(execution.trace, lost=lost)).to_json()
    assert document["neighbours"] == execution.schedule.to_lists()
    assert len(document["lost"]) == 12
    # They are read in either form, but for the order of neighbours.
    short = document | {"neighbours": ["all", "all"], "lost": [[1, None, None], [2, None, None]]}
    again = Execution.from_json(short).to_json()
    assert sorted(again["lost"]) == sorted(document["lost"])
    assert again["neighbours"] == [[[1, 2], [0, 2], [0, 1]]] * 2
