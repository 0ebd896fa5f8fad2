"""First looks that cannot tell: each is refused in one sentence with exit code 2 and nothing written, or says "not known"."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from quietmean.cli.main import main
from quietmean.core.errors import InputError

SEED = 5
ROWS = Random(SEED)
TABLES = {
    "ten records at each site": [f"{ROWS.randint(20, 80)},{'abc'[row % 3]},yes" for row in range(30)],
    "no row": [],
    "one site": [f"{ROWS.randint(20, 80)},a,yes" for _ in range(900)],
    "all missing": [f",{'abc'[row % 3]},yes" for row in range(900)],
    "one value": [f"42,{'abc'[row % 3]},yes" for row in range(3000)],
    "usual": [f"{ROWS.randint(20, 80)},{'abc'[row % 3]},{'yes' if row % 4 else 'no'}" for row in range(900)],
}
BY_SITE = ("--party-column", "site")
REFUSED = {
    "ten records at each site": (("first-look(age)", *BY_SITE), "first-look(age): noise hides the answer. At least half of such"),
    "no row": (("first-look(age)", *BY_SITE), "column 'site' names no party. Name at least 2."),
    "one site": (("first-look(age)", *BY_SITE), "column 'site' names only one party. Name at least 2."),
}
WRONG = {
    "texts": (("first-look(ill)", *BY_SITE), "Is it levels? Write ill in {A, B}."),
    "booleans": (("first-look(ill in yes/no)", *BY_SITE), "column 'ill' has levels and no bounds. Choose a column of numbers"),
    "levels": (("first-look(site in {a, b, c})", "--parties", "3"), "column 'site' has levels and no bounds."),
    "no such column": (
        ("first-look(agee)", *BY_SITE),
        "column 'agee' is not one of the 3 columns of usual.csv (did you mean 'age'?)",
    ),
    "one party": (("first-look(age)", "--parties", "1"), "arties"),
    "a condition that few meet": (
        ("first-look(age, where=age > 200)", "age in 0..300", *BY_SITE),
        "first-look(age, where=age > 200): noise hides the answer.",
    ),
    "no epsilon left": (("first-look(age)", *BY_SITE, "--epsilon", "0"), "epsilon"),
}
EVERY = {
    **{name: (name, line, says) for name, (line, says) in REFUSED.items()},
    **{name: ("usual", line, says) for name, (line, says) in WRONG.items()},
}


@pytest.fixture(autouse=True)
def tables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name, rows in TABLES.items():
        Path(f"{name}.csv").write_text("\n".join(["age,site,ill", *rows, ""]))


def run(table: str, line: tuple[str, ...]) -> None:
    budget = () if "--epsilon" in line else ("--epsilon", "1")
    main(["run", f"{table}.csv", *line, *budget, "--delta", "1e-6", "--out", "looked"])


@pytest.mark.parametrize("name", list(EVERY))
def test_a_look_that_cannot_tell_is_refused(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    table, line, says = EVERY[name]
    with pytest.raises(SystemExit) as ended:
        run(table, line)
    said = capsys.readouterr()
    assert ended.value.code == InputError.exit_code == 2
    assert " ".join(said.err.split()).startswith("quietmean: ")
    assert says in " ".join(said.err.split())
    assert "Traceback" not in said.err
    assert not said.out
    assert not Path("looked").exists()


def test_of_a_column_without_values_nothing_is_known(capsys: pytest.CaptureFixture[str]) -> None:
    run("all missing", ("first-look(age)", *BY_SITE))
    out = " ".join(capsys.readouterr().out.split())
    assert "first-look(age) not known" in out
    assert "Ask for more records or a larger epsilon" in out
    assert "levels" not in out
    assert "! CLIPPED 900 cells count as missing (exact, without noise: for you only)" in out
    with pytest.raises(SystemExit):
        main(["study", "new", "mean(age)", "--first-look", "looked/receipt.json", "--out", "after.toml"])
    assert "age" in capsys.readouterr().err
    assert not Path("after.toml").exists()


def test_a_column_of_one_value_has_bounds_around_it(capsys: pytest.CaptureFixture[str]) -> None:
    run("one value", ("first-look(age)", *BY_SITE))
    out = capsys.readouterr().out
    low, high = (float(word) for word in out.split("first-look(age)")[1].split()[:3:2])
    assert low <= 42 <= high
    assert "not known" not in out
