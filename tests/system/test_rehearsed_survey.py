"""A survey by link is rehearsed from its study file: what it makes is what the real day has, and it ends with the result."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest

from quietmean.cli.main import main
from quietmean.core.errors import InputError
from quietmean.node.net import Identity
from quietmean.studies.agreement.sealed import Sealed
from quietmean.studies.agreement.study import StudyTerms

COMMITTEE = "--committee 5 --with verified=yes --with largest-weight=1 --contribute-by 2090-01-01T00:00:00Z --accept-wide"


@pytest.fixture
def study(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    key = Identity.generate().public_key
    asked = f"study new 'mean(pay in 0..200000)' 'proportion(union in yes/no)' --name wages --unit record --epsilon 8 {COMMITTEE}"
    main([*shlex.split(asked), "--registrar", key, "--vouchers", "40", "--minimum", "35", "--out", "survey.toml"])
    return Path("survey.toml")


def test_it_ends_with_the_result_of_all_who_answered(study: Path, capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    main(["demo", str(study), "--number", "12", "--out", "day"])
    told = capsys.readouterr()
    assert "12 made-up people of 40 with vouchers answered" in told.err
    assert "$ quietmean result day/study.sealed day/members.sums" in told.err
    assert "is counted in this result" in told.out
    (file,) = Path("day/run").glob("*.result.json")
    found = json.loads(file.read_text())
    assert found["contributions"]["counted"] == 12
    assert found["contributions"]["by_voucher"]["used"] == 12
    assert {entry["name"] for entry in found["statistics"]} == {"mean(pay)", "proportion(union)"}
    # As on the real day: the study says it is none, the page is the one that this version makes, and signed.
    sealed = Sealed.load(Path("day/study.sealed"))
    assert sealed.study.name == "Rehearsal of wages"
    assert sealed.study.workload.statistics == StudyTerms.load(study).workload.statistics
    address = json.loads(Path("day/form.html").read_text().partition('id="survey">')[2].partition("</script>")[0])["drop"]
    main(["study", "form", "day/study.sealed", address, "day/form.html"])
    assert "the one that this version makes, and signed." in " ".join(capsys.readouterr().out.split())
    # No key stays.
    assert not [path for path in Path("day").rglob("*") if path.suffix in (".key", ".keys", ".held", ".voucher")]
    assert not [path for path in Path("day").rglob("*") if path.is_file() and b"PRIVATE KEY-----\n" in path.read_bytes()]


def test_without_a_number_all_of_few_vouchers_answer(study: Path, capsys: pytest.CaptureFixture[str]) -> None:
    study.write_text(study.read_text().replace("vouchers = 40", "vouchers = 5").replace("minimum = 35", "minimum = 2"))
    main(["demo", str(study), "--out", "day"])
    assert "5 made-up people of 5 with vouchers answered" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("demo survey.toml --number 41 --out day", "number is 41, and the study has 40 vouchers. Choose 1 to 40."),
        ("demo survey.toml --number 0 --out day", "number is 0"),
        ("demo --number 4 --out day", "Name its study file, or leave it out."),
        ("demo plain.toml --out day", "Make it with --committee."),
        ("demo listed.toml --out day", "Make it with --vouchers."),
    ],
)
def test_what_is_no_survey_by_link_is_refused(line: str, says: str, study: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(shlex.split("study new 'mean(pay in 0..200000)' --out plain.toml"))
    main(shlex.split(f"study new 'mean(pay in 0..200000)' {COMMITTEE} --out listed.toml"))
    capsys.readouterr()
    with pytest.raises(SystemExit) as ended:
        main(shlex.split(line))
    assert ended.value.code == InputError.exit_code
    assert says in capsys.readouterr().err
    assert not Path("day").exists()
