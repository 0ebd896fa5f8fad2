"""``contribute`` and ``combine`` on the command line: the page's commands, twice in order; charged once."""

from __future__ import annotations

import io
import json
import shlex
import subprocess
import sys
from functools import partial
from pathlib import Path
from unittest.mock import create_autospec

import pytest

import quietmean as qm
from quietmean.cli.main import main
from quietmean.core.folders import data_folder
from quietmean.desk.site_folder import SiteFolder
from quietmean.studies.agreement.sealed import Sealed
from quietmean.studies.agreement.study import StudyTerms
from quietmean.studies.agreement.study_keys import write_private
from quietmean.studies.party.audit import AuditLog, Event, verify
from support import command_lines
from support.consent import accept as yes_of
from support.json_documents import faults
from support.pages import commands

PARTIES = ("north", "south", "east", "west", "inland")


@pytest.fixture(autouse=True)
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setattr("sys.stdin", io.StringIO())


# Of who compared words, and of accounts that are made, is warned.
fails = partial(command_lines.fails, warned=True)


def told(line: str, capsys: pytest.CaptureFixture[str]) -> str:
    capsys.readouterr()
    main(shlex.split(line)[1:])
    return capsys.readouterr().out


def test_no_name_of_a_party_leads_out_of_the_folder(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever a name looks like: its files, those that its desk writes too, are in this folder, and the names are read again."""
    site = tmp_path / "deep" / "site"
    site.mkdir(parents=True)
    monkeypatch.chdir(site)
    names = ["../../etc/x", ".C:\\north|2", "-rf *"]
    told("quietmean study new --name ages 'mean(age in 0..100)' --protocol local-dp --out study.toml", capsys)
    told("quietmean key new --key 0.key", capsys)
    told("quietmean study invite study.toml --key 0.key --out study.invitation", capsys)
    for number, name in enumerate(names):
        told(f"quietmean accept study.invitation --key {number}.key --name={shlex.quote(name)}", capsys)
    # As a shell lists them: none is hidden, and none is taken for an option.
    entries = sorted(map(str, Path().glob("[!.-]*.entry")))
    assert len(entries) == len(names)
    told(shlex.join(["quietmean", "study", "seal", "study.invitation", *entries, "--key", "0.key"]), capsys)
    sealed = Sealed.load("study.sealed")
    assert {entry.name for entry in sealed.entries} == set(names)
    Path("ages.csv").write_text("age\n" + "50\n" * 20)
    planning = create_autospec(StudyTerms.choice, side_effect=StudyTerms.choice)
    monkeypatch.setattr(StudyTerms, "choice", planning)
    # Nobody gave an address, and nobody needs one: contract and check say what contribute will do.
    assert yes_of(names[0], sealed)[:32] in told("quietmean site contract study.sealed --key 0.key", capsys)
    assert (
        told("quietmean check study.sealed --key 0.key --data ages.csv --no-ledger", capsys)
        .splitlines()[0]
        .endswith("  in order")
    )
    assert qm.contract("study.sealed", key="0.key").digest == sealed.digest
    for number, name in enumerate(names):
        own = f"--key {number}.key --data ages.csv --no-ledger --accept {yes_of(name, sealed)}"
        told(f"quietmean send study.sealed {own}", capsys)
        desk = SiteFolder(site, name)
        desk.refuse("study.sealed", sealed)
        assert desk.answer(sealed) == "refused"
    shown = told(
        shlex.join(["quietmean", "study", "combine", "study.sealed", *map(str, Path().glob("[!.-]*.contribution"))]), capsys
    )
    assert " 3 of 3 parties" in shown
    assert planning.call_count == 1, "a sealed study was planned again"
    assert all(name in Path("study.receipt.json").read_text(encoding="utf-8") for name in ("../../etc/x", "-rf *"))
    assert len(list(site.glob("study-*.refused"))) == len(names)
    elsewhere = {path for path in tmp_path.rglob("*") if path.is_file() and site not in path.parents}
    assert {path.relative_to(tmp_path).parts[0] for path in elsewhere} <= {"config"}
    assert all(path.parent == site for path in site.rglob("*"))


@pytest.mark.slow
def test_the_page(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    page = commands("take-part/committee.md", "Without a committee")
    new, keygen, invite, accept, seal, words, contract, check, budget, contribute, combine, certify = page
    for line in (new, keygen, invite):
        told(line, capsys)
    for number, name in enumerate(PARTIES):
        Path(f"{name}.csv").write_text("age\n" + "\n".join(str(20 + (7 * row + number) % 60) for row in range(400)))
        told(accept.replace("south", name), capsys)
    told(seal, capsys)
    told(words, capsys)
    digest = yes_of("south", "study.sealed")
    assert digest[:32] in told(contract, capsys)
    assert "between" in told(check, capsys)
    told(budget, capsys)
    give = contribute.replace("DIGEST", digest)
    assert "nobody said yes" in fails(shlex.split(contribute.split(" --accept")[0])[1:], capsys)
    keys = next(Path().glob("south-*.studykeys"))
    before = keys.read_bytes()
    told(give, capsys)
    log = AuditLog(data_folder() / "audit.jsonl")
    events = [one.entry.event for one in log.read()[0]]
    assert events == [Event.REFUSED, Event.YES, Event.CHARGED, Event.CONTRIBUTED]
    first = Path("south.contribution").read_bytes()
    told(give, capsys)
    assert Path("south.contribution").read_bytes() == first
    assert [one.event for one in verify(log, {}).entries] == [*events, Event.YES, Event.CONTRIBUTED]
    (account,) = json.loads(told(f"{budget.split(' --account')[0]} --json", capsys))["accounts"]
    assert len(account["entries"]) == 1
    assert account["charged_mu"] > 0
    # Other data are refused before anything is written or charged, under another account as well.
    data = Path("south.csv").read_text()
    Path("south.csv").write_text(data.replace("27", "28"))
    Path("south.contribution").unlink()
    assert "contributed other data" in fails(shlex.split(give)[1:], capsys)
    assert not Path("south.contribution").exists()
    Path("south.csv").write_text(data)
    told(give, capsys)
    assert json.loads(told(f"{budget.split(' --account')[0]} --json", capsys))["accounts"] == [account]
    # On a clone of the machine, with a store from before, the ledger still knows.
    monkeypatch.setenv("XDG_CONFIG_HOME", "clone")
    after = keys.read_bytes()
    write_private(keys, before)
    Path("south.csv").write_text(data.replace("27", "28"))
    assert "knows another contribution" in fails(shlex.split(give)[1:], capsys)
    Path("south.csv").write_text(data)
    write_private(keys, after)
    assert "gave no address" in fails(["join", "study.sealed", "--key", "south.key", "--data", "south.csv"], capsys)
    without_ledger = give.split(" --ledger")[0] + " --accept "
    for name in PARTIES[:1] + PARTIES[2:4]:
        # All of them are one user here.
        own = without_ledger.replace("south", name) + yes_of(name, "study.sealed")
        told(f"{own} --new-account {name}", capsys)
    for _ in range(2):
        shown = told(combine.replace("*.contribution", " ".join(map(str, sorted(Path().glob("*.contribution"))))), capsys)
        assert "! AWAY       inland is not in the answer (4 of 5 are)." in shown
        assert Path("study.privacy.html").exists()
    assert "epsilon" in told(certify, capsys)
    assert "planned for 4" in fails(["study", "combine", "study.sealed", "north.contribution"], capsys, code=3)
    # What programs read is as quietmean schema says, on standard output and in the folder.
    files = " ".join(map(str, sorted(Path().glob("*.contribution"))))
    result = json.loads(told(f"quietmean study combine study.sealed {files} --out results --json", capsys))
    assert json.loads(Path("results/study.result.json").read_text()) == result
    assert faults("result", result) == []
    assert faults("receipt", json.loads(Path("results/study.receipt.json").read_text())) == []
    assert result["not_counted"] == ["inland"]
    assert Path("results/study.privacy.html").exists()
    assert "Give one of them" in fails(
        ["study", "combine", "study.sealed", *files.split(), "--out", "results", "--receipt", "a.json"], capsys
    )


def type_to_seal(capsys: pytest.CaptureFixture[str]) -> None:
    """The page up to the words, for five parties."""
    new, keygen, invite, accept, seal, words, *_ = commands("take-part/committee.md", "Without a committee")
    for line in (new, keygen, invite):
        told(line, capsys)
    for number, name in enumerate(PARTIES):
        Path(f"{name}.csv").write_text("age\n" + "\n".join(str(20 + (7 * row + number) % 60) for row in range(400)))
        told(accept.replace("south", name), capsys)
    told(seal, capsys)
    told(words, capsys)


GIVE = ["send", "study.sealed", "--key", "south.key", "--data", "south.csv"]


def test_what_is_refused_before_anything_is_kept(capsys: pytest.CaptureFixture[str]) -> None:
    type_to_seal(capsys)
    digest = yes_of("south", "study.sealed")
    keys = next(Path().glob("south-*.studykeys"))
    before = keys.read_bytes()
    assert "unattended = true" in fails([*GIVE, "--yes"], capsys)
    assert "another kind of file" in fails([*GIVE, "--accept", digest, "--out", "south.csv"], capsys)
    assert "no folder no" in fails([*GIVE, "--accept", digest, "--out", "no/south.contribution"], capsys)
    assert keys.read_bytes() == before
    assert Path("south.csv").read_text().startswith("age")
    main([*GIVE, "--accept", digest])
    north = [*(part.replace("south", "north") for part in GIVE), "--new-account", "north"]
    digest = yes_of("north", "study.sealed")
    assert "exists already" in fails([*north, "--accept", digest, "--out", "south.contribution"], capsys)
    main([*north, "--accept", digest])


# The process ends at once, as if the power failed, at one of these places.
CRASH = """
import os, sys
from quietmean.studies.party import by_file
from quietmean.studies.agreement import study_keys
where = sys.argv[1]
die = lambda *_: os._exit(9)
kept = study_keys.StudyKeys.spent
if where == "charged":
    by_file.SharingContributor._register = die
elif where == "registered":
    study_keys.StudyKeys.spent = die
else:
    study_keys.StudyKeys.spent = lambda *given: die(kept(*given))
import quietmean as qm
from quietmean.cli.main import main
main(sys.argv[2:])
"""


@pytest.mark.slow
def test_processes_that_are_killed_and_two_at_once(capsys: pytest.CaptureFixture[str]) -> None:
    """From the charge on, with a ledger, no other data get out; the same end what had begun, charged once."""
    type_to_seal(capsys)
    Path("other.csv").write_text("age\n30\n40\n50")
    for name, where in zip(("south", "east", "west"), ("charged", "registered", "kept"), strict=True):
        told(f"quietmean site budget --ledger {name}.ledger --account {name} --budget 2 1e-5", capsys)
        give = ["send", "study.sealed", "--key", f"{name}.key", "--data", f"{name}.csv", "--accept", yes_of(name, "study.sealed")]
        give += ["--ledger", f"{name}.ledger", "--account", name]
        ended = subprocess.run(
            [sys.executable, "-c", CRASH, where, *give], capture_output=True, text=True, timeout=120, check=False
        )
        assert ended.returncode == 9, ended.stderr
        assert not Path(f"{name}.contribution").exists()
        fails([part.replace(f"{name}.csv", "other.csv") for part in give], capsys)
        assert not Path(f"{name}.contribution").exists()
        main(give)
        first = Path(f"{name}.contribution").read_bytes()
        main(give)
        assert Path(f"{name}.contribution").read_bytes() == first
        (account,) = json.loads(told(f"quietmean site budget --ledger {name}.ledger --json", capsys))["accounts"]
        assert len(account["entries"]) == 1
    started = []
    for data in ("inland.csv", "other.csv"):
        give = [
            "send",
            "study.sealed",
            "--key",
            "inland.key",
            "--data",
            data,
            "--accept",
            yes_of("inland", "study.sealed"),
            "--out",
            f"{data}.out",
        ]
        command = [sys.executable, "-m", "quietmean.cli.main", *give]
        started.append(subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True))
    errors = [process.communicate(timeout=120)[1] for process in started]
    assert sorted(process.returncode for process in started) == [0, 2], errors
    assert len(list(Path().glob("*.out"))) == 1
