"""Execution files: what they hold, and what a wrong one is told."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from quietmean.graphs import ExecutionTrace, complete_pairs
from quietmean.protocols import Target, configure, get_protocol, registry
from quietmean.protocols.execution import Execution
from quietmean.protocols.inca import IncA
from quietmean.protocols.mechanism import template_of
from quietmean.randomness import Seed
from support.refusals import refused, refused_rows

DOCUMENT: dict[str, Any] = {
    "protocol": "inca",
    "parties": 3,
    "rounds": 2,
    "sigma_star": 1.0,
    "sigma_delta": 2.0,
    "neighbours": [[[1], [2], [0]], [[2], [0, 2], []]],
    "online": [[True, True, True], [True, False, True], [True, True, True]],
    "lost": [[2, 1, 0]],
    "sensitivity": 0.5,
    "weights": [1.0, 2.0, 3.0],
}


def test_a_file_is_read_and_written_back(tmp_path: Path) -> None:
    execution = Execution.from_json(DOCUMENT)
    assert execution.parties == 3
    assert execution.sensitivity == 0.5
    assert execution.weights.tolist() == [1.0, 2.0, 3.0]
    delivered = execution.trace.delivered(execution.schedule)
    assert delivered.tolist() == [[[False, False], [False, False], [True, False]], [[True, False], [False, True], [False, False]]]
    execution.save(tmp_path / "execution.json")
    again = msgspec.json.decode((tmp_path / "execution.json").read_bytes())
    for name, value in DOCUMENT.items():
        assert again[name] == value
    assert Execution.from_json(again).to_json() == execution.to_json()


def test_what_was_seen_and_not_used_is_read_back() -> None:
    execution = Execution.from_json(DOCUMENT)
    handed = execution.with_trace(execution.trace.all_handed(execution.schedule))
    assert handed.trace.unused(handed.schedule)
    assert Execution.from_json(handed.to_json()).trace.unused(handed.schedule) == handed.trace.unused(handed.schedule)


def test_defaults() -> None:
    plain = {name: DOCUMENT[name] for name in ("protocol", "parties", "rounds", "sigma_star", "sigma_delta", "neighbours")}
    execution = Execution.from_json(plain)
    assert execution.trace.online.all()
    assert execution.trace.lost is None
    assert execution.sensitivity == 1.0
    assert "weights" not in execution.to_json()
    assert isinstance(execution.protocol, IncA)
    assert execution.protocol.injections.name == "incremental"


@refused_rows("wrong_files_are_refused")
def test_wrong_files_are_refused(change: dict[str, Any], message: str) -> None:
    refused(message, Execution.from_json, DOCUMENT | change)


@pytest.mark.parametrize("name", ["protocol", "parties", "rounds", "sigma_star", "sigma_delta"])
def test_missing_fields_are_named(name: str) -> None:
    refused(f"field '{name}' is missing", Execution.from_json, {key: value for key, value in DOCUMENT.items() if key != name})


def test_a_lost_message_cannot_name_the_padding_of_a_short_list() -> None:
    refused("not in the schedule", Execution.from_json, DOCUMENT | {"lost": [[1, 0, -1]]})


def test_one_party_alone() -> None:
    """With nobody to talk to, a party's release is its own noisy value."""
    document = {"protocol": "local-dp", "parties": 1, "sigma": 2.0}
    transcript = Execution.from_json(document).transcript()
    values, noise = transcript.eliminated()
    assert values.tolist() == [[1.0]]
    assert np.abs(noise).tolist() == [[2.0]]


def test_registry() -> None:
    assert {"inca", "gossip", "local-dp", "central-dp"} <= set(registry())
    for name, protocol in registry().items():
        assert get_protocol(name) is protocol
        assert protocol.name == name
        assert protocol.TRAITS.summary


@pytest.mark.parametrize(
    ("name", "options"), [("cordp-dme", {}), ("gopa", {"partners": 29}), ("secagg", {}), ("secagg-plus", {"degree": 29})]
)
def test_all_pairs_are_named_not_listed(name: str, options: dict[str, Any]) -> None:
    """A file of 30 parties in two or three kilobytes instead of ten, and nothing is lost."""
    target = Target(parties=30, epsilon=1.0, delta=1e-6)
    asked = configure(name, options)
    design = asked.design(target)
    protocol = template_of(asked, target) if design is None else design.protocol
    trace = ExecutionTrace.everyone(protocol.rounds, 30)
    execution = Execution(protocol, protocol.draw_schedule(30, Seed.public("any")), trace, 1.0, np.ones(30))
    document = execution.to_json()
    assert document["pairs"] == "all"
    again = Execution.from_json(document)
    np.testing.assert_array_equal(again.schedule.pairs, execution.schedule.pairs)
    assert again.schedule.partners(7) == tuple(other for other in range(30) if other != 7)
    one_less = replace(execution.schedule, pairs=execution.schedule.pairs[:-1])
    assert not one_less.all_paired
    assert one_less.partners(29) == tuple(range(28))
    assert Execution.from_json(replace(execution, schedule=one_less).to_json()).schedule.pairs.shape == (434, 2)
    refused("'pairs' is not as it should be", Execution.from_json, document | {"pairs": "some"})


def test_the_list_of_all_pairs() -> None:
    for parties in (1, 2, 3, 17):
        np.testing.assert_array_equal(complete_pairs(parties), np.column_stack(np.triu_indices(parties, 1)))
