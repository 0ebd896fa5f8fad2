"""The page of a survey is one file, the same each time, that runs its own script alone and shows texts as texts."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from quietmean.cli.main import main
from quietmean.core.errors import InputError
from quietmean.drop import Drop, DropBox
from quietmean.form import FormPage, form_page, learnt
from quietmean.node.net import Identity
from quietmean.statistics import Statistic, parse_statistic, read_text
from quietmean.statistics.program import NoProgram
from support.degenerate import KINDS
from support.every_kind import COLUMNS
from support.survey import Survey, answer_of

SOURCES = Path(__file__).parents[2] / "src/quietmean/form"
HOSTILE = "</script><img src=x onerror=alert(1)>{script}&amp;"


@pytest.fixture(scope="module")
def survey(tmp_path_factory: pytest.TempPathFactory) -> Survey:
    return Survey(tmp_path_factory.mktemp("survey"), name=HOSTILE)


def parts_of(page: FormPage) -> tuple[str, dict[str, str], str]:
    """The whole text, what the page is told, and its script."""
    text = page.content.decode()
    found = re.fullmatch(
        r'.*<script type="application/json" id="survey">([^<]*)</script>\n<script>(.*)</script>\n</body>\n</html>\n',
        text,
        re.DOTALL,
    )
    assert found is not None
    return text, json.loads(found[1]), found[2]


def test_the_page_is_the_same_each_time_and_says_where_it_sends(survey: Survey) -> None:
    again = form_page(survey.sealed, survey.choice, survey.drop)
    assert again.content == survey.page.content
    assert again.digest == hashlib.sha256(again.content).hexdigest()
    text, told, _ = parts_of(again)
    assert str(survey.folder) not in text
    assert told["drop"] == survey.drop
    assert hashlib.sha256(told["fields"].encode()).hexdigest() == survey.sealed.digest
    assert hashlib.sha256(told["program"].encode()).hexdigest() == survey.sealed.program
    assert told["sealed"].encode() == survey.sealed.signed.to_file()
    assert form_page(survey.sealed, survey.choice, "https://other.example.org").content != again.content


def test_only_the_pages_own_script_runs(survey: Survey) -> None:
    text, _, script = parts_of(survey.page)
    (policy,) = re.findall(r'http-equiv="Content-Security-Policy" content="([^"]*)"', text)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert policy.startswith("default-src 'none'; ")
    assert f"script-src 'sha256-{digest}';" in policy
    assert f"connect-src {survey.drop};" in policy
    assert not re.search(r"unsafe|\*|sandbox", policy)
    assert survey.page.policy == f"{policy}; frame-ancestors 'none'"
    # Texts of others are data: nowhere in the page are they markup, and no script writes markup.
    assert HOSTILE not in text
    assert not re.search(r"innerHTML|outerHTML|insertAdjacent|document\.write|eval\(|new Function|setAttribute\(\"on", script)
    assert "cookie" not in script
    assert "localStorage" not in script


def test_what_a_page_says_stands_in_its_data_and_who_reads_everything_comes_first(survey: Survey) -> None:
    _, told, _ = parts_of(survey.page)
    about = told["about"]
    assert isinstance(about, dict)
    assert about["name"] == HOSTILE
    assert "The members are" in about["reads"][0]
    assert all(name in about["reads"][0] for name in ("m1", "m2", "m3", "m4", "m5"))
    assert about["reads"][1] == "Any 2 of the 5 members together can read ALL you send."
    (uses,) = [text for key, text in about["terms"] if key == "uses"]
    assert "pay (0 to 200000), sex (f, m), hired (2000-01-01 to 2026-12-31)" in uses
    assert any("cannot be changed or taken back" in text for text in about["always"])
    assert any("keeps no budget" in text for text in about["always"])
    assert any(text.startswith("It costs epsilon ") for text in about["always"])


@pytest.mark.parametrize("statistic", KINDS, ids=lambda one: one.text)
def test_what_is_learnt_is_said_in_words_with_each_column_that_is_asked_about(statistic: Statistic) -> None:
    said = learnt(statistic, COLUMNS)
    assert "(" not in said
    assert "a column" not in said or not hasattr(statistic, "column")
    # Of a text for the command line, names that stand before = are no columns, nor is the name of the kind.
    asked = re.sub(r"\w+=", "", statistic.text.partition("(")[2])
    for name in COLUMNS.names:
        # Kappa's own words have "chance", which is a column as well.
        own = len(re.findall(rf"\b{name}\b", statistic.summary))
        assert len(re.findall(rf"\b{name}\b", said)) == own + bool(re.search(rf"\b{name}\b", asked)), name


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("group-means(age, sex)", "means of age for each sex"),
        ("mean(age, where=weight > 50)", "the mean of age, only where weight > 50"),
        ("histogram(ended, weight=age, psu=sex)", "how many records are in each bin of ended: age, sex"),
        ("crosstab(sex, ended)", "counts of two columns against each other: sex, ended"),
        ("linear-regression(age ~ weight + chance)", "least squares of an outcome on columns: age, weight, chance"),
    ],
)
def test_what_is_learnt_reads_so(text: str, said: str) -> None:
    assert learnt(parse_statistic(read_text(text)), COLUMNS) == said


@pytest.mark.parametrize(
    ("drop", "listening"),
    [
        ("https://drop.example.org", "--listen :443 --folder box --key NAME.key --certificate FILE --private-key FILE"),
        ("https://drop.example.org:8443", "--listen :8443 --folder box --key NAME.key --certificate FILE --private-key FILE"),
        ("http://127.0.0.1:8391", "--listen 127.0.0.1:8391 --folder box --key NAME.key\n"),
    ],
)
def test_what_serves_the_page_listens_where_the_page_sends(
    drop: str, listening: str, survey: Survey, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    main(["study", "form", str(survey.study.path), drop, str(tmp_path / "form.html")])
    told = capsys.readouterr().out
    assert f" {listening}" in told
    assert f"quietmean study vouchers INVITATION {drop} --key REGISTRAR.key" in told


def test_the_javascript_is_short_and_imports_only_what_there_is() -> None:
    modules = {path.stem: path.read_text() for path in SOURCES.glob("*.js")}
    assert sum(len(text.splitlines()) for text in modules.values()) <= 3000
    for name, text in modules.items():
        imports = [line for line in text.splitlines() if line.startswith("import ")]
        for line in imports:
            found = re.fullmatch(r'import \{ ([\w ,]+) \} from "\./(\w+)\.js";', line)
            assert found is not None, (name, line)
            exported = re.findall(r"^export (?:async )?(?:function|const|class) (\w+)", modules[found[2]], re.MULTILINE)
            assert set(found[1].split(", ")) <= set(exported), (name, line)
        assert len(re.findall(r"^\s*import\b", text, re.MULTILINE)) == len(imports)


def test_the_page_without_its_study_is_small(survey: Survey) -> None:
    text, told, _ = parts_of(survey.page)
    assert len(text) - len(json.dumps(told)) <= 120_000


def test_a_study_that_a_browser_cannot_encode_is_refused_with_its_column(tmp_path: Path) -> None:
    transformed = Survey(tmp_path, ask=("mean(log(pay in 1..200000))",), vouchers=5)
    with pytest.raises(NoProgram, match=r"column 'log\(pay\)' is a transform"):
        _ = transformed.page


def test_an_address_that_is_none_is_refused(survey: Survey) -> None:
    with pytest.raises(InputError, match="others cannot read"):
        form_page(survey.sealed, survey.choice, "http://drop.example.org")


def test_a_study_sealed_without_its_program_has_no_page(survey: Survey) -> None:
    with pytest.raises(InputError, match="Seal it again"):
        form_page(survey.study.sealed, survey.choice, survey.drop)


def test_the_command_makes_the_page_and_then_compares(survey: Survey, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = tmp_path / "form.html"
    asked = ["study", "form", str(survey.study.path), survey.drop, str(page)]
    for made in True, False:
        main([*asked, "--json"])
        told = json.loads(capsys.readouterr().out)
        assert told == {"page": str(page), "sha256": survey.page.digest, "session": survey.sealed.digest, "made": made}
    page.write_bytes(page.read_bytes() + b"<!-- changed -->")
    with pytest.raises(SystemExit) as ended:
        main(asked)
    assert ended.value.code == InputError.exit_code
    assert "is not the page that this version makes" in capsys.readouterr().err


def test_links_hold_what_the_vouchers_hold(survey: Survey) -> None:
    made = survey.made
    assert list(made.fragments) == list(made.files)
    for name, fragment in made.fragments.items():
        raw = base64.urlsafe_b64decode(fragment + "=" * (-len(fragment) % 4))
        assert raw[32:] == made.vouchers[name].admission.to_bytes()
        assert Identity(Ed25519PrivateKey.from_private_bytes(raw[:32])).public_key == made.vouchers[name].key


def test_a_drop_serves_the_page_in_no_frame_and_answers_pages_from_disks(survey: Survey, tmp_path: Path) -> None:
    box = DropBox.open(tmp_path / "box", survey.session)
    form = FormPage.of_file(survey.page.content)
    drop = Drop(box, survey.session, Identity.generate(), 0.0, page=(form.content, form.policy))
    status, headers, content = answer_of(drop, "GET", "/")
    assert (status, content) == (200, survey.page.content)
    assert headers["content-security-policy"].endswith("frame-ancestors 'none'")
    assert "set-cookie" not in headers
    status, _, content = answer_of(drop, "GET", "/health")
    counts = {"contributions": 0, "of": survey.sealed.admitted}
    assert json.loads(content) == {"session": survey.sealed.digest, **counts, "drop": drop.identity.public_key}
    status, headers, _ = answer_of(drop, "POST", "/contributions", b"nothing", origin="null")
    assert status == 400
    assert headers["access-control-allow-origin"] == "*"
    box.close()


@pytest.mark.parametrize("content", [b"", b"<html></html>", b'{"format": "x"}'])
def test_another_file_is_no_page(content: bytes) -> None:
    with pytest.raises(InputError, match="not a page"):
        FormPage.of_file(content)
