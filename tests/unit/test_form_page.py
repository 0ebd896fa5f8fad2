"""The page of a survey is one file, the same each time, that runs its own script alone and shows texts as texts."""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
import math
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from scipy.special import ndtr

from quietmean.cli.main import main
from quietmean.core.errors import InputError
from quietmean.drop import Drop, DropBox
from quietmean.form import FormPage, SignedPage, form_page, learnt, place_of
from quietmean.form.reach import require_reachable
from quietmean.form.result_page import section_of
from quietmean.node.net import Identity, Purpose
from quietmean.privacy.guesses import times_right
from quietmean.statistics import Columns, Statistic, parse_statistic, read_text
from quietmean.statistics.program import NoProgram
from quietmean.studies.agreement.signed import Signed
from support.degenerate import KINDS
from support.every_kind import COLUMNS
from support.outcomes import COLUMNS as OF_OUTCOMES
from support.outcomes import finished
from support.refusals import refused
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


AGAIN = """import sys
from quietmean.form import form_page
from quietmean.studies.agreement.sealed import Sealed
sealed = Sealed.load(sys.argv[1])
print(form_page(sealed, sealed.choice(), sys.argv[2]).digest)"""


def test_another_process_elsewhere_makes_the_same_page(survey: Survey, tmp_path: Path) -> None:
    # Where it is, what time it is there, in which order sets come, and how many processors there are: all another.
    elsewhere = os.environ | {"TZ": "Asia/Kathmandu", "LC_ALL": "C", "PYTHONHASHSEED": "7", "OMP_NUM_THREADS": "2"}
    command = [sys.executable, "-c", AGAIN, str(survey.study.path), survey.drop]
    done = subprocess.run(command, capture_output=True, text=True, env=elsewhere, cwd=tmp_path, check=True, timeout=120)
    assert done.stdout.strip() == survey.page.digest


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
    (costs,) = [text for key, text in about["terms"] if key == "costs"]
    assert costs.startswith("epsilon 8.00 per record")
    assert any(text.endswith("may be right 9,997 times in 10,000: the protection is weak.") for text in about["always"])


def test_what_a_cost_means_is_said_in_odds_that_are_a_bound(tmp_path: Path) -> None:
    # Randomized response reaches the bound.
    assert [times_right(epsilon, 0.0) for epsilon in (0.0, 0.1, 1.0, 2.0, 5.0, 8.0, math.inf)] == [51, 53, 74, 89, 100, 100, 100]
    for epsilon in np.linspace(0.01, 4.0, 80):
        assert 100 * math.exp(epsilon) / (1 + math.exp(epsilon)) <= times_right(epsilon, 0.0) or times_right(epsilon, 0.0) == 100
    # Gaussian noise of every size, at every point of its curve; without its delta the bound would be wrong.
    without = 0
    for mu in np.linspace(0.05, 4.0, 40):
        for epsilon in np.linspace(0.0, 6.0, 25):
            delta = ndtr(mu / 2 - epsilon / mu) - math.exp(epsilon) * ndtr(-mu / 2 - epsilon / mu)
            assert 100 * ndtr(mu / 2) <= times_right(epsilon, delta)
            without += 100 * ndtr(mu / 2) > times_right(epsilon, 0.0)
    assert without > 100
    survey = Survey(tmp_path, ask=("mean(pay in 0..200000)",), vouchers=200, fields={"epsilon": 1.0})
    about = parts_of(survey.page)[1]["about"]
    assert isinstance(about, dict)
    always = about["always"]
    assert always[0].endswith("That guess is right at most 74 times in 100, where blind luck gives 50.")
    assert always[1] == "This holds even if they know all other answers, and work with 1 of the 5 members."


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
        ("https://drop.example.org", "--listen :443 --folder box --certificate FILE --private-key FILE"),
        ("https://drop.example.org:8443", "--listen :8443 --folder box --certificate FILE --private-key FILE"),
        ("http://127.0.0.1:8391", "--listen 127.0.0.1:8391 --folder box\n"),
    ],
)
def test_what_serves_the_page_listens_where_the_page_sends(
    drop: str, listening: str, survey: Survey, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    main(["study", "form", str(survey.study.path), drop, str(tmp_path / "form.html"), "--key", str(survey.study.key("m1"))])
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
    with pytest.raises(InputError, match=r"browsers seal nothing there\. Write https://drop\.example\.org"):
        form_page(survey.sealed, survey.choice, "http://drop.example.org")


@pytest.mark.parametrize(
    ("drop", "says"),
    [("https://10.1.2.3", True), ("https://survey", True), ("https://a.local:8443", True), ("http://[::1]:80", False)],
)
def test_of_a_private_address_it_says_from_where_browsers_send(
    drop: str, says: bool, survey: Survey, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    main(["study", "form", str(survey.study.path), drop, str(tmp_path / "form.html"), "--key", str(survey.study.key("m1"))])
    assert ("Let this drop serve the page" in " ".join(capsys.readouterr().out.split())) == says


@pytest.mark.parametrize(
    ("sends_to", "listens", "tls", "why"),
    [
        ("https://drop.example.org", "", True, ""),
        # Behind a server that provides TLS.
        ("https://drop.example.org", "127.0.0.1", False, ""),
        ("https://10.1.2.3", "10.1.2.3", True, ""),
        ("https://10.1.2.3", "", True, ""),
        ("http://127.0.0.1:80", "localhost", False, ""),
        ("http://127.0.0.1:80", "", False, "its own machine"),
        ("https://localhost", "203.0.114.7", True, "its own machine"),
        ("http://127.0.0.1:80", "127.0.0.1", True, "takes https alone"),
        ("https://10.1.2.3", "8.8.8.8", True, "browsers forbid that"),
        ("https://survey.local", "2606:4700::1", True, "browsers forbid that"),
    ],
)
def test_a_drop_serves_no_page_that_browsers_keep_from_its_drop(sends_to: str, listens: str, tls: bool, why: str) -> None:
    if why:
        refused(why, require_reachable, sends_to, listens, tls=tls)
    else:
        require_reachable(sends_to, listens, tls=tls)


@pytest.fixture
def made(survey: Survey, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    """The page that its coordinator made and signed by the command."""
    page = tmp_path / "form.html"
    main(["study", "form", str(survey.study.path), survey.drop, str(page), "--key", str(survey.study.key("m1")), "--json"])
    told = json.loads(capsys.readouterr().out)
    assert told == {"page": str(page), "sha256": survey.page.digest, "session": survey.sealed.digest, "made": True}
    return page


def refusal(capsys: pytest.CaptureFixture[str], *asked: object) -> str:
    """What a command says as it refuses."""
    capsys.readouterr()
    with pytest.raises(SystemExit) as ended:
        main([str(one) for one in asked])
    assert ended.value.code == InputError.exit_code
    return " ".join(capsys.readouterr().err.split())


def test_anybody_compares_a_page_with_the_one_that_is_made_and_signed(
    survey: Survey, made: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    # Without any key.
    monkeypatch.chdir(tmp_path)
    asked = ["study", "form", str(survey.study.path), survey.drop, str(made)]
    main([*asked, "--json"])
    assert json.loads(capsys.readouterr().out)["made"] is False
    main(asked)
    told = capsys.readouterr().out
    assert "the one that this version makes, and signed." in " ".join(told.split())
    # Who compares serves nothing.
    assert "serve drop" not in told
    signature, content = place_of(made), made.read_bytes()
    signed = SignedPage.beside(made, content, survey.sealed)
    assert signed.page == survey.page.digest
    assert json.loads(signed.signed.body).keys() == {"page", "session", "version"}
    assert f"sends to {survey.drop}, and not to https://other.org" in refusal(capsys, *asked[:3], "https://other.org", made)
    # By another version, this very page cannot be made here; its coordinator signed it all the same.
    mine, other = survey.study.identities["m1"], content + b"<!-- changed -->"
    made.write_bytes(other)
    assert "Trust it no more" in refusal(capsys, *asked)
    signature.write_bytes(SignedPage.sign(other, survey.sealed, mine, "0.0.7").signed.to_file())
    assert "the coordinator signed" in (said := refusal(capsys, *asked))
    assert "and version 0.0.7 of quietmean made it" in said
    # The page is right, and what is beside it is not.
    made.write_bytes(content)
    assert "is not the page that the coordinator signed" in refusal(capsys, *asked)
    signature.unlink()
    assert "form.html.signed is not there" in refusal(capsys, *asked)


def test_no_other_signature_passes_for_the_coordinators(
    survey: Survey, made: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    other = Survey(tmp_path_factory.mktemp("other"), ask=("mean(pay in 0..200000)",), vouchers=5)
    content, coordinator = made.read_bytes(), survey.study.identities["m1"]
    for identity in (survey.study.identities["m2"], survey.registrar, other.study.identities["m1"]):
        with pytest.raises(InputError, match="Let the coordinator make and sign the page"):
            SignedPage.sign(content, survey.sealed, identity, "1")
        body = {"page": survey.page.digest, "session": survey.sealed.digest, "version": "1"}
        forged = Signed.sign(Purpose.COMMITTEE_PAGE, body, identity)
        place_of(made).write_bytes(forged.to_file())
        with pytest.raises(InputError, match="not signed by the coordinator of this study"):
            SignedPage.beside(made, content, survey.sealed)
    # Of another study by the same coordinator, or signed for another purpose.
    body = {"page": survey.page.digest, "session": other.sealed.digest, "version": "1"}
    for purpose in Purpose.COMMITTEE_PAGE, Purpose.COMMITTEE_LOG:
        place_of(made).write_bytes(Signed.sign(purpose, body, coordinator).to_file())
        with pytest.raises(InputError, match=r"form\.html\.signed"):
            SignedPage.beside(made, content, survey.sealed)


def test_a_drop_serves_only_the_page_that_the_coordinator_signed(
    survey: Survey, made: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    drop = ["serve", "drop", made, "--study", survey.study.path, "--listen", "127.0.0.1:9", "--folder", tmp_path / "box"]
    made.write_bytes(made.read_bytes() + b"<!-- changed -->")
    assert "is not the page that the coordinator signed" in refusal(capsys, *drop, "--key", survey.study.key("m2"))
    assert not (tmp_path / "box").exists()
    elsewhere = ["study", "form", survey.study.path, survey.drop, tmp_path / "new.html", "--key", survey.study.key("m2")]
    assert "Let the coordinator make and sign the page" in refusal(capsys, *elsewhere)
    assert not (tmp_path / "new.html").exists()


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
    _, packed, small = answer_of(drop, "GET", "/", b"", **{"accept-encoding": "deflate, gzip;q=1.0, br"})
    assert gzip.decompress(small) == survey.page.content
    assert packed["content-security-policy"] == headers["content-security-policy"]
    assert (packed["content-encoding"], packed["vary"]) == ("gzip", "Accept-Encoding, Origin")
    assert len(small) < 0.5 * len(content)
    status, _, content = answer_of(drop, "GET", "/health")
    counts = {"contributions": 0, "of": survey.sealed.admitted, "least": 1}
    assert json.loads(content) == {"session": survey.sealed.digest, **counts, "drop": drop.identity.public_key}
    # For people there is the same number, and no name, key, time or script.
    status, headers, content = answer_of(drop, "GET", "/status")
    assert (status, headers["content-security-policy"]) == (200, "default-src 'none'; frame-ancestors 'none'")
    shown = re.sub(r"<[^>]*>", " ", content.decode()).split()
    said = f"0 of at least 1 contributions so far. At most {survey.sealed.admitted} may come."
    assert " ".join(shown) == f"Answers {said}"
    status, headers, _ = answer_of(drop, "POST", "/contributions", b"nothing", origin="null")
    assert status == 400
    assert headers["access-control-allow-origin"] == "*"
    box.close()


def test_a_drop_hands_out_what_members_published_and_nothing_else(survey: Survey, tmp_path: Path) -> None:
    box = DropBox.open(tmp_path / "box", survey.session)
    drop = Drop(box, survey.session, Identity.generate(), 0.0)
    assert json.loads(answer_of(drop, "GET", "/published")[2]) == {"files": []}
    folder, secret = tmp_path / "box/published", tmp_path / "secret.sums"
    folder.mkdir()
    good = {"m1.sums": b"1", "m1.dropped": b"2", "m1.page.html": b"<script>3</script>"}
    others = ("m1.key", ".m2.sums", "notes.html", "a b.sums", "\u00fc.sums")
    for name, content in {**good, **dict.fromkeys(others, b"no"), "../secret.sums": b"no"}.items():
        (folder / name).write_bytes(content)
    (folder / "link.sums").symlink_to(secret)
    (folder / "deep.sums").mkdir()
    os.mkfifo(folder / "pipe.sums")
    assert json.loads(answer_of(drop, "GET", "/published")[2]) == {"files": sorted(good)}
    for name, content in good.items():
        status, headers, told = answer_of(drop, "GET", f"/published/{name}")
        assert (status, told) == (200, content)
        # No browser shows a file of it as a page of this server.
        assert headers["content-type"] == "application/octet-stream"
        assert headers["x-content-type-options"] == "nosniff"
    for name in (
        *others,
        "../secret.sums",
        "..%2Fsecret.sums",
        "link.sums",
        "deep.sums",
        "pipe.sums",
        "gone.sums",
        "",
        "../.drop.journal",
    ):
        status, _, told = answer_of(drop, "GET", f"/published/{name}")
        assert status in (404, 307), name
        assert told != b"no"
    box.close()


@pytest.mark.parametrize("content", [b"", b"<html></html>", b'{"format": "x"}'])
def test_another_file_is_no_page(content: bytes) -> None:
    with pytest.raises(InputError, match="not a page"):
        FormPage.of_file(content)


# To who asks, and nobody else can follow it.
ADVICE = r"Ask for|Choose a|Leave .* out|missing ="


def test_no_result_tells_who_answered_to_ask_for_more() -> None:
    said = []
    centre = {"y": {"missing": "centre"}}
    filled = Columns(column.model_copy(update=centre.get(column.name, {})) for column in OF_OUTCOMES)
    for text in (
        "spearman(x, y, bins=6)",
        "roc(risk, yes, bins=4)",
        "bland-altman(x, y)",
        "mantel-haenszel(yes, other, by=cause)",
        # Of a column whose missing cells are filled in, and of quantiles beyond the edges.
        "mean(y)",
        "quantiles(y, 0.01 0.99, edges=4 5 6)",
    ):
        about = finished(text, noise=40.0 if "edges" not in text else 0.05, columns=filled)
        (answer,), (document,) = about.answers, about.to_json()["statistics"]
        section = " ".join(section_of(answer.statistic, about.workload.columns, document, "people"))
        assert not re.search(ADVICE, section), section
        said += [flag["message"] for flag in document["flagged"] if re.search(ADVICE, flag["message"])]
    assert len(said) >= 6
