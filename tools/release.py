"""A release: source distribution and wheel of the tagged commit, held to what a release promises.

The number is the newest heading of CHANGELOG.md, which has the day of the release instead of `unreleased`. Then::

    python tools/protocol_table.py          # CITATION.cff takes the number; r/DESCRIPTION is written by hand
    git commit -a && git tag v0.1.0
    make release

Both are built twice, from fresh copies of the tag, and have the same bytes; the wheel is the same from the source distribution.
Each Python that is here installs the wheel in a new environment and says the number. Nothing is uploaded.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
HEADING = re.compile(r"^## (\d+\.\d+\.\d+) \((.+)\)$", re.MULTILINE)
DAY = re.compile(r"\d{4}-\d{2}-\d{2}")
PYTHONS = ("3.11", "3.12", "3.13", "3.14")


class ReleaseError(Exception):
    """What keeps this commit from being released, with its remedy."""


def newest(root: Path) -> tuple[str, str]:
    """Number and day of the newest version in the change log; the day is ``unreleased`` until then."""
    heading = HEADING.search((root / "CHANGELOG.md").read_text(encoding="utf-8"))
    if heading is None:
        raise ReleaseError("CHANGELOG.md has no heading of the form '## 0.1.0 (2026-12-01)'")
    return heading[1], heading[2]


def disagreeing(root: Path, number: str) -> list[str]:
    """Files that name another version than the change log."""
    stated = {"CITATION.cff": r"^version: (.*)$", "r/DESCRIPTION": r"^Version: (.*)$"}
    return [
        name
        for name, line in stated.items()
        if re.findall(line, (root / name).read_text(encoding="utf-8"), re.MULTILINE) != [number]
    ]


def run(arguments: Sequence[str | Path], folder: Path) -> str:
    done = subprocess.run([str(one) for one in arguments], cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode:
        raise ReleaseError(f"{' '.join(str(one) for one in arguments)}\n{done.stdout}{done.stderr}".strip())
    return done.stdout.strip()


def tagged(root: Path) -> str:
    """The number that this commit may be released as.

    Raises :class:`ReleaseError` where the change log has no day, files name other numbers, or the commit has changes or no tag.
    """
    number, day = newest(root)
    if DAY.fullmatch(day) is None:
        raise ReleaseError(f"CHANGELOG.md says {day!r} of {number}: write the day of the release")
    if others := disagreeing(root, number):
        raise ReleaseError(f"{' and '.join(others)} do not say {number}, which is the newest version in CHANGELOG.md")
    if run(["git", "status", "--porcelain"], root):
        raise ReleaseError("there are changes that are not committed: a release is of a commit")
    if f"v{number}" not in run(["git", "tag", "--points-at", "HEAD"], root).split():
        raise ReleaseError(f"this commit has no tag v{number}: git tag v{number}")
    return number


def built(source: Path, target: Path, *kinds: str) -> dict[str, bytes]:
    """The files that are built from a folder, by name."""
    options = [option for kind in kinds for option in ("-t", kind)]
    run([sys.executable, "-m", "hatchling", "build", *options, "-d", target], source)
    return {path.name: path.read_bytes() for path in target.iterdir()}


def copy_of_tag(root: Path, number: str, folder: Path) -> Path:
    run(["git", "clone", "-q", "--branch", f"v{number}", "-c", "advice.detachedHead=false", root, folder], root)
    return folder


def build(root: Path, number: str, dist: Path, scratch: Path) -> Path:
    """The wheel; both files are in ``dist`` then."""
    files, again = (
        built(copy_of_tag(root, number, scratch / name), scratch / f"{name}-dist", "sdist", "wheel") for name in ("one", "two")
    )
    if files != again:
        raise ReleaseError(f"built twice, these differ: {', '.join(name for name in files if files[name] != again.get(name))}")
    wheel = next(name for name in files if name.endswith(".whl"))
    source = next(name for name in files if name.endswith(".tar.gz"))
    if {f"quietmean-{number}-py3-none-any.whl", f"quietmean-{number}.tar.gz"} != {wheel, source}:
        raise ReleaseError(f"{wheel} and {source} are not of version {number}")
    shutil.unpack_archive(scratch / "one-dist" / source, scratch / "unpacked", filter="data")
    if built(scratch / "unpacked" / f"quietmean-{number}", scratch / "from-source", "wheel") != {wheel: files[wheel]}:
        raise ReleaseError("the wheel that is built from the source distribution is another one")
    run([sys.executable, "-m", "twine", "check", "--strict", *(scratch / "one-dist" / name for name in files)], root)
    dist.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        (dist / name).write_bytes(content)
    return dist / wheel


def says(python: str, wheel: Path, scratch: Path) -> str:
    """What a new environment with the wheel says to ``quietmean --version``."""
    environment = scratch / f"environment-{Path(python).name}"
    run([python, "-m", "venv", environment], scratch)
    run([environment / "bin" / "pip", "install", "-q", "--disable-pip-version-check", wheel], scratch)
    return run([environment / "bin" / "quietmean", "--version"], scratch)


def pythons() -> list[str]:
    """Those that are here and answer: a shim of pyenv may be of one that is not chosen."""
    found = [which for version in PYTHONS if (which := shutil.which(f"python{version}"))]
    return [one for one in found if not subprocess.run([one, "--version"], capture_output=True, check=False).returncode]


def release(root: Path, dist: Path) -> None:
    number = tagged(root)
    with tempfile.TemporaryDirectory(prefix="quietmean-release-") as name:
        scratch = Path(name)
        wheel = build(root, number, dist, scratch)
        for python in pythons() or [sys.executable]:
            said = says(python, wheel, scratch)
            if said != number:
                raise ReleaseError(f"installed with {python}, quietmean --version says {said!r}, not {number}")
            print(f"{Path(python).name}: quietmean {said}")
    print(f"{dist} has the source distribution and the wheel of {number}; twine upload {dist}/quietmean-{number}*")


def main() -> int:
    try:
        release(ROOT, ROOT / "dist")
    except ReleaseError as error:
        print(f"make release: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
