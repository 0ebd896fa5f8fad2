"""Every page is typed in an environment made from the wheel, with what its head says to install (make test-docs-wheel).

The account is empty: a home of its own, no variable of the developer's. Pages whose studies need other parties are typed by their
own tests, with pytest beside that environment and the sources of quietmean away.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path

import pytest

from support.pages import DOCS, Installed, blocks, installed

ROOT = Path(__file__).parents[2]
WANTED = "QUIETMEAN_WHEEL_PAGES"
# A table of persons at each of a few clinics, and one that a page names.
TABLES = """
python - <<'END'
from random import Random
draw = Random(1)
def table(name, header, rows):
    open(name, "w").write(header + "\\n" + "\\n".join(rows) + "\\n")
table("patients.csv", "bmi,age,sex,smoker,glucose", [
    f"{draw.gauss(26, 4):.1f},{draw.randint(20, 90)},{draw.choice('fm')},{draw.choice(['yes', 'no'])},{draw.randint(60, 200)}"
    for _ in range(2400)
])
for name in ("visits", "wards", "north", "south", "east", "bob"):
    rows = [(draw.randint(20, 90), draw.randint(90, 150), draw.randint(90, 150), draw.randint(90, 180)) for _ in range(400)]
    table(f"{name}.csv", "age,cuff,artery,sbp", [",".join(map(str, row)) for row in rows])
table("wages.csv", "pay", [str(draw.randint(20_000, 90_000)) for _ in range(360)])
END
"""
STUDY = f"""{TABLES}
quietmean study new --name ages 'age in 0..110' --colluding 1 --protocol cordp-dme --out study.toml
quietmean key new --key north.key
quietmean study invite study.toml --key north.key --out study.invitation
for site in north south east; do
  quietmean accept study.invitation --key $site.key --name $site --address $site.example:7000 --out $site.entry
done
quietmean study seal study.invitation north.entry south.entry east.entry --key north.key --out study.sealed
"""
RECEIPTS = f"""{TABLES}
quietmean run --data visits.csv 'age in 0..110' 'cuff in 60..220' "mean(age)" \
  "table-1(age, cuff)" --parties 20 --protocol local-dp --epsilon 8 --accept-wide --out made
cp made/receipt.json receipt.json
cp made/receipt.json study-north.receipt.json
"""
EXECUTION = """
python - <<'END'
from pathlib import Path
from quietmean.testing.examples import example_execution
example_execution("inca", 8, rounds=6, sigma_star=2.0, sigma_delta=4.0).save(Path("execution.json"))
END
"""
# What the head of a page says that its reader has, made with the environment's own command. A page that is not here has nothing.
HAD = {
    "analyse/persons.md": TABLES,
    "analyse/precision.md": STUDY + "sed -i 's/^\\[study\\]$/[study]\\nrecords = 200/' study.toml\n",
    "analyse/results.md": RECEIPTS,
    "analyse/statistics.md": STUDY,
    "models/estimators.md": TABLES,
    "answer/officer.md": RECEIPTS + EXECUTION,
    "research/attack.md": EXECUTION,
    "start/controller.md": STUDY + RECEIPTS,
    "start/tutorial.md": 'ln -s "$(dirname "$(dirname "$(command -v quietmean)")")" .venv\nquietmean demo --out demo-output\n',
}
# Pages that are typed with nothing prepared.
ALONE = ("analyse/data.md", "analyse/differencing.md", "start/analyst.md", "start/researcher.md", "take-part/rehearse.md")
# Pages with several parties, or servers: their own tests, which type their lines.
BY_TESTS = {
    "answer/budget.md": "tests/property/test_ledger_join.py",
    "answer/decide.md": "tests/system/test_consortium_page.py",
    "answer/desk.md": "tests/system/test_desk.py",
    "answer/policy.md": "tests/system/test_consortium_page.py",
    "models/sessions.md": "tests/system/test_session_by_command.py",
    "research/own-protocol.md": "tests/system/test_thirdparty.py",
    "research/own-statistic.md": "tests/system/test_thirdparty.py",
    "start/site.md": "tests/system/test_consortium_page.py",
    "take-part/committee.md": "tests/system/test_committee_page.py",
    "take-part/connect.md": "tests/system/test_network_page.py",
    "take-part/invitation.md": "tests/system/test_consortium_page.py",
    "take-part/quorum.md": "tests/system/test_quorum_start.py",
}
# Blocks that are not typed from a wheel, and why: all of a page, or those with one of these words.
NOT_TYPED = {
    "analyse/data.md": {"postgresql": "a server of PostgreSQL: make test-postgresql"},
    "analyse/r.md": {"R CMD": "R: make r"},
    "answer/officer.md": {"quietmean.ledger": "the ledger of a site: tests/pages/test_privacy_officer.py"},
    "models/estimators.md": {"join": "a study between machines: tests/system/test_model_by_command.py"},
    "research/attack.md": {"100000": "minutes: tests/statistical/test_attacks.py"},
    "research/reproduce.md": {
        "pip install": "the line of the head",
        "--full": "hours: make pages",
        "workers": "a scheduler: tests/system/test_workers_by_command.py",
        "dask": "a scheduler",
    },
    "start/controller.md": {"site approve": "a policy that names the key: tests/system/test_pages_typed_alone.py"},
    "take-part/service.md": {"": "a builder of images: make image"},
}
PAGES = sorted(
    path.relative_to(DOCS).as_posix()
    for part in ("start", "analyse", "take-part", "answer", "models", "trust", "research", "mathematics")
    for path in (DOCS / part).glob("*.md")
)
from_wheel = pytest.mark.skipif(
    not os.environ.get(WANTED), reason="make test-docs-wheel makes an environment for each set of extras"
)


def skipped(page: str, block: str) -> bool:
    return any(word in block for word in NOT_TYPED.get(page, {}))


def shell_of(page: str) -> str:
    """The blocks of a page that are typed, one after the other."""
    return "\n".join(block for block in blocks(page, "sh") if not skipped(page, block))


def test_of_every_page_it_is_known_how_it_is_typed() -> None:
    for page in PAGES:
        ways = [page in HAD, page in ALONE, page in BY_TESTS]
        assert sum(ways) <= 1, page
        assert any(ways) or not shell_of(page), page
    assert {*HAD, *ALONE, *BY_TESTS, *NOT_TYPED} <= set(PAGES)
    for page, words in NOT_TYPED.items():
        assert all(any(word in block for block in blocks(page, "sh")) for word in words), page
    assert all((ROOT / path).exists() for path in BY_TESTS.values())


def finished(command: list[str], folder: Path, environment: dict[str, str], within: float = 1800) -> str:
    done = subprocess.run(
        command,
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=within,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-6000:]
    return done.stdout


@cache
def place() -> Path:
    """A folder for wheels, environments and copies, for this run; QUIETMEAN_WHEEL_PAGES may name one that stays."""
    named = os.environ.get(WANTED, "")
    folder = Path(named) if os.sep in named else Path(tempfile.mkdtemp(prefix="quietmean-pages-"))
    folder.mkdir(parents=True, exist_ok=True)
    return folder


@cache
def wheels() -> tuple[Path, Path]:
    """quietmean and its reproduction, built from here."""
    out = place() / "wheels"
    shutil.rmtree(out, ignore_errors=True)
    for folder in (ROOT, ROOT / "reproduction"):
        finished([sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(out)], folder, dict(os.environ))
    (product,) = out.glob("quietmean-*.whl")
    (figures,) = out.glob("quietmean_reproduction-*.whl")
    return product, figures


@cache
def clone() -> Path:
    """What a clone has, without the sources of quietmean: only the wheel can be imported."""
    folder = place() / "clone"
    shutil.rmtree(folder, ignore_errors=True)
    git = shutil.which("git")
    assert git
    for name in finished([git, "ls-files"], ROOT, dict(os.environ)).splitlines():
        if not name.startswith("src/") and (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, folder / name)
    return folder


@cache
def environment_of(needed: Installed) -> Path:
    """A new virtual environment with this wheel, these extras and packages."""
    folder = place() / "-".join(["env", *needed.extras, *(re.sub(r"\W", "", other) for other in needed.others)])
    product, figures = wheels()
    finished([sys.executable, "-m", "venv", "--clear", str(folder)], place(), dict(os.environ))
    wheel = f"{product}[{','.join(needed.extras)}]" if needed.extras else str(product)
    others = [str(figures) if other == "./reproduction" else other for other in needed.others]
    # What is imported is compiled when it is.
    pip = [str(folder / "bin" / "pip"), "install", "-q", "--no-compile", "--disable-pip-version-check"]
    finished([*pip, wheel, *others], place(), dict(os.environ))
    return folder


@cache
def harness() -> Path:
    """What the tests import besides quietmean, by itself, for pages that their own tests type."""
    folder = place() / "harness"
    pip = [sys.executable, "-m", "pip", "install", "-q", "--no-compile", "--disable-pip-version-check", "--target", str(folder)]
    shutil.rmtree(folder, ignore_errors=True)
    finished([*pip, "pytest>=9", "hypothesis>=6.120", "jsonschema>=4.26", "pyyaml>=6"], place(), dict(os.environ))
    return folder


def account(folder: Path, environment: Path) -> dict[str, str]:
    """Nothing but a home, and the command on the path."""
    home = folder / "home"
    home.mkdir()
    path = f"{environment / 'bin'}{os.pathsep}/usr/bin{os.pathsep}/bin"
    return {"HOME": str(home), "PATH": path, "LANG": "C.UTF-8", "COLUMNS": "80", "TMPDIR": str(folder)}


class Typing:
    """A page, its environment, a folder and an account."""

    def __init__(self, page: str, folder: Path) -> None:
        needed = installed(page)
        assert needed is not None
        self.environment = environment_of(needed)
        self.python = str(self.environment / "bin" / "python")
        self.variables = account(folder, self.environment)
        self.folder = folder / "here"
        self.folder.mkdir()
        if needed.clone and page in ALONE:
            shutil.copytree(clone() / "examples", self.folder / "examples")

    def shell(self, script: str) -> str:
        return finished(["/bin/bash", "-e", "-c", script], self.folder, self.variables)


@pytest.mark.slow
@from_wheel
@pytest.mark.parametrize("page", [page for page in PAGES if shell_of(page) and page not in BY_TESTS])
def test_the_shell_of_a_page(page: str, tmp_path: Path) -> None:
    typing = Typing(page, tmp_path)
    typing.shell(HAD.get(page, ""))
    output = typing.shell(shell_of(page))
    assert "Traceback" not in output
    assert output or "--out" in shell_of(page)


@pytest.mark.slow
@from_wheel
@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page, "python")])
def test_the_python_of_a_page(page: str, tmp_path: Path) -> None:
    """Examples give what the page shows; what is a part of a larger program can be compiled at least."""
    typing = Typing(page, tmp_path)
    for block in blocks(page, "python"):
        if not block.startswith(">>> "):
            compile(block, page, "exec")
    if any(block.startswith(">>> ") for block in blocks(page, "python")):
        finished([typing.python, "-m", "doctest", "-o", "ELLIPSIS", str(DOCS / page)], typing.folder, typing.variables)


@pytest.mark.slow
@from_wheel
@pytest.mark.parametrize("page", sorted(BY_TESTS))
def test_a_page_of_several_parties(page: str, tmp_path: Path) -> None:
    typing = Typing(page, tmp_path)
    variables = {**typing.variables, "PYTHONPATH": str(harness())}
    options = ["-q", "-x", "-p", "no:cacheprovider", "--basetemp", str(tmp_path / "base"), "-m", "slow or not slow"]
    output = finished([typing.python, "-m", "pytest", *options, BY_TESTS[page]], clone(), variables, 3600)
    assert re.search(r"\d+ passed", output)


# MiB on the disk.
MOST_OF_A_PARTY = 250


@pytest.mark.slow
@from_wheel
def test_the_environment_of_a_party_is_small(tmp_path: Path) -> None:
    """With pip, and with what the first study compiles. Without setuptools: Python 3.11 adds it, and nothing needs it."""
    party = tmp_path / "party"
    left = shutil.ignore_patterns("__pycache__", "setuptools*", "pkg_resources", "_distutils_hack", "distutils-precedence.pth")
    shutil.copytree(environment_of(Installed((), (), clone=False)), party, symlinks=True, ignore=left)
    python, variables = str(party / "bin" / "python"), account(tmp_path, party)
    finished([python, "-m", "compileall", "-q", *map(str, party.glob("lib/*/site-packages/pip"))], tmp_path, variables)
    finished(["/bin/bash", "-e", "-c", TABLES], tmp_path, variables)
    asked = ["visits.csv", "mean(age in 0..110)", "--parties", "3", "--epsilon", "4", "--accept-wide"]
    finished([python, "-m", "quietmean", "run", *asked], tmp_path, variables)
    assert sum(path.lstat().st_blocks for path in party.rglob("*")) / 2048 <= MOST_OF_A_PARTY
