"""Whoever has a drop's receipt learns what became of the contribution; a drop that left it out is named, with proof."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
import re
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from quietmean.cli.main import main
from quietmean.core.codec import canonical_json
from quietmean.core.errors import InputError, ProtocolFailure
from quietmean.core.readable import listed
from quietmean.core.site_options import SiteOptions
from quietmean.drop import DropBox
from quietmean.drop.box import Dropped, WholeContribution
from quietmean.form import page_of
from quietmean.node.committee import IdentitySigner
from quietmean.node.net import Identity, Purpose, public_key_bytes
from quietmean.protocols.committee.contribution import read_whole
from quietmean.protocols.committee.keys import Kind
from quietmean.protocols.committee.lists import DropChain
from quietmean.protocols.committee.result import Result, check_result, read_result
from quietmean.protocols.committee.voting import MemberSum
from quietmean.studies.agreement.contribution import DropLog, DropPlace, DropReceipt, session_of
from quietmean.studies.agreement.signed import Signed, signed_in
from quietmean.studies.outcome.dropped import DropFiles, Verdict
from quietmean.studies.party import Observers, PartyContext, handing_in, member
from quietmean.studies.party.by_file import CommitteeContributor
from quietmean.studies.party.executions import Register
from support.command_lines import fails
from support.committee_study import CommitteeStudy
from support.form_studies import study_of
from support.javascript import answers_of, asked, mutated
from support.ports import reserved

MEMBERS, CONTRIBUTORS = ("m1", "m2", "m3", "m4"), ("c1", "c2", "c3", "c4")
DROP = Identity.generate()
NOW = time.time()
LATE = NOW + 7200.0


@dataclass
class Day:
    """A study whose drop acknowledged all four, and showed the members a folder without c2."""

    study: CommitteeStudy
    receipts: dict[str, DropReceipt]
    folder: Path

    def file(self, name: str) -> Path:
        path = self.folder / f"{name}.receipt"
        path.write_bytes(self.receipts[name].signed.to_file())
        return path

    def told(self, capsys: pytest.CaptureFixture[str], receipt: Path, *more: Path, logs: int = 4) -> dict[str, object]:
        """What ``quietmean result`` says of a receipt."""
        files = [*sorted(self.folder.glob("m?.sums")), *sorted(self.folder.glob("m?.dropped"))[:logs], *more]
        capsys.readouterr()
        out = self.folder / "shown"
        main(
            ["result", str(self.study.path), *map(str, files), "--receipt", str(receipt), "--out", str(out), "--json", "--force"]
        )
        found: dict[str, object] = json.loads(capsys.readouterr().out)["drop"]
        return found


def put(study: CommitteeStudy, folder: Path, files: dict[str, bytes]) -> dict[str, DropReceipt]:
    """The receipts of a drop that takes these files, one after the other."""
    session = session_of(study.sealed, study.plan)
    box = DropBox.open(folder, session)
    receipts = {}
    for name, raw in files.items():
        header, excerpts = read_whole(session, raw)
        (first,) = box.add([WholeContribution(header, excerpts)], NOW)
        assert isinstance(first, Dropped)
        place = DropPlace(first.digest.hex(), first.chain.position, first.chain.head.hex())
        receipts[name] = DropReceipt.sign(DROP, session.session.hex(), header.contributor, place, NOW)
    box.close()
    # Opened again it goes on with the same chain.
    again = DropBox.open(folder, session)
    dealers = [read_whole(session, raw)[0].dealer for raw in files.values()]
    found = [one.chain.position for one in map(again.first, dealers) if one is not None]
    assert found == [*range(1, len(files) + 1)]
    again.close()
    return receipts


@pytest.fixture(scope="module")
def day(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Day]:
    folder = tmp_path_factory.mktemp("day")
    with reserved(4) as ports, pytest.MonkeyPatch.context() as patched:
        for kind in ("DATA", "CONFIG"):
            patched.setenv(f"XDG_{kind}_HOME", str(folder / kind.lower()))
        addresses = {name: f"127.0.0.1:{port}" for name, port in zip(MEMBERS, ports, strict=True)}
        study = CommitteeStudy(folder, {"epsilon": 8.0}, {}, MEMBERS, CONTRIBUTORS, addresses)
        # As if the time for contributions were over.
        patched.setattr(member, "until_listed", at_once)
        files = {}
        for place, name in enumerate(CONTRIBUTORS):
            register = Register(folder / f"register of {name}")
            one = CommitteeContributor(study.sealed, study.plan, study.identities[name], study.keys[name], register)
            encoded = study.sealed.study.workload.encode(np.array([[100.0 * place]]), step=study.plan.value_step)
            files[name] = one.contribute(encoded).to_file()
        receipts = put(study, folder / "kept", files)
        put(study, folder / "shown-to-members", {name: raw for name, raw in files.items() if name != "c2"})

        async def opening() -> None:
            own = [
                member.MemberFiles(
                    PartyContext.load(study.path, None, study.key(name), Identity.load),
                    study.plan,
                    SiteOptions(store=folder / f"{name}.store"),
                    page_of(study.sealed, study.plan),
                )
                for name in MEMBERS
            ]
            shown = folder / "shown-to-members"
            await asyncio.gather(*(member.open_with_others(one, shown, Observers(lambda event: None), None) for one in own))

        asyncio.run(opening())
        yield Day(study, receipts, folder)


async def at_once(terms: object, arrived: object, say: object, *, once: bool) -> None:
    """Nothing is waited for."""


def verdict(told: dict[str, object]) -> tuple[str, bool]:
    receipts = told["receipts"]
    assert isinstance(receipts, list)
    return receipts[-1]["verdict"], receipts[-1]["proof"]


@pytest.mark.parametrize(
    ("name", "logs", "expected"),
    [
        ("c1", 4, (Verdict.COUNTED, False)),
        ("c4", 4, (Verdict.COUNTED, False)),
        ("c2", 4, (Verdict.MISSING, True)),
        ("c2", 2, (Verdict.MISSING, True)),
        # One member may lie.
        ("c2", 1, (Verdict.UNKNOWN, False)),
        ("c2", 0, (Verdict.UNKNOWN, False)),
    ],
)
def test_what_a_receipt_turns_out_to_be_of(
    day: Day, name: str, logs: int, expected: tuple[Verdict, bool], capsys: pytest.CaptureFixture[str]
) -> None:
    told = day.told(capsys, day.file(name), logs=logs)
    assert verdict(told) == expected
    sentence = told["receipts"][-1]["sentence"]  # type: ignore[index]
    assert (DROP.public_key in sentence) is (expected[0] is Verdict.MISSING)
    if logs:
        session = session_of(day.study.sealed, day.study.plan)
        digests = [bytes.fromhex(day.receipts[one].digest) for one in ("c1", "c3", "c4")]
        assert (told["position"], told["head"]) == (3, DropChain.of(session, digests).head.hex())


def test_two_contents_of_one_place_prove_it_too(day: Day, capsys: pytest.CaptureFixture[str]) -> None:
    place = replace_place(day.receipts["c1"].place, digest="ab" * 32)
    other = DropReceipt.sign(DROP, day.study.sealed.digest, day.receipts["c3"].contributor, place, NOW)
    path = day.folder / "other.receipt"
    path.write_bytes(other.signed.to_file())
    assert verdict(day.told(capsys, day.file("c1"), path)) == (Verdict.FORKED, True)
    # Another drop may have something else there.
    stranger = DropReceipt.sign(Identity.generate(), day.study.sealed.digest, other.contributor, place, NOW)
    path.write_bytes(stranger.signed.to_file())
    assert verdict(day.told(capsys, day.file("c1"), path)) == (Verdict.COUNTED, False)


def replace_place(place: DropPlace, **fields: object) -> DropPlace:
    return DropPlace(**{"digest": place.digest, "position": place.position, "head": place.head, **fields})  # type: ignore[arg-type]


def test_left_out_too_late_and_of_another_study(day: Day) -> None:
    session = session_of(day.study.sealed, day.study.plan)
    files, one = DropFiles(day.study.sealed), day.receipts["c2"]
    digests = b"".join(bytes.fromhex(day.receipts[name].digest) for name in CONTRIBUTORS)
    log = DropLog.sign(day.study.identities["m1"], session, digests, {one.contributor: "its shares do not fit together"})
    assert files.take(log.to_file(), session)
    assert files.take(one.signed.to_file(), session)
    (judged,) = files.judged([])
    assert judged.verdict is Verdict.LEFT_OUT
    assert "in the log of m1" in judged.sentence
    assert "its shares do not fit together" in judged.sentence
    late = DropReceipt.sign(DROP, one.session, one.contributor, replace_place(one.place, position=9), LATE)
    assert files.take(late.signed.to_file(), session)
    assert files.judged([])[1].verdict is Verdict.LATE
    assert files.take(DropReceipt.sign(DROP, "ab" * 32, one.contributor, one.place, NOW).signed.to_file(), session)
    with pytest.raises(InputError, match="of another study"):
        files.judged([])


def test_members_who_read_two_logs_are_named(day: Day, capsys: pytest.CaptureFixture[str]) -> None:
    """The drop may show some members another folder than others; who read less of the same log has nothing to explain."""
    session, files = session_of(day.study.sealed, day.study.plan), DropFiles(day.study.sealed)
    digests = [bytes.fromhex(day.receipts[name].digest) for name in ("c1", "c3", "c4")]
    for name, read in (("m1", digests), ("m2", digests), ("m3", digests[:2]), ("m4", digests[1:])):
        assert files.take(DropLog.sign(day.study.identities[name], session, b"".join(read), {}).to_file(), session)
    found = files.to_json()
    assert (found["position"], found["members"], found["apart"]) == (3, ["m1", "m2"], ["m4"])
    (sentence, is_warning), *rest = files.told(found)
    assert is_warning
    assert not rest
    assert sentence.startswith("m4 read another log of the drop than m1, m2. The drop keeps two, or a member lies.")
    # All of them read one.
    assert "apart" not in day.told(capsys, day.file("c1"))


@pytest.mark.parametrize("who", ["m1", "c1"])
@pytest.mark.parametrize("change", ["digest", "head", "cut", "session", "none"])
def test_a_log_that_its_member_did_not_sign_so_is_refused(day: Day, who: str, change: str) -> None:
    session = session_of(day.study.sealed, day.study.plan)
    signed = DropLog.sign(day.study.identities[who], session, bytes(range(96)), {})
    body = json.loads(signed.body)
    if change == "digest":
        body["digests"] = body["digests"][:-8] + "AAAAAAAA"
    elif change == "head":
        body["head"] = "0" * 64
    elif change == "cut":
        body["digests"] = body["digests"][:-4]
    elif change == "session":
        body["session"] = "ab" * 32
    again = type(signed).sign(Purpose.COMMITTEE_LOG, body, day.study.identities[who])
    forged = replace(signed, body=again.body)
    right = change == "none" and who == "m1"
    for one in (again, forged):
        if right:
            assert DropLog.verified(one, session).digests[0] == bytes(range(32)).hex()
        else:
            with pytest.raises(InputError):
                DropLog.verified(signed_in(Purpose.COMMITTEE_LOG, one.to_file()), session)


def test_a_receipt_of_after_the_time_is_not_taken(day: Day, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A drop that dates it so could say later that it came too late."""
    one = day.receipts["c1"]
    late = DropReceipt.sign(DROP, one.session, one.contributor, one.place, LATE)
    monkeypatch.setattr(handing_in, "send_to_drop", lambda *given: late)

    class Handed:
        digest = one.digest

        def to_file(self) -> bytes:
            return b""

    with pytest.raises(ProtocolFailure, match="after the time for contributions"):
        handing_in.hand_over("http://127.0.0.1:1", day.study.sealed, one.contributor, Handed(), tmp_path / "c1")  # type: ignore[arg-type]
    assert not (tmp_path / "c1.receipt").exists()


# --- the same by JavaScript ---


def question(day: Day, receipt: DropReceipt, logs: Sequence[bytes], result: bytes | None) -> dict[str, Any]:
    """To judge a receipt as a page does."""
    study = study_of(session_of(day.study.sealed, day.study.plan))
    committee = day.study.sealed.study.committee
    assert committee is not None
    texts = {"receipt": receipt.signed.to_file().decode(), "logs": [log.decode() for log in logs]}
    found = {"result": None if result is None else result.hex(), "listsAt": committee.lists_at}
    return {"call": "judge", "study": study, **texts, **found}


def judged(day: Day, receipt: DropReceipt, logs: Sequence[bytes], result: bytes | None) -> str:
    """The verdict of members' own software."""
    session, files = session_of(day.study.sealed, day.study.plan), DropFiles(day.study.sealed)
    for content in (*logs, receipt.signed.to_file()):
        assert files.take(content, session)
    counted = [] if result is None else check_result(session, read_result(session, result)).counted
    (found,) = files.judged([key.hex() for key, _, _ in counted])
    return str(found.verdict)


def test_a_page_judges_receipts_as_members_software_does(day: Day) -> None:
    session = session_of(day.study.sealed, day.study.plan)
    read = [path.read_bytes() for path in sorted(day.folder.glob("m?.dropped"))]
    result = min(day.folder.glob("m?.sums")).read_bytes()
    digests = b"".join(bytes.fromhex(day.receipts[name].digest) for name in CONTRIBUTORS)
    one = day.receipts["c2"]
    whole = [
        DropLog.sign(day.study.identities[name], session, digests, {one.contributor: why}).to_file()
        for name, why in (("m1", ""), ("m2", "its shares do not fit: é\x7f\n“"))
    ]
    late = DropReceipt.sign(DROP, one.session, one.contributor, replace_place(one.place, position=9), LATE)
    other = DropReceipt.sign(DROP, one.session, one.contributor, replace_place(one.place, head="ab" * 32), NOW)
    moved = DropReceipt.sign(DROP, one.session, one.contributor, replace_place(one.place, position=3), NOW)
    cases = [(receipt, logs, counted) for receipt in (*day.receipts.values(), late, moved, other) for counted in (None, result)
             for logs in (*(read[:number] for number in range(5)), whole, whole[1:])]  # fmt: skip
    answers = answers_of([question(day, *case) for case in cases])
    assert [found["verdict"] for found in answers] == [judged(day, *case) for case in cases]
    assert {found["verdict"] for found in answers} == {str(verdict) for verdict in Verdict} - {str(Verdict.FORKED)}
    reasons = {found["why"] for found in answers if found["verdict"] == Verdict.LEFT_OUT}
    assert "its shares do not fit: é\x7f\n“" in reasons


# A page that is shown on too little: module, text, and what stands there instead.
CARELESS = {
    "any page": ("receipts", "pages[at].size === 1 && pages[at].has(digest)", "pages[at].size === 1"),
    "liars": ("receipts", "pages[at].size === 1 && pages[at].has(digest)", "pages[at].has(digest)"),
    "few": ("receipts", "signers.length > Math.floor((study.members.length + study.colluding) / 2)", "signers.length"),
    "each log": (
        "receipts",
        "study.names.filter((_, at) => pages[at]",
        "logs.map(({ member }) => lines.indexOf(member)).filter((at) => pages[at]",
    ),
}


def signing(day: Day, page: bytes) -> list[tuple[bool, list[bytes]]]:
    """Logs about this page of a result, and whether a page may be shown because of them."""
    session, ids = session_of(day.study.sealed, day.study.plan), day.study.identities

    def log(name: str, signed: bytes, who: Identity | None = None, of: bytes = session.session) -> bytes:
        return DropLog.sign(who or ids[name], replace(session, session=of), bytes(32), {}, signed).to_file()

    own, stranger = [log(name, page) for name in MEMBERS], Identity.generate()
    return [
        (True, own),
        (True, own[1:]),
        (False, own[2:]),
        (False, []),
        # It was changed after it was signed, or two of the four signed another one, or none.
        (False, [log(name, page + b" ") for name in MEMBERS]),
        (False, [*own[:2], *(log(name, page + b" ") for name in MEMBERS[2:])]),
        (False, [*own[:2], *(log(name, b"") for name in MEMBERS[2:])]),
        # A member that signs two pages lies, and three times is not three members.
        (False, [*own[:3], log("m3", b"other")]),
        (False, [own[0]] * 4),
        (False, [*own[:2], log("m3", page, stranger), log("m4", page, stranger)]),
        (False, [log(name, page, of=b"o" * 32) for name in MEMBERS]),
    ]


def shown_pages(day: Day, page: bytes, folder: Path | None = None) -> list[bool]:
    """Of each of these logs, whether the JavaScript in a folder shows the page."""
    study = study_of(session_of(day.study.sealed, day.study.plan))
    asking = [
        {"call": "signers", "study": study, "page": page.hex(), "logs": [log.decode() for log in logs]}
        for _, logs in signing(day, page)
    ]
    return [bool(each.get("answer")) for each in (asked(asking) if folder is None else asked(asking, folder))]


def test_members_sign_one_page_of_the_result_and_a_quorum_shows_it(
    day: Day, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pages = [path.read_bytes() for path in sorted(day.folder.glob("m?.page.html"))]
    assert len(pages) == len(MEMBERS)
    assert len(set(pages)) == 1
    session = session_of(day.study.sealed, day.study.plan)
    logs = [
        DropLog.verified(signed_in(Purpose.COMMITTEE_LOG, path.read_bytes()), session) for path in day.folder.glob("m?.dropped")
    ]
    assert {log.page for log in logs} == {hashlib.sha256(pages[0]).hexdigest()}
    # Nothing of it is markup but what is ours, and it runs nothing.
    assert b"3 answers are in this result." in pages[0]
    assert b"<script" not in pages[0]
    # Anybody makes it anew from the members' sums, and learns who signed another one.
    receipt = day.file("c1")
    told = day.told(capsys, receipt)
    digest = hashlib.sha256(pages[0]).hexdigest()
    assert told["page"] == {"sha256": digest, "signed": list(MEMBERS), "another": []}
    other = day.folder / "m2.other"
    other.write_bytes(DropLog.sign(day.study.identities["m2"], session, bytes(32), {}, b"another").to_file())
    told = day.told(capsys, receipt, other, logs=1)
    assert told["page"] == {"sha256": digest, "signed": ["m1"], "another": ["m2"]}
    right = [is_shown for is_shown, _ in signing(day, pages[0])]
    assert shown_pages(day, pages[0]) == right
    for name, change in CARELESS.items():
        assert shown_pages(day, pages[0], mutated(tmp_path / name, *change)) != right, name


def holds(day: Day, page: bytes, logs: Sequence[bytes]) -> bool:
    """Whether members' own software takes a saved page for the result's, by these logs."""
    session, files = session_of(day.study.sealed, day.study.plan), DropFiles(day.study.sealed)
    try:
        for content in (page, *logs):
            files.take(content, session, "saved.html")
        return bool(files.signed_pages())
    except InputError:
        return False


def test_a_saved_page_is_held_against_what_members_signed(day: Day, capsys: pytest.CaptureFixture[str]) -> None:
    page = min(day.folder.glob("m?.page.html"))
    content, logs = page.read_bytes(), sorted(map(str, day.folder.glob("m?.dropped")))
    cases = signing(day, content)
    assert [holds(day, content, some) for _, some in cases] == [right for right, _ in cases]
    capsys.readouterr()
    main(["result", str(day.study.path), str(page), *logs])
    assert capsys.readouterr().out == f"{page} is the page of this study's result: members {listed(MEMBERS)} signed it.\n"
    told = day.told(capsys, day.file("c1"), page)
    assert told["saved_pages"] == [{"file": str(page), "sha256": hashlib.sha256(content).hexdigest(), "signed": list(MEMBERS)}]
    changed = day.folder / "changed.html"
    changed.write_bytes(content.replace(b"3 answers", b"4 answers"))
    line = ["result", str(day.study.path)]
    fails([*line, str(changed), *logs], capsys, "changed.html is not the page that members signed", "none did")
    fails(
        [*line, str(page), *logs[:2]], capsys, "3 of the 4 members have to sign it, and in these files 2 did", "Give more files"
    )
    fails([*line, str(page)], capsys, "none did", "Give more files")


def test_a_page_finds_two_contents_of_one_place(day: Day) -> None:
    one = day.receipts["c1"]
    others = [
        DropReceipt.sign(drop, one.session, day.receipts["c3"].contributor, replace_place(one.place, **change), NOW)
        for drop in (DROP, Identity.generate())
        for change in ({"digest": "ab" * 32}, {"head": "ab" * 32}, {"position": 2}, {})
    ]
    study = study_of(session_of(day.study.sealed, day.study.plan))
    texts = [[each.signed.to_file().decode() for each in (one, other)] for other in others]
    answers = answers_of([{"call": "fork", "study": study, "receipts": pair} for pair in texts])
    assert answers == [True, True, *[False] * 6]


def test_a_page_takes_nothing_that_was_not_signed_so(day: Day) -> None:
    session = session_of(day.study.sealed, day.study.plan)
    log, result = min(day.folder.glob("m?.dropped")).read_bytes(), min(day.folder.glob("m?.sums")).read_bytes()
    one, usual = day.receipts["c1"], question(day, day.receipts["c1"], [log], result)
    receipts = list(spoilt(one.signed.to_file(), DROP)), list(spoilt(log, day.study.identities["m1"]))
    stranger = DropLog.sign(Identity.generate(), session, bytes(32), {}).to_file().decode()
    elsewhere = DropReceipt.sign(DROP, "ab" * 32, one.contributor, one.place, NOW).signed.to_file().decode()
    changes = [usual | {"receipt": text} for text in (*receipts[0], elsewhere)]
    changes += [usual | {"logs": [text]} for text in (*receipts[1], stranger)]
    fields = msgspec.msgpack.decode(result)
    others = [[*fields[:place], other, *fields[place + 1 :]] for place, old in enumerate(fields) for other in other_values(old)]
    others += [[*fields[:-1], kept] for kept in ([], fields[-1][:1], [*fields[-1], fields[-1][0]], [[9, *fields[-1][0][1:]]])]
    first, rest = fields[-1][0], fields[-1][1:]
    others += [
        [*fields[:-1], [[*first[:place], other, *first[place + 1 :]], *rest]]
        for place in range(4)
        for other in other_values(first[place])
    ]
    results = [*map(msgspec.msgpack.encode, others), b"", result[:-1], result + b"\0", b"\xc1" + result, b"\xc0"]
    changes += [usual | {"result": changed.hex()} for changed in results]
    changes += [usual | {"result": elsewhere_signed(day, result).hex()}, usual | {"logs": [short_log(day, log)]}]
    (right, *found) = asked([usual, *changes])
    assert right["answer"]["verdict"] == Verdict.COUNTED
    refused = re.compile("was changed on the way|of another study|Too few members")
    taken = [not refused.search(each.get("error", "")) for each in found]
    expected = [is_taken(day, change) for change in changes]
    different = [change for change, one, other in zip(changes, taken, expected, strict=True) if one != other]
    assert [(key, value) for each in different for key, value in each.items() if value != usual[key]] == []
    assert 0 < sum(taken) < 6 < 100 < len(changes)


def elsewhere_signed(day: Day, result: bytes) -> bytes:
    """The same result as of another study of the same members, who signed it."""
    study = day.study
    members = {public_key_bytes(study.identities[name].public_key): IdentitySigner(study.identities[name]) for name in MEMBERS}
    session, one = session_of(study.sealed, study.plan), msgspec.msgpack.decode(result, type=Result)
    other = msgspec.structs.replace(one, session=b"o" * 32)
    sums = []
    for sent in one.sums:
        content = msgspec.msgpack.encode([other.session, other.digest, hashlib.sha256(sent.share).digest()])
        signature = members[session.raw_members[sent.member]].sign(Kind.SUM, content)
        sums.append(MemberSum(sent.member, other.digest, sent.share, signature))
    return msgspec.structs.replace(other, sums=tuple(sums)).to_bytes()


def short_log(day: Day, log: bytes) -> str:
    """A log whose last digest is cut off, with the head that follows from it."""
    session, body = session_of(day.study.sealed, day.study.plan), json.loads(json.loads(log)["body"])
    raw = base64.b64decode(body["digests"])[:-1]
    head = DropChain.of(session, [raw[begin : begin + 32] for begin in range(0, len(raw), 32)]).head.hex()
    changed = body | {"digests": base64.b64encode(raw).decode(), "head": head}
    return Signed.sign(Purpose.COMMITTEE_LOG, changed, day.study.identities["m1"]).to_file().decode()


def is_taken(day: Day, change: dict[str, Any]) -> bool:
    """Whether members' own software takes these files."""
    session = session_of(day.study.sealed, day.study.plan)
    try:
        receipt = DropReceipt.of_file(change["receipt"].encode())
        for log in change["logs"]:
            DropLog.verified(signed_in(Purpose.COMMITTEE_LOG, log.encode()), session)
        check_result(session, read_result(session, bytes.fromhex(change["result"])))
    except InputError:
        return False
    return receipt.session == session.session.hex()


# Of no field.
_OTHERS: list[Any] = [None, 1.5, [], {}]


def spoilt(content: bytes, signer: Identity) -> Iterator[str]:
    """Texts like that of a signed document, of which most are none: changed, by who signed it, too."""
    file = json.loads(content)
    body, purpose = json.loads(file["body"]), Purpose(file["format"].removeprefix("quietmean ").removesuffix(" 1"))
    yield from ("", "[]", "null", content.decode()[:-9])
    for name, value in file.items():
        yield json.dumps({key: other for key, other in file.items() if key != name})
        yield json.dumps(file | {name: value[:-2] + ("AA" if value[-2:] != "AA" else "BB")})
    yield json.dumps(file | {"more": 1})
    # The same bytes in another spelling: the last digit has bits that no byte uses.
    yield json.dumps(file | {"signature": file["signature"][:-3] + chr(ord(file["signature"][-3]) + 1) + "=="})
    changes: list[Any] = [{key: other for key, other in body.items() if key != name} for name in body]
    for name, value in body.items():
        changes += [body | {name: other} for other in (*_OTHERS, f"{value} ")]
    changes += [
        body | {"more": 1},
        body | {"place": {"position": 0}},
        body | {"head": "ab" * 32},
        body | {"session": "ab" * 32},
        [],
    ]
    if "digests" in body:
        raw = base64.b64decode(body["digests"])
        changes += [body | {"digests": base64.b64encode(other).decode()} for other in (raw[:-1], raw[32:], raw + raw, b"")]
    yield from (json.dumps(file | {"body": canonical_json(changed).decode()}) for changed in changes)
    for signed in (json.dumps(body).encode(), *map(canonical_json, changes)):
        yield Signed(purpose, signed, signer.sign(purpose, signed)).to_file().decode()


def other_values(old: Any) -> list[Any]:
    """Of the same kind and of others."""
    if isinstance(old, bytes):
        return [old + b"\0", old[:-1] + bytes([old[-1] ^ 1]), 1, "a"]
    if isinstance(old, str):
        return [f"{old} ", old.encode(), 7]
    if isinstance(old, int):
        return [old + 1, -1, 99, 1.5]
    return [old[1:], [*old, 1], 3, b"", "a"]
