"""A release: source distribution and wheel of the tagged commit, held to what a release promises.

The number is the newest heading of CHANGELOG.md, which has the day of the release instead of `unreleased`. Then::

    python tools/protocol_table.py          # CITATION.cff takes the number; r/DESCRIPTION is written by hand
    git commit -a && git tag v0.1.0
    make release

Both are built twice, from fresh copies of the tag, and have the same bytes; the wheel is the same from the source distribution.
A new environment with the wheel and the dependencies of this one says the number, makes what sites keep
(``tools/kept_files.py``) and opens what earlier releases made. ``dist`` has all of it, the list of packages, and what it was made
from. Nothing of this asks the network, and nothing is uploaded: it says what comes next. ``--install`` also installs the wheel
with each Python that is here, which does ask, and lists what that installed with digests.
"""

from __future__ import annotations

import hashlib
import json
import platform
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tempfile
from collections.abc import Iterable, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

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


def offline(wheel: Path, scratch: Path) -> Path:
    """The command of a new environment with the wheel, and the dependencies of this one: nothing is fetched."""
    environment = scratch / "environment"
    run([sys.executable, "-m", "venv", environment], scratch)
    python = environment / "bin" / "python"
    options = ["-q", "--disable-pip-version-check", "--no-index", "--no-deps"]
    run([python, "-m", "pip", "install", *options, wheel], scratch)
    (site,) = environment.glob("lib/python*/site-packages")
    # Behind its own, so that the wheel comes first.
    (site / "dependencies.pth").write_text(f"{sysconfig.get_path('purelib')}\n")
    return environment / "bin" / "quietmean"


def installed(python: str, wheel: Path, scratch: Path) -> tuple[str, str]:
    """What a new environment with fetched dependencies says to ``quietmean --version``, and each file of it with its digest."""
    environment = scratch / f"environment-{Path(python).name}"
    run([python, "-m", "venv", environment], scratch)
    report = scratch / f"{environment.name}.json"
    run([environment / "bin" / "pip", "install", "-q", "--disable-pip-version-check", "--report", report, wheel], scratch)
    return run([environment / "bin" / "quietmean", "--version"], scratch), pinned(json.loads(report.read_text(encoding="utf-8")))


def pinned(report: Any) -> str:
    """What pip installed, as requirements with a digest each and no address, for ``pip install --require-hashes -r``."""
    lines = [
        f"{about['name']}=={about['version']} --hash=sha256:{one['download_info']['archive_info']['hashes']['sha256']}"
        for one in report["install"]
        for about in [one["metadata"]]
    ]
    return "".join(f"{line}\n" for line in sorted(lines, key=str.lower))


def keep(root: Path, number: str, command: Path, dist: Path, scratch: Path) -> None:
    """Make what sites keep, by this release, and open what each release before made."""
    tool = root / "tools" / "kept_files.py"
    run([sys.executable, tool, "make", scratch / "kept", command], scratch)
    with tarfile.open(dist / f"quietmean-{number}-kept.tar.gz", "w:gz") as archive:
        archive.add(scratch / "kept", number)
    for earlier in sorted((root / "tests" / "data" / "releases").glob("*.tar.gz")):
        folder = scratch / "earlier" / earlier.name
        shutil.unpack_archive(earlier, folder, filter="data")
        for one in folder.iterdir():
            run([sys.executable, tool, "open", one, command], scratch)
            print(f"{earlier.name}: opened")


def provenance(root: Path, number: str, files: Iterable[Path]) -> dict[str, object]:
    """What the files of a release were made from and with, and their digests: the same for the same commit and tools."""
    return {
        "release": number,
        "commit": run(["git", "rev-parse", "HEAD"], root),
        "source_time": run(["git", "log", "-1", "--format=%cI"], root),
        "constraints": hashlib.sha256((root / "constraints.txt").read_bytes()).hexdigest(),
        "python": platform.python_version(),
        "tools": {name: version(name) for name in ("hatchling", "hatch-vcs")},
        "files": {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(files)},
    }


def pythons() -> list[str]:
    """Those that are here and answer: a shim of pyenv may be of one that is not chosen."""
    found = [which for version in PYTHONS if (which := shutil.which(f"python{version}"))]
    return [one for one in found if not subprocess.run([one, "--version"], capture_output=True, check=False).returncode]


def release(root: Path, dist: Path, *, install: bool) -> None:
    number = tagged(root)
    with tempfile.TemporaryDirectory(prefix="quietmean-release-") as name:
        scratch = Path(name)
        wheel = build(root, number, dist, scratch)
        command = offline(wheel, scratch)
        said = {sys.executable: run([command, "--version"], scratch)}
        keep(root, number, command, dist, scratch)
        for python in pythons() if install else ():
            said[python], pins = installed(python, wheel, scratch)
            (dist / f"quietmean-{number}-{Path(python).name}-{sys.platform}.requirements.txt").write_text(pins, encoding="utf-8")
        for python, words in said.items():
            if words != number:
                raise ReleaseError(f"installed with {python}, quietmean --version says {words!r}, not {number}")
            print(f"{Path(python).name}: quietmean {words}")
    (dist / f"quietmean-{number}.sbom.json").write_text(run([sys.executable, root / "tools" / "sbom.py", "all"], root) + "\n")
    made = sorted(dist.glob(f"quietmean-{number}[.-]*"))
    about = dist / f"quietmean-{number}.provenance.json"
    about.write_text(json.dumps(provenance(root, number, [path for path in made if path != about]), indent=1) + "\n")
    print(f"{dist} has {', '.join(path.name for path in [*made, about])}. Nothing was uploaded. What comes next:")
    print("  python tools/release.py --install      each Python here, with dependencies from the index")
    print("  make audit                             known vulnerabilities, from the index's list")
    print(f"  cp {dist.name}/quietmean-{number}-kept.tar.gz tests/data/releases/      the next release opens it")
    print(f"  twine upload {dist}/quietmean-{number}.tar.gz {wheel}")


def main() -> int:
    try:
        release(ROOT, ROOT / "dist", install="--install" in sys.argv[1:])
    except ReleaseError as error:
        print(f"make release: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
