"""Parties of a receipt are named as its study names them: in what is typed, and in what is printed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from quietmean.cli.main import main
from quietmean.cli.simulate import names_in, parse_parties, parse_party
from quietmean.testing import example_execution
from support.command_lines import fails
from support.outcomes import studied
from support.refusals import refused

NAMES = ["north", "south, west", "3", "east"]


@pytest.mark.parametrize(("typed", "party"), [("north", 0), ("3", 2), ("1", 1), ("east", 3), ("0", 0)])
def test_a_name_comes_before_a_number(typed: str, party: int) -> None:
    assert parse_party(typed, NAMES) == party


@pytest.mark.parametrize("names", [NAMES, []])
@pytest.mark.parametrize("typed", ["nort", "1.5", "", "north east"])
def test_what_is_neither_is_refused_with_what_there_is(typed: str, names: list[str]) -> None:
    refused("north" if names else "no names", parse_party, typed, names)


def test_several_with_commas() -> None:
    assert parse_parties("north, east,1", NAMES) == {0, 1, 3}
    assert parse_parties("", NAMES) == frozenset()


@pytest.mark.parametrize("origin", [None, {}, {"names": ["a"]}, {"names": "abcd"}, {"names": None}])
def test_a_file_without_a_name_for_each_has_none(origin: object) -> None:
    assert names_in({"parties": 4, "origin": origin}) == []


def test_certify_and_attack_take_and_show_names(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    outcome = studied(example_execution("local-dp", 4, sigma=2.0), 1)
    receipt = tmp_path / "receipt.json"
    outcome.save_receipt(receipt, {"names": ["north", "south", "west", "east"]})

    def told(*line: str) -> str:
        capsys.readouterr()
        main([*line])
        return capsys.readouterr().out

    assert told("verify", "receipt", str(receipt), "--corrupt", "north,east") == told(
        "verify", "receipt", str(receipt), "--corrupt", "0,3"
    )
    assert json.loads(told("verify", "receipt", str(receipt), "--corrupt", "east", "--json"))["honest"] == [0, 1, 2]
    lines = told("verify", "receipt", str(receipt), "--details").splitlines()
    assert [name for name in ("north", "south", "west", "east") if any(line.split()[:1] == [name] for line in lines)]
    attacked = told("verify", "attack", str(receipt), "--target", "south", "--corrupt", "north", "--trials", "200")
    assert attacked.startswith("Attacked south with what north saw, 200 runs")
    fails(["verify", "attack", str(receipt), "--target", "sout"], capsys, "south")
