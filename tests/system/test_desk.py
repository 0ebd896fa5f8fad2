"""``quietmean site desk`` as a process: who gets in, what is refused, and what the pages say of a real study."""

from __future__ import annotations

import contextlib
import json
import os
import re
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from quietmean.cli.main import main
from quietmean.desk.access import LINK_LASTS, LinkAccess, same_user
from quietmean.node import Identity
from quietmean.studies.agreement.sealed import Sealed
from quietmean.studies.outcome.tables import tables_of
from quietmean.studies.party import OwnerApproval
from quietmean.studies.party.audit import AuditLog, Auditor, Event
from quietmean.studies.party.session_contract import SessionContract, contract_for
from support.consent import accept as yes_of
from support.desks import Browser, Running, running, ticked
from support.meeting import AGES, meet
from support.outcomes import finished, session_receipt
from support.pages import words_of
from support.site_policy import write_policy

HEADERS = ("content-security-policy", "x-frame-options", "referrer-policy", "cache-control", "x-content-type-options")


def agreed(kind: str, records: int) -> dict[str, Any]:
    """The tables of a study, or of a session."""
    if kind == "study":
        return {**AGES, "study": {**AGES["study"], "name": "ages", "records": records}}
    return {"session": {"name": "ages", "dimension": 3, "rounds": 2, "epsilon": 2.0, "delta": 1e-6, "protocol": "cordp-dme"}}


PARTIES = ("north", "south", "east")
BOTH = pytest.mark.parametrize("desk", ["study", pytest.param("session", marks=pytest.mark.slow)], indirect=True)


@pytest.fixture
def desk(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Running]:
    """With a sealed study, or session."""
    monkeypatch.chdir(tmp_path)
    meeting = meet(tmp_path, tables=agreed(getattr(request, "param", "study"), 3000))
    (tmp_path / "ages.sealed").write_bytes(meeting.seal().signed.to_file())
    Identity.generate().save(tmp_path / "owner.key", b"open sesame")
    with running("--owner-key", "owner.key") as found:
        yield found


@pytest.mark.slow
def test_a_look_at_the_data_before_the_yes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Cells of the data are on their own page alone, as text: no markup of them is, nor a sign that is not printed."""
    monkeypatch.chdir(tmp_path)
    column = {"name": "ward", "levels": ["a", "b"]}
    meeting = meet(
        tmp_path, tables={**AGES, "study": {**AGES["study"], "name": "a <b>study</b>"}, "column": [*AGES["column"], column]}
    )
    (tmp_path / "ages.sealed").write_bytes(meeting.seal().signed.to_file())
    hostile = ["<script>alert(1)</script>", "<img src=x onerror=alert(1)>", "{{ 7 * 7 }}", "a\u202eb", "&amp;", "'\"><a href=x>"]
    rows = "".join(f"{20 + place}\t{cell}\n" for place, cell in enumerate([*hostile, "a", "b", "1,234"]))
    (tmp_path / "wards.csv").write_text(f"age\tward\n312.75\ta\n{rows}61,234\tb\n")
    with running("--data", "wards.csv") as desk:
        browser = Browser(desk.port)
        assert browser.ask("/study/ages.sealed/data")[0] == 403
        browser.enter(desk.token)
        page = browser.ask("/study/ages.sealed")[1]
        assert '<a href="/study/ages.sealed/data">' in page
        # This study does not say how many records there are.
        assert "Nobody knows beforehand how exact the result will be" in page
        status, page, headers = browser.ask("/study/ages.sealed/data")
        assert status == 200, page
        assert headers["cache-control"] == "no-store"
        assert "wards.csv: 11 records" in page
        assert "column &#39;age&#39;: 1 cell may be two numbers" in page
        assert "column &#39;ward&#39;: 7 cells not understood" in page
        assert "column &#39;age&#39;: 1 cell outside the bounds" in page
        assert '<code>decimal = "comma"</code>' in page
        assert "wards.format.toml" in page
        for cell in ("&lt;script&gt;alert(1)&lt;/script&gt;", "&lt;img src=x onerror=alert(1)&gt;"):
            assert cell in page
        assert not re.search(r"<(script|img|a href=x|b>)|\{\{|\u202e", page.replace("{{ 7 * 7 }}", ""))
        assert "{{ 7 * 7 }}" in page
        assert browser.ask("/study/none.sealed/data")[0] == 404
        for other in ("/", "/study/ages.sealed", "/board", "/ledger", "/audit"):
            assert "alert(1)" not in browser.ask(other)[1]
            assert "312.75" not in browser.ask(other)[1]
        (tmp_path / "wards.csv").write_text("years\n7\n")
        status, page, _ = browser.ask("/study/ages.sealed/data")
        assert status == 400
        assert "column &#39;age&#39; is not one of the 1 column of wards.csv" in page
    with running() as desk:
        browser = Browser(desk.port)
        browser.enter(desk.token)
        assert "/data" not in browser.ask("/study/ages.sealed")[1]
        assert browser.ask("/study/ages.sealed/data")[0] == 404


def test_who_gets_in_and_who_does_not(desk: Running) -> None:
    browser, other = Browser(desk.port), Browser(desk.port)
    # Without a session: the form of the link, and nothing else.
    assert browser.ask("/login")[0] == 200
    for path in ("/", "/study/ages.sealed", "/ledger", "/report/x", "/nothing", "/static/desk.py"):
        assert browser.ask(path)[0] == 403
    assert browser.enter("x" * 43) == 403
    assert browser.enter(desk.token) == 303
    # The link opens one session.
    assert other.enter(desk.token) == 403
    status, page, headers = browser.ask("/")
    assert status == 200
    assert "ages.sealed" in page
    assert all(name in headers for name in HEADERS)
    assert "'unsafe" not in headers["content-security-policy"]
    assert "frame-ancestors 'none'" in headers["content-security-policy"]
    refused: list[dict[str, Any]] = [
        {"Host": "localhost:1"},
        {"Host": f"localhost:{desk.port}"},
        {"Host": "evil.example"},
        {"Host": f"127.0.0.1:{desk.port + 1}"},
        {"Sec_Fetch_Site": "cross-site"},
        {"Sec_Fetch_Site": "same-site"},
        {"Cookie": f"quietmean_{desk.port}=x"},
        {"Cookie": browser.cookie.replace(f"quietmean_{desk.port}", "quietmean_1")},
    ]
    for changed in refused:
        status, text, headers = browser.ask("/", **changed)
        assert (status, text.startswith("Refused.")) == (403, True), changed
        assert all(name in headers for name in HEADERS)
    assert browser.ask("/", None, "PUT")[0] == 403
    # What changes something, from elsewhere or without the token of this session's forms.
    form = browser.form()
    for changed in (
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Origin": f"http://127.0.0.1:{desk.port + 1}"},
        {"Sec_Fetch_Site": "cross-site"},
        {"Content_Type": "text/plain"},
    ):
        assert browser.ask("/leave", {"form": form}, **changed)[0] == 403, changed
    for body in ({"form": "x"}, {}, {"form": form, "more": "x" * 70000}):
        assert browser.ask("/leave", body)[0] == 403, body
    assert browser.ask("/leave")[0] == 405
    assert browser.ask("/")[0] == 200
    # To leave ends the session, and the command.
    assert browser.ask("/leave", {"form": form})[0] == 200
    assert desk.process.wait(30) == 0


@pytest.mark.slow
@BOTH
def test_what_the_pages_say(desk: Running, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    browser = Browser(desk.port)
    assert browser.enter(desk.token) == 303
    page = browser.ask("/study/ages.sealed")[1]
    asks = "mean(age)" if "study" in request.node.name else "at most 2 means of vectors of 3 coordinates"
    for said in ("policy allows it", asks, "north", "Compare the safety code", "--accept "):
        assert said in page
    (tmp_path / "secret.txt").write_text("nothing for a page")
    for path in (
        "/study/..%2Fsecret.txt",
        "/report/secret.txt",
        "/report/%2e%2e%2fsecret.txt",
        "/static/..%2Fapp.py",
        "/result/ages",
    ):
        status, text, _ = browser.ask(path)
        assert (status, "nothing for a page" in text) == (404, False), path
    # A policy that says no is read anew with each page.
    write_policy(largest_epsilon=0.001)
    page = browser.ask("/study/ages.sealed")[1]
    assert "refuses it" in page
    assert "largest_epsilon" in page
    assert "--accept" not in page
    # What a stranger wrote is text.
    (tmp_path / "<b>\u202e.privacy.html").write_text("a page")
    (tmp_path / "other").mkdir()
    tables = {**AGES, "study": {**AGES["study"], "name": "<script>alert(1)</script>", "records": 3000}}
    (tmp_path / "<i>.sealed").write_bytes(meet(tmp_path / "other", tables=tables).seal().signed.to_file())
    write_policy()
    page = browser.ask("/")[1] + browser.ask("/study/%3Ci%3E.sealed")[1]
    assert "&lt;script&gt;alert(1)" in page
    assert not any(raw in page for raw in ("<script>alert", "<i>", "<b>", "\u202e"))


@BOTH
def test_the_page_of_a_result_has_its_numbers(desk: Running, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    """As tables, under the name of the study or session, whatever somebody has made of the file."""
    browser = Browser(desk.port)
    assert browser.enter(desk.token) == 303
    if "session" in request.node.name:
        raw = receipt_of_session(Sealed.load(tmp_path / "ages.sealed"), {"contract": "c" * 64})
        assert set(raw["rounds"]["counted"]) == set(PARTIES)
        (tmp_path / "found.receipt.json").write_text(json.dumps(raw))
        shown = ["ages", "2 of 2 rounds began: epsilon", "at delta 1e-6 at most", "c" * 64]
        shown += [
            "quietmean verify receipt found.receipt.json",
            *(f"{party} {means}" for party, means in raw["rounds"]["counted"].items()),
        ]
        # It states less than its rounds cost: nothing of it is shown.
        changed = {**raw, "certificate": {**raw["certificate"], "epsilon": 1e-3}}
        status_of_changed, said_of_changed = 400, "epsilon"
    else:
        outcome = finished("table-1(by=arm)", "linear-regression(y ~ x + arm)")
        outcome.save_receipt(tmp_path / "found.receipt.json", {"study": {"study": "ages & <b>wards</b>", "unit": "record"}})
        shown = ["ages & <b>wards</b>", "Differentially private", "--report PAGE.html"]
        tables = tables_of(outcome.to_json())
        shown += [cell for table in tables for line in table.lines for cell in line.cells]
        shown += [head for table in tables for head in table.heads]
        changed = json.loads((tmp_path / "found.receipt.json").read_text())
        changed["result"]["statistics"][0]["estimate"] = 7
        changed["result"]["statistics"][1] = "<script>"
        status_of_changed, said_of_changed = 200, "The result in this file is not as receipts have it. Ask for the receipt"
    status, page, _ = browser.ask("/result/found")
    assert status == 200
    read = words_of(page)
    assert [text for text in shown if " ".join(text.split()) not in read] == []
    # No sign of ours is taken for one that a stranger hid.
    assert "U+" not in page
    (tmp_path / "changed.receipt.json").write_text(json.dumps(changed))
    status, page, _ = browser.ask("/result/changed")
    assert (status, "<table" in page, "<script>" in page) == (status_of_changed, False, False)
    assert said_of_changed in words_of(page)


@pytest.mark.parametrize("desk", ["study"], indirect=True)
def test_the_page_of_a_result_says_it_in_a_sentence_and_a_number(desk: Running, tmp_path: Path) -> None:
    """An interval is drawn between the bounds, and closer; what only a program reads is folded away."""
    browser = Browser(desk.port)
    assert browser.enter(desk.token) == 303
    columns = [{"name": "x", "low": 0.0, "high": 100.0}]
    origin = {"study": {"study": "Wards", "columns": columns}, "plan": "d" * 64}
    finished("mean(x)", "histogram(x, bins=4)").save_receipt(tmp_path / "found.receipt.json", origin)
    page = browser.ask("/result/found")[1]
    seen = re.sub(r"<details>.*?</details>", "", page, flags=re.DOTALL)
    number = re.search(r'<p class="large">([\d.]+)</p>', seen)
    assert number is not None
    assert f"The mean is {number[1]} (95 %" in words_of(seen).replace("\u00a0", " ")
    one = seen[seen.index("mean(x)") : seen.index("histogram(x, bins=4)")]
    assert one.count('<svg class="interval') == 2
    assert re.findall(r"<text[^>]*>(.*?)</text>", one)[:2] == ["0", "100"]
    assert "d" * 64 in page
    assert not any(folded in seen for folded in ("d" * 64, "Student", "<table"))


def receipt_of_session(sealed: Sealed, origin: dict[str, Any]) -> dict[str, Any]:
    contract = contract_for("south", sealed)
    assert isinstance(contract, SessionContract)
    return session_receipt(contract, (2, 1, 0), origin)


@BOTH
def test_who_answers_for_the_data_signs(desk: Running, tmp_path: Path) -> None:
    browser = Browser(desk.port)
    assert browser.enter(desk.token) == 303
    sealed = Sealed.load(tmp_path / "ages.sealed")
    owner = Identity.load(tmp_path / "owner.key", lambda: b"open sesame")
    write_policy(approvers=[owner.public_key], unattended=True)
    until = (datetime.now(UTC).date() + timedelta(days=3)).isoformat()
    right = {
        "form": browser.form(),
        "do": "sign",
        **ticked(sealed),
        "account": "wards",
        "until": until,
        "passphrase": "open sesame",
    }
    for changed, said in (
        ({"word.8": "abandon"}, "not all words"),
        ({"word.1": right["word.2"], "word.2": right["word.1"]}, "not all words"),
        ({"account": " "}, "Type the data set"),
        ({"until": "soon"}, "not a date"),
        ({"until": "2020-01-01"}, "not over"),
        ({"passphrase": "wrong"}, "passphrase"),
    ):
        status, page, _ = browser.ask("/study/ages.sealed/accept", {**right, **changed})
        assert (status, said in page) == (400, True), page
    assert browser.ask("/study/ages.sealed/accept", {**right, "form": "x"})[0] == 403
    assert browser.ask("/study/other.sealed/accept", right)[0] == 404
    assert not list(tmp_path.glob("*.approval"))
    status, page, _ = browser.ask("/study/ages.sealed/accept", right)
    assert (status, "ages-south.approval" in page, "sesame" in page) == (200, True, False)
    signed = OwnerApproval.load(tmp_path / "ages-south.approval")
    assert (signed.terms.contract, signed.terms.party, signed.terms.account) == (sealed.digest, "south", "wards")
    # What this site's policy refuses, nobody signs.
    write_policy(approvers=[owner.public_key], largest_epsilon=0.001)
    status, page, _ = browser.ask("/study/ages.sealed/accept", right)
    assert (status, "largest_epsilon" in page) == (400, True)


@pytest.mark.slow
@BOTH
def test_who_answers_for_the_data_refuses(desk: Running, tmp_path: Path) -> None:
    browser = Browser(desk.port)
    assert browser.enter(desk.token) == 303
    approval = tmp_path / "ages-south.approval"
    approval.write_text("signed before")
    assert browser.ask("/study/ages.sealed/refuse", {"form": "x"})[0] == 403
    assert browser.ask("/study/ages.sealed/refuse")[0] == 405
    assert browser.ask("/study/other.sealed/refuse", {"form": browser.form()})[0] == 404
    assert approval.exists()
    status, page, _ = browser.ask("/study/ages.sealed/refuse", {"form": browser.form()})
    assert (status, "ages-south.approval" in page, approval.exists()) == (200, True, False)
    assert "refused on 20" in (tmp_path / "ages-south.refused").read_text()
    assert ">refused<" in browser.ask("/")[1]
    # A signature is another answer.
    signing = {"form": browser.form(), "do": "sign", "account": "wards", "until": "2999-01-01", "passphrase": "open sesame"}
    signing |= ticked(Sealed.load(tmp_path / "ages.sealed"))
    assert browser.ask("/study/ages.sealed/accept", signing)[0] == 200
    assert ">signed<" in browser.ask("/")[1]
    assert not (tmp_path / "ages-south.refused").exists()


@pytest.mark.slow
@BOTH
def test_the_audit_log_is_shown_and_checked(desk: Running, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    browser = Browser(desk.port)
    assert browser.enter(desk.token) == 303
    log = AuditLog(tmp_path / "audit.jsonl")
    write_policy(audit={"log": str(log.path)})
    assert "Nothing is written yet" in browser.ask("/audit")[1]
    assert browser.ask("/audit/file")[0] == 404
    auditor = Auditor(log, Identity.generate(), "south", "ages <b>", "0" * 64)
    auditor.write(Event.SHOWN)
    auditor.write(Event.REFUSED, {"reason": "too <i>few</i> parties"})
    head = auditor.write(Event.YES)
    receipt: dict[str, Any] = {"origin": {"audit": head.to_json()}}
    if "session" in request.node.name:
        receipt = receipt_of_session(Sealed.load(tmp_path / "ages.sealed"), receipt["origin"])
    (tmp_path / "ages-south.receipt.json").write_text(json.dumps(receipt))
    page = browser.ask("/audit")[1]
    assert "3 entries" in page
    assert "Receipts here that say the same: 1" in page
    assert "too &lt;i&gt;few" in page
    assert browser.ask("/audit/file")[1] == log.path.read_text()
    whole = log.path.read_text()
    first, second, _ = whole.splitlines()
    for changed, said in (
        (whole.replace("few", "many"), "it was changed"),
        (f"{first}\n{second}\n", "the end was cut off"),
        (f"{first}\n", "the end was cut off"),
    ):
        log.path.write_text(changed)
        page = browser.ask("/audit")[1]
        assert "It is not as it was written" in page
        assert said in page


@pytest.mark.skipif(
    not Path("/proc/net/tcp").exists() or os.getuid() != 0, reason="needs Linux, and the right to become another user"
)
def test_another_user_of_the_machine_is_refused(desk: Running) -> None:
    """With the link in hand."""
    code = (
        "import encodings.idna, http.client, os, sys; os.setuid(int(sys.argv[2])); port = sys.argv[1]; "
        "c = http.client.HTTPConnection('127.0.0.1', int(port)); "
        "c.request('GET', '/login', headers={'Host': f'127.0.0.1:{port}'}); print(c.getresponse().status)"
    )
    for user, expected in ((65534, "403"), (0, "200")):
        asked = subprocess.run(
            [sys.executable, "-c", code, str(desk.port), str(user)], capture_output=True, text=True, check=False
        )
        assert asked.stdout.strip() == expected, asked.stderr


@pytest.mark.slow
def test_idle_connections_keep_nobody_from_the_pages(desk: Running) -> None:
    """Whoever can connect here, another account of this machine too, may hold as many as it likes: the oldest give way."""
    with contextlib.ExitStack() as held:
        idle = [held.enter_context(socket.create_connection(("127.0.0.1", desk.port))) for _ in range(300)]
        assert Browser(desk.port).enter(desk.token) == 303
        idle[0].settimeout(10)
        with contextlib.suppress(ConnectionResetError):
            assert idle[0].recv(1) == b""


def test_a_port_that_is_taken(desk: Running, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["site", "desk", "--port", str(desk.port), "--no-browser"])
    assert ended.value.code == 2
    assert "Choose another with --port" in capsys.readouterr().err


def test_a_link_is_for_a_minute() -> None:
    clock = [0.0]
    access = LinkAccess(1, lambda: clock[0])
    clock[0] = LINK_LASTS + 0.1
    assert access.enter(access.link) is None
    fresh = LinkAccess(1, lambda: clock[0])
    clock[0] += LINK_LASTS - 0.1
    assert fresh.enter("") is None
    assert fresh.enter(fresh.link) is not None
    assert fresh.enter(fresh.link) is None
    assert fresh.link not in repr(fresh)


def test_whose_connection_it_is() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as client:
        port, own = server.getsockname()[1], client.getsockname()[1]
        assert same_user(own, port)
        if Path("/proc/net/tcp").exists():
            assert not same_user(port, own + 1 if own < 65535 else own - 1)


@pytest.mark.slow
def test_a_desk_ends_with_the_test_that_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ZeroDivisionError), running() as desk:
        _ = 1 / 0
    assert desk.process.poll() is not None


PROGRAM = """
import numpy as np
import quietmean as qm
rounds = qm.joined()
while not rounds.over:
    rounds.mean(np.full(3, 0.1))
"""


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["study", "session"])
def test_a_study_is_started_and_watched_from_the_pages(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, free_ports: Callable[[int], list[int]]
) -> None:
    """A wrong passphrase is said where it was typed for; nothing starts twice; who leaves the pages does not stop the study."""
    monkeypatch.chdir(tmp_path)
    names = ("north", "south", "east")
    identities = {name: Identity.generate() for name in names}
    addresses = {name: f"127.0.0.1:{port}" for name, port in zip(names, free_ports(3), strict=True)}
    meeting = meet(tmp_path, names, agreed(kind, 300), identities, addresses)
    sealed = meeting.seal()
    (tmp_path / "ages.sealed").write_bytes(sealed.signed.to_file())
    (tmp_path / "wards.csv").write_text("age\n" + "\n".join(str(20 + row % 70) for row in range(100)) + "\n")
    (tmp_path / "train.py").write_text(PROGRAM)
    given = ["--data", "wards.csv"] if kind == "study" else ["--program", "train.py"]
    for name in names:
        identities[name].save(tmp_path / f"{name}.key", b"node pass" if name == "south" else b"")
    write_policy(Path("policy.toml"), budget={"epsilon": 5.0, "delta": 1e-5})
    form = {"do": "start", "account": "wards", "node-passphrase": "wrong", **ticked(sealed)}
    # Signed by somebody whom the policy does not name: it is no answer, and in nobody's way.
    (tmp_path / "ages-south.approval").write_text("signed by somebody")
    with running(*given, "--key", "south.key", "--ledger", "south.ledger", "--policy", "policy.toml") as desk:
        browser = Browser(desk.port)
        assert browser.enter(desk.token) == 303
        form["form"] = browser.form()
        checkbox = re.search(r'name="(compared\.\d)" value="north"', browser.ask("/study/ages.sealed")[1])
        assert checkbox is not None
        form[checkbox.group(1)] = "north"
        status, page, _ = browser.ask("/study/ages.sealed/accept", {**form, "word.1": "abandon", "account": ""})
        assert (status, "not all words" in page, "Type the data set" in page, ">wrong<" in page) == (400, True, True, False)
        assert browser.ask("/study/ages.sealed/accept", {**form, "form": "x"})[0] == 403
        assert browser.ask("/node/ages-south")[0] == 404
        status, _, headers = browser.ask("/study/ages.sealed/accept", form)
        assert (status, headers["location"]) == (303, "/node/ages-south")
        assert "cannot be opened with this passphrase" in until(browser, "It has stopped")
        assert browser.ask("/study/ages.sealed/accept", {**form, "node-passphrase": "node pass"})[0] == 303
        page = until(browser, "is waited for")
        assert "node pass" not in page
        assert heard("--compared", "north")
        assert ">takes part<" in browser.ask("/")[1]
        status, page, _ = browser.ask("/study/ages.sealed/accept", {**form, "node-passphrase": "node pass"})
        assert (status, "runs already" in page) == (400, True)
        assert not any(b"node pass" in path.read_bytes() for path in tmp_path.iterdir() if path.is_file())
    accept = [*given, "--account", "wards", "--policy", "policy.toml", "--accept"]
    joins = [
        subprocess.Popen(
            [
                sys.executable,
                "-m",
                "quietmean",
                "join",
                "ages.sealed",
                "--key",
                f"{name}.key",
                "--ledger",
                name,
                *accept,
                yes_of(name, sealed),
            ],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        for name in ("north", "east")
    ]
    for process in joins:
        assert process.wait(timeout=240) == 0
    receipt = tmp_path / "ages-south.receipt.json"
    for _ in range(600):
        if receipt.exists():
            break
        time.sleep(0.1)
    with running(*given, "--key", "south.key") as desk:
        browser = Browser(desk.port)
        assert browser.enter(desk.token) == 303
        assert "See the result" in browser.ask("/")[1]
        shown = '<svg class="interval' if kind == "study" else "2 of 2 rounds began"
        assert shown in browser.ask("/result/ages-south")[1]
        assert 'href="/result/ages-south"' in browser.ask("/node/ages-south")[1]


def heard(*words: str) -> bool:
    """Whether a process that was started here has these words on its command line, one after the other."""
    wanted = [word.encode() for word in words]
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        # A process of anybody may end before it is read.
        with contextlib.suppress(OSError):
            command = path.read_bytes().split(b"\0")
            if any(wanted == command[place : place + len(wanted)] for place in range(len(command))):
                return True
    return False


def until(browser: Browser, said: str) -> str:
    """The page of the part that was started, once it says this."""
    for _ in range(1200):
        page = browser.ask("/node/ages-south")[1]
        if said in page:
            return page
        time.sleep(0.1)
    raise AssertionError(page)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("language", "said"),
    [("de-DE,de;q=0.9", "Woran dieser Standort teilnimmt"), ("fr", "À quoi ce site participe"), ("it", "takes part")],
)
def test_pages_are_in_the_language_of_the_browser(desk: Running, language: str, said: str) -> None:
    browser = Browser(desk.port)
    assert browser.enter(desk.token) == 303
    assert said in browser.ask("/", accept_language=language)[1]
    assert browser.ask("/study/ages.sealed", accept_language=language)[0] == 200
