"""Every kind of statistic of data that leave nothing to estimate, as it is run: from the file to the report."""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from quietmean.cli.main import main
from quietmean.statistics.question_texts import question_texts
from quietmean.statistics.tidy import terms_of
from support.command_lines import fails
from support.every_kind import COLUMNS, NAMES, all_statistics

Record = dict[str, str]
SITES = "abc"
BLANK = dict.fromkeys(NAMES, "")


def ordinary(count: int = 300) -> list[Record]:
    rng = np.random.default_rng(5)
    records = []
    for place in range(count):
        numbers = rng.uniform(0, 100), rng.uniform(50, 130), rng.random()
        cells = [f"{number:.2f}" for number in numbers]
        cells += [str(rng.choice(column.levels or ("no", "yes"))) for column in list(COLUMNS)[len(cells) :]]
        records.append(dict(zip(NAMES, cells, strict=True)) | {"site": SITES[place % len(SITES)]})
    return records


def changed(change: Callable[[Record], Record]) -> list[Record]:
    return [record | change(record) for record in ordinary()]


def told_by_age(record: Record) -> Record:
    old = float(record["age"]) > 50
    return {"smoker": "yes" if old else "no", "sex": "f" if old else "m", "ended": "dead" if old else "alive"}


def follows(record: Record) -> Record:
    return {"weight": f"{40 + float(record['age']):.2f}", "chance": f"{float(record['age']) / 100:.4f}"}


DATA: dict[str, Callable[[], list[Record]]] = {
    "ordinary": ordinary,
    "constant numbers": lambda: changed(lambda record: {"age": "50", "weight": "70", "chance": "0.5"}),
    "numbers at bounds": lambda: changed(lambda record: {"age": "0", "weight": "140", "chance": "1"}),
    "numbers that follow from each other": lambda: changed(follows),
    "a site without a value": lambda: changed(lambda record: BLANK if record["site"] == "c" else {}),
    "no value at all": lambda: changed(lambda record: BLANK),
    "one level": lambda: changed(lambda record: {"sex": "f", "ended": "alive", "smoker": "no"}),
    "a number tells all levels": lambda: changed(told_by_age),
    "a record a site": lambda: ordinary(len(SITES)),
    "one record": lambda: ordinary(1),
}
# What the sentence says.
REFUSED = {"one record": "cannot be split over 3 parties"}
# With the first noise hides much, with the second little: what is then degenerate is the data.
EPSILONS = ("8", "24")
# All statistics at once take a minute and more: of one case these are asked everywhere.
SOME = slice(None, None, 6)


def line(folder: Path, records: list[Record], epsilon: str, some: slice = SOME) -> list[str]:
    """A study of ``some`` of all statistics at once, by sites or, of a single record, by numbers of parties."""
    with (folder / "t.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, [*NAMES, "site"])
        writer.writeheader()
        writer.writerows(records)
    asked = question_texts(COLUMNS, [one.text for one in all_statistics()[some]])
    parties = ["--party-column", "site"] if len(records) > 1 else ["--parties", "3"]
    privacy = ["--epsilon", epsilon, "--delta", "1e-5", "--accept-wide", "--round-timeout", "60"]
    place = ["--data", str(folder / "t.csv"), "--out", str(folder / "out")]
    return ["run", *place, *asked, *parties, *privacy, "--json"]


def unexplained(statistic: dict[str, Any]) -> list[str]:
    """What is said of terms that is not so, and what is not said without a reason."""
    reasons = bool(statistic["flags"]) or bool(statistic.get("reason"))
    found = []
    for term in terms_of(statistic):
        if math.isnan(term.estimate):
            found += [] if reasons else [f"{term.term}: no number, and nobody says why"]
        elif term.flags or math.isnan(term.truth):
            continue
        elif not (abs(term.estimate - term.truth) <= 6 * term.noise_error + 1e-9 or term.noise[0] <= term.truth <= term.noise[1]):
            found.append(f"{term.term}: {term.estimate} +- {term.noise_error} for {term.truth}, and no flag")
    chances = [test["p_value"] for test in (statistic.get("tests") or {}).values()]
    found += [f"p = {chance}" for chance in chances if chance is not None and not 0 <= chance <= 1]
    return [f"{statistic['name']} {one}" for one in found]


@pytest.mark.slow
@pytest.mark.parametrize("epsilon", EPSILONS)
@pytest.mark.parametrize("data", DATA)
def test_nothing_is_said_that_is_not_so(data: str, epsilon: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    require_explained(data, epsilon, slice(None), tmp_path, capsys)


def test_nothing_is_said_that_is_not_so_of_some(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    require_explained("a number tells all levels", "24", SOME, tmp_path, capsys)


def require_explained(data: str, epsilon: str, some: slice, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    asked = line(folder, DATA[data](), epsilon, some)
    if data in REFUSED:
        assert REFUSED[data] in fails(asked[:-1], capsys)
        return
    main(asked)
    output = capsys.readouterr()
    assert "Traceback" not in output.err
    document = json.loads(output.out)
    assert len(document["statistics"]) == len(all_statistics()[some])
    assert [one for statistic in document["statistics"] for one in unexplained(statistic)] == []
    assert all(math.isfinite(document[name]) for name in ("epsilon", "delta"))
    page = (folder / "out" / "report.html").read_text(encoding="utf-8")
    assert not {"nan", "inf", "NaN"} & set(page.replace("<", " ").replace(">", " ").split())


def test_a_file_without_a_record(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "t.csv" in fails(line(tmp_path, [], "8")[:-1], capsys)
