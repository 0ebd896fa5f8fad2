"""Whatever is kept or sent says its version, and one that another version of this program wrote is opened or named in a sentence.

The list is from the code: a constant that names a version is of something that is tried here, or is only hashed or signed over.
"""

from __future__ import annotations

import ast
import json
import re
import sqlite3
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import quietmean
from quietmean.core.errors import InputError
from quietmean.core.file_kinds import SESSION_RECEIPT
from quietmean.drop.box import DropBox
from quietmean.flower.agreement import FlowerAgreement
from quietmean.ledger import Ledger
from quietmean.node.monitor.monitor import status_path, write_status
from quietmean.node.net import Identity, Purpose
from quietmean.node.storage.database import StoreDatabase
from quietmean.protocols.committee import Committee
from quietmean.protocols.committee.lists import segment_front
from quietmean.sessions import SessionAccount, SessionTerms
from quietmean.studies.agreement.signed import Signed, read_signed
from quietmean.studies.party.by_file import CommitteeContributor
from quietmean.studies.party.member_holdings import MemberHoldings
from support.committee_study import CommitteeStudy
from support.committee_world import CommitteeWorld
from support.hostile_numbers import nothing_begins
from support.site_files import CONTRIBUTE, JOIN, SEALED, Site, attempt, state

PACKAGE = Path(quietmean.__file__).parent
# Only hashed, signed over or derived from: of another version all of it is another thing, and what holds it says its version.
# A file in a folder that does not begin so is not signed for its place, as whoever may write there can put it: it is passed over.
LABELS = {
    "quietmean-accept-1", "quietmean-by-file-1", "quietmean-charge-1", "quietmean-charge-again-1", "quietmean-committee-1",
    "quietmean-contract-1", "quietmean-first-look-1", "quietmean-gate-1", "quietmean-input-1", "quietmean-member-1",
    "quietmean-people-1", "quietmean-people-key-1", "quietmean-policy-1", "quietmean-quorum-1", "quietmean-round-1",
    "quietmean-rows-1", "quietmean-seat-1", "quietmean-session-1", "quietmean-session-contract-1",
    "quietmean committee challenge 1", "quietmean committee choice 1", "quietmean committee contribution 1",
    "quietmean committee list 1", "quietmean committee result 1", "quietmean drop chain 1", "quietmean encoding 1",
    "quietmean file 1", "quietmean flower 1", "quietmean link 1", "quietmean quorum 1", "quietmean relay group 1",
    "quietmean sealed 1", "quietmean words 1", "identity.py {} 1", "qmfile1",
}  # fmt: skip
WORLD = CommitteeWorld(Committee(4))
# Letters that a sentence has at most.
LARGEST = 500
CHANGES = ("before", "future", "missing", "another type", "a list", "huge")


@dataclass(frozen=True)
class Kind:
    """``path``: of a file that was made by this version; ``read``: what a command or a program does with it."""

    path: Path
    read: Callable[[], object]


def numbered(known: str, by: int) -> str:
    return re.sub(r"\d+$", lambda number: str(int(number[0]) + by), known)


def of_json(content: bytes, change: str) -> bytes:
    """A document, or its first line."""
    # What was handed in has a line before it.
    line, cut, rest = content.partition(b"\n") if content.count(b"}\n") else (content, b"", b"")
    document = json.loads(line)
    form = document["format"]
    values: dict[str, Any] = {
        "before": numbered(form, -1), "future": numbered(form, 1), "another type": 7, "a list": [form],
        "huge": form + "9" * 10**6,
    }  # fmt: skip
    if change == "missing":
        del document["format"]
    else:
        document["format"] = values[change]
        # Whatever else another version has.
        document["also"] = "new"
    return json.dumps(document).encode() + cut + rest


def of_bytes(content: bytes, change: str) -> bytes:
    """A file that begins with letters and a number."""
    known = re.match(rb"qm[a-z]+(\d)", content)
    assert known is not None
    stem, rest = content[: known.start(1)], content[known.end() :]
    number = int(known[1])
    return {
        "before": stem + str(number - 1).encode() + rest, "future": stem + str(number + 1).encode() + rest,
        "missing": rest, "another type": b"\xff" * known.end() + rest, "a list": stem + b"[" + rest, "huge": stem + b"9" * 10**6,
    }[change]  # fmt: skip


def of_database(path: Path, change: str) -> None:
    with closing(sqlite3.connect(path)) as database:
        (known,) = database.execute("PRAGMA user_version").fetchone()
        number = {"before": known - 1, "future": known + 1, "missing": 0, "another type": -1, "a list": -known, "huge": 2**31 - 1}
        database.execute(f"PRAGMA user_version = {number[change]}")
        database.commit()
        database.execute("PRAGMA wal_checkpoint(TRUNCATE)")


def write_changed(path: Path, change: str) -> None:
    content = path.read_bytes()
    if content.startswith(b"SQLite"):
        of_database(path, change)
    else:
        path.write_bytes((of_bytes if content.startswith(b"qm") else of_json)(content, change))


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> CommitteeStudy:
    return CommitteeStudy(tmp_path_factory.mktemp("committee"))


Make = Callable[[Site, CommitteeStudy, Path, pytest.CaptureFixture[str]], Kind]


def command(line: str, capsys: pytest.CaptureFixture[str]) -> Callable[[], None]:
    def read() -> None:
        with nothing_begins():
            code, errors = attempt(line, capsys)
        assert code == 2, errors
        assert errors.startswith("quietmean: ")
        raise InputError(errors.strip().removeprefix("quietmean: "))

    return read


def by_command(name: str, line: str) -> Make:
    return lambda site, study, folder, capsys: Kind(next(site.folder.glob(name)), command(line, capsys))


def signed(purpose: Purpose) -> Make:
    def make(site: Site, study: CommitteeStudy, folder: Path, capsys: pytest.CaptureFixture[str]) -> Kind:
        path = folder / "document"
        path.write_bytes(Signed.sign(purpose, {}, Identity.generate()).to_file())
        return Kind(path, lambda: read_signed(purpose, path))

    return make


def approval(site: Site, study: CommitteeStudy, folder: Path, capsys: pytest.CaptureFixture[str]) -> Kind:
    path = folder / "owned.approval"
    path.write_bytes(Signed.sign(Purpose.APPROVAL, {}, Identity.load(site.folder / "owner.key")).to_file())
    return Kind(path, command(f"{JOIN.replace('policy.toml', 'owned.toml')} --no-ledger --approval {path}", capsys))


def ledger_by_command(site: Site, study: CommitteeStudy, folder: Path, capsys: pytest.CaptureFixture[str]) -> Kind:
    made = ledger(site, study, folder, capsys)
    return replace(made, read=command(f"site budget --ledger {made.path}", capsys))


def session_receipt(site: Site, study: CommitteeStudy, folder: Path, capsys: pytest.CaptureFixture[str]) -> Kind:
    path = folder / "rounds.json"
    path.write_text(json.dumps({"format": SESSION_RECEIPT}))
    return Kind(path, command(f"verify receipt {path}", capsys))


def status(site: Site, study: CommitteeStudy, folder: Path, capsys: pytest.CaptureFixture[str]) -> Kind:
    path = status_path(folder / "my.store")
    write_status(path, {})
    return Kind(path, command(f"site status {folder / 'my.store'}", capsys))


def session_account(site: Site, study: CommitteeStudy, folder: Path, capsys: pytest.CaptureFixture[str]) -> Kind:
    terms = SessionTerms(parties=4, dimension=2, epsilon=2.0, delta=1e-6, rounds=3)
    SessionAccount(terms, folder / "account").begin()
    return Kind(folder / "account", lambda: SessionAccount(terms, folder / "account"))


def flower(site: Site, study: CommitteeStudy, folder: Path, capsys: pytest.CaptureFixture[str]) -> Kind:
    keys = [Identity.generate().public_key for _ in range(3)]
    FlowerAgreement.make(keys, dimension=2, epsilon=4.0, delta=1e-5, rounds=2).save(folder / "agreement")
    return Kind(folder / "agreement", lambda: FlowerAgreement.load(folder / "agreement"))


def handed_in(site: Site, study: CommitteeStudy, folder: Path, capsys: pytest.CaptureFixture[str]) -> Kind:
    contributor = CommitteeContributor(study.sealed, study.plan, study.identities["c1"], study.keys["c1"])
    workload = study.sealed.study.workload
    value = workload.encode([np.array([[400.0]])], step=study.plan.value_step)
    if not contributor.stored_at.exists():
        contributor.contribute(value)
    return Kind(contributor.stored_at, lambda: contributor.contribute(value))


def held(site: Site, study: CommitteeStudy, folder: Path, capsys: pytest.CaptureFixture[str]) -> Kind:
    (folder / "box").mkdir()
    (folder / "box" / "c0.contribution").write_bytes(WORLD.contribution(0))
    path = folder / "m.held"
    MemberHoldings.take(path, WORLD.session, 0, WORLD.opener(0), folder / "box", float(1 << 33))
    return Kind(path, lambda: MemberHoldings.load(path, WORLD.session))


def drop(site: Site, study: CommitteeStudy, folder: Path, capsys: pytest.CaptureFixture[str]) -> Kind:
    box = DropBox.open(folder / "drop", WORLD.session)
    box.close()
    (path,) = (folder / "drop").iterdir()
    return Kind(path, lambda: DropBox.open(folder / "drop", WORLD.session).close())


def store(site: Site, study: CommitteeStudy, folder: Path, capsys: pytest.CaptureFixture[str]) -> Kind:
    StoreDatabase(folder / "my.store").close()
    return Kind(folder / "my.store", lambda: StoreDatabase(folder / "my.store").close())


def ledger(site: Site, study: CommitteeStudy, folder: Path, capsys: pytest.CaptureFixture[str]) -> Kind:
    attempt(f"site budget --ledger {folder / 'my.ledger'} --account ages --budget 5 1e-5", capsys)

    def read() -> None:
        with closing(Ledger.open(folder / "my.ledger")) as opened:
            assert opened.account("ages").budget.epsilon == 5

    return Kind(folder / "my.ledger", read)


def part_of_a_committee(content: Callable[[], bytes]) -> Make:
    def make(site: Site, study: CommitteeStudy, folder: Path, capsys: pytest.CaptureFixture[str]) -> Kind:
        (folder / "box").mkdir()
        (folder / "box" / "c1.contribution").write_bytes(WORLD.contribution(1))
        path = folder / "box" / "c0.contribution"
        path.write_bytes(content())

        def read() -> None:
            taken = MemberHoldings.take(folder / "m.held", WORLD.session, 0, WORLD.opener(0), folder / "box", float(1 << 33))
            (folder / "m.held").unlink()
            assert len(taken) == 1
            ((_, name, why),) = taken.left_out
            raise InputError(f"{name}: {why}")

        return Kind(path, read)

    return make


def segment() -> bytes:
    return segment_front(WORLD.session, 0)


# By the constant of the code, or the file and the name of a number.
KEPT: dict[str, Make] = {
    "quietmean-plan-1": by_command("other.plan", "simulate other.plan --runs 2"),
    "quietmean-status-1": status,
    "quietmean-flower-1": flower,
    "quietmean-session-account-1": session_account,
    "quietmean-session-receipt-1": session_receipt,
    "quietmean study keys 1": by_command("*south-*.studykeys", f"{CONTRIBUTE} --no-ledger --out new.contribution"),
    "quietmean handed in 1": handed_in,
    "qmcommi1": part_of_a_committee(lambda: WORLD.contribution(0)),
    "qmsegm1": part_of_a_committee(segment),
    "qmheld3": held,
    "qmdrop1": drop,
    "node/storage/database.py SCHEMA": store,
    "ledger/database.py SCHEMA": ledger,
    "signed.py {} 1": by_command(SEALED, f"verify words {SEALED} --key south.key"),
    **{f"signed.py {purpose}": signed(purpose) for purpose in Purpose},
}
# What commands say of some of these.
SAID: dict[str, Make] = {
    "by-file.invitation": by_command(
        "by-file.invitation", "accept by-file.invitation --key east.key --name east --out new.entry"
    ),
    "south.entry": by_command(
        "south.entry", "study seal by-file.invitation south.entry west.entry --key convener.key --out new.sealed"
    ),
    "south.key.revocation": by_command("south.key.revocation", "key revoke south.key.revocation"),
    "owned.approval": approval,
    "my.ledger": ledger_by_command,
}
# What is kept in files, by its name in sentences; of other purposes a signature is sent alone.
FILES = {
    Purpose.INVITATION: "an invitation",
    Purpose.ENTRY: "an entry",
    Purpose.SEAL: "a sealed study",
    Purpose.CONTRIBUTION: "a contribution",
    Purpose.APPROVAL: "an approval",
    Purpose.REVOCATION: "a revocation",
    Purpose.COMMITTEE_CONTRIBUTION: "a contribution to a committee",
    Purpose.COMMITTEE_VOUCHER: "a voucher",
    Purpose.COMMITTEE_RECEIPT: "a drop's receipt",
    Purpose.COMMITTEE_LOG: "a member's log of a drop",
    Purpose.COMMITTEE_PAGE: "a coordinator's signature of a page",
}
# What is sent: where it is received with another version, and what is said there.
SENT = {
    "node/net/wire.py VERSION": ("test_node_sockets.py", "version differs"),
    "learning/models/model.py VERSION": ("test_model_by_command.py", "by version"),
}


def versions_in_code() -> set[str]:
    found = set()
    for path in sorted(PACKAGE.rglob("*.py")):
        place = path.relative_to(PACKAGE).as_posix()
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Constant) and isinstance(node.value, str | bytes):
                text = node.value if isinstance(node.value, str) else node.value.decode("latin-1")
                if (known := re.fullmatch(r"(quietmean[ -][a-z -]*\d+\.?|qm[a-z]{2,8}\d)\W?", text)) is not None:
                    found.add(known[1])
            elif isinstance(node, ast.JoinedStr) and re.fullmatch(r"f'quietmean \{[\w.]+\} (\d)(\\x00)?'", ast.unparse(node)):
                found.add(f"{path.name} {{}} 1")
            elif isinstance(node, ast.Assign | ast.AnnAssign) and isinstance(node.value, ast.Constant):
                targets = map(ast.unparse, node.targets if isinstance(node, ast.Assign) else [node.target])
                found |= {f"{place} {name}" for name in targets if name in ("SCHEMA", "VERSION")}
    return found


def test_every_version_in_the_code_is_tried_here_or_only_hashed() -> None:
    purposes = {f"signed.py {purpose}" for purpose in Purpose}
    assert versions_in_code() == LABELS | set(SENT) | set(KEPT) - purposes


@pytest.mark.parametrize(("file", "words"), SENT.values())
def test_what_is_sent_is_tried_where_it_is_received(file: str, words: str) -> None:
    assert words in Path(__file__).with_name(file).read_text()


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("name", [*KEPT, *SAID])
def test_what_is_kept_is_opened_or_named_with_the_version_that_wrote_it(
    name: str, change: str, site: Site, study: CommitteeStudy, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kind = (KEPT | SAID)[name](site, study, tmp_path, capsys)
    whole = kind.path.read_bytes()
    write_changed(kind.path, change)
    content, before = kind.path.read_bytes(), {**state(site.folder), **state(tmp_path)}
    try:
        with pytest.raises(InputError) as error:
            kind.read()
    finally:
        after = {**state(site.folder), **state(tmp_path)}
        kept = kind.path.read_bytes()
        kind.path.write_bytes(whole)
    said = str(error.value)
    assert kept == content
    assert after == before
    assert "\n" not in said
    assert len(said) < LARGEST
    if change in ("before", "future"):
        # With its number.
        assert re.search(r"version of quietmean|of this version", said), said
        # Or of the folder that the file belongs to.
        assert kind.path.name in said or str(kind.path.parent) in said or re.search(r"-\d\)", said), said


def test_a_contribution_of_another_version_is_left_out_and_named(site: Site, capsys: pytest.CaptureFixture[str]) -> None:
    path = site.folder / "south.contribution"
    before = path.read_bytes()
    write_changed(path, "future")
    code, errors = attempt(f"study combine {SEALED} south.contribution --receipt new.json", capsys)
    path.write_bytes(before)
    assert code == 3
    assert "south.contribution was written by another version of quietmean (quietmean contribution 2)" in " ".join(errors.split())


@pytest.mark.parametrize("purpose", list(Purpose))
def test_every_kind_of_signed_document_says_its_version(purpose: Purpose, tmp_path: Path) -> None:
    """As a file, and as a line of text."""
    signed = Signed.sign(purpose, {}, Identity.generate())
    path = tmp_path / "document"
    path.write_bytes(signed.to_file())
    write_changed(path, "future")
    with pytest.raises(InputError, match=rf"document was written by another version of quietmean \(quietmean {purpose} 2\)"):
        read_signed(purpose, path)
    line = signed.to_line().replace("-1.", "-12.", 1)
    for source in (line, f" {line[:40]}\n{line[40:]}"):
        with pytest.raises(InputError, match="the line of text was written by another version of quietmean"):
            read_signed(purpose, source)
    # One of another kind stays that.
    other = Purpose.SEAL if purpose == Purpose.ENTRY else Purpose.ENTRY
    wanted = "a sealed study" if other == Purpose.SEAL else "an entry"
    said = (
        f"holds {FILES[purpose]}, not {wanted}." if purpose in FILES else f"is not {wanted}. Give the file as quietmean wrote it."
    )
    with pytest.raises(InputError, match=re.escape(f"file {path} {said}")):
        read_signed(other, path)


def test_a_receipt_that_another_release_wrote_is_read_or_told_with_it(site: Site, capsys: pytest.CaptureFixture[str]) -> None:
    """It has no format of its own: it is what the protocol says, and the release that wrote it is in its origin."""
    whole = json.loads((site.folder / "other.receipt.json").read_text())
    for release, more, code in (("9.9", {}, 0), ("9.9", {"also": 1}, 2), (7, {"also": 1}, 2), ("9" * 10**6, {"also": 1}, 2)):
        path = site.folder / "changed.receipt.json"
        path.write_text(json.dumps(whole | {"origin": {**whole.get("origin", {}), "quietmean": release}} | more))
        content = path.read_bytes()
        ended, errors = attempt(f"verify receipt {path.name}", capsys)
        assert (ended, path.read_bytes()) == (code, content), errors
        assert len(errors) < 2 * LARGEST
        assert ("Version 9.9 of quietmean wrote it" in errors) == (release == "9.9" and bool(code)), errors
