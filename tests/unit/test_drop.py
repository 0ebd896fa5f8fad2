"""A drop acknowledges what is durable, once a contributor, and nothing of it is lost by a crash."""

from __future__ import annotations

import asyncio
import base64
import io
import json
import os
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import quietmean as qm
from quietmean.core import portability
from quietmean.core.errors import ProtocolFailure
from quietmean.core.portability import GrowingFile
from quietmean.drop import Drop, DropBox, DropLimits
from quietmean.drop import box as box_module
from quietmean.drop.box import JOURNAL, Dropped, WholeContribution
from quietmean.node.net import Identity, Purpose
from quietmean.protocols.committee import Committee
from quietmean.protocols.committee.contribution import ContributionError, excerpt, make_noise, read_header, read_whole
from quietmean.protocols.committee.lists import read_segment, record, segment_front
from quietmean.randomness import Seed
from quietmean.studies.agreement.contribution import DropPlace, DropReceipt
from quietmean.studies.agreement.deadlines import CommitteeTerms
from quietmean.studies.party import handing_in
from quietmean.studies.party.handing_in import require_drop, send_to_drop
from quietmean.studies.party.member_holdings import MemberHoldings
from support.committee_study import CommitteeStudy
from support.committee_world import SEALER, CommitteeWorld, identity
from support.refusals import raised, refused
from support.survey import answer_of as answer

# Contributor 3 and 4 have vouchers, of which there is one.
WORLD = CommitteeWorld(Committee(4), contributors=3, vouchers=1)
OTHER = CommitteeWorld(Committee(4), contributors=3, vouchers=1, session_digest=b"t" * 32)
FILES = [WORLD.contribution(number) for number in range(5)]
LATE = 1000.0
QUESTION = Purpose.COMMITTEE_QUESTION


def whole(raw: bytes) -> WholeContribution:
    return WholeContribution(*read_whole(WORLD.session, raw))


@pytest.fixture
def box(tmp_path: Path) -> Iterator[DropBox]:
    opened = DropBox.open(tmp_path / "box", WORLD.session)
    yield opened
    opened.close()


def held(folder: Path, member: int, path: Path) -> tuple[set[bytes], list[str]]:
    """Digests of what a member takes of the folder, and why the rest is left out."""
    path.unlink(missing_ok=True)
    taken = MemberHoldings.take(path, WORLD.session, member, WORLD.opener(member), folder, LATE)
    return {one.digest for one in taken}, [why for _, _, why in taken.left_out]


def digests(*numbers: int) -> set[bytes]:
    return {read_header(WORLD.session, FILES[number]).digest for number in numbers}


def test_members_read_what_was_taken_and_nothing_of_each_other(box: DropBox, tmp_path: Path) -> None:
    box.add([whole(FILES[0]), whole(FILES[3])], 10.0)
    box.add([whole(FILES[1])], LATE + 1)
    for member in range(4):
        assert held(tmp_path / "box", member, tmp_path / "held") == (digests(0, 3), ["it came too late"])
        own = (tmp_path / "box" / f"drop-0001.m{member + 1:02}.parts").read_bytes()
        expected = [
            record(excerpt(WORLD.session, FILES[number], member), time) for number, time in ((0, 10.0), (3, 10.0), (1, LATE + 1))
        ]
        assert own == segment_front(WORLD.session, member) + b"".join(expected)


def test_the_first_contribution_of_a_contributor_counts(box: DropBox) -> None:
    (first,) = box.add([whole(FILES[0])], 10.0)
    # The same again, and another one, also in one batch.
    again, another, new, newer = box.add(
        [whole(raw) for raw in (FILES[0], WORLD.contribution(0), FILES[1], WORLD.contribution(1))], 20.0
    )
    assert first == again == another
    assert isinstance(new, Dropped)
    assert (new, new.time) == (newer, 20.0)
    assert len(box) == 2
    by_voucher, too_many = box.add([whole(FILES[3]), whole(FILES[4])], 30.0)
    assert isinstance(by_voucher, Dropped)
    assert isinstance(too_many, ContributionError)
    assert "no more vouchers" in str(too_many)


def test_what_is_acknowledged_is_on_the_disk_before(box: DropBox, monkeypatch: pytest.MonkeyPatch) -> None:
    durable: dict[int, int] = {}
    sync = portability.sync_data

    def recorded(handle: int) -> None:
        if handle == box._journal.handle:
            # The journal names nothing that could be lost.
            segments = [segment.handle for segment in box._segments]
            assert {segment: durable.get(segment) for segment in segments} == {
                segment: os.fstat(segment).st_size for segment in segments
            }
        sync(handle)
        durable[handle] = os.fstat(handle).st_size

    monkeypatch.setattr(portability, "sync_data", recorded)
    for number in range(2):
        box.add([whole(FILES[number])], 10.0)
        now = {handle: os.fstat(handle).st_size for handle in (file.handle for file in (box._journal, *box._segments))}
        assert durable == now
    assert len(box._segments) == 4


@pytest.mark.parametrize("crash", range(10))
def test_a_crash_at_any_write_loses_nothing_that_was_acknowledged(
    crash: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "box"
    box = DropBox.open(folder, WORLD.session)
    first = box.add([whole(FILES[0])], 10.0)
    write, count = GrowingFile.write, 0

    def crashing(file: GrowingFile, content: bytes) -> None:
        nonlocal count
        count += 1
        if count > crash:
            write(file, content[: len(content) // 2])
            raise KeyboardInterrupt
        write(file, content)

    monkeypatch.setattr(GrowingFile, "write", crashing)
    try:
        acknowledged = bool(box.add([whole(FILES[1]), whole(FILES[2])], 20.0))
    except KeyboardInterrupt:
        acknowledged = False
    # Eight parts, and the journal once.
    assert acknowledged == (crash == 9)
    monkeypatch.undo()
    box._journal.close()
    again = DropBox.open(folder, WORLD.session)
    assert again.add([whole(FILES[0])], 30.0) == first
    # Half of the journal's two entries is one, of which all parts are there.
    assert len(again) == {8: 2, 9: 3}.get(crash, 1)
    again.add([whole(FILES[1])], 40.0)
    expected = digests(0, 1, 2) if acknowledged else digests(0, 1)
    for member in range(4):
        assert held(folder, member, tmp_path / "held") == (expected, [])
    again.close()


def test_a_full_disk_takes_nothing_and_later_goes_on(box: DropBox, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    box.add([whole(FILES[0])], 10.0)

    def full(handle: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(portability, "sync_data", full)
    raised(OSError, "No space", box.add, [whole(FILES[1])], 20.0)
    monkeypatch.undo()
    assert box.first(whole(FILES[1]).header.dealer) is None
    assert held(tmp_path / "box", 0, tmp_path / "held")[0] == digests(0)
    box.add([whole(FILES[1])], 30.0)
    assert held(tmp_path / "box", 0, tmp_path / "held") == (digests(0, 1), [])


def test_nobody_is_shown_what_is_not_durable_yet(box: DropBox, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who sends the same while it is written waits for that write, or for the error of it."""
    dealer, shown = whole(FILES[0]).header.dealer, list[Dropped | None]()

    def fails(handle: int) -> None:
        shown.append(box.first(dealer))
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(portability, "sync_data", fails)
    raised(OSError, "Input/output", box.add, [whole(FILES[0])], 10.0)
    monkeypatch.undo()
    assert set(shown) == {None}
    assert box.first(dealer) is None
    assert box.add([whole(FILES[0])], 20.0) == [box.first(dealer)]


def test_segments_follow_each_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(box_module, "SEGMENT_BYTES", 1)
    folder = tmp_path / "box"
    for number in range(3):
        box = DropBox.open(folder, WORLD.session)
        box.add([whole(FILES[number])], 10.0)
        box.close()
    assert len(list(folder.glob("*.parts"))) == 12
    assert held(folder, 2, tmp_path / "held") == (digests(0, 1, 2), [])
    # A drop that was killed as it began the next one.
    (folder / "drop-0004.m01.parts").write_bytes(b"begun")
    DropBox.open(folder, WORLD.session).close()
    assert not (folder / "drop-0004.m01.parts").exists()


def lacks(folder: Path) -> None:
    path = folder / "drop-0001.m02.parts"
    path.write_bytes(path.read_bytes()[:-1])


def without(name: str, folder: Path) -> None:
    (folder / name).unlink()


def overwritten(folder: Path) -> None:
    path = folder / JOURNAL
    content = bytearray(path.read_bytes())
    content[60] ^= 1
    path.write_bytes(bytes(content) + bytes(64 * len(content)))


@pytest.mark.parametrize(
    ("harm", "reason"),
    [
        (lacks, "lacks what was acknowledged"),
        (partial(without, "drop-0001.m03.parts"), "lacks what was acknowledged"),
        (partial(without, JOURNAL), "is missing"),
        (overwritten, "something else between what it acknowledged"),
    ],
)
def test_a_folder_that_was_changed_is_refused(harm: Callable[[Path], None], reason: str, tmp_path: Path) -> None:
    folder = tmp_path / "box"
    box = DropBox.open(folder, WORLD.session)
    box.add([whole(FILES[0]), whole(FILES[1])], 10.0)
    refused("another drop writes", DropBox.open, folder, WORLD.session)
    box.close()
    refused("of a drop for another study", DropBox.open, folder, OTHER.session)
    harm(folder)
    refused(reason, DropBox.open, folder, WORLD.session)


def test_nobody_takes_a_contributors_place_with_parts_of_its_own() -> None:
    raw = FILES[0]
    for wrong in (raw[:-1] + bytes([raw[-1] ^ 1]), raw[:-1], raw + b"x", b"", excerpt(WORLD.session, raw, 1)):
        raised(ContributionError, "", read_whole, WORLD.session, wrong)
    noise = make_noise(WORLD.session, WORLD.signer(2), SEALER, WORLD.value(0).astype(int), Seed(bytes(32)))
    raised(ContributionError, "a member's noise", read_whole, WORLD.session, noise)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"qmsegm1\n", "cut off"),
        (segment_front(OTHER.session, 0), "another study"),
        (segment_front(WORLD.session, 0) + record(FILES[0], 1.0)[:6], "ends within"),
        (segment_front(WORLD.session, 0) + record(excerpt(WORLD.session, FILES[0], 0), 1.0)[:-1], "ends within"),
        (segment_front(WORLD.session, 0) + b"\xff" * 12, "larger than any"),
    ],
)
def test_a_segment_that_is_not_whole_leaves_the_others_in(content: bytes, reason: str, tmp_path: Path) -> None:
    raised(ContributionError, reason, list, read_segment(WORLD.session, io.BytesIO(content), 0))
    (tmp_path / "a.parts").write_bytes(content)
    (tmp_path / "c1.contribution").write_bytes(FILES[1])
    os.utime(tmp_path / "c1.contribution", (0, 0))
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    taken, why = held(tmp_path, 0, folder / "held")
    assert taken == digests(1)
    assert len(why) == 1
    assert reason in why[0]


# --- the service ----------------------------------------------------------------------------------------------------------------


async def post(
    drop: Drop, content: bytes, *, size: str | None = None, pieces: int = 1, host: str = "192.0.2.1"
) -> tuple[int, bytes]:
    """Status and body of the answer of the application itself."""
    length = str(len(content)) if size is None else size
    headers = [(b"content-length", length.encode())] if length else []
    scope = {
        "type": "http",
        "method": "POST",
        "path": "/contributions",
        "client": (host, 1),
        "headers": headers,
        "query_string": b"",
        "http_version": "1.1",
    }
    cuts = [content[place::pieces] for place in range(pieces)] if pieces > 1 else [content]
    messages = [{"type": "http.request", "body": cut, "more_body": cut is not cuts[-1]} for cut in cuts]
    told: list[Any] = []

    async def receive() -> Any:
        return messages.pop(0) if messages else {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        told.append(message)

    await drop.app()(scope, receive, send)
    return told[0]["status"], b"".join(one.get("body", b"") for one in told[1:])


@asynccontextmanager
async def writing(drop: Drop) -> AsyncIterator[None]:
    """While it writes down what it takes."""
    writer = asyncio.create_task(drop.write_down())
    yield
    assert not writer.done()
    writer.cancel()


def served(box: DropBox, *contents: bytes, now: float = 10.0, **limits: Any) -> list[tuple[int, bytes]]:
    """Answers to these, one after the other."""

    async def run() -> list[tuple[int, bytes]]:
        drop = Drop(box, WORLD.session, IDENTITY, LATE, DropLimits(**limits), lambda: now)
        async with writing(drop):
            return [await post(drop, content) for content in contents]

    return asyncio.run(run())


IDENTITY = Identity.generate()


def test_the_same_contribution_gets_the_first_receipt_and_another_one_is_shown_it(box: DropBox) -> None:
    (answer,) = served(box, FILES[0])
    again, another = served(box, FILES[0], WORLD.contribution(0), now=500.0)
    assert answer[0] == 200
    assert answer == again
    receipt = DropReceipt.of_file(answer[1])
    header = read_header(WORLD.session, FILES[0])
    assert (receipt.contributor, receipt.digest) == (header.contributor, header.digest.hex())
    assert (receipt.session, receipt.drop, receipt.time.timestamp()) == (WORLD.session.session.hex(), IDENTITY.public_key, 10.0)
    assert another[0] == 409
    assert b"1970-01-01 00:00:10 UTC" in another[1]
    # What came in time is acknowledged whenever it is sent again.
    late, new = served(box, FILES[0], FILES[1], now=LATE + 1)
    assert late == answer
    assert new[0] == 410


def test_it_says_before_the_end_how_many_are_missing_and_at_the_end_what_follows(box: DropBox) -> None:
    ends = datetime(2027, 3, 1, 12, tzinfo=UTC)
    terms = CommitteeTerms(members=5, contribute_by=ends)
    now, said = [ends.timestamp() - 3 * 86400], list[tuple[float, str]]()
    drop = Drop(box, WORLD.session, IDENTITY, LATE, DropLimits(), lambda: now[0], terms=terms)
    least = WORLD.session.parameters.minimum
    assert least > 0

    async def passes(seconds: float) -> None:
        now[0] += seconds

    async def run() -> None:
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr("quietmean.drop.asyncio.sleep", passes)
            await drop.tell(lambda text: said.append(((ends.timestamp() - now[0]) / 3600, text)))

    asyncio.run(run())
    assert [hours for hours, _ in said] == [72, 24, 1, 0]
    assert {text for hours, text in said if hours} == {
        f"0 of at least {least} contributions so far, until 2027-03-01 12:00:00 UTC"
    }
    came = f"0 contributions came until 2027-03-01 12:00:00 UTC, and a result takes {least}"
    assert said[-1][1] == f"{came}: members open nothing, and delete what they hold"
    assert terms.arrived(least, least, ends) == came.replace(
        "0 contributions", f"{least} contributions" if least > 1 else "1 contribution", 1
    )
    _, _, page = answer(drop, "GET", "/status")
    assert f"<h1>{said[-1][1]}.</h1>" in page.decode()
    # Where it starts late, what has passed is said once.
    assert len(terms.words_due(ends.timestamp() - 1800)) == 2
    assert len(terms.words_due(ends.timestamp() + 1)) == 1


@pytest.mark.parametrize(
    ("content", "status", "why"),
    [
        (b"garbage", 400, b"not a contribution"),
        (FILES[0][:-1], 400, b"cut off"),
        (OTHER.contribution(0), 400, b"another study"),
        (bytes(200_000), 413, b"larger than any"),
    ],
)
def test_what_is_no_contribution_is_refused_and_kept_nowhere(box: DropBox, content: bytes, status: int, why: bytes) -> None:
    (answer,) = served(box, content)
    assert answer[0] == status
    assert why in answer[1]
    assert len(box) == 0


def test_it_reads_no_more_than_was_announced_and_no_faster_than_it_can(box: DropBox) -> None:
    async def run() -> None:
        drop = Drop(box, WORLD.session, IDENTITY, LATE, DropLimits(rate=0.1), lambda: 10.0)
        async with writing(drop):
            assert (await post(drop, FILES[0], size="10"))[0] == 413
            # Ten times the rate at once, and no more.
            assert (await post(drop, FILES[0]))[0] == 429
            # Of one network: others do not wait for it.
            assert (await post(drop, FILES[0], host="192.0.2.7", size="10"))[0] == 413
        drop = Drop(box, WORLD.session, IDENTITY, LATE, DropLimits(), lambda: 10.0)
        async with writing(drop):
            for size in ("", "-1", "1e3", "9" * 13):
                assert (await post(drop, FILES[0], size=size))[0] == 411

    asyncio.run(run())
    assert len(box) == 0


def test_a_disk_that_fails_is_no_receipt(box: DropBox, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(handle: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(portability, "sync_data", full)
    (answer,) = served(box, FILES[0])
    assert answer[0] == 503
    monkeypatch.undo()
    (answer,) = served(box, FILES[0])
    assert answer[0] == 200


def test_a_receipt_is_its_drops_alone() -> None:
    receipt = DropReceipt.sign(IDENTITY, "ab" * 32, Identity.generate().public_key, DropPlace("cd" * 32, 1, "ef" * 32), 10.0)
    raw = receipt.signed.to_file()
    assert DropReceipt.of_file(raw) == receipt
    for wrong in (raw.replace(b"1970-01-01T00:00:10", b"1970-01-01T00:00:11"), raw[:-10], b"{}"):
        refused("", DropReceipt.of_file, wrong)


@pytest.mark.parametrize("url", ["", "drop.example", "ftp://drop.example", "https://", "https://a@b", "https://b?c"])
def test_an_address_that_is_no_drop_is_refused(url: str) -> None:
    refused("not the address of a drop", require_drop, url)
    refused("browsers seal nothing there. Write https://drop.example.", require_drop, "http://drop.example")
    assert require_drop("https://drop.example:8443/") == "https://drop.example:8443/contributions"


# --- who sends to it ------------------------------------------------------------------------------------------------------------


def answer_of(status: int, content: bytes, monkeypatch: pytest.MonkeyPatch) -> DropReceipt:
    """What a contributor makes of an answer."""
    monkeypatch.setattr(handing_in, "post_file", lambda place, sent, seconds: (status, content))
    header = read_header(WORLD.session, FILES[0])
    return send_to_drop("https://drop.example", FILES[0], "ab" * 32, header.contributor, header.digest.hex())


def receipt_for(number: int, session: str = "ab" * 32) -> bytes:
    header = read_header(WORLD.session, FILES[number])
    return DropReceipt.sign(
        IDENTITY, session, header.contributor, DropPlace(header.digest.hex(), 1, "ef" * 32), 10.0
    ).signed.to_file()


def test_a_receipt_is_kept_only_if_it_is_of_this_contribution(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert answer_of(200, receipt_for(0), monkeypatch).came == "1970-01-01 00:00:10 UTC"
    for wrong in (receipt_for(1), receipt_for(0, "cd" * 32), b"taken", receipt_for(0).replace(b"00:00:10", b"00:00:11")):
        with pytest.raises(
            ProtocolFailure, match=r"did not acknowledge the contribution.*same command again, which sends it again"
        ):
            answer_of(200, wrong, monkeypatch)


@pytest.mark.parametrize("status", [408, 429, 500, 503])
def test_what_passes_by_is_tried_again(status: int, monkeypatch: pytest.MonkeyPatch) -> None:
    raised(ProtocolFailure, "same command again, which sends it again", answer_of, status, b'{"error": "full"}', monkeypatch)


def test_what_the_drop_refuses_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    for status, why in (
        (400, b'{"error": "it is for another study"}'),
        (410, b'{"error": "the time is over"}'),
        (302, b"<html>"),
    ):
        refused(r"another study|the time is over|status 302", answer_of, status, why, monkeypatch)
    first = json.dumps({"error": "another", "receipt": receipt_for(0).decode()}).encode()
    refused("since 1970-01-01 00:00:10 UTC, and one counts", answer_of, 409, first, monkeypatch)

    def unreachable(place: str, sent: bytes, seconds: float) -> tuple[int, bytes]:
        raise ConnectionRefusedError(111, "Connection refused")

    monkeypatch.setattr(handing_in, "post_file", unreachable)
    raised(ProtocolFailure, "Connection refused", send_to_drop, "https://drop.example", b"", "", "", "")


def test_an_address_is_looked_at_before_anything_is_charged(tmp_path: Path) -> None:
    study = CommitteeStudy(tmp_path)
    contribute = partial(qm.contribute, study.path, study.key("c1"), data="none.csv", out=tmp_path / "c1.contribution")
    refused("browsers seal nothing there", contribute, drop="http://drop.example")
    assert not (tmp_path / "c1.contribution").exists()


def test_only_the_owner_of_a_key_learns_of_its_contribution(box: DropBox) -> None:
    drop = Drop(box, WORLD.session, Identity.generate(), LATE)
    header = whole(FILES[0]).header
    taken = box.add([whole(FILES[0])], 1.0)[0]
    assert isinstance(taken, Dropped)

    def asked(owner: Identity, number: int = 0, content: bytes = WORLD.session.session, purpose: Purpose = QUESTION) -> Any:
        key = identity(f"contributor {number}").public_key
        signature = base64.b64encode(owner.sign(purpose, content)).decode()
        status, _, body = answer(drop, "POST", "/receipts", json.dumps({"contributor": key, "signature": signature}).encode())
        return status, json.loads(body)

    status, told = asked(identity("contributor 0"))
    receipt = DropReceipt.of_file(told["receipt"].encode())
    assert status == 200
    assert (receipt.contributor, receipt.place.digest) == (header.contributor, taken.digest.hex())
    assert asked(identity("contributor 1"), 1) == (200, {"receipt": None})
    # Whoever else asks learns the same of a key that is there and of one that is not.
    strangers = [asked(Identity.generate(), number) for number in (0, 1)]
    assert strangers[0] == strangers[1]
    assert strangers[0][0] == 403
    for wrong in ({"content": b"t" * 32}, {"purpose": Purpose.COMMITTEE_CONTRIBUTION}):
        assert asked(identity("contributor 0"), **wrong)[0] == 403
    for raw in (b"{}", b"[" * 300, b"\xff", b'{"contributor": "me", "signature": ""}', b"x" * 513):
        assert answer(drop, "POST", "/receipts", raw)[0] in (400, 413)


def test_questions_of_one_network_are_limited_too(box: DropBox) -> None:
    drop = Drop(box, WORLD.session, Identity.generate(), LATE, DropLimits(rate=0.01))
    assert [answer(drop, "POST", "/receipts", b"{}")[0] for _ in range(2)] == [400, 429]
