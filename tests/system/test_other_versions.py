"""A document of another version of this program is named as that, and no damaged file, nor one of another kind.

Whatever else is in it may differ: what it says of its format is read first. One sentence, exit code 2.
"""

from __future__ import annotations

import json
import re
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from quietmean.core.errors import InputError
from quietmean.core.file_kinds import SESSION_RECEIPT
from quietmean.node.net import Identity, Purpose
from quietmean.studies.agreement.signed import Signed, read_signed
from support.hostile_numbers import nothing_begins
from support.site_files import CONTRIBUTE, JOIN, SEALED, Site, attempt, site_in

# A command that reads the file.
LINES = {
    "by-file.invitation": "accept by-file.invitation --key east.key --name east --out new.entry",
    "south.entry": "seal by-file.invitation south.entry west.entry --key convener.key --out new.sealed",
    SEALED: f"words {SEALED} --key south.key",
    "*south-*.studykeys": f"{CONTRIBUTE} --no-ledger --out new.contribution",
    "other.plan": "simulate other.plan --runs 2",
    "south.key.revocation": "distrust south.key.revocation",
    "owned.approval": f"{JOIN.replace('policy.toml', 'owned.toml')} --no-ledger --approval owned.approval",
    "new.ledger": "ledger --ledger new.ledger",
    "rounds.receipt.json": "certify rounds.receipt.json",
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
}
FORMAT = re.compile(rb'("format":\s*"quietmean[a-z -]*?[ -])1"')


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with site_in(tmp_path_factory.mktemp("site")) as here:
        owner = Identity.load(here.folder / "owner.key")
        (here.folder / "owned.approval").write_bytes(Signed.sign(Purpose.APPROVAL, {}, owner).to_file())
        (here.folder / "rounds.receipt.json").write_text(json.dumps({"format": SESSION_RECEIPT}))
        yield here


def later(path: Path) -> None:
    """As a later version might write it: with another number, and with something that this one does not know."""
    content = path.read_bytes()
    if content.startswith(b"SQLite"):
        with sqlite3.connect(path) as database:
            database.execute("PRAGMA user_version = 99")
        database.close()
        return
    changed, count = FORMAT.subn(rb'\g<1>2","also":"new"', content, count=1)
    assert count == 1, path
    path.write_bytes(changed)


@pytest.mark.parametrize("name", LINES)
def test_a_file_of_another_version_is_named_as_that(name: str, site: Site, capsys: pytest.CaptureFixture[str]) -> None:
    if name == "new.ledger":
        attempt("ledger --ledger new.ledger --account ages --budget 5 1e-5", capsys)
    (path,) = site.folder.glob(name)
    before = path.read_bytes()
    later(path)
    try:
        with nothing_begins():
            code, errors = attempt(LINES[name], capsys)
    finally:
        path.write_bytes(before)
    assert code == 2, errors
    (sentence,) = errors.splitlines()
    assert sentence.startswith("quietmean: ")
    assert re.search(r"version of quietmean|of this version", sentence), sentence
    assert path.name in sentence or "-2)" in sentence


def test_a_contribution_of_another_version_is_left_out_and_named(site: Site, capsys: pytest.CaptureFixture[str]) -> None:
    path = site.folder / "south.contribution"
    before = path.read_bytes()
    later(path)
    code, errors = attempt(f"combine {SEALED} south.contribution --receipt new.json", capsys)
    path.write_bytes(before)
    assert code == 3
    assert "south.contribution was written by another version of quietmean (quietmean contribution 2)" in errors


@pytest.mark.parametrize("purpose", list(Purpose))
def test_every_kind_of_signed_document_says_its_version(purpose: Purpose, tmp_path: Path) -> None:
    """As a file, and as a line of text."""
    signed = Signed.sign(purpose, {}, Identity.generate())
    path = tmp_path / "document"
    path.write_bytes(signed.to_file())
    later(path)
    with pytest.raises(InputError, match=rf"document was written by another version of quietmean \(quietmean {purpose} 2\)"):
        read_signed(purpose, path)
    line = signed.to_line().replace("-1.", "-12.", 1)
    for source in (line, f" {line[:40]}\n{line[40:]}"):
        with pytest.raises(InputError, match="the line of text was written by another version of quietmean"):
            read_signed(purpose, source)
    # One of another kind stays that.
    other = Purpose.SEAL if purpose == Purpose.ENTRY else Purpose.ENTRY
    wanted = "a sealed study" if other == Purpose.SEAL else "an entry"
    said = f"holds {FILES[purpose]}, not {wanted}." if purpose in FILES else f"holds no {other}: give a file that quietmean wrote"
    with pytest.raises(InputError, match=re.escape(f"file {path} {said}")):
        read_signed(other, path)
