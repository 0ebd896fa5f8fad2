"""Files of another kind than a command takes: the sentence names both kinds, and the command that takes the file."""

from __future__ import annotations

import io
import json
import shlex
import sqlite3
from pathlib import Path

import pytest

from quietmean.cli.main import main
from quietmean.core.file_kinds import FileKind, kind_of_file
from quietmean.flower.agreement import FORMAT as FLOWER
from quietmean.ledger import Ledger
from quietmean.node import secrecy
from quietmean.node.monitor.monitor import FORMAT as STATUS
from quietmean.node.net import Identity, Purpose
from quietmean.studies.agreement.signed import Signed
from support.mistakes import STUDY, party

SIGNED = {
    Purpose.INVITATION: FileKind.INVITATION,
    Purpose.ENTRY: FileKind.ENTRY,
    Purpose.SEAL: FileKind.SEALED,
    Purpose.CONTRIBUTION: FileKind.CONTRIBUTION,
    Purpose.APPROVAL: FileKind.APPROVAL,
    Purpose.REVOCATION: FileKind.REVOCATION,
    Purpose.COMMITTEE_VOUCHER: FileKind.VOUCHER,
    Purpose.COMMITTEE_RECEIPT: FileKind.DROP_RECEIPT,
}
FILES: dict[str, FileKind] = {
    **{f"{purpose.replace(' ', '-')}.file": kind for purpose, kind in SIGNED.items()},
    **{f"{purpose.replace(' ', '-')}.line": kind for purpose, kind in SIGNED.items()},
    "study.toml": FileKind.STUDY, "session.toml": FileKind.SESSION, "roster.toml": FileKind.ROSTER,
    "policy.toml": FileKind.POLICY, "budget.toml": FileKind.POLICY, "ada.key": FileKind.KEY, "ada.studykeys": FileKind.STUDY_KEYS,
    "plan.json": FileKind.PLAN, "receipt.json": FileKind.RECEIPT, "execution.json": FileKind.RECEIPT,
    "session-receipt.json": FileKind.SESSION_RECEIPT, "result.json": FileKind.RESULT, "node.status.json": FileKind.STATUS,
    "flower.json": FileKind.FLOWER, "book.ledger": FileKind.LEDGER, "ada.store": FileKind.STORE, "other.sqlite": FileKind.DATA,
    "log.jsonl": FileKind.AUDIT, "c1.committee": FileKind.COMMITTEE_CONTRIBUTION, "m1.sums": FileKind.SUMS,
    "0001.message": FileKind.MESSAGE, "report.html": FileKind.PAGE, "d.csv": FileKind.DATA, "d.tsv": FileKind.DATA,
    "german.csv": FileKind.DATA, "d.parquet": FileKind.DATA, "d.xlsx": FileKind.DATA, "d.dta": FileKind.DATA,
}  # fmt: skip
ANY_STUDY = (FileKind.STUDY, FileKind.SESSION, FileKind.SEALED)
ANY_RECEIPT = (FileKind.RECEIPT, FileKind.SESSION_RECEIPT)
# A table of a database may be any, and each line of JSON a row.
TABLES = (FileKind.DATA, FileKind.LEDGER, FileKind.STORE, FileKind.AUDIT)
# Each with {} in the place of the file, and the kinds that stand there.
COMMANDS: dict[str, tuple[FileKind, ...]] = {
    "verify receipt {}": ANY_RECEIPT, "verify attack {} --target 0": ANY_RECEIPT,
    "site audit verify --log log.jsonl --against {}": ANY_RECEIPT,
    "simulate {}": (FileKind.PLAN,),
    "join study.toml --roster roster.toml --key ada.key --data d.csv --plan {}": (FileKind.PLAN,),
    "site contract {} --key ada.key": (*ANY_STUDY, FileKind.FLOWER), "check {} --key ada.key --data d.csv": ANY_STUDY,
    "join {} --key ada.key --data d.csv": ANY_STUDY, "send {} --key ada.key --data d.csv": ANY_STUDY,
    "site approve {} --account a --until 2030-12-31 --owner-key ada.key --party ada": (*ANY_STUDY, FileKind.FLOWER),
    "study start {} --key ada.key": ANY_STUDY,
    "study invite {} --key ada.key": (FileKind.STUDY, FileKind.SESSION),
    "study invite study.toml --key ada.key --after {}": (FileKind.SEALED,),
    "plan --study {} --parties 4": (FileKind.STUDY, FileKind.SEALED, FileKind.SESSION), "site data d.csv {}": ANY_STUDY,
    "verify words {}": (FileKind.SEALED,), "study combine {} contribution.file": (FileKind.SEALED,),
    "result {} m1.sums": ANY_STUDY,
    "serve drop --study {} --listen 127.0.0.1:9 --folder box": ANY_STUDY,
    "accept {} --key ada.key --name ada": (FileKind.INVITATION,),
    "study seal {} entry.file --key ada.key": (FileKind.INVITATION,),
    "study vouchers {} --key ada.key --number 2": (FileKind.INVITATION,),
    "key revoke {}": (FileKind.REVOCATION,), "site budget --ledger {}": (FileKind.LEDGER,), "site status {}": (FileKind.STORE,),
    "site clean --remove {}": (FileKind.STORE,), "site audit --log {}": (FileKind.AUDIT,),
    "check study.toml --roster {} --key ada.key --data d.csv": (FileKind.ROSTER,),
    "join study.toml --roster {} --key ada.key --data d.csv": (FileKind.ROSTER,),
    "serve relay --listen 127.0.0.1:9 --admit {}": (FileKind.ROSTER, FileKind.SEALED),
    "check study.toml --roster roster.toml --key {} --data d.csv": (FileKind.KEY, FileKind.VOUCHER),
    "join study.toml --roster roster.toml --key {} --data d.csv": (FileKind.KEY, FileKind.VOUCHER),
    "study invite study.toml --key {}": (FileKind.KEY, FileKind.VOUCHER),
    "site contract study.toml --roster roster.toml --key ada.key --policy {}": (FileKind.POLICY,),
    "site data {} study.toml": TABLES,
    "run --data {} 'mean(age in 0..100)' --parties 4": TABLES,
}  # fmt: skip


def write_all(folder: Path) -> None:
    identity = Identity.generate()
    for purpose in SIGNED:
        signed = Signed.sign(purpose, {"a": 1}, identity)
        (folder / f"{purpose.replace(' ', '-')}.file").write_bytes(signed.to_file())
        (folder / f"{purpose.replace(' ', '-')}.line").write_text(signed.to_line() + "\n")
    identity.save(folder / "ada.key")
    other = Identity.generate()
    texts = {
        "study.toml": STUDY,
        "session.toml": '[session]\nname = "s"\nrounds = 3\ndimension = 2\nsensitivity = 1.0\n',
        "roster.toml": party("ada", "127.0.0.1:45111", identity.public_key) + party("bob", "127.0.0.1:45112", other.public_key),
        "policy.toml": "[policy]\nlargest_epsilon = 2.0\n",
        "budget.toml": "[budget]\nepsilon = 2.0\ndelta = 1e-6\n",
        "ada.studykeys": '{"format":"quietmean study keys 1","entry":{}}',
        "plan.json": '{"format":"quietmean-plan-1"}',
        "receipt.json": '{"protocol":"inca","certify":{},"origin":{}}',
        "execution.json": '{"protocol":"inca","parties":3,"rounds":2}',
        "session-receipt.json": '{"format":"quietmean-session-receipt-1"}',
        "result.json": '{"statistics":[],"epsilon_a_priori":1.0,"protocol":"inca"}',
        "node.status.json": json.dumps({"format": STATUS, "pid": 1}),
        "flower.json": json.dumps({"format": FLOWER}),
        "log.jsonl": '{"entry":{},"signature":"x"}\n{"entry":{},"signature":"y"}\n',
        "report.html": "<!doctype html>\n<html><body></body></html>\n",
        "d.csv": "age,sex\n41,f\n42,m\n",
        "d.tsv": "age\tsex\n41\tf\n42\tm\n",
        "german.csv": "age;weight\n41;70,5\n42;60,25\n",
    }
    for name, text in texts.items():
        (folder / name).write_text(text)
    binary = {
        "c1.committee": b"qmcommi1" + bytes(80),
        "m1.sums": b"\x97\xbcquietmean committee result 1" + bytes(80),
        "0001.message": b"qmfile1\0" + bytes(80),
        "d.parquet": b"PAR1" + bytes(80),
        "d.xlsx": b"PK\x03\x04" + bytes(80),
        "d.dta": b"<stata_dta><header>" + bytes(80),
    }
    for name, content in binary.items():
        (folder / name).write_bytes(content)
    Ledger.open(folder / "book.ledger", create=True).close()
    for name, tables in (("ada.store", ("fact", "inbox", "state")), ("other.sqlite", ("visits",))):
        with sqlite3.connect(folder / name) as database:
            for table in tables:
                database.execute(f"CREATE TABLE {table} (name TEXT)")
        database.close()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("files")
    write_all(made)
    return made


@pytest.fixture
def here(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(folder)
    monkeypatch.setattr("sys.stdin", io.StringIO())
    for protection in ("forbid_tracing", "forbid_core_dumps"):
        monkeypatch.setattr(secrecy, protection, lambda: None)
    return folder


def said(line: str, capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    capsys.readouterr()
    try:
        main(shlex.split(line))
    except SystemExit as end:
        return int(end.code or 0), capsys.readouterr().err
    return 0, capsys.readouterr().err


def test_there_are_forty_files(here: Path) -> None:
    assert len(FILES) >= 40
    for name, kind in FILES.items():
        assert kind_of_file(here / name) is kind, name


WRONG = [(line, name) for line, kinds in COMMANDS.items() for name, kind in FILES.items() if kind not in kinds]


@pytest.mark.sampled(60)
@pytest.mark.parametrize(("line", "name"), WRONG)
def test_a_wrong_file_is_named_with_the_command_that_takes_it(
    line: str, name: str, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kind = FILES[name]
    code, errors = said(line.format(name), capsys)
    assert code == 2, errors
    assert "Traceback" not in errors
    assert f"file {name} holds {kind.words}, not " in errors
    assert any(wanted.words in errors.partition(", not ")[2] for wanted in COMMANDS[line])
    assert kind.advice(name).strip() in errors


ADVISED = [name for name, kind in FILES.items() if "{}" in kind.value[1]]


@pytest.mark.parametrize("name", ADVISED)
def test_the_command_that_is_named_takes_the_file(name: str, here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    advice = FILES[name].advice(name).rpartition("quietmean ")[2]
    filled = advice.replace("STUDY", "study.toml").replace("INVITATION", "invitation.file")
    _, errors = said(filled, capsys)
    assert f"{name} holds" not in errors
    assert not any(word in errors for word in ("is not an option", "is not a command", "too many", "Unknown"))
