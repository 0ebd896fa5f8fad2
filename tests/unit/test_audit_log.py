"""The audit log: who wrote what in which order, torn lines, and that changes, a cut end and a remade chain are found."""

from __future__ import annotations

import json
import multiprocessing
import os
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from quietmean.cli.main import main
from quietmean.core.file_kinds import SESSION_RECEIPT
from quietmean.core.folders import data_folder
from quietmean.node import Identity
from quietmean.node.net import Purpose
from quietmean.studies.agreement.signed import Signed
from quietmean.studies.party.audit import AuditLog, Auditor, Event, LogEntry, LogHead, heads_in, verify
from support.refusals import refused

CONTRACT = "c" * 64
KEY = Identity.generate()


@pytest.fixture
def log(tmp_path: Path) -> AuditLog:
    return AuditLog(tmp_path / "site" / "audit.jsonl")


def auditor(log: AuditLog, identity: Identity = KEY) -> Auditor:
    return Auditor(log, identity, "north", "ages", CONTRACT)


def filled(log: AuditLog, entries: int = 5) -> list[LogHead]:
    return [auditor(log).write(Event.STARTED, {"place": place}) for place in range(entries)]


def lines(log: AuditLog) -> list[bytes]:
    return log.path.read_bytes().splitlines(keepends=True)


def faults(log: AuditLog, *heads: LogHead) -> str:
    return "; ".join(verify(log, {f"receipt {place}": [head] for place, head in enumerate(heads)}).faults)


def test_what_it_holds(log: AuditLog) -> None:
    heads = filled(log)
    found = verify(log, {"first": heads[:1], "last": heads[-1:]})
    assert (found.faults, found.notes, found.head) == ((), (), heads[-1])
    assert [one.number for one in found.entries] == [1, 2, 3, 4, 5]
    assert log.path.stat().st_mode & 0o777 == 0o600
    for line in lines(log):
        assert set(json.loads(line)) == {"entry", "signature"}


def _write_some(path: Path, identity: bytes, entries: int) -> None:
    private = Ed25519PrivateKey.from_private_bytes(identity)
    for place in range(entries):
        auditor(AuditLog(path), Identity(private)).write(Event.STARTED, {"place": place})


def test_writers_at_the_same_time(log: AuditLog) -> None:
    """Two parties of one user: no entry is lost, and none stands twice."""
    context = multiprocessing.get_context("fork")
    keys = [Identity.generate() for _ in range(4)]
    processes = [context.Process(target=_write_some, args=(log.path, one.private_key.private_bytes_raw(), 25)) for one in keys]
    for process in processes:
        process.start()
    for process in processes:
        process.join(60)
    assert [process.exitcode for process in processes] == [0] * 4
    found = verify(log, {})
    assert found.faults == ()
    assert len(found.entries) == 100
    for one in keys:
        assert [entry.about["place"] for entry in found.entries if entry.key == one.public_key] == list(range(25))


@pytest.mark.parametrize("kept", [1, 40, -2])
def test_a_torn_line_is_told(log: AuditLog, kept: int) -> None:
    """It stays, the entry after it says what it was, and it cannot be changed then."""
    heads = filled(log)
    whole = lines(log)
    log.path.write_bytes(b"".join(whole[:-1]) + whole[-1][:kept])
    assert "is torn" in "".join(verify(log, {}).notes)
    auditor(log).write(Event.ENDED)
    auditor(log).write(Event.ENDED)
    found = verify(log, {"receipt": [heads[3]]})
    assert found.faults == ()
    assert "before entry 5 a line was torn" in "".join(found.notes)
    assert len(found.entries) == 6
    # Whoever had the entry that is torn knows it.
    assert "tells of another entry 5" in faults(log, heads[4])
    log.path.write_bytes(log.path.read_bytes().replace(whole[-1][:kept] + b"\n", whole[-1][: kept - 1] + b"#\n", 1))
    assert "what stands before entry 5" in faults(log)


def test_receipts_of_others_tell(log: AuditLog) -> None:
    """A receipt of another party has that party's own head, and this one's."""
    heads, other = filled(log), LogHead(700, "f" * 64, Identity.generate().public_key)
    found = [LogHead.from_bytes(head.to_bytes(), KEY.public_key) for head in heads]
    assert found == heads
    assert LogHead.from_bytes(heads[0].to_bytes()[:-1], KEY.public_key) is None
    assert verify(log, {"south": [other, heads[2]]}).faults == ()
    assert "tells of no log with this one's key" in "".join(verify(log, {"south": [other]}).faults)
    log.path.write_bytes(b"".join(lines(log)[:2]))
    assert "tells of 3 entries, here are 2" in "".join(verify(log, {"south": [other, heads[2]]}).faults)
    # All of it made anew, with the same key or with another.
    for identity, fault in ((KEY, "tells of another entry 3"), (Identity.generate(), "tells of no log with this one's key")):
        log.path.unlink()
        for place in range(5):
            auditor(log, identity).write(Event.STARTED, {"other place": place})
        assert fault in "".join(verify(log, {"south": [other, heads[2]]}).faults)
    log.path.write_bytes(b"")
    assert "tells of 3 entries, here are 0" in "".join(verify(log, {"south": [other, heads[2]]}).faults)


def test_the_receipt_of_a_session_tells_of_the_log_with_its_yes(log: AuditLog) -> None:
    """As those of studies do beside it."""
    head = filled(log)[-1]
    receipts = (
        {"origin": {"audit": head.to_json()}},
        {"format": SESSION_RECEIPT, "origin": {"approval": {"contract": CONTRACT, "audit": head.to_json()}}},
    )
    assert [heads_in(receipt, "a receipt") for receipt in receipts] == [[head], [head]]
    for wrong in (
        {"format": SESSION_RECEIPT, "origin": {"audit": head.to_json()}},
        {"origin": {"approval": receipts[1]["origin"]}},
    ):
        refused("says nothing of an audit log", heads_in, wrong, "a receipt")


def test_only_the_end_of_the_line_is_missing(log: AuditLog) -> None:
    heads = filled(log)
    log.path.write_bytes(log.path.read_bytes()[:-1])
    auditor(log).write(Event.ENDED)
    found = verify(log, {"receipt": heads[-1:]})
    assert (found.faults, found.notes, len(found.entries)) == ((), (), 6)


def test_what_a_further_entry_takes_does_not_grow_with_the_log(log: AuditLog, monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[int] = []

    def read(handle: int, most: int) -> bytes:
        found = os_read(handle, most)
        taken.append(len(found))
        return found

    os_read = os.read
    monkeypatch.setattr(os, "read", read)
    sizes = []
    for entries in (40, 400):
        filled(log, entries)
        taken.clear()
        auditor(log).write(Event.ENDED)
        sizes.append(sum(taken))
    assert sizes[0] == sizes[1] < log.path.stat().st_size / 4
    assert (verify(log, {}).faults, len(lines(log))) == ((), 442)


@pytest.mark.sampled(28)
@pytest.mark.parametrize("size", [0, 1, 100, 17_000, 70_000])
@pytest.mark.parametrize("tail", [b"", b"x", b"x\n", b"\n\n", b"x\ny", b'{"entry":{}}\n'])
def test_the_last_entry_is_found_behind_torn_lines_of_any_length(log: AuditLog, size: int, tail: bytes) -> None:
    """With entries before or without, and with entries longer than what is read at first."""
    for count in (0, 3):
        log.path.unlink(missing_ok=True)
        for place in range(count):
            auditor(log).write(Event.STARTED, {"place": "n" * size, "number": place})
        log.path.parent.mkdir(exist_ok=True)
        # What is torn with no entry before it is the first one, or the file is another.
        torn = (b"" if count else b'{"entry":') + b"#" * size + tail
        with log.path.open("ab") as file:
            file.write(torn)
        head = auditor(log).write(Event.ENDED)
        found = verify(log, {})
        assert (found.faults, found.head, head.entries) == ((), head, count + 1)
        assert bool(found.notes) == bool(torn.strip(b"\n"))


def test_changes_are_found(log: AuditLog) -> None:
    filled(log)
    whole = lines(log)

    def changed(*new: bytes) -> str:
        log.path.write_bytes(b"".join(new))
        return faults(log)

    assert changed(*whole) == ""
    edited = whole[2].replace(b'"place":2', b'"place":7')
    assert edited != whole[2]
    assert "entry 3 does not match the signature of north" in changed(*whole[:2], edited, *whole[3:])
    assert "entry 4 does not follow on entry 3" in changed(*whole[:2], edited, *whole[3:])
    assert "entry 5 does not match the signature of north" in changed(*whole[:4], whole[4].replace(b'"place":4', b'"place":7'))
    assert "entry 4 does not follow on entry 2" in changed(*whole[:2], *whole[3:])
    assert "entry 4 does not follow on entry 2" in changed(*whole[:2], whole[3], whole[2], whole[4])
    assert "entry 3 does not follow on entry 3" in changed(*whole[:3], *whole[2:])
    assert "entry 2 does not follow on entry 0" in changed(*whole[1:])
    assert "what stands before entry 4" in changed(*whole[:3], b"# looks harmless\n", *whole[3:])
    assert "what stands before entry 4" in changed(*whole[:2], b"\0" * len(whole[2]) + b"\n", *whole[3:])
    # The bytes of what was signed have one form.
    assert changed(*whole[:2], whole[2].replace(b'"about":', b'"about": '), *whole[3:]) != ""
    assert changed(whole[0].replace(KEY.public_key.encode(), b"ed25519:none"), *whole[1:]) != ""


def test_a_signature_for_something_else_is_none(log: AuditLog) -> None:
    filled(log, 1)
    (one,), _ = log.read()
    other = Signed.sign(Purpose.APPROVAL, msgspec.to_builtins(one.entry), KEY)
    raw = json.loads(lines(log)[0])
    log.path.write_bytes(log.path.read_bytes().replace(raw["signature"].encode(), other.parts().signature.encode()))
    assert "does not match the signature of north" in faults(log)


def test_a_cut_end_and_a_chain_made_anew(log: AuditLog) -> None:
    """Both look whole by themselves: receipts show them."""
    heads = filled(log)
    whole = lines(log)
    log.path.write_bytes(b"".join(whole[:3]))
    assert faults(log) == ""
    assert faults(log, *heads[:3]) == ""
    assert "receipt 0 tells of 5 entries, here are 3: the end was cut off" in faults(log, heads[4])
    # With the party's own key, and one word changed.
    for place in range(3, 5):
        auditor(log).write(Event.ENDED, {"place": place})
    assert faults(log) == ""
    assert "receipt 0 tells of another entry 5: the log was made again" in faults(log, heads[4])
    log.path.unlink()
    for place in range(5):
        auditor(log, Identity.generate()).write(Event.STARTED, {"place": place})
    assert faults(log) == ""
    assert "receipt 0 tells of no log with this one's key" in faults(log, heads[0])


def test_an_approval_is_for_one_execution(log: AuditLog) -> None:
    auditor(log).use(["a" * 64, "b" * 64], "first")
    auditor(log).use(["b" * 64], "first")
    auditor(log).use([], "second")
    refused("was used up on", auditor(log).use, ["b" * 64, "d" * 64], "second")
    auditor(log).use(["d" * 64], "second")
    assert len(log.read()[0]) == 3


def test_where_it_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for place in (tmp_path / "file" / "audit.jsonl", tmp_path):
        refused("cannot be written", auditor(AuditLog(place)).write, Event.STARTED)
    refused("does not exist", AuditLog(tmp_path / "none").read)


def receipt(place: Path, head: LogHead) -> str:
    place.write_text(json.dumps({"origin": {"audit": head.to_json()}}))
    return str(place)


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = AuditLog(data_folder() / "audit.jsonl")
    heads = filled(log)
    auditor(log).write(Event.YES, {"by": "approvers", "approvers": ["one", "two"], "part": 0.25, "\x1b[2J": True})
    given = [receipt(tmp_path / f"{place}.json", head) for place, head in enumerate(heads)]
    main(["site", "audit"])
    shown = capsys.readouterr().out
    assert "north ages" in shown
    assert "yes: by approvers" in shown
    assert "\x1b" not in shown
    main(["site", "audit", "--details"])
    assert "approvers one two" in (details := " ".join(capsys.readouterr().out.split()))
    assert "\x1b" not in details
    main(["site", "audit", "--json"])
    entries = json.loads(capsys.readouterr().out)["entries"]
    assert [one["number"] for one in entries] == [1, 2, 3, 4, 5, 6]
    assert entries[4]["digest"] == heads[4].digest
    assert set(entries[0]) == {*LogEntry.__struct_fields__, "digest"}
    main(["site", "audit", "verify"])
    assert "Only receipts show" in capsys.readouterr().out.replace("\n", " ")
    main(["site", "audit", "verify", "--against", *given])
    assert "OK  5 receipts: The end of the log in each is here." in capsys.readouterr().out.replace("\n", " ")
    log.path.write_bytes(b"".join(lines(log)[:3]))
    for more in ([], ["--json"]):
        with pytest.raises(SystemExit) as ended:
            main(["site", "audit", "verify", "--against", *given, *more])
        assert ended.value.code == 2
        output = capsys.readouterr()
        assert "tells of 4 entries, here are 3" in output.err.replace("\n", " ")
    assert json.loads(output.out)["whole"] is False
    assert len(json.loads(output.out)["faults"]) == 2


@pytest.mark.parametrize(
    "content", [b"age\n41\n", b'{"certify":{},"dimension":1}\n', b"\x89PNG\r\n", b"-----BEGIN PRIVATE KEY-----\n"]
)
def test_nothing_is_added_to_another_file(content: bytes, log: AuditLog) -> None:
    """A policy may name the data, a receipt or a key for the log by mistake."""
    log.path.parent.mkdir()
    log.path.write_bytes(content)
    uses: list[Callable[[AuditLog], object]] = [filled, AuditLog.read, lambda there: verify(there, {})]
    for use in uses:
        refused(r"is not an audit log. Name another|holds a private key, not an audit log", use, log)
    assert log.path.read_bytes() == content


@pytest.mark.parametrize("content", [b"", b"\n", b'{"ent', b'{"entry":{"about"', b"\0\0\0\0"])
def test_a_log_whose_first_line_was_torn_goes_on(content: bytes, log: AuditLog) -> None:
    log.path.parent.mkdir()
    log.path.write_bytes(content)
    filled(log, 2)
    assert verify(log, {}).faults == ()
    assert log.path.read_bytes().startswith(content)
