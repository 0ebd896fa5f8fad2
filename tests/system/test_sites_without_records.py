"""Eight sites of which three have no record, by every way in: the result as pooled, and ledgers that say what was paid.

And neighbours with and without the only record of a site, by the commands: nothing that leaves it tells them apart.
"""

from __future__ import annotations

import io
import json
import re
import shlex
import struct
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import quietmean as qm
from quietmean.cli.main import main
from quietmean.ledger import Ledger
from quietmean.planning import Plan
from quietmean.protocols.committee import Committee
from quietmean.studies.agreement.contribution import Contribution
from quietmean.studies.agreement.sealed import Sealed
from quietmean.studies.agreement.study import StudyTerms
from quietmean.studies.party.by_file import combine
from support.command_lines import command, ending
from support.ports import reserved
from support.recorded_process import recorded_command
from support.rosters import on_this_machine, write_roster
from support.site_policy import BETWEEN_TWO, write_policy

NAMES = ("ada", "bob", "cyd", "dan", "eve", "fay", "gus", "hal")
EMPTY = {"bob", "eve", "hal"}
AGES = {name: [] if name in EMPTY else list(range(20 + place, 90 + place)) for place, name in enumerate(NAMES)}
POOLED = float(np.mean([age for ages in AGES.values() for age in ages]))
COUNTS: dict[str, dict[str, Any]] = {"public": {}, "private": {"count": "private", "most_records": 100}}
# So many standard errors a Gaussian is off with a chance below 1e-9.
FAR = 6.2
JOIN = ("join", "study.toml", "--roster", "roster.toml", "--yes")


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name in ("CONFIG", "CACHE", "DATA"):
        monkeypatch.setenv(f"XDG_{name}_HOME", str(tmp_path / name.lower()))
    monkeypatch.setattr("sys.stdin", io.StringIO())
    write_policy(**BETWEEN_TWO)
    return tmp_path


def typed(line: str) -> None:
    main(shlex.split(line))


def tables(folder: Path, ages: dict[str, list[int]] = AGES) -> dict[str, Path]:
    for name, own in ages.items():
        (folder / f"{name}.csv").write_text("\n".join(["age", *map(str, own)]) + "\n")
    return {name: folder / f"{name}.csv" for name in ages}


def file_of(folder: Path, count: str, **more: Any) -> str:
    fields = {
        "name": "ages",
        "epsilon": 8.0,
        "colluding": 1,
        "dropouts": 0.25,
        "protocol": "cordp-dme",
        "accept_wide": True,
        **COUNTS[count],
        **more,
    }
    (folder / "study.toml").write_text(
        "[study]\n"
        + "".join(f"{name} = {json.dumps(value)}\n" for name, value in fields.items())
        + '[[column]]\nname = "age"\nlow = 0\nhigh = 100\nmissing = "indicator"\n'
    )
    return "study.toml"


def sealed_in(folder: Path, count: str, names: tuple[str, ...], **more: Any) -> Sealed:
    """A study by file, sealed by the first."""
    study = file_of(folder, count, **more)
    typed(f"key new --key {names[0]}.key --name {names[0]}")
    typed(f"study invite {study} --key {names[0]}.key --out study.invitation")
    for name in names:
        typed(f"accept study.invitation --key {name}.key --name {name} --out {name}.entry")
    typed(f"study seal study.invitation {' '.join(f'{name}.entry' for name in names)} --key {names[0]}.key --out study.sealed")
    return Sealed.load(folder / "study.sealed")


def is_pooled(estimate: float, error: float) -> bool:
    return error > 0 and abs(estimate - POOLED) < FAR * error


def budgets() -> None:
    """Of all sites: private numbers are charged twice where an account counts replacement."""
    for name in NAMES:
        typed(f"site budget --ledger {name}.ledger --account {name} --budget 20 1e-4")


def account(name: str) -> Any:
    with Ledger.open(Path(f"{name}.ledger")) as book:
        (found,) = book.accounts()
        return found


def require_paid(*, in_full: bool) -> None:
    """Each has one entry: a site without records pays what all do, as nobody else knows what it has."""
    charged = {name: account(name) for name in NAMES}
    assert all(len(own.entries) == 1 for own in charged.values())
    (most,) = {own.entries[0].reserved.mu for own in charged.values()}
    for own in charged.values():
        (entry,) = own.entries
        assert 0 < entry.charged.mu <= most
        assert not in_full or entry.charged.mu == most
    assert max(own.charged_mu for own in charged.values()) <= 1.01 * min(own.charged_mu for own in charged.values())


def by_run(folder: Path, count: str) -> tuple[float, float]:
    study = qm.Study.load(file_of(folder, count))
    estimates = study.run(tables(folder)).outcome.answers[0].estimates
    return float(estimates.value[0]), float(estimates.standard_error[0])


def by_file(folder: Path, count: str) -> tuple[float, float]:
    tables(folder)
    sealed = sealed_in(folder, count, NAMES)
    plan = sealed.choice().plan
    budgets()
    for name in NAMES:
        typed(f"send study.sealed --key {name}.key --data {name}.csv --yes --ledger {name}.ledger --account {name}")
    found = combine(sealed, plan, [folder / f"{name}.contribution" for name in NAMES])
    assert found.missing == ()
    require_paid(in_full=True)
    weights = [100.0] * 8 if count == "private" else [float(len(AGES[name])) for name in NAMES]
    stated = {sealed.entries[party].name: weight for party, weight in enumerate(found.outcome.execution.weights.tolist())}
    assert stated == dict(zip(NAMES, weights, strict=True))
    estimates = found.outcome.answers[0].estimates
    return float(estimates.value[0]), float(estimates.standard_error[0])


def by_committee(folder: Path, count: str) -> tuple[float, float]:
    until = (datetime.now(UTC) + timedelta(hours=1)).isoformat()
    committee = Committee(members=4, colluding=1, minimum=4, largest_weight=100.0)
    private = COUNTS[count]
    study = qm.Study(
        {"age": (0, 100)}, "mean(age)", epsilon=8.0, accept_wide=True, committee=committee, contribute_by=until, **private
    )
    outcome = study.run(tables(folder)).outcome
    return float(outcome.answers[0].estimates.value[0]), float(outcome.answers[0].estimates.standard_error[0])


def by_session(folder: Path, count: str) -> tuple[float, float]:
    """Records of a session, whose numbers are public."""
    session = qm.Session(parties=8, dimension=1, rounds=1, epsilon=8.0, delta=1e-6, clip=1.0, unit="record")
    mean = session.mean([np.array(ages, dtype=float).reshape(-1, 1) / 100 for ages in AGES.values()])
    return 100 * float(mean.mean[0]), 100 * float(mean.standard_error)


def by_join(folder: Path, count: str) -> tuple[float, float]:
    """Eight processes."""
    tables(folder)
    study = file_of(folder, count)
    budgets()
    with reserved(8) as ports:
        write_roster(folder, on_this_machine(NAMES, ports))
        running = {
            name: command(
                folder, "join", study, *f"--roster roster.toml --key {name}.key --data {name}.csv --yes --json".split(),
                *f"--ledger {name}.ledger --account {name} --receipt {name}.json".split(),
            )
            for name in NAMES
        }  # fmt: skip
        ends = {name: ending(process) for name, process in running.items()}
    assert {code for code, _, _ in ends.values()} == {0}, ends
    found = [json.loads(output) for _, output, _ in ends.values()]
    assert len({json.dumps(one["estimate"]) for one in found}) == 1
    require_paid(in_full=False)
    return found[0]["estimate"], found[0]["standard_error"]


def by_folder(folder: Path, count: str) -> tuple[float, float]:
    """A process after the other, each for a moment: what they tell each other are files."""
    tables(folder)
    first = datetime.now(UTC) + timedelta(seconds=150)
    deadlines = {"first": first.isoformat(), "interval": 60.0, "poll": 2.0}
    written = "{" + ", ".join(f"{name} = {json.dumps(value)}" for name, value in deadlines.items()) + "}"
    marker = {"transport": "folder", "deadlines": "DEADLINES"}
    file_of(folder, count, **marker)
    text = (folder / "study.toml").read_text().replace('"DEADLINES"', written)
    (folder / "study.toml").write_text(text)
    typed("key new --key ada.key --name ada")
    typed("study invite study.toml --key ada.key --out study.invitation")
    for name in NAMES:
        typed(f"accept study.invitation --key {name}.key --name {name} --out {name}.entry")
    typed(f"study seal study.invitation {' '.join(f'{name}.entry' for name in NAMES)} --key ada.key --out study.sealed")
    (folder / "share").mkdir()
    budgets()
    line = "join study.sealed --key {0}.key --data {0}.csv --folder share --yes --json --ledger {0}.ledger --account {0}"
    running = {name: command(folder, *line.format(name).split(), "--receipt", f"{name}.json") for name in NAMES}
    ends = {name: ending(process, 500) for name, process in running.items()}
    assert {code for code, _, _ in ends.values()} == {0}, ends
    found = [json.loads(output) for _, output, _ in ends.values()]
    require_paid(in_full=False)
    return found[0]["estimate"], found[0]["standard_error"]


WAYS: dict[str, Callable[[Path, str], tuple[float, float]]] = {
    "run": by_run,
    "file": by_file,
    "committee": by_committee,
    "session": by_session,
    "join": by_join,
    "folder": by_folder,
}
SLOW = {"join", "folder", "run"}


@pytest.mark.parametrize(
    ("way", "count"),
    [
        pytest.param(way, count, marks=[pytest.mark.slow] if way in SLOW else [])
        for way in WAYS
        for count in COUNTS
        if (way, count) != ("session", "private")
    ],
)
def test_eight_sites_of_which_three_are_empty(way: str, count: str, site: Path) -> None:
    estimate, error = WAYS[way](site, count)
    assert is_pooled(estimate, error), (estimate, error, POOLED)


def sent_by_file(folder: Path, rows: list[int], unit: str, monkeypatch: pytest.MonkeyPatch) -> tuple[Any, ...]:
    """What others see of a contribution, and its files: names and sizes."""
    folder.mkdir()
    monkeypatch.chdir(folder)
    persons = {"unit": "person", "rows": 3} if unit == "person" else {}
    sealed = sealed_in(folder, "private", ("ada", "bob"), protocol="local-dp", epsilon=0.5, dropouts=0.0, **persons)
    Path("bob.csv").write_text("\n".join(["age,id", *(f"{age},{age}" for age in rows)]) + "\n")
    mapped = ""
    if unit == "person":
        Path("bob.format.toml").write_text('[mapping]\nperson = "id"\n')
        mapped = "#format=bob.format.toml"
    line = f"--key bob.key --data bob.csv{mapped} --ledger bob.ledger --new-account bob"
    typed(f"send study.sealed {line} --yes")
    plan = sealed.choice().plan
    contribution = Contribution.load(Path("bob.contribution"), sealed, plan)
    kept = {re.sub("-[0-9a-f]{16}", "", path.name) for path in folder.iterdir()}
    return contribution.release.weight, Path("bob.contribution").stat().st_size, kept


@pytest.mark.parametrize("unit", ["record", "person"])
def test_a_contribution_does_not_tell_whether_there_is_a_record(unit: str, site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = [sent_by_file(site / str(len(rows)), rows, unit, monkeypatch) for rows in ([], [50], [50, 60])]
    assert seen[0] == seen[1] == seen[2]


def sizes_of_frames(raw: bytes) -> list[int]:
    """How long the payloads are that a process sent in all its connections, each once."""
    place, found = 0, set()
    while place + 8 <= len(raw):
        header, payload = struct.unpack(">II", raw[place : place + 8])
        found.add(payload)
        place += 8 + header + payload
    assert place == len(raw)
    return sorted(found)


@pytest.mark.slow
def test_a_party_of_a_study_does_not_tell_whether_it_has_a_record(site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []
    for rows in ([], [50], [50] * 90):
        folder = site / str(len(rows))
        folder.mkdir()
        monkeypatch.chdir(folder)
        names = NAMES[:3]
        tables(folder, {"ada": [30, 40], "bob": rows, "cyd": [50, 60]})
        file_of(folder, "private")
        with reserved(3) as ports:
            write_roster(folder, on_this_machine(names, ports))
            lines = [f"--key {name}.key --data {name}.csv --receipt {name}.json --no-ledger".split() for name in names]
            running = [
                recorded_command(folder, site / f"{len(rows)}-{name}", {}, *JOIN, *line)
                for name, line in zip(names, lines, strict=True)
            ]
            ends = [ending(process) for process in running]
        receipts = [json.loads(Path(f"{name}.json").read_text()) for name in names]
        weights = [receipt.get("weights") for receipt in receipts]
        sizes = sizes_of_frames((site / f"{len(rows)}-bob").read_bytes())
        assert len(sizes) > 1
        seen.append(([code for code, _, _ in ends], weights, sizes, sorted(path.name for path in folder.iterdir())))
    assert seen[0] == seen[1] == seen[2]
    assert seen[0][0] == [0, 0, 0]


def test_a_study_in_which_nobody_has_a_record_says_so(site: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """By file, with public numbers: one clear answer, and nothing is divided."""
    tables(site, {name: [] for name in NAMES})
    sealed_in(site, "public", NAMES)
    for name in NAMES:
        typed(f"send study.sealed --key {name}.key --data {name}.csv --yes --no-ledger")
    capsys.readouterr()
    typed(f"study combine study.sealed {' '.join(f'{name}.contribution' for name in NAMES)}")
    said = capsys.readouterr().out
    assert "No party has a record of this. Nothing is known." in " ".join(said.split())
    assert "The noise hides" not in said
    assert "nan" not in said


def test_a_contract_says_where_taking_part_tells_of_a_record() -> None:
    """Contributions whose products are checked are one record each: check and contract say it before the yes."""
    until = (datetime.now(UTC) + timedelta(hours=1)).isoformat()
    fields = {"name": "s", "epsilon": 8.0, "accept_wide": True}
    committee = {"members": 8, "contribute_by": until, "grace": 0.0, "largest_weight": 1, "products": True, "verified": True}
    column = [{"name": "age", "low": 0, "high": 100, "missing": "centre"}]
    statistic = [{"kind": "variance", "column": "age"}]
    terms = StudyTerms.parse({**fields, "column": column, "statistic": statistic, "committee": committee})
    plan: Plan = terms.choice(5).plan
    assert plan.protocol.traits.needs_records
    with pytest.raises(qm.InputError, match="has no record, and the study needs at least one"):
        plan.require_room(terms.workload.weight_of(0))
    plan.require_room(terms.workload.weight_of(1))
    assert (
        not StudyTerms.parse({"name": "s", "column": column, "protocol": "local-dp"}).choice(5).plan.protocol.traits.needs_records
    )
