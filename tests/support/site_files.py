"""A folder of a site with every kind of file that commands read and write, and commands that are typed there."""

from __future__ import annotations

import io
import shlex
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from quietmean.cli.main import main
from quietmean.node import Identity
from quietmean.studies.agreement.contribution import with_own_program
from quietmean.studies.agreement.invitation import Invitation
from quietmean.studies.agreement.sealed import Sealed
from quietmean.studies.agreement.study_keys import StudyKeys
from support.outcomes import finished
from support.site_policy import write_policy
from support.smallest_study import STUDY

JOIN = "join study.toml --roster roster.toml --key ada.key --data ages.csv --policy policy.toml --yes"
CONTRIBUTE = "send by-file.sealed --key south.key --data ages.csv --policy policy.toml --yes"
SEALED = "by-file.sealed"
KINDS = (
    "key", "csv", "sqlite", "receipt", "study", "roster", "plan", "invitation", "sealed", "contribution", "page", "folder",
    "link", "dangling link", "hard link", "read-only", "empty folder", "binary",
)  # fmt: skip


@dataclass
class Site:
    """A folder with all that the commands need."""

    folder: Path
    made: dict[str, Callable[[Path], None]] = field(default_factory=dict)

    def put(self, kind: str, place: Path) -> None:
        if kind == "folder":
            place.mkdir()
            (place / "inside.csv").write_text("age\n1\n")
        elif kind == "empty folder":
            place.mkdir()
        elif kind == "link":
            place.symlink_to(self.folder / "ages.csv")
        elif kind == "dangling link":
            place.symlink_to(self.folder / "nowhere.csv")
        elif kind == "hard link":
            place.hardlink_to(self.folder / "ages.csv")
        elif kind == "sqlite":
            with sqlite3.connect(place) as database:
                database.execute("create table visits (age real)")
                database.execute("insert into visits values (41)")
            database.close()
        elif kind == "binary":
            place.write_bytes(bytes(range(256)))
        else:
            name = {
                "key": "south.key", "csv": "ages.csv", "receipt": "other.receipt.json", "study": "other.toml",
                "roster": "roster.toml", "plan": "other.plan", "invitation": "other.invitation", "sealed": SEALED,
                "contribution": "south.contribution", "page": "page.html", "read-only": "ages.csv",
            }[kind]  # fmt: skip
            place.write_bytes((self.folder / name).read_bytes())
            place.chmod({"read-only": 0o444, "key": 0o600}.get(kind, 0o644))


def state(folder: Path) -> dict[str, tuple[str, bytes]]:
    """All that is there, by its place: what it is and holds."""
    found = {}
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        if path.is_symlink():
            found[name] = ("link", str(path.readlink()).encode())
        else:
            found[name] = (
                ("folder", b"") if path.is_dir() else ("file", path.read_bytes()) if path.is_file() else ("special", b"")
            )
    return found


@contextmanager
def site_in(folder: Path) -> Iterator[Site]:
    """With the working folder in it, and all that a user of this machine has."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setenv("XDG_CONFIG_HOME", str(folder / "config"))
        patch.setenv("XDG_DATA_HOME", str(folder / "share"))
        patch.setattr("sys.stdin", io.StringIO())
        entries = []
        for port, name in enumerate(("ada", "bob", "owner"), 8):
            identity = Identity.generate()
            identity.save(folder / f"{name}.key")
            if name == "owner":
                write_policy(folder / "owned.toml", least_colluding=0, approvers=[identity.public_key])
            else:
                entries.append(f'[[party]]\nname = "{name}"\naddress = "127.0.0.1:{port}"\nkey = "{identity.public_key}"\n')
        Path("roster.toml").write_text("\n".join(entries))
        Path("study.toml").write_text(STUDY)
        Path("other.toml").write_text(STUDY.replace("ages", "others"))
        Path("ages.csv").write_text("age\n" + "\n".join(map(str, range(20, 60))))
        Path("slashes.csv").write_text("day\n13/04/2024\n14/04/2024\n")
        Path("dated.toml").write_text(
            STUDY.replace('name = "age"\nlow = 0\nhigh = 100', 'name = "day"\nlow = 2024-01-01\nhigh = 2024-12-31')
        )
        write_policy(folder / "policy.toml", least_colluding=0, unattended=True)
        Path("keys.txt").write_text(f"{Identity.load(Path('bob.key')).public_key}\n")
        finished("mean(x)").save_receipt(Path("other.receipt.json"))
        finished("synthetic-table(arm, yes)").save_receipt(Path("synthetic.receipt.json"))
        for line in (
            "key new --key convener.key",
            "study new --out by-file.toml 'mean(age in 0..100)' --colluding 0 --protocol local-dp",
            "study invite by-file.toml --key convener.key --out by-file.invitation",
            "study invite study.toml --key convener.key --out other.invitation",
            "accept by-file.invitation --key south.key --name south --out south.entry",
            "accept by-file.invitation --key west.key --name west --out west.entry",
            f"study seal by-file.invitation south.entry west.entry --key convener.key --out {SEALED}",
            f"{CONTRIBUTE} --no-ledger --out south.contribution",
            "study new --out vouched.toml 'mean(age in 0..100)' --unit party --committee 4 --accept-wide "
            f"--contribute-by 2090-01-01T00:00:00Z --registrar {Identity.load(Path('ada.key')).public_key} --vouchers 3",
            "study invite vouched.toml --key convener.key --out vouched.invitation",
            "plan --parties 4 --protocol local-dp --out other.plan",
            "verify receipt other.receipt.json --report page.html",
        ):
            main(shlex.split(line))
        _seal_vouched()
        yield Site(folder)


def _seal_vouched() -> None:
    """Seal the study with vouchers, for members of whom nothing stays here."""
    invitation, convener = Invitation.load(Path("vouched.invitation")), Identity.load(Path("convener.key"))
    with TemporaryDirectory() as elsewhere:
        keys = [
            StudyKeys.make(
                Path(elsewhere) / f"{name}.keys", invitation, Identity.generate(), name, f"127.0.0.1:{port}", member=True
            )
            for port, name in enumerate(("m1", "m2", "m3", "m4"), 21)
        ]
    sealed = Sealed.make(invitation, [each.entry for each in keys], convener)
    sealed = with_own_program(sealed, sealed.choice().plan, convener)
    Path("vouched.sealed").write_bytes(sealed.signed.to_file())


def attempt(line: str, capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    """Exit code, and what was said on standard error."""
    capsys.readouterr()
    try:
        main(shlex.split(line))
    except SystemExit as end:
        return int(end.code or 0), capsys.readouterr().err
    return 0, capsys.readouterr().err


# What may be said before: notes, and the warning of a site that called nobody.
_BESIDES = ("quietmean: note:", "quietmean: nobody compared")


def sentences_of(errors: str) -> list[str]:
    """What is said of a line, without notes."""
    return [sentence for sentence in errors.splitlines() if not sentence.startswith(_BESIDES)]


def wrong_ending(site: Site, code: int, errors: str) -> str:
    """What is wrong with how a line of this site ended; empty where it is one sentence, a usual exit code, and nothing secret."""
    if code not in (0, 2, 3):
        return f"exit code {code}: {errors}"
    sentences = sentences_of(errors)
    if code == 2 and not (len(sentences) == 1 and sentences[0].startswith("quietmean: ")):
        return f"no single sentence: {errors}"
    secret = (site.folder / "south.key").read_text().splitlines()[1]
    return "a private key is shown, or a traceback" if secret in errors or "Traceback" in errors else ""


def remove(site: Site, before: dict[str, tuple[str, bytes]], place: Path) -> None:
    """Back to what was there before the file was put."""
    place.chmod(0o755) if place.exists() and not place.is_symlink() else None
    for name in sorted(state(site.folder), reverse=True):
        path = site.folder / name
        if name.startswith(("share", "config")):
            continue
        if name not in before or path == place or place in path.parents:
            path.rmdir() if path.is_dir() and not path.is_symlink() else path.unlink()
