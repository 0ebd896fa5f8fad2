"""The encoding program in JavaScript gives the numbers of Python, bit for bit, and its mutants do not."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from quietmean.statistics import Column
from quietmean.statistics.program import VectorProgram
from quietmean.studies.agreement.program import EncodingProgram
from support.drawn_programs import DrawnProgram, drawn_programs
from support.javascript import answers_of

PROGRAM = Path(__file__).parents[2] / "src/quietmean/form/program.js"
SEED = 60
MANY, SOME = 500, 40
_DRIVER = """
import { readFileSync } from "node:fs";
const { vectorOf, numbersOf } = await import(process.argv[2]);
const bytes = (numbers) => Buffer.from(new Float64Array(numbers).buffer).toString("hex");
for (const { program, records, uniform } of JSON.parse(readFileSync(0, "utf8"))) {
  const rows = records.map((record) => record.map((cell) => (cell === null ? NaN : cell)));
  console.log(JSON.stringify({
    vectors: rows.map((cells) => bytes(vectorOf(program.record, cells))),
    numbers: rows.map((cells, row) => numbersOf(program, cells, uniform[row])),
  }));
}
"""


def in_node(programs: Sequence[DrawnProgram], module: Path, folder: Path) -> list[dict[str, Any]]:
    """What the module makes of each program: vectors as the bytes of their doubles, and whole numbers."""
    node = shutil.which("node")
    if node is None:
        pytest.skip("node runs the JavaScript of the form, and is not on this machine")
    driver = folder / "driver.mjs"
    driver.write_text(_DRIVER)
    asked = [
        {
            "program": each.program.describe(),
            "records": [[None if np.isnan(cell) else cell for cell in record] for record in each.records.tolist()],
            "uniform": each.uniform.tolist(),
        }
        for each in programs
    ]
    command = [node, str(driver), module.as_uri()]
    done = subprocess.run(command, input=json.dumps(asked), capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def differing(programs: Sequence[DrawnProgram], module: Path, folder: Path) -> int:
    """How many programs give other vectors or other numbers than in Python."""
    answers = in_node(programs, module, folder)
    assert len(answers) == len(programs)
    count = 0
    for each, answer in zip(programs, answers, strict=True):
        vectors = [vector.astype("<f8").tobytes().hex() for vector in each.program.vector.vectors(each.records)]
        numbers = each.program.numbers(each.records, each.uniform).tolist()
        count += (vectors, numbers) != (answer["vectors"], answer["numbers"])
    return count


@cache
def some_programs() -> tuple[DrawnProgram, ...]:
    """Drawn ones, and one whose cells lie where rounding and dividing are told apart from what is nearly the same."""
    cells = np.array([[place / 2] for place in range(-9, 10)] + [[place * 0.1] for place in range(-9, 10)])
    vector = VectorProgram((Column(name="cell", low=-9, high=9),), (("cell", 0), ("nearest", 0)), (0, 1))
    bounds = np.zeros(2, dtype=np.int64), np.full(2, 200)
    own = EncodingProgram(vector, 0.0, 0.1, 100.0, 100, 1, *bounds, ())
    drawn = drawn_programs(np.random.default_rng(SEED), SOME)
    return *drawn, DrawnProgram(own, None, cells, np.zeros((len(cells), 2)))


def test_some_programs_give_the_same_numbers_to_the_last_bit(tmp_path: Path) -> None:
    assert not differing(some_programs(), PROGRAM, tmp_path)


@pytest.mark.slow
def test_500_programs_give_the_same_numbers_to_the_last_bit(tmp_path: Path) -> None:
    programs = list(drawn_programs(np.random.default_rng(SEED + 1), MANY))
    assert {operation[0] for each in programs for operation in each.program.vector.operations} >= {
        *("look up", "+", "-", "*", "/", "<", "<=", "=", "least", "most", "missing", "nearest", "choose", "cell", "constant")
    }
    assert not differing(programs, PROGRAM, tmp_path)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("Math.floor(steps + uniform[place])", "Math.round(steps + uniform[place])"),
        ("Math.floor(steps + uniform[place])", "Math.floor(steps + 1 - uniform[place])"),
        ("down % 2 === 0 ? down : down + 1", "down + 1"),
        ("(value - centre) / step", "(value - centre) * (1 / step)"),
        ('"-": (a, b) => a - b', '"-": (a, b) => b - a'),
        ('"+": (a, b) => a + b', '"+": (a, b) => a'),
        ('"<": (a, b) => truth(a < b)', '"<": (a, b) => truth(a <= b)'),
        ("given[0] === null ? NaN", "given[0] === null ? 0"),
        ("(b < a ? b : a)", "(b < a ? a : b)"),
        ("(a !== 0 ? b : c)", "(a === 0 ? b : c)"),
        ("lows[place]), highs[place])", "highs[place]), lows[place])"),
        ("+ shift;", ";"),
        ("record.tables[given[0]][made[given[1]]]", "record.tables[0][made[given[1]] + 1]"),
    ],
)
def test_a_mutant_of_the_javascript_is_found(before: str, after: str, tmp_path: Path) -> None:
    text = PROGRAM.read_text()
    assert text.count(before) == 1
    mutant = tmp_path / "program.mjs"
    mutant.write_text(text.replace(before, after))
    assert differing(some_programs(), mutant, tmp_path)


# What is typed, and the number that it is, or the only texts that are offered instead.
TYPED: list[tuple[str, float | list[str]]] = [
    ("1234", 1234.0),
    (" 1234.5 ", 1234.5),
    ("-3", -3.0),
    ("+.5", 0.5),
    ("0.123", 0.123),
    ("1.2340", 1.234),
    ("12.3456", 12.3456),
    ("1e5", 1e5),
    ("1,5", ["1.5"]),
    ("1,234", ["1234", "1.2340"]),
    ("1.234", ["1.2340", "1234"]),
    ("-41.000", ["-41", "-41000"]),
    ("1,234.5", ["1234.5"]),
    ("1.234,5", ["1234.5"]),
    ("1,234,567", ["1234567"]),
    ("1.234.567", ["1234567"]),
    ("12,34,567", []),
    ("1 234", []),
    ("1'234", []),
    ("12e", []),
    ("1e999", []),
    ("0x10", []),
    ("Infinity", []),
    ("−3", []),
    ("١٢", []),
]


def test_a_number_is_what_was_typed_or_asked_about_and_never_guessed() -> None:
    found = answers_of([{"call": "readNumber", "text": text} for text, _ in TYPED])
    for (text, meant), answer in zip(TYPED, found, strict=True):
        if isinstance(meant, float):
            assert answer == {"value": meant}, text
            continue
        assert answer["value"] is None, text
        assert answer["mistake"].startswith("pay is "), text
        assert answer.get("readings", []) == meant, text
        assert all(reading in answer["mistake"] for reading in meant), text
        # What is offered is taken, as what it says.
        assert answers_of([{"call": "readNumber", "text": reading} for reading in meant]) == [
            {"value": float(reading)} for reading in meant
        ]
    assert answers_of([{"call": "readNumber", "text": " "}]) == [{"value": None}]
