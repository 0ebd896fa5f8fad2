"""The desk's pages without a server: every sentence in three languages, every state of a study, pictures, mistakes in forms."""

from __future__ import annotations

import json
import os
import re
import tomllib
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jinja2.nodes import Call, CondExpr, Const, Node

import quietmean.desk
from quietmean.core.errors import InputError
from quietmean.desk.site_folder import SiteFolder, State, inbox
from quietmean.desk.views import CODES, ENGLISH, SENTENCES, Form, FormMistakes, language_of, preferred, templates
from quietmean.node.monitor import NodeView
from quietmean.report.pictures import pictures_of
from support.meeting import AGES, meet

DESK = Path(quietmean.desk.__file__).parent
FILLED_IN = re.compile(r"%\((\w+)\)s|%%|%(?!\()")
# Said by the pages with a word or a sentence that is not in a template.
NOT_IN_TEMPLATES = {*SENTENCES, "This page does not exist.", "record", "person"}


def names_in_pages() -> set[str]:
    made = templates(language_of(ENGLISH))
    texts = [path.read_text(encoding="utf-8") for path in (DESK / "templates").glob("*.html")]
    said = [call.args[0] for text in texts for call in made.parse(text).find_all(Call) if getattr(call.node, "name", "") == "_"]
    return {const.value for node in said for const in branches(node)}


def branches(node: Node) -> list[Const]:
    """The names in both branches of a choice between sentences."""
    if isinstance(node, CondExpr):
        assert node.expr2 is not None
        return [*branches(node.expr1), *branches(node.expr2)]
    assert isinstance(node, Const)
    return [node]


@pytest.mark.parametrize("code", [code for code in CODES if code != ENGLISH])
def test_every_sentence_is_in_every_language(code: str) -> None:
    """No sentence lacks a translation, none is left over, and each fills in what the English one does."""
    table = tomllib.loads((DESK / "sentences.toml").read_text(encoding="utf-8"))
    assert set(table) == names_in_pages() | NOT_IN_TEMPLATES
    for name, each in table.items():
        english = each.get(ENGLISH, name)
        assert ("_" in name) <= (ENGLISH in each), name
        assert each[code].strip(), name
        assert sorted(FILLED_IN.findall(each[code])) == sorted(FILLED_IN.findall(english)), name
        assert language_of(code).sentence(name) == each[code]
        assert language_of(ENGLISH).sentence(name) == english


@pytest.mark.parametrize(
    ("accepted", "code"),
    [
        ("", "en"),
        ("de", "de"),
        ("fr-CH, fr;q=0.9, en;q=0.8", "fr"),
        ("it, de-AT;q=0.7, en;q=0.3", "de"),
        ("en-GB,de;q=0.9", "en"),
        ("de;q=0", "en"),
        ("de;q=nan, fr;q=x", "en"),
        (";;,,q=1", "en"),
    ],
)
def test_the_language_of_a_browser(accepted: str, code: str) -> None:
    assert preferred(accepted).code == code


@given(st.text())
def test_any_header_has_a_language(accepted: str) -> None:
    assert preferred(accepted).code in CODES


@pytest.fixture(scope="module")
def sealed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """A study that waits for all, one that does not and begins tomorrow, and one that began yesterday."""
    day = timedelta(days=1)
    begins = {"all": None, "tomorrow": datetime.now(UTC) + day, "yesterday": datetime.now(UTC) - day}
    files = {}
    for name, start_by in begins.items():
        said = {} if start_by is None else {"minimum": 3, "start_by": start_by.isoformat(timespec="seconds")}
        tables = {**AGES, "study": {**AGES["study"], "name": f"ages {name}", "records": 3000, **said}}
        files[f"{name}.sealed"] = meet(tmp_path_factory.mktemp(name), tables=tables).seal().signed.to_file()
    return files


def test_each_study_has_its_state_and_its_next_step(tmp_path: Path, sealed: dict[str, bytes]) -> None:
    for name, content in sealed.items():
        (tmp_path / name).write_bytes(content)
    site = SiteFolder(tmp_path, "south")
    listed = inbox(site)
    # What can be decided comes first, the most urgent one at its head.
    assert [(study.title, study.state) for study in listed] == [
        ("ages tomorrow", State.ASKED),
        ("ages all", State.ASKED),
        ("ages yesterday", State.LATE),
    ]
    assert {study.convener for study in listed} == {"north"}
    assert [study.decide_by is None for study in listed] == [False, True, False]

    def of_all() -> tuple[State, tuple[str, str]]:
        study = next(study for study in inbox(site) if study.name == "all.sealed")
        return study.state, study.link

    assert of_all() == (State.ASKED, ("study", "all.sealed"))
    site.approval("all.sealed").write_text("signed")
    assert of_all() == (State.SIGNED, ("study", "all.sealed"))
    site.refuse("all.sealed")
    assert of_all() == (State.REFUSED, ("study", "all.sealed"))
    # Names of files say nothing: a receipt names its seal and its party, a status its study and its party.
    (tmp_path / "all-south.receipt.json").write_text("{}")
    assert of_all() == (State.REFUSED, ("study", "all.sealed"))
    seal = site.sealed("all.sealed").digest
    for origin, ours in (
        ({"approval": {"contract": seal}, "names": ["north", "south"], "party": 0}, False),
        ({"approval": {"contract": "0" * 64}, "names": ["north", "south"], "party": 1}, False),
        ({"approval": {"contract": seal}, "names": ["north", "south"], "party": 1}, True),
        ({"session": seal, "names": ["north", "south"]}, True),
    ):
        receipt = tmp_path / "my own name.receipt.json"
        receipt.write_text(json.dumps({"origin": origin}))
        assert of_all() == ((State.DONE, ("result", "my own name")) if ours else (State.REFUSED, ("study", "all.sealed")))
        receipt.unlink()


@pytest.mark.parametrize("state", ["running", "finished", "stopped", "failed"])
@pytest.mark.parametrize(("name", "party"), [("all-south", "south"), ("elsewhere", "south"), ("elsewhere", "north")])
def test_a_study_is_as_its_nodes_status_says(tmp_path: Path, sealed: dict[str, bytes], state: str, name: str, party: str) -> None:
    (tmp_path / "all.sealed").write_bytes(sealed["all.sealed"])
    status = {"format": "quietmean-status-1", "study": "ages all", "party": party, "state": state, "pid": os.getpid()}
    empty = {"str": "", "State": "", "int": 0, "dict[str, Any] | None": None}
    view = {field: empty.get(str(about.type), []) for field, about in NodeView.__dataclass_fields__.items()}
    (tmp_path / f"{name}.store.status.json").write_text(json.dumps(view | status))
    (study,) = inbox(SiteFolder(tmp_path, "south"))
    shown = {"running": State.RUNNING, "finished": State.DONE, "stopped": State.STOPPED, "failed": State.STOPPED}[state]
    assert study.state is (shown if party == "south" else State.ASKED)
    assert study.link == (("node", name) if party == "south" else ("study", "all.sealed"))
    # A status that was edited hides no other study.
    (tmp_path / "all-south.store.status.json").write_text("{}")
    (tmp_path / "yesterday.sealed").write_bytes(sealed["yesterday.sealed"])
    assert {study.state for study in inbox(SiteFolder(tmp_path, "south"))} == {State.UNREADABLE, State.LATE}


def test_a_study_that_cannot_be_read_hides_no_other(tmp_path: Path, sealed: dict[str, bytes]) -> None:
    (tmp_path / "good.sealed").write_bytes(sealed["all.sealed"])
    changed = sealed["all.sealed"].replace(b"ages all", b"ages ill")
    assert changed != sealed["all.sealed"]
    (tmp_path / "changed.sealed").write_bytes(changed)
    by_name = {study.name: study for study in inbox(SiteFolder(tmp_path, "south"))}
    assert by_name["good.sealed"].state is State.ASKED
    assert by_name["changed.sealed"].state is State.UNREADABLE
    assert by_name["changed.sealed"].why


def test_all_mistakes_of_a_form_at_once() -> None:
    form = Form({"account": "  ", "until": "soon"})
    form.text("account", "no account")
    form.day("until", "no day")
    form.require("words", holds=False, sentence="no words")
    with pytest.raises(FormMistakes) as wrong:
        form.require_right()
    assert wrong.value.mistakes == {"account": "no account", "until": "no day", "words": "no words"}
    assert isinstance(wrong.value, InputError)
    right = Form({"account": " wards ", "until": "2030-12-31"})
    assert right.text("account", "no account") == "wards"
    assert right.day("until", "no day").isoformat() == "2030-12-31"
    right.require_right()


def test_a_picture_has_each_term_at_its_place() -> None:
    from support.outcomes import finished

    (picture,) = pictures_of(finished("linear-regression(y ~ x + arm)").to_json())
    low, high = map(float, picture.ends)
    assert low < high
    from quietmean.statistics.tidy import terms_of

    terms = terms_of(finished("linear-regression(y ~ x + arm)").to_json()["statistics"][0])
    shown = [term for term in terms if not term.of_records and not term.hidden]
    assert [line.label for line in picture.lines] == [term.label or term.term for term in shown]
    for line, term in zip(picture.lines, shown, strict=True):
        assert line.at is not None
        # Back from the place to the number, to what the ends of the scale are rounded by.
        assert low + (line.at - 2) / 96 * (high - low) == pytest.approx(term.estimate, abs=0.01 * (high - low))
        for ends in (line.thick, line.thin):
            assert ends is None or 2 - 1e-9 <= ends[0] <= line.at <= ends[1] <= 98 + 1e-9


def test_no_picture_of_nothing() -> None:
    assert pictures_of({}) == []
    assert pictures_of({"statistics": []}) == []
