"""No command replaces a file that is there: every option that names an output x every kind of file, with and without --force."""

from __future__ import annotations

import ast
import os
import re
import shlex
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import quietmean
import quietmean as qm
from quietmean.cli.main import COMMANDS
from quietmean.core.errors import InputError, StorageError
from quietmean.core.output import Output, json_object, require_apart
from quietmean.learning import SharedModel
from quietmean.sessions.session import SessionAccount
from quietmean.studies.agreement.session_terms import SessionTerms
from support.arguments import arguments_of
from support.site_files import CONTRIBUTE, JOIN, KINDS, Site, attempt, remove, state

# What only reads the file, or is a folder of a service that runs on.
READ = """
run --data; demo STUDY; study invite STUDY; study invite --key; study invite --after; accept INVITATION; accept --key;
accept --store; accept --replaces; study seal INVITATION; study seal --key; study vouchers INVITATION; study vouchers --key;
study vouchers --own-keys; study form STUDY; study form --key; serve drop PAGE;
verify words STUDY; verify words --key; verify words --store; site contract STUDY;
site contract --roster; site contract --key; site contract --plan; site contract --store; site contract --policy;
site approve STUDY; site approve --roster; site approve --owner-key; site approve --policy; site desk FOLDER;
site desk --data; site desk --key; site desk --policy; site desk --ledger; site desk --owner-key; site desk --socket;
site data DATA; site data STUDY; check STUDY; check --data; check --roster; check --key; check --plan; check --store;
check --ledger; join --program; site desk --program; check --policy; join STUDY; join --data; join --roster; join --key;
join --plan; join --policy; join --approval; send STUDY; send --data; send --key; send --store; send --policy;
send --approval; study new --dictionary; study new --first-look; study mock STUDY; study synthesize RECEIPT;
study combine STUDY; study combine FILES; result STUDY; result FILES;
join --contributions; check --contributions; serve relay --certificate; serve relay --private-key; serve relay --admit;
serve drop --study; serve drop --folder; serve drop --key; serve drop --certificate; serve drop --private-key;
study start STUDY; study start --roster; study start --key; study start --store; site status STORE; site status --store;
site status --study; verify receipt EXECUTION; verify receipt --observed; verify receipt --ledger; verify attack EXECUTION;
verify attack --observed; plan --study; plan --roster; simulate PLAN; site audit --against; site audit --log;
site audit --policy; run DATA; run --study; result FILE; result SUMS; site clean FOLDER; site clean --remove; site budget --policy
"""
# The command with PLACE where its output goes.
WRITTEN = {
    "run --out": "run --data ages.csv 'mean(age in 0..100)' --parties 2 --protocol local-dp --out PLACE",
    "demo --out": "demo --out PLACE",
    "key new --key": "key new --key PLACE",
    "study new --out": "study new 'mean(age in 0..100)' --out PLACE",
    "study mock --out": "study mock study.toml --rows 5 --out PLACE.csv",
    "study synthesize --out": "study synthesize synthetic.receipt.json --out PLACE.csv",
    "study invite --out": "study invite study.toml --key convener.key --out PLACE",
    "accept --out": "accept by-file.invitation --key south.key --name south --out PLACE",
    "study seal --out": "study seal by-file.invitation south.entry west.entry --key convener.key --out PLACE",
    "study vouchers --out": "study vouchers vouched.invitation --key ada.key --out PLACE",
    "study form PAGE": "study form vouched.sealed https://drop.example.org PLACE.html --key convener.key",
    "site approve --out": "site approve study.toml --roster roster.toml --party ada --owner-key owner.key --account ages "
    "--until 2090-01-01 --policy owned.toml --accept 00000000000000000000000000000000 --out PLACE",
    "join --receipt": f"{JOIN} --no-ledger --receipt PLACE",
    "join --store": f"{JOIN} --ledger my.ledger --store PLACE",
    "join --events": f"{JOIN} --no-ledger --events PLACE",
    "join --ledger": f"{JOIN} --ledger PLACE",
    "send --out": f"{CONTRIBUTE} --no-ledger --out PLACE",
    "send --ledger": f"{CONTRIBUTE.replace('south', 'west')} --ledger PLACE",
    "study combine --receipt": "study combine by-file.sealed south.contribution --receipt PLACE",
    "study combine --out": "study combine by-file.sealed south.contribution --out PLACE",
    "result --receipt": "result by-file.sealed south.contribution --receipt PLACE",
    "result --out": "result by-file.sealed south.contribution --out PLACE",
    "verify receipt --report": "verify receipt other.receipt.json --report PLACE",
    "verify receipt --table": "verify receipt other.receipt.json --table PLACE.docx",
    "plan --out": "plan --parties 3 --protocol local-dp --out PLACE",
    "schema --out": "schema result --out PLACE",
    "site budget --ledger": "site budget --ledger PLACE --account ages --budget 1 1e-6",
    "--log-file": "plan --parties 3 --protocol local-dp --log-file PLACE",
}
# Files that are written beside what was named, where PLACE is what is there.
DERIVED = {
    "PAGE.signed of form": ("study form vouched.sealed https://drop.example.org n.html --key convener.key", "n.html.signed"),
    "KEY.revocation": ("key new --key new.key", "new.key.revocation"),
    "NAME.report.html of join": (f"{JOIN} --no-ledger --receipt n.receipt.json", "n.report.html"),
    "NAME.privacy.html of join": (f"{JOIN} --no-ledger --receipt n.receipt.json", "n.privacy.html"),
    "NAME.format.toml of data": ("site data slashes.csv dated.toml --write-format", "slashes.format.toml"),
    **{
        f"tables{end} of certify": (f"verify receipt other.receipt.json --table place{end}", f"place{end}")
        for end in (".tex", ".html", ".csv")
    },
    "entry of certify": ("verify receipt other.receipt.json --report entry.yaml", "entry.yaml"),
    "STORE.vectors": (f"{JOIN} --no-ledger --store n.store", "n.store.vectors"),
    "STORE.status.json": (f"{JOIN} --no-ledger --store n.store", "n.store.status.json"),
    "NAME.result.json of combine": ("study combine by-file.sealed south.contribution --receipt n.receipt.json", "n.result.json"),
    "NAME.report.html of combine": ("study combine by-file.sealed south.contribution --receipt n.receipt.json", "n.report.html"),
}
# Where a file of this kind is what the option is for, or --force may replace it; a folder may be one to write into.
FITTING = {
    ("study new --out", "study"): "force",
    ("plan --out", "plan"): "force",
    ("study combine --out", "folder"): "always",
    ("study vouchers --out", "folder"): "always",
    ("join --store", "folder"): "always",
    # A ledger may be somewhere else.
    ("site budget --ledger", "dangling link"): "always",
    ("join --ledger", "dangling link"): "always",
    ("send --ledger", "dangling link"): "always",
    ("verify receipt --report", "page"): "always",
    ("send --out", "contribution"): "early",
    ("study invite --out", "invitation"): "force",
}


def test_every_path_of_every_command_is_here() -> None:
    found = set()
    for command in COMMANDS:
        for one in arguments_of(command):
            if "Path" in str(one.hint):
                found.add(f"{command} {one.names[0] if one.index is None else one.names[0].lstrip('-').upper()}")
    known = {" ".join(one.split()) for one in READ.split(";")} | set(WRITTEN) - {"--log-file"}
    assert found - known == set()


def refused(site: Site, line: str, place: Path, kind: str, capsys: pytest.CaptureFixture[str]) -> None:
    site.put(kind, place)
    before = state(site.folder)
    try:
        code, errors = attempt(line, capsys)
        after = state(site.folder)
        lost = {name for name, one in before.items() if after.get(name) != one and not name.startswith(("share", "config"))}
        assert lost == set(), (line, kind)
        assert code == 2, (line, kind, errors)
        told = [one for one in errors.splitlines() if not one.startswith("quietmean: note:")]
        assert len(told) == 1, (line, kind, errors)
        assert told[0].startswith("quietmean: "), (line, kind, errors)
        assert "Traceback" not in errors
    finally:
        remove(site, before, place)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("option", WRITTEN)
def test_nothing_is_lost(option: str, site: Site, capsys: pytest.CaptureFixture[str]) -> None:
    # Some files are known by the ends of their names.
    (name,) = [word for word in shlex.split(WRITTEN[option]) if "PLACE" in word]
    place = site.folder / name.replace("PLACE", "place")
    for kind in KINDS:
        fits = FITTING.get((option, kind))
        if fits in ("always", "early"):
            continue
        for force in ("", " --force"):
            if force and fits == "force":
                continue
            if kind == "empty folder" and FITTING.get((option, "folder")) == "always":
                continue
            refused(site, WRITTEN[option].replace("PLACE", "place") + force, place, kind, capsys)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("what", DERIVED)
def test_what_is_written_beside_it_loses_nothing_either(what: str, site: Site, capsys: pytest.CaptureFixture[str]) -> None:
    line, name = DERIVED[what]
    for kind in KINDS:
        refused(site, line, site.folder / name, kind, capsys)


@pytest.mark.parametrize(("option", "kind"), [pair for pair, how in FITTING.items() if how == "force"])
def test_force_replaces_a_file_of_the_same_kind(option: str, kind: str, site: Site, capsys: pytest.CaptureFixture[str]) -> None:
    place = site.folder / "place"
    site.put(kind, place)
    before = place.read_bytes()
    try:
        code, errors = attempt(WRITTEN[option].replace("PLACE", "place") + " --force", capsys)
        assert code == 0, errors
        assert place.read_bytes() != before
    finally:
        place.unlink()


# Names of files that are given in Python.
def _save_model(place: Path) -> None:
    SharedModel({"w": np.zeros(3)}).save(place)


def _begin_session(place: Path) -> None:
    SessionAccount(SessionTerms(parties=6, dimension=3, epsilon=2.0, delta=1e-5, rounds=2), place).begin()


def _enter_session(place: Path) -> None:
    terms = {"name": "averaging", "dimension": 3, "rounds": 2, "epsilon": 8.0, "delta": 1e-5, "colluding": 0}
    with qm.session(terms, "roster.toml", "ada.key", no_ledger=True, yes=True, policy="policy.toml", receipt=place):
        raise AssertionError("it began")


@pytest.mark.parametrize("write", [_save_model, _begin_session, _enter_session])
def test_python_loses_nothing_either(write: Callable[[Path], None], site: Site) -> None:
    place = site.folder / "place"
    for kind in KINDS:
        site.put(kind, place)
        before = state(site.folder)
        try:
            with pytest.raises(InputError, match=r"place"):
                write(place)
            after = state(site.folder)
            assert {name for name, one in before.items() if after.get(name) != one} == set(), kind
            assert {name for name in after if "averaging" in name} == set(), kind
        finally:
            remove(site, before, place)


@pytest.mark.parametrize("write", [_save_model, _begin_session])
def test_python_replaces_what_it_wrote_itself(write: Callable[[Path], None], tmp_path: Path) -> None:
    write(tmp_path / "place")
    write(tmp_path / "place")
    assert [path.name for path in tmp_path.iterdir()] == ["place"]


def test_a_model_of_another_size_and_another_archive_stay(tmp_path: Path) -> None:
    place = tmp_path / "place"
    for other in ({"vector": np.zeros(4)}, {"another": np.zeros(3)}, {"vector": np.zeros(3, dtype=int)}):
        with place.open("wb") as file:
            np.savez(file, **other)
        with pytest.raises(InputError, match="exists already"):
            _save_model(place)


def test_two_outputs_of_one_command_are_two_files(site: Site, capsys: pytest.CaptureFixture[str]) -> None:
    for line in (
        f"{JOIN} --no-ledger --receipt same --store same",
        f"{JOIN} --no-ledger --receipt same --events same",
        f"{JOIN} --no-ledger --receipt same --log-file same",
        "schema result --out same --log-file same",
    ):
        before = state(site.folder)
        code, errors = attempt(line, capsys)
        assert code == 2, (line, errors)
        Path("same").unlink(missing_ok=True)
        assert {name: one for name, one in state(site.folder).items() if name in before} == before


# --- the writer itself ---


def test_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = tmp_path / "out"

    def full(handle: int) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(StorageError, match="no space beside"):
            Output(place, "the plan").write(b"new")
    assert list(tmp_path.iterdir()) == []
    Output(place, "the plan").write(b"new")
    Output(place, "the plan").write(b"new")
    with pytest.raises(InputError, match="exists already"):
        Output(place, "the plan").write(b"other")
    assert place.read_bytes() == b"new"
    assert list(tmp_path.iterdir()) == [place]


def test_who_comes_first_wins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another process makes the file between the look and the name."""
    place = tmp_path / "out"
    sync = os.fsync

    def meanwhile(handle: int) -> None:
        sync(handle)
        place.write_bytes(b"other")

    monkeypatch.setattr(os, "fsync", meanwhile)
    with pytest.raises(InputError, match="exists already"):
        Output(place, "the plan").write(b"new")
    assert place.read_bytes() == b"other"


@pytest.mark.parametrize("private", [True, False])
def test_what_is_secret_is_its_owners_alone_whatever_the_umask(private: bool, tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        Output(tmp_path / "out", "the key", private=private).write(b"new")
    finally:
        os.umask(before)
    assert (tmp_path / "out").stat().st_mode & 0o777 == (0o600 if private else 0o666)


def test_a_file_system_without_links(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_links(self: Path, target: Path) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(Path, "hardlink_to", no_links)
    Output(tmp_path / "out", "the plan").write(b"new")
    assert (tmp_path / "out").read_bytes() == b"new"
    with pytest.raises(InputError, match="exists already"):
        Output(tmp_path / "out", "the plan").write(b"other")


def test_streams_are_written_to(tmp_path: Path) -> None:
    Output(Path(os.devnull), "the plan").write(b"new")
    with Output(Path(os.devnull), "the log").append() as file:
        file.write("line\n")


def test_apart(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="would be one file"):
        require_apart([Output(tmp_path / "a", "the plan"), Output(tmp_path / "." / "a", "the page")])
    assert json_object(b"\xff[") == {}


# Who makes or moves files, and why no file that a person names can be lost there.
WRITERS = {
    "core/output.py": "the one writer",
    "core/portability.py": "calls of the system, for those below, and the log of a database again, with its own bytes",
    # Stores and logs: locked, checked when they are opened, and written on in place.
    "node/storage/blob_store.py": "vectors beside a store",
    "node/storage/database.py": "a store",
    "node/storage/housekeeping.py": "reads a store",
    "node/folder/slot.py": "messages beside a store",
    "node/series/party.py": "the last mean beside a store",
    "ledger/database.py": "a ledger",
    "studies/party/audit.py": "an audit log, to which lines are added",
    "studies/data/database.py": "reads a database",
    "studies/party/accounts.py": "the key of people's sketches, new",
    "drop/box.py": "the folder of a drop: locked, checked when it is opened, and written on in place",
    "studies/party/payment.py": "an empty lock beside a ledger: opened, never written to",
    "studies/party/executions.py": "the register of contributions, in the user's own folder",
    "studies/party/by_file.py": "the stored contribution to a committee, new",
    "studies/party/member.py": "a member's files beside its store",
    "studies/party/member_holdings.py": "the parts that a member took, beside its store",
    # What only programs name, in folders of their own.
    "cli/main.py": "the null device",
    "core/executors.py": "the null device",
    "cli/convening.py": "an empty file beside a store",
    "desk/__init__.py": "the secret of a desk, new",
    "flower/site.py": "the home of a party in Flower",
    "node/folder/place.py": "messages in a shared folder, here or far away",
    "node/local/__init__.py": "a scratch folder",
    "node/net/tls.py": "a key for the library, overwritten and removed",
    "studies/agreement/study_keys.py": "keys of a study and refused keys, read before they are written again",
    "learning/sites.py": "into memory",
    "report/canvas.py": "into memory",
}
_MAKES = {
    "write_text", "write_bytes", "rename", "touch", "hardlink_to", "symlink_to", "link_to", "symlink", "link", "replace_durably",
    "write_private", "open_private", "mkstemp", "NamedTemporaryFile", "FileHandler", "save_figure", "savefig", "savez",
    "savez_compressed", "savetxt", "tofile", "copyfile", "copy2", "copytree", "truncate", "renames", "write_image",
    "to_parquet", "to_excel", "mkfifo", "mknod", "copyfileobj", "put_file", "put_inside", "replacing",
}  # fmt: skip
_MAKES_OF = {("os", "replace"), ("shutil", "copy"), ("shutil", "move"), ("np", "save"), ("sqlite3", "connect")}
_FLAGS = {"O_WRONLY", "O_RDWR", "O_CREAT", "O_TRUNC", "O_APPEND"}


def writes(call: ast.Call) -> bool:
    """Whether it may make, change or move a file."""
    named = call.func
    name = named.attr if isinstance(named, ast.Attribute) else named.id if isinstance(named, ast.Name) else ""
    of = named.value.id if isinstance(named, ast.Attribute) and isinstance(named.value, ast.Name) else ""
    if name in _MAKES or (of, name) in {
        ("os", "replace"),
        ("shutil", "copy"),
        ("shutil", "move"),
        ("np", "save"),
        ("numpy", "save"),
    }:
        return True
    if (of, name) == ("sqlite3", "connect"):
        return True
    if name == "replace" and isinstance(named, ast.Attribute):
        # Of a path; texts take two, and records and dates name what they change.
        return len(call.args) == 1 and not call.keywords
    if name == "open":
        if of == "os":
            return any(isinstance(one, ast.Attribute) and one.attr in _FLAGS for one in ast.walk(call))
        given = [*call.args, *(one.value for one in call.keywords)]
        return any(
            isinstance(one, ast.Constant) and isinstance(one.value, str) and re.fullmatch(r"[rwaxbt+]{1,3}", one.value)
            and set(one.value) & set("wax+")
            for one in given
        )  # fmt: skip
    return False


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("path.write_text('x')", True),
        ("path.open('w')", True),
        ("open(path, mode='ab')", True),
        ("path.open('r+b')", True),
        ("path.open('rb')", False),
        ("os.open(path, os.O_RDONLY)", False),
        ("os.open(path, os.O_WRONLY | os.O_CREAT)", True),
        ("os.replace(a, b)", True),
        ("fresh.replace(path)", True),
        ("text.replace('a', 'b')", False),
        ("replace(settings, report=report)", False),
        ("day.replace(tzinfo=UTC)", False),
        ("shutil.copy(a, b)", True),
        ("record.copy()", False),
        ("np.savez(path, a=b)", True),
        ("a.rename(b)", True),
    ],
)
def test_what_writes(source: str, found: bool) -> None:
    assert any(writes(one) for one in ast.walk(ast.parse(source)) if isinstance(one, ast.Call)) == found


def test_there_is_no_other_writer() -> None:
    package = Path(quietmean.__file__).parent
    found: dict[str, list[str]] = {}
    for path in sorted(package.rglob("*.py")):
        lines = [ast.unparse(one) for one in ast.walk(ast.parse(path.read_text())) if isinstance(one, ast.Call) and writes(one)]
        if lines:
            found[str(path.relative_to(package))] = lines
    assert {name: lines for name, lines in found.items() if name not in WRITERS} == {}
    assert set(WRITERS) - set(found) == set()
