"""Whatever fails in a page or a picture, the answer is printed, its receipt stored, and the exit code 0.

Every function of the folder ``report`` raises once, in every command that makes pages.
"""

from __future__ import annotations

import importlib
import itertools
import json
import pkgutil
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FunctionType
from typing import Any

import pytest

import quietmean.report
from quietmean.cli.main import main
from quietmean.node.net import Identity
from quietmean.studies.outcome import local
from quietmean.studies.outcome.forecast import Forecast
from quietmean.studies.outcome.outcome import StudyRun
from support.outcomes import PARTIES, finished, run_of, truth_of
from support.site_policy import BETWEEN_TWO, write_policy
from support.smallest_study import STUDY

ERRORS: tuple[type[Exception], ...] = (ValueError, KeyError, MemoryError, RecursionError, OSError, ZeroDivisionError)


@dataclass(frozen=True)
class Part:
    """A function of the folder, or a method of a class in it."""

    owner: Any
    name: str

    def __str__(self) -> str:
        return f"{self.owner.__name__}.{self.name}"


def parts() -> list[Part]:
    modules = [importlib.import_module(f"quietmean.report.{one.name}") for one in pkgutil.iter_modules(quietmean.report.__path__)]
    found: list[Part] = []
    for module in modules:
        for name, one in vars(module).items():
            if getattr(one, "__module__", None) != module.__name__:
                continue
            # Where a page goes is settled before anything begins: that is no part of making it.
            if isinstance(one, FunctionType) and one.__annotations__.get("return") != "Output":
                found.append(Part(module, name))
            elif isinstance(one, type):
                found += [
                    Part(one, inner)
                    for inner, each in vars(one).items()
                    if isinstance(each, FunctionType | property | classmethod)
                ]
    # What dataclasses write themselves.
    return [part for part in found if not (part.name.startswith("__") and part.name != "__init__")]


def everywhere(part: Part) -> Iterator[Any]:
    """All that hold it: a function is imported by others under its name."""
    if isinstance(part.owner, type):
        yield part.owner
        return
    it = vars(part.owner)[part.name]
    yield from (module for module in list(sys.modules.values()) if getattr(module, "__dict__", {}).get(part.name) is it)


@dataclass
class Broken:
    """One part that raises; ``times``: how often it did."""

    error: type[Exception]
    times: int = 0

    def __call__(self, *_: Any, **__: Any) -> Any:
        self.times += 1
        raise self.error("no picture")


def injected(part: Part, error: type[Exception], run: Callable[[], Path]) -> tuple[int, Path]:
    """Runs with the part broken; returns how often it was asked for, and what the run returned."""
    broken = Broken(error)

    def replacement(*given: Any, **named: Any) -> Any:
        return broken(*given, **named)

    with pytest.MonkeyPatch.context() as patch:
        for owner in list(everywhere(part)):
            kind = type(vars(owner)[part.name]) if isinstance(owner, type) else None
            patch.setattr(owner, part.name, kind(replacement) if kind in (property, classmethod) else replacement)
        receipt = run()
    return broken.times, receipt


def every_part(run: Callable[[], Path], answer: str, every: int, capsys: pytest.CaptureFixture[str]) -> int:
    """How many parts were asked for, each of which cost a page and nothing else; of ``every`` so many parts one is broken."""
    asked = 0
    for part, error in zip(parts()[::every], itertools.cycle(ERRORS), strict=False):
        capsys.readouterr()
        times, receipt = injected(part, error, run)
        if not times:
            continue
        output = capsys.readouterr()
        assert answer in output.out, part
        assert json.loads(receipt.read_text()), part
        warnings = [line for line in output.err.splitlines() if "was not made" in line]
        assert 1 <= len(warnings) <= 2, (part, output.err)
        assert all(line.startswith("quietmean: ") for line in warnings), part
        assert "Traceback" not in output.err, part
        asked += 1
    return asked


# All of them take minutes.
EVERY = pytest.mark.parametrize("every", [9, pytest.param(1, marks=pytest.mark.slow)])


@pytest.fixture
def table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("t.csv").write_text("x,yes\n" + "\n".join(f"{row % 10},{row % 2}" for row in range(60 * PARTIES)))
    return tmp_path


RUN = ["run", "--data", "t.csv", "--parties", str(PARTIES), "mean(x in 0..10)", "--protocol", "local-dp"]


def canned(texts: Sequence[str]) -> Callable[..., StudyRun]:
    outcome = finished(*texts)
    names = [f"party {party}" for party in range(outcome.execution.parties)]
    run = run_of("t", outcome, names, sent_by="all but one", truth=truth_of(outcome), killed=(1,))
    return lambda *_, **__: run


@pytest.mark.slow
@EVERY
@pytest.mark.parametrize(
    ("texts", "needed"),
    [
        (["mean(x)"], 45),
        (["survival(x, yes, by=arm, bins=4)", "site-effects(x, by=cause)", "roc(risk, yes, bins=4)", "table-1(by=arm)"], 60),
    ],
)
def test_run(
    table: Path, every: int, texts: list[str], needed: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(local, "run_study", canned(texts))
    numbers = itertools.count()

    def run() -> Path:
        folder = f"out{next(numbers)}"
        main([*RUN, "--epsilon", "4", "--out", folder])
        return Path(folder, "receipt.json")

    assert every_part(run, "Privacy   epsilon", every, capsys) >= needed / every - 2


def test_json_is_printed_before_pages(table: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(local, "run_study", canned(["mean(x)"]))
    seen: list[str] = []

    def page(*_: Any) -> None:
        seen.append(capsys.readouterr().out)

    monkeypatch.setattr("quietmean.report.write_study_report", page)
    monkeypatch.setattr("quietmean.report.write_officer_page", page)
    main([*RUN, "--epsilon", "4", "--out", "out", "--json"])
    assert json.loads(seen[0])["report"] == "out/report.html"


def unwanted(*_: Any) -> Any:
    raise AssertionError("what only JSON tells was computed before the answer was printed")


def test_what_was_to_be_expected_keeps_nobody_waiting_for_the_answer(
    table: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of a study with many questions it takes minutes of a processor, and the answer is paid for."""
    monkeypatch.setattr(local, "run_study", canned(["mean(x)"]))
    monkeypatch.setattr(Forecast, "to_json", unwanted)
    main([*RUN, "--epsilon", "4", "--out", "out"])
    assert "Privacy   epsilon" in capsys.readouterr().out


@pytest.mark.slow
@EVERY
def test_certify(table: Path, every: int, capsys: pytest.CaptureFixture[str]) -> None:
    finished("mean(x)").save_receipt(table / "r.json")
    numbers = itertools.count()

    def run() -> Path:
        main(["verify", "receipt", "r.json", "--report", f"page{next(numbers)}.html"])
        return Path("r.json")

    assert every_part(run, "realised (given", every, capsys) >= 60 / every - 2


@pytest.mark.slow
@EVERY
def test_join(
    tmp_path: Path,
    every: int,
    monkeypatch: pytest.MonkeyPatch,
    free_ports: Callable[[int], list[int]],
    capsys: pytest.CaptureFixture[str],
) -> None:
    """After the end the same command shows the same result again, from the store."""
    monkeypatch.chdir(tmp_path)
    entries = []
    for name, port in zip(("ada", "bob"), free_ports(2), strict=True):
        identity = Identity.generate()
        identity.save(tmp_path / f"{name}.key")
        entries.append(f'[[party]]\nname = "{name}"\naddress = "127.0.0.1:{port}"\nkey = "{identity.public_key}"\n')
        Path(f"{name}.csv").write_text("age\n" + "\n".join(map(str, range(20, 60))))
    Path("roster.toml").write_text("\n".join(entries))
    Path("study.toml").write_text(STUDY)
    write_policy(Path("policy.toml"), **BETWEEN_TWO)
    shared = ["study.toml", "--roster", "roster.toml", "--yes", "--no-ledger", "--policy", "policy.toml"]
    lines = [["join", *shared, "--data", f"{name}.csv", "--key", f"{name}.key"] for name in ("ada", "bob")]
    processes = [
        subprocess.Popen([sys.executable, "-m", "quietmean.cli.main", *line], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        for line in lines
    ]
    for process in processes:
        errors = process.communicate(timeout=120)[1]
        assert process.returncode == 0, errors.decode()

    monkeypatch.setattr(Forecast, "to_json", unwanted)

    def run() -> Path:
        main(lines[0])
        return Path("study-ada.receipt.json")

    assert every_part(run, "Privacy   epsilon", every, capsys) >= 45 / every - 2


@pytest.mark.parametrize("every", [40, pytest.param(1, marks=pytest.mark.slow)])
def test_combine(table: Path, every: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    names = ("south", "west")
    Path("ages.csv").write_text("age\n" + "\n".join(map(str, range(20, 60))))
    write_policy(Path("policy.toml"), least_colluding=0, unattended=True)
    shared = "--data ages.csv --no-ledger --yes --policy policy.toml"
    for line in (
        "key new --key convener.key",
        "study new --out by-file.toml 'mean(age in 0..100)' --colluding 0 --protocol local-dp",
        "study invite by-file.toml --key convener.key --out by-file.invitation",
        *(f"accept by-file.invitation --key {name}.key --name {name} --out {name}.entry" for name in names),
        "study seal by-file.invitation south.entry west.entry --key convener.key --out by-file.sealed",
        *(f"send by-file.sealed --key {name}.key --out {name}.contribution {shared}" for name in names),
    ):
        main(shlex.split(line))
    numbers = itertools.count()

    def run() -> Path:
        folder = f"out{next(numbers)}"
        main(["study", "combine", "by-file.sealed", *(f"{name}.contribution" for name in names), "--out", folder])
        assert json.loads(Path(folder, "by-file.result.json").read_text())["receipt"]
        return Path(folder, "by-file.receipt.json")

    assert every_part(run, "2 of 2 parties", every, capsys) >= max(1, 45 / every - 2)
