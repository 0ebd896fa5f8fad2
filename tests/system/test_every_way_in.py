"""Every protocol by every name, in every way in, for every unit: parties have a result if and only if the seal says yes.

Every command that comes before says the same, in the same words.
"""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

import quietmean
from quietmean.cli.main import main
from quietmean.core.errors import InputError
from quietmean.protocols import get_protocol
from quietmean.studies.agreement.any_study import load_any, study_text
from support.command_lines import command, ending
from support.rosters import on_this_machine, write_roster
from support.site_policy import write_policy
from support.ways_in import NAMES, PROTOCOLS, Cell, Consortium, cells, said

# Between them a join, a fold of files, a session and refusals of each kind; all others take long.
QUICK = {
    "local-dp-join-person",
    "local-dp-file-record",
    "secagg-file-record",
    "gossip-session-party",
    "packed-sharing-join-record",
    "cordp-dme-committee-record",
}
CASES = [pytest.param(cell, id=str(cell), marks=() if str(cell) in QUICK else pytest.mark.slow) for cell in cells()]
# Who is interrupted and comes again, where parties wait for each other.
COMES_AGAIN = {"join", "folder", "session"}


@pytest.fixture(autouse=True)
def willing_sites(own_folders: None) -> None:
    write_policy(unattended=True, largest_epsilon=100.0)


@pytest.mark.parametrize("cell", CASES)
def test_the_seal_says_yes_if_and_only_if_parties_have_a_result(
    cell: Cell, tmp_path: Path, free_ports: Callable[[int], list[int]]
) -> None:
    parties = Consortium(cell, tmp_path, free_ports(len(cell.names)))
    refused = parties.refused_before()
    if (no_study := said(lambda: parties.terms)) is not None:
        # Nobody can write it: there is nothing to seal or join.
        assert no_study == refused
    elif refused is not None:
        assert parties.refused_at_join() == refused
    else:
        results = parties.come_to(again=NAMES[1] if cell.way in COMES_AGAIN else "")
        assert len(results) == (1 if cell.way in ("run", "file") else len(NAMES) if cell.way != "committee" else 4)


KILLED = [cell for cell in cells() if cell.unit == "record" and cell.way in ("join", "folder")]


@pytest.mark.slow
@pytest.mark.parametrize("cell", KILLED, ids=str)
def test_a_killed_party_types_its_line_again(cell: Cell, tmp_path: Path, free_ports: Callable[[int], list[int]]) -> None:
    """As processes of the command; killed when its noise is in its store."""
    parties = Consortium(cell, tmp_path, free_ports(len(NAMES)))
    if parties.refused_before() is not None:
        return
    (tmp_path / "share").mkdir()

    def start(name: str) -> subprocess.Popen[str]:
        (tmp_path / f"{name}.csv").write_text("age\n" + "\n".join(map(str, range(25, 65))))
        consent = ["--yes", "--no-ledger", "--a-priori-above-target", *(["--no-privacy"] if cell.bare else [])]
        share = ["--folder", "share"] if cell.way == "folder" else []
        own = ["--data", f"{name}.csv", "--key", f"{name}.key", "--store", f"{name}.store"]
        return command(tmp_path, "join", "ages.sealed", *own, *consent, *share, "--receipt", f"{name}.json", "--json")

    running = {name: start(name) for name in NAMES}
    try:
        struck, deadline = NAMES[1], time.monotonic() + 600
        while not (tmp_path / f"{struck}.store").exists() and running[struck].poll() is None and time.monotonic() < deadline:
            time.sleep(0.02)
        running[struck].kill()
        running[struck].communicate()
        running[struck] = start(struck)
        endings = {name: ending(process, 900) for name, process in running.items()}
    finally:
        for process in running.values():
            process.kill()
    assert {code for code, _, _ in endings.values()} == {0}, endings
    assert {json.loads(output)["parties_counted"] for _, output, _ in endings.values()} == {len(NAMES)}


@pytest.mark.parametrize("name", PROTOCOLS)
def test_every_name_has_a_study_file(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Written by new, and taken by invite; where nothing is protected somebody has to say so."""
    monkeypatch.chdir(tmp_path)
    bare = " --no-privacy" if Cell(name, "join", "record").bare else ""
    line = f"study new 'mean(age in 0..100)' --protocol {name} --out"
    main(shlex.split(f"{line} ages.toml{bare}"))
    assert load_any(Path("ages.toml")).protocol == ("auto" if name == "auto" else get_protocol(name).name)
    with pytest.raises(SystemExit):
        main(shlex.split(f"{line} other.toml{'' if bare else ' --no-privacy' if name != 'auto' else ' --nats 0.4 --epsilon 1'}"))
    assert not Path("other.toml").exists()
    main(shlex.split("key new --key north.key"))
    main(shlex.split("study invite ages.toml --key north.key --out ages.invitation"))


def test_every_name_of_every_protocol_is_there() -> None:
    assert {"auto", "inca", "cordp-dme", "consensus", "adqsp", "pdmm", "admm", "gossip", "secret-sharing"} <= set(PROTOCOLS)


# They read what is over, or what its members hand out.
OVER = {"cli/by_file.py"}
# What no party can do, for one reason each: the cell, how many gave an address, and whether it is known whoever comes.
REFUSED = {
    "noise": (Cell("local-dp", "join", "party", (("epsilon", 0.5),)), 3, False),
    "messages": (Cell("packed-sharing", "file", "record"), 0, False),
    "one-address-missing": (Cell("packed-sharing", "join", "record"), 2, False),
    "roles": (Cell("central-dp", "join", "record", (("start_by", "2999-01-01T00:00:00Z"), ("minimum", 3))), 3, True),
    "privacy": (Cell("gossip", "session", "party"), 3, True),
    "nothing-to-start": (
        Cell("local-dp", "file", "record", (("start_by", "2999-01-01T00:00:00Z"), ("minimum", 3), ("dropouts", 0.0))),
        0,
        False,
    ),
    "session-without-addresses": (Cell("local-dp", "session", "party"), 0, False),
}


@pytest.mark.parametrize("reason", REFUSED)
def test_all_commands_refuse_in_the_same_words(
    reason: str,
    tmp_path: Path,
    free_ports: Callable[[int], list[int]],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cell, addresses, in_general = REFUSED[reason]
    monkeypatch.chdir(tmp_path)
    parties = Consortium(cell, tmp_path, free_ports(addresses))
    _ = parties.sealed
    Path("age.csv").write_text("age\n" + "\n".join(map(str, range(30, 70))))
    Path("train.py").write_text("import quietmean as qm\nqm.joined()\n")
    Path("ages.invitation").write_bytes(parties.meeting.invitation.signed.to_file())
    for name, keys in parties.meeting.keys.items():
        Path(f"{name}.entry").write_bytes(keys.entry.signed.to_file())

    own = "--key north.key" + ("" if parties.sealed.by_file else " --store north.store")
    session = cell.way == "session"
    data = "--account wards" if session else "--data age.csv --no-ledger"
    joins = f"join ages.sealed {own} --yes {data}" + (" --program train.py" if session else "")
    lines = [
        "study seal ages.invitation north.entry south.entry east.entry --key north.key --out other.sealed",
        f"site contract ages.sealed {own}",
        f"check ages.sealed {own} {data} --wait 0",
        joins if not parties.sealed.by_file else f"send ages.sealed --yes {own} {data} --out north.contribution",
    ]
    if not session:
        lines.append("plan --study ages.sealed")
    if in_general:
        Path("ages.toml").write_text(study_text(parties.terms))
        lines.append("study invite ages.toml --key north.key --out another.invitation")
    sentences = {line: told(line, capsys) for line in lines}
    assert len(set(sentences.values())) == 1, sentences
    assert not Path("other.sealed").exists()


def test_a_study_through_a_folder_has_to_be_sealed_wherever_it_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write_roster(tmp_path, on_this_machine(NAMES, (7001, 7002, 7003)))
    terms = Consortium(Cell("local-dp", "folder", "record"), tmp_path, []).terms
    Path("ages.toml").write_text(study_text(terms))
    Path("age.csv").write_text("age\n30\n")
    agreed = "ages.toml --roster roster.toml"
    party = f"{agreed} --key north.key"
    joins = f"join {party} --data age.csv --folder share --yes --no-ledger"
    lines = [f"plan --study {agreed}", f"site contract {party}", f"check {party} --data age.csv --no-ledger", joins]
    sentences = {line: told(line, capsys) for line in lines}
    assert len(set(sentences.values())) == 1, sentences
    assert "through a folder has to be sealed" in sentences[joins]


def test_a_party_of_the_fewest_records_has_room(tmp_path: Path, free_ports: Callable[[int], list[int]]) -> None:
    """Else no party could take part, and the seal says so."""
    limits = (("records_per_party", (10_000, 20_000)), ("options", {"domain": "ball", "largest_weight": 100.0}))
    cell = Cell("packed-sharing", "join", "record", limits)
    parties = Consortium(cell, tmp_path, free_ports(3))
    assert "largest_weight" in str(parties.refused_before())
    assert parties.refused_at_join() == parties.refused_before()


def test_nobody_else_decides() -> None:
    """Who plans what parties will do asks the verdict; readers of what is over plan as it was."""
    source = Path(quietmean.__file__).parent
    plans = {str(path.relative_to(source)) for path in source.rglob("*.py") if re.search(r"\.choice\(", path.read_text("utf-8"))}
    assert plans == {"studies/agreement/study.py", "studies/outcome/feasible.py", "studies/agreement/sealed.py", *OVER}
    asks = {str(path.relative_to(source)) for path in source.rglob("*.py") if "feasible import" in path.read_text("utf-8")}
    assert {f"cli/{name}.py" for name in ("new", "convening", "run", "check_committee", "join")} <= asks
    assert {
        "studies/party/planned.py",
        "studies/party/files.py",
        "studies/party/handing_in.py",
        "studies/party/session_contract.py",
    } <= asks


def told(line: str, capsys: pytest.CaptureFixture[str]) -> str:
    """The sentence with which a command refuses."""
    capsys.readouterr()
    with pytest.raises(SystemExit) as ended:
        main(shlex.split(line))
    errors = capsys.readouterr().err.splitlines()
    assert ended.value.code == InputError.exit_code, (line, errors)
    return errors[-1]
