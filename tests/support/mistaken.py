"""A site at which a mistake is made, and what is wrong with how it ends."""

from __future__ import annotations

import contextlib
import io
import json
import re
import shlex
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest
from cyclopts import Argument

from quietmean.cli.common import GROUPS, command_of
from quietmean.cli.main import COMMANDS, main
from support.arguments import arguments_of
from support.committee_study import CommitteeStudy
from support.every_file import documents
from support.hostile_numbers import Hung, Went, nothing_begins, within
from support.site_files import CONTRIBUTE, SEALED, Site, state
from support.smallest_study import of_ages
from system.test_any_file import LINES

# Lines that are right. Those in LINES that are refused for a reason of their own have others here.
RIGHT = LINES | {
    "plan": "plan --parties 4 --epsilon 1 --delta 1e-6 --protocol local-dp",
    "site contract": "site contract study.toml --roster roster.toml --key ada.key --policy policy.toml",
    "check": "check study.toml --roster roster.toml --key ada.key --data ages.csv --policy policy.toml --no-ledger",
    "join": "join study.toml --roster roster.toml --key ada.key --data ages.csv --policy policy.toml --yes --no-ledger",
    "study combine": f"study combine {SEALED} south.contribution west.contribution --receipt new.json",
    "site budget": "site budget --ledger kept/ledger --account ages",
    "site status": "site status kept/store",
    "site clean": "site clean .",
    "site approve": "site approve study.toml --roster roster.toml --party ada --owner-key owner.key --account ages "
    "--until 2090-01-01 --policy owned.toml --accept {digest} --out new.approval",
    "verify receipt": "verify receipt other.receipt.json",
    "serve relay": "serve relay --listen 127.0.0.1:7443",
    "serve drop": "serve drop --study kept/wages/study.sealed --listen 127.0.0.1:9 --folder new --key kept/wages/m1.key",
    "result": "result kept/wages/study.sealed kept/sums",
    "study start": "study start quorum.toml --roster roster.toml --key ada.key",
}
# Kinds of file for which nobody needs an example: no file, and what is of no kind.
PLAIN = (
    "missing",
    "empty",
    "folder",
    "binary",
    "text",
    "blank",
    "umlaut missing",
    "xlsx",
    "parquet",
    "sqlite",
    "table",
    "json list",
)
DOCUMENTS = {
    "study": "study.toml", "sealed": SEALED, "invitation": "by-file.invitation", "entry": "south.entry", "plan": "other.plan",
    "contribution": "south.contribution", "receipt": "other.receipt.json", "roster": "roster.toml", "policy": "policy.toml",
    "key": "bob.key", "page": "page.html", "revocation": "west.key.revocation", "session": "kept/session",
    "ledger": "kept/ledger",
    "store": "kept/store", "approval": "kept/approval", "study keys": "kept/studys keys", "audit log": "kept/audit log",
    "log": "kept/log", "model": "kept/model", "sealed session": "kept/sealed session", "session receipt": "kept/session receipt",
    "voucher": "kept/voucher", "sums": "kept/sums", "committee contribution": "kept/committee contribution",
}  # fmt: skip
# Nothing of the files that the lines read may be said.
PRIVATE = "Kowalska"


@dataclass(frozen=True)
class Mistake:
    """A line with one mistake. ``names``: the sentence has one of these. ``files``: by name, the kind that is put there."""

    kind: str
    command: str
    words: tuple[str, ...]
    names: tuple[str, ...]
    files: tuple[tuple[str, str], ...] = ()

    @property
    def line(self) -> str:
        return shlex.join(self.words)


@dataclass(frozen=True)
class Ended:
    """How a line ended: its exit code or what happened instead, and all that was said."""

    code: int | str | None
    out: str
    err: str
    changed: tuple[str, ...]

    @property
    def sentence(self) -> str:
        if self.out.startswith('{\n  "error"'):
            return f"quietmean: {json.loads(self.out)['error']}"
        told = [one for one in self.err.splitlines() if not one.startswith(("quietmean: note:", "quietmean: nobody compared"))]
        return "\n".join(told)


class Desk:
    """A site with all kinds of file, at which mistakes are made."""

    def __init__(self, site: Site, more: Path) -> None:
        self.site, self.kept = site, site.folder / "kept"
        self.kept.mkdir()
        made = documents(site, more)
        (self.kept / "wages").mkdir()
        CommitteeStudy(self.kept / "wages")
        Path("quorum.toml").write_text(of_ages(colluding=0, protocol="local-dp", minimum=2, start_by="2090-01-01T00:00:00Z"))
        for path in made.values():
            if path.is_file():
                shutil.copy(path, self.kept / path.name)
        Path("kept/session receipt").write_text('{"format":"quietmean-session-receipt-1"}')
        Path("kept/sums").write_bytes(b"\x97\xbcquietmean committee result 1" + bytes(80))
        Path("kept/committee contribution").write_bytes(b"qmcommi1" + bytes(80))
        Path("private.csv").write_text(f"name,age\n{PRIVATE},41\n")
        main(shlex.split(f"{CONTRIBUTE.replace('south.key', 'west.key')} --no-ledger --out west.contribution"))
        main(shlex.split(LINES["study vouchers"].replace("--out new", "--out kept/vouchers")))
        (self.kept / "voucher").write_bytes(sorted(Path("kept/vouchers").iterdir())[0].read_bytes())
        with contextlib.redirect_stdout(io.StringIO()) as shown:
            main(shlex.split("site contract study.toml --roster roster.toml --key ada.key --policy owned.toml --json"))
        self.digest = json.loads(shown.getvalue())["accept"]

    def put(self, kind: str, place: Path) -> None:
        if kind in DOCUMENTS:
            shutil.copy(DOCUMENTS[kind], place)
            place.chmod(0o600)
        elif kind == "folder":
            place.mkdir()
            (place / "inside.csv").write_text("age\n1\n")
        elif kind in ("sqlite", "binary"):
            self.site.put(kind, place)
        elif "missing" not in kind:
            contents = {
                "empty": b"", "text": b"Dear all,\nplease find attached the file.\n", "blank": b"  \n\n",
                "xlsx": b"PK\x03\x04" + bytes(80),

                "parquet": b"PAR1" + bytes(80), "table": b"name,age\nKowalska,41\nKowalska,42\n", "json list": b"[1, 2, 3]\n",
            }  # fmt: skip
            place.write_bytes(contents[kind])

    def end(self, mistake: Mistake) -> Ended:
        """How the line ends; all is as before then."""
        folder = self.site.folder
        for name, kind in mistake.files:
            self.put(kind, folder / name)
        before = state(folder)
        out, err = io.StringIO(), io.StringIO()
        code: int | str | None = 0
        words = [word.replace("{digest}", self.digest) for word in mistake.words]
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err), pytest.MonkeyPatch.context() as patch:
            # Each test has a home of its own, and the site one for all.
            patch.setenv("XDG_CONFIG_HOME", str(folder / "config"))
            patch.setenv("XDG_DATA_HOME", str(folder / "share"))
            try:
                with within(20), nothing_begins():
                    main(words)
            except Went:
                code = "went"
            except Hung:
                code = "hung"
            except SystemExit as end:
                code = end.code
            except Exception as error:
                code = f"{type(error).__name__}: {error}"
        after = state(folder)
        changed = tuple(name for name in sorted({*before, *after}) if before.get(name) != after.get(name))
        for name in reversed(changed):
            path = folder / name
            if name not in before:
                path.rmdir() if path.is_dir() and not path.is_symlink() else path.unlink()
            elif before[name][0] == "file":
                path.write_bytes(before[name][1])
        for name, _ in mistake.files:
            path = folder / name
            shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
        return Ended(code, out.getvalue(), err.getvalue(), changed)


@cache
def arguments(command: str) -> list[Argument]:
    """All that a command takes, by its parser."""
    return [one for one in arguments_of(command) if one.names[0] != "*"]


@cache
def named(command: str) -> dict[str, Argument]:
    return {name: one for one in arguments(command) for name in one.names}


ALL_NAMES = sorted({name for command in COMMANDS for name in named(command) if name.startswith("--")})
COMMON = ("--quiet", "--force", "--log-file", "--help", "--version", "--all", "--json")


def faults(mistake: Mistake, ended: Ended) -> list[str]:
    """What is wrong with how the line ended; empty for nothing."""
    said, found = ended.sentence, []
    written: set[str] = set()
    # A check goes on with what else there may be, and what is no contribution is left out.
    goes_on = {"check": "went", "study combine": 3}.get(mistake.command)
    if ended.code != 2 and not (said and ended.code == goes_on):
        return [f"ended with {ended.code}"]
    if ended.out and "--json" not in mistake.words:
        found.append(f"printed {ended.out[:80]!r}")
    if mistake.command == "study combine" and ended.code == 3:
        # The end without an answer, as its receipt has it: the one file that is written, and named last.
        said, receipt = " ".join(said.split()), said.split()[-1]
        written |= {receipt}
        if not re.fullmatch(rf"No answer \S.* Cost \S.* Receipt {re.escape(receipt)}", said):
            found.append("not the screen of an end without an answer")
    elif said.count("\n") or not said.startswith("quietmean: "):
        found.append("not one sentence")
    found += [f"says {word!r}" for word in ("Traceback", "Errno", "input should be", "None", "tuple", "pydantic") if word in said]
    if PRIVATE in said and PRIVATE not in mistake.line:
        found.append("says a private value")
    if not any(name in said for name in mistake.names):
        found.append(f"names none of {mistake.names}")
    # A wrong yes is on the record.
    if set(ended.changed) - written - ({"share/quietmean/audit.jsonl"} if "is not the digest" in said else set()):
        found.append(f"changed {ended.changed}")
    return found + list(_remedies(mistake, said))


def _remedies(mistake: Mistake, said: str) -> Iterator[str]:
    """What a sentence names as a remedy and is not there."""
    if not re.search(r"[:.;?] \S", said.removeprefix("quietmean: ")):
        yield "no remedy"
    for text in re.findall(r"quietmean ((?:[a-z]+ ?){1,2}[^:;]*)", said.removeprefix("quietmean: ")):
        words = text.replace(" or quietmean", "").split()
        words = [word.rstrip(".,") for word in words]
        if words[0] in ("--help", "--version", "help", "wrote", "quietmean") or words[0] not in {
            line.split()[0] for line in COMMANDS
        }:
            continue
        command = command_of([word for word in words if not word.startswith("--")][:2])
        if command not in COMMANDS and command not in GROUPS and words[0] not in GROUPS:
            yield f"no command {command!r}"
    known = {*COMMON, *ALL_NAMES}
    for option in re.findall(r"(?<![\w-])--[a-z][a-z0-9-]*", said):
        if option not in known and option not in mistake.line:
            yield f"no option {option}"


def right(command: str) -> Mistake:
    """The line of a command without a mistake."""
    return Mistake("right", command, tuple(shlex.split(RIGHT[command])), ())
