"""A session on the command line: invited to, sealed, checked, joined with a program, certified; the lines of its how-to page."""

from __future__ import annotations

import html
import http.client
import json
import re
import shlex
import signal
from collections.abc import Callable
from pathlib import Path
from subprocess import Popen
from typing import Any
from urllib.parse import urlencode

import pytest

import quietmean as qm
from quietmean.cli.main import main
from quietmean.core.folders import data_folder
from quietmean.ledger import Ledger
from quietmean.node import Identity
from quietmean.studies.agreement.sealed import Sealed
from quietmean.studies.party import OwnerApproval
from quietmean.studies.party.approval import fingerprint
from quietmean.studies.party.audit import AuditLog, Event, verify
from support.command_lines import command, ending, fails
from support.consent import accept as yes_of
from support.pages import blocks, commands
from support.site_policy import write_policy

PAGE = "models/sessions.md"
NAMES = ("ada", "north", "east")
RUNNING = """
import sys, time
import numpy as np
import quietmean as qm
rounds = qm.joined()
while not rounds.over:
    print(rounds.mean(np.full(3, 0.1)).round, flush=True)
    time.sleep(float(sys.argv[1]) if len(sys.argv) > 1 else 0.0)
"""
# After rounds without the one that was killed the others wait for it, as long as its start takes: alone they are over in seconds.
WAITING = """
import time
from pathlib import Path
import numpy as np
import quietmean as qm
again = Path("killed").exists()
rounds = qm.joined()
if again:
    Path("back").touch()
while not rounds.over:
    number = rounds.mean(np.full(3, 0.1)).round
    print(number, flush=True)
    while number == 6 and not Path("back").exists():
        time.sleep(0.05)
"""


@pytest.fixture(params=[""])
def sealed(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, free_ports: Callable[[int], list[int]]
) -> Path:
    """The session of the page, perhaps with more lines in place of its dropouts, sealed with its own commands."""
    monkeypatch.chdir(tmp_path)
    write_policy(largest_epsilon=10.0, budget={"epsilon": 10.0, "delta": 1e-4})
    page = blocks(PAGE, "toml")[0]
    Path("session.toml").write_text(page.replace("dropouts = 0.0 ", f"{request.param} #") if request.param else page)
    keygen, invite, accept, seal, *_ = commands(PAGE)
    call(keygen)
    call(invite)
    for name, port in zip(NAMES, free_ports(3), strict=True):
        call(accept.replace("north.example.org:7000", f"127.0.0.1:{port}").replace("north", name))
    call(seal)
    return Path("session.sealed")


def call(line: str, *more: str) -> None:
    assert line.startswith("quietmean ")
    main([*shlex.split(line)[1:], *more])


def shown(command: str, name: str) -> str:
    """The page's first line of a command, for this party."""
    line = next(line for line in commands(PAGE) if line.startswith(f"quietmean {command} "))
    return line.replace("north", name).replace("wards", name)


def data_of(name: str) -> Path:
    """Where the processes of a party, which is a user of its own, have ledger and log."""
    return data_folder().parent / name / data_folder().name


def start(line: str, *more: str) -> Popen[str]:
    return command(Path(), *shlex.split(line)[1:], *more)


@pytest.mark.slow
def test_the_commands_and_the_program_of_the_page(sealed: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("train.py").write_text(next(block for block in blocks(PAGE, "python") if "qm.joined" in block))
    capsys.readouterr()
    call(shown("site contract", "north"), "--json")
    contract = json.loads(capsys.readouterr().out)
    call(shown("site contract", "north"))
    assert f"--program FILE --account NAME --accept {contract['accept'][:8]}" in capsys.readouterr().out
    agreed = Sealed.load(sealed)
    digest, by_key = agreed.digest, [entry.name for entry in agreed.entries]
    assert contract["digest"] == digest
    assert contract["links"] == "hybrid"
    checks = [start(shown("check", name)) for name in NAMES]
    for checking in checks:
        code, output, errors = ending(checking)
        assert code == 0, (output, errors)
    joining = [start(shown("join", name), "--accept", yes_of(name, sealed), "--json") for name in NAMES]
    for name, process in zip(NAMES, joining, strict=True):
        code, output, errors = ending(process)
        assert code == 0, errors
        document = json.loads(output)
        assert document["rounds"] == {"agreed": 10, "begun": 10}
        assert document["contract"] == digest
        with Ledger.open(data_of(name) / "ledger") as book:
            assert [entry.status for entry in book.account(name).entries] == ["spent"]
        receipt = json.loads(Path(document["receipt"]).read_text())
        approval = receipt["origin"]["approval"]
        assert approval["sealed"]["digest"] == digest
        # As nobody compared the words with them.
        assert approval["sealed"]["trusts_convener_for"] == [other for other in by_key if other != name]
        capsys.readouterr()
        call(shown("verify receipt", name), "--json")
        certified = json.loads(capsys.readouterr().out)
        assert certified["epsilon"] == receipt["certificate"]["epsilon"] == document["epsilon"] <= 8.0
    for name in NAMES:
        main(["site", "status", f"session-{name}.store"])
        said = " ".join(capsys.readouterr().out.split())
        assert said.startswith(f"Session 'averaging': {name} has finished (no process), round 10 of 10.")
        own = verify(AuditLog(data_of(name) / "audit.jsonl"), {}).entries
        assert {entry.party for entry in own} == {name}
        assert [entry.event for entry in own] == [Event.YES, Event.CHARGED, Event.STARTED, Event.ENDED]
        assert {entry.contract for entry in own} == {digest}


@pytest.mark.slow
@pytest.mark.parametrize("sealed", ['dropouts = 0.34\nprotocol = "cordp-dme"'], indirect=True, ids=["dropouts"])
def test_a_session_is_continued_by_the_same_command_after_a_kill_in_mid_program(sealed: Path) -> None:
    Path("train.py").write_text(WAITING)

    def join(name: str) -> Popen[str]:
        return start(shown("join", name), "--accept", yes_of(name, sealed))

    running = {name: join(name) for name in NAMES}
    try:
        process = running["east"]
        assert process.stdout is not None
        for _ in range(2):
            assert process.stdout.readline().strip().isdigit()
        process.send_signal(signal.SIGKILL)
        process.communicate()
        Path("killed").touch()
        running["east"] = join("east")
        ended = {name: ending(one) for name, one in running.items()}
    finally:
        for one in running.values():
            one.kill()
            one.communicate()
    assert {name: code for name, (code, _, _) in ended.items()} == dict.fromkeys(NAMES, 0), ended
    receipt = json.loads(Path("session-east.receipt.json").read_text())
    assert 3 <= receipt["rounds"]["begun"] <= 10
    with Ledger.open(data_of("east") / "ledger") as book:
        (entry,) = book.account("east").entries
    assert entry.charged.mu <= entry.reserved.mu


WRONG: dict[str, Any] = {
    "nobody said yes": ["--program", "train.py"],
    "Give --program": [],
    "is not a file": ["--program", "nothing.py"],
    "Leave --data out": ["--program", "train.py", "--data", "visits.csv"],
    "Leave records out": ["--program", "train.py", "--records", "5"],
    "Choose 1 to 10": ["--program", "train.py", "--most", "11"],
    "Leave --folder and --once out": ["--program", "train.py", "--once"],
    "is not the digest of this study": ["--program", "train.py", "--accept", "0" * 32],
}


def test_what_cannot_be_is_one_sentence_before_anything_is_sent(sealed: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("train.py").write_text(RUNNING)
    for sentence, options in WRONG.items():
        accept = [] if "nobody" in sentence or "--accept" in options else ["--accept", yes_of("north", sealed)]
        said = fails(
            ["join", "session.sealed", "--key", "north.key", "--account", "wards", *accept, *options], capsys, warned=True
        )
        assert sentence in said, sentence
    assert not Path("session-north.receipt.json").exists()
    for line in ("send session.sealed --key north.key --data train.py", "study combine session.sealed train.py"):
        assert "is a session, of many means of vectors" in fails(shlex.split(line), capsys)
    Path("study.toml").write_text('[study]\ndelta = 1e-6\n[[column]]\nname = "age"\nlow = 0\nhigh = 100\n')
    with pytest.raises(qm.InputError, match="in no session"):
        qm.joined()


@pytest.mark.slow
def test_a_program_that_fails_leaves_its_part_to_be_continued(sealed: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("train.py").write_text("import quietmean as qm\nqm.joined()\nraise ValueError('secret 4711')\n")
    failing = [start(shown("join", name), "--accept", yes_of(name, sealed)) for name in NAMES]
    for process in failing:
        code, output, errors = ending(process)
        assert code == 1
        assert "4711" not in output + errors
        assert "train.py:3" in errors
    for name in NAMES:
        assert not Path(f"session-{name}.receipt.json").exists()
    entries = [entry for name in NAMES for entry in verify(AuditLog(data_of(name) / "audit.jsonl"), {}).entries]
    assert {entry.about["reason"] for entry in entries if entry.event == Event.ENDED} == {"interrupted, it can be continued"}
    # One that enters its rounds once more.
    Path("train.py").write_text("import quietmean as qm\nwith qm.joined() as rounds:\n    pass\n")
    for process in [start(shown("join", name)) for name in NAMES]:
        code, output, errors = ending(process)
        assert code == 2, errors
        assert "these rounds of a session are entered already. Use them without another with statement." in errors
    # Now one that ends by itself, early.
    Path("train.py").write_text("import sys\nimport quietmean as qm\nqm.joined()\nsys.exit()\n")
    for process in [start(shown("join", name)) for name in NAMES]:
        code, output, errors = ending(process)
        assert code == 0, errors
        assert "0 of 10 rounds" in output


@pytest.mark.slow
def test_the_desk_shows_a_session_and_signs_it_and_join_takes_that_yes(sealed: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """North's pages: contract and words; a signature of the data owner; the receipt of a part that was given up."""
    pytest.importorskip("starlette")
    from support.desks import entered, running, ticked

    main(["key", "new", "--key", "owner.key"])
    owner = Identity.load(Path("owner.key")).public_key
    write_policy(largest_epsilon=10.0, approvers=[owner], budget={"epsilon": 10.0, "delta": 1e-4})
    agreed = Sealed.load(sealed)
    with running("--owner-key", "owner.key", party="north") as desk:
        cookie = "=".join(entered(desk))
        page = ask(desk.port, cookie, "/study/session.sealed")
        assert "at most 10 means of vectors of 3 coordinates" in page
        assert re.findall(r'name="word.\d" value="(\w+)"', page) == list(fingerprint(agreed.digest).words)
        assert "Look at your data" not in page
        form = page.partition('name="form" value="')[2].partition('"')[0]
        fields = {"form": form, "do": "sign", "account": "north", "until": "2999-01-01", **ticked(agreed, "north")}
        ask(desk.port, cookie, "/study/session.sealed/accept", fields)
        approval = Path("session-north.approval")
        assert OwnerApproval.load(approval).terms.contract == agreed.digest
        Path("train.py").write_text(RUNNING)
        assert "approval" in str(fails(shlex.split(shown("join", "north"))[1:], capsys, warned=True))
        with pytest.warns(UserWarning, match="is made in|else their keys may be false"):
            qm.session("session.sealed", key="north.key", account="north", approvals=[approval]).give_up()
        assert "0 of 10 rounds began" in ask(desk.port, cookie, "/result/session-north")
    receipt = json.loads(Path("session-north.receipt.json").read_text())
    assert receipt["origin"]["approval"]["approvals"]


def ask(port: int, cookie: str, path: str, fields: dict[str, str] | None = None) -> str:
    """A page of the desk, of a form where ``fields`` are sent."""
    heads = {"Cookie": cookie, "Sec-Fetch-Site": "same-origin", "Origin": f"http://127.0.0.1:{port}"}
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    try:
        if fields is None:
            connection.request("GET", path, headers=heads)
        else:
            heads["Content-Type"] = "application/x-www-form-urlencoded"
            connection.request("POST", path, urlencode(fields), heads)
        answer = connection.getresponse()
        text = html.unescape(answer.read().decode())
        assert answer.status == 200, text
        return text
    finally:
        connection.close()
