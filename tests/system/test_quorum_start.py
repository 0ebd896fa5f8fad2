"""A study that starts with those who are there: parties as a person starts them, each in a process of its own."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from support.joining import NAMES, Consortium
from support.json_documents import faults
from support.site_policy import write_policy


@pytest.fixture
def consortium(tmp_path: Path, free_ports: Callable[[int], list[int]]) -> Iterator[Consortium]:
    write_policy(unattended=True)
    found = Consortium(tmp_path, free_ports(5))
    try:
        yield found
    finally:
        found.close()


def test_four_start_where_the_fifth_never_comes(consortium: Consortium) -> None:
    there = NAMES[1:]
    consortium.budget(*there)
    # The first convener, ada, is the one that is missing.
    consortium.study(4.0)
    consortium.join(*there)
    results = [consortium.result(name) for name in there]
    for name, result in zip(there, results, strict=True):
        assert faults("result", result) == []
        assert result["not_in_at_start"] == ["ada"]
        assert result["not_counted"] == []
        assert result["parties_counted"] == 4
        assert result["estimate"] == results[0]["estimate"]
        assert any("ada took no part" in note for note in result["notes"])
        receipt = json.loads((consortium.folder / f"{name}.receipt.json").read_text())
        assert faults("receipt", receipt) == []
        assert receipt["origin"]["names"] == list(there)
        assert receipt["origin"]["start"]["members"] == [1, 2, 3, 4]
        assert receipt["origin"]["start"]["not_in_at_start"] == ["ada"]
        entry = consortium.account(name).entries[0]
        assert entry.settled
        assert 0 < consortium.account(name).charged_epsilon <= 2.0 + 1e-6
    assert abs(results[0]["estimate"] - 40) < 5 + 6 * results[0]["standard_error"]
    # Once more from the store, without the others.
    consortium.join("eve")
    again = consortium.result("eve")
    assert (again["estimate"], again["not_in_at_start"]) == (results[0]["estimate"], ["ada"])
