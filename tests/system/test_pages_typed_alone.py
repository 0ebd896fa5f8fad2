"""What a page shows to type works in a folder that has the files it names; which pages are typed, and where, is known of all."""

from __future__ import annotations

import re
import shlex
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from quietmean.cli.identity import AtTerminal
from quietmean.cli.main import main
from quietmean.node import Identity
from quietmean.testing.examples import example_execution
from support.pages import DOCS, blocks

ROOT = Path(__file__).parents[2]
# Typed here, each alone.
HERE = (
    "start/controller.md",
    "proofs/consensus.md",
    "proofs/cordp-dme.md",
    "research/attack.md",
    "analyse/persons.md",
    "analyse/precision.md",
    "reference/questions.md",
    "analyse/results.md",
    "reference/planning.md",
)
# Typed by the test of the page, which names it.
ELSEWHERE = {
    "take-part/committee.md": "tests/system/test_committee_page.py",
    "take-part/invitation.md": "tests/system/test_consortium_page.py",
    "analyse/differencing.md": "tests/statistical/test_attacks.py",
    "take-part/connect.md": "tests/system/test_network_page.py",
    "analyse/data.md": "tests/support/omop.py",
    "research/own-protocol.md": "tests/system/test_thirdparty.py",
    "research/own-statistic.md": "tests/system/test_thirdparty.py",
    "measurements/actg175.md": "tests/statistical/test_actg175.py",
    "answer/decide.md": "tests/system/test_consortium_page.py",
    "answer/policy.md": "tests/system/test_consortium_page.py",
    "take-part/quorum.md": "tests/support/joining.py",
    "take-part/rehearse.md": "tests/system/test_rehearse_page.py",
    "analyse/r.md": "tests/system/test_r_package.py",
    "models/sessions.md": "tests/system/test_session_by_command.py",
    "analyse/statistics.md": "tests/system/test_statistics_page.py",
    "answer/officer.md": "tests/pages/test_privacy_officer.py",
    "proofs/inca.md": "tests/system/test_inca_page.py",
    "start/analyst.md": "tests/system/test_typed_as_they_stand.py",
    "start/tutorial.md": "tests/system/test_typed_as_they_stand.py",
}
PAPERS = ("proofs/inca.md", "proofs/cordp-dme.md", "proofs/consensus.md", "proofs/baselines.md", "research/papers.md")
# Not typed as they stand, and why.
NOT_TYPED = {
    "answer/budget.md": "studies between machines: tests/property/test_ledger_join.py, tests/property/test_exports_of_a_year.py",
    "take-part/service.md": "needs a builder of images: make image",
    "answer/desk.md": "a server and a passphrase: tests/system/test_desk.py",
    "models/estimators.md": "a study between machines: tests/system/test_model_by_command.py",
    "research/reproduce.md": "the other distribution, a scheduler: reproduction/tests, tests/system/test_workers_by_command.py",
    "start/researcher.md": "the other distribution: reproduction/tests",
    "start/site.md": "a study between machines: tests/system/test_consortium_page.py has the same lines",
}


def lines(page: str) -> list[str]:
    joined = re.sub(r" *\\\n *", " ", "\n".join(blocks(page, "sh")))
    return [line for line in joined.splitlines() if line.startswith("quietmean ")]


def test_pages_of_the_papers_show_every_command_in_a_block_that_is_typed() -> None:
    """Not indented, or of a language that nobody types."""
    for page in PAPERS:
        text = (DOCS / page).read_text("utf-8")
        fenced = re.findall(r"(?ms)^```(\S*)[^\n]*\n(.*?)^```$", text)
        others = "".join(block for language, block in fenced if language != "sh")
        assert not re.search(r"(?m)^(?:    |\$ )quietmean ", text), page
        assert not re.search(r"(?m)^(?:\$ )?quietmean ", others), page
        assert page in {*HERE, *ELSEWHERE} or not blocks(page, "sh"), page


def test_of_every_page_it_is_known_where_it_is_typed() -> None:
    pages = {str(path.relative_to(DOCS)) for path in DOCS.rglob("*.md") if re.search(r"(?m)^```sh$", path.read_text("utf-8"))}
    assert pages == {*HERE, *ELSEWHERE, *NOT_TYPED}
    for page, test in ELSEWHERE.items():
        name = Path(page).name
        assert name in (ROOT / test).read_text("utf-8"), (page, test)


@pytest.fixture(scope="module")
def consortium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A sealed study of three, the data and receipts of one that ran, an execution and the policy of a site."""
    folder = tmp_path_factory.mktemp("pages")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        for name in ("CONFIG", "DATA", "CACHE"):
            patch.setenv(f"XDG_{name}_HOME", str(folder / name.lower()))
        rows = "".join(f"{30 + row % 50},{110 + row % 30},{112 + row % 31}\n" for row in range(600))
        for name in ("visits", "patients"):
            Path(f"{name}.csv").write_text(f"age,cuff,artery\n{rows}")
        Path("v.csv").write_text("age\n" + "\n".join(str(20 + row % 71) for row in range(400)))
        scores = (f"{site},{50 + site + row % 20}" for site in range(8) for row in range(40))
        Path("scores.csv").write_text("site,score\n" + "\n".join(scores))
        main(shlex.split("study new --name ages 'age in 0..110' --colluding 1 --protocol cordp-dme --out study.toml"))
        study = Path("study.toml").read_text()
        Path("study.toml").write_text(study.replace("[study]\n", "[study]\nrecords = 200\n"))
        main(shlex.split("key new --key north.key"))
        main(shlex.split("study invite study.toml --key north.key --out study.invitation"))
        names = ("north", "south", "east")
        for name in names:
            address = f"--address {name}.example:7000"
            main(shlex.split(f"accept study.invitation --key {name}.key --name {name} {address} --out {name}.entry"))
        main(
            shlex.split(
                f"study seal study.invitation {' '.join(f'{name}.entry' for name in names)} --key north.key --out study.sealed"
            )
        )
        table = "'age in 0..110' 'cuff in 60..220' 'mean(age)' 'table-1(age, cuff)'"
        main(shlex.split(f"run --data visits.csv {table} --parties 4 --protocol local-dp --epsilon 8 --accept-wide --out made"))
        for name in ("receipt.json", "study-north.receipt.json"):
            shutil.copy("made/receipt.json", name)
        example_execution("inca", 8, rounds=6, sigma_star=2.0, sigma_delta=4.0).save(Path("execution.json"))
        yield folder


@pytest.mark.slow
@pytest.mark.parametrize("page", HERE)
def test_a_page_is_typed(
    page: str, consortium: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(consortium)
    monkeypatch.setattr(AtTerminal, "can_ask", lambda self: True)
    monkeypatch.setattr(AtTerminal, "yes", lambda self, contract, screen: True)
    assert lines(page)
    for line in lines(page):
        if "site approve" in line:
            key = Identity.load(Path("owner.key")).public_key
            Path("policy.toml").write_text(f'[policy]\napprovers = ["{key}"]\n')
            line += " --policy policy.toml"
        capsys.readouterr()
        words = shlex.split(line, comments=True)[1:]
        main(words)
        assert capsys.readouterr().out or Path(words[words.index("--out") + 1]).stat().st_size
