"""The desk's pages without a server: every sentence in three languages, every state of a study, pictures, mistakes in forms."""

from __future__ import annotations

import json
import os
import re
import tomllib
from datetime import UTC, datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jinja2.nodes import Call, CondExpr, Const, Node

import quietmean.desk
from quietmean.core.errors import InputError
from quietmean.desk import Here
from quietmean.desk.site_folder import SiteFolder, State, inbox
from quietmean.desk.views import CODES, ENGLISH, Form, FormMistakes, language_of, preferred, templates
from quietmean.node import Identity
from quietmean.node.monitor import NodeView
from quietmean.report.pictures import pictures_of
from quietmean.studies.agreement.sealed import Sealed
from quietmean.studies.party import OwnerApproval, Policy
from support.desks import Pages
from support.meeting import AGES, meet
from support.site_policy import write_policy

DESK = Path(quietmean.desk.__file__).parent
FILLED_IN = re.compile(r"%\((\w+)\)s|%%|%(?!\()")
PARTIES = ("north", "south")


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
    assert set(table) == names_in_pages()
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


class Files(dict[str, bytes]):
    """Files by name, which no message of a failed test spells out."""

    def __repr__(self) -> str:
        return f"Files({sorted(self)})"


@pytest.fixture(scope="module")
def sealed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """A study that waits for all, another of the same name, one that begins tomorrow, and one that began yesterday."""
    day = timedelta(days=1)
    begins = {"all": None, "again": None, "tomorrow": datetime.now(UTC) + day, "yesterday": datetime.now(UTC) - day}
    files = Files()
    for name, start_by in begins.items():
        said = {} if start_by is None else {"minimum": 3, "start_by": start_by.isoformat(timespec="seconds")}
        title = "ages all" if name == "again" else f"ages {name}"
        tables = {**AGES, "study": {**AGES["study"], "name": title, "records": 3000, **said}}
        files[f"{name}.sealed"] = meet(tmp_path_factory.mktemp(name), tables=tables).seal().signed.to_file()
    return files


def yes_to(site: SiteFolder, sealed: Sealed) -> OwnerApproval:
    """What somebody signed for a site's part in a study."""
    day = datetime.now(UTC).date() + timedelta(days=1)
    return OwnerApproval.sign(site.contract(sealed), Policy(), "wards", day, Identity.generate())


def status_of(sealed: Sealed, party: str, state: str) -> dict[str, Any]:
    status = {"format": "quietmean-status-1", "study": sealed.terms.name, "roster": sealed.digest, "party": party}
    empty = {"str": "", "State": "", "int": 0, "dict[str, Any] | None": None}
    view = {field: empty.get(str(about.type), []) for field, about in NodeView.__dataclass_fields__.items()}
    return view | status | {"state": state, "pid": os.getpid()}


def receipt_of(sealed: Sealed, party: str) -> dict[str, Any]:
    names = ["north", "south"]
    return {"origin": {"approval": {"contract": sealed.digest}, "names": names, "party": names.index(party)}}


def test_each_study_has_its_state_and_its_next_step(tmp_path: Path, sealed: dict[str, bytes]) -> None:
    for name in ("all", "tomorrow", "yesterday"):
        (tmp_path / f"{name}.sealed").write_bytes(sealed[f"{name}.sealed"])
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

    agreed = site.sealed("all.sealed")
    assert of_all() == (State.ASKED, ("study", "all.sealed"))
    site.sign("all.sealed", yes_to(site, agreed))
    assert of_all() == (State.SIGNED, ("study", "all.sealed"))
    assert site.refuse("all.sealed", agreed) == "all-south.approval"
    assert of_all() == (State.REFUSED, ("study", "all.sealed"))
    (tmp_path / "my own name.receipt.json").write_text(json.dumps(receipt_of(agreed, "south")))
    assert of_all() == (State.DONE, ("result", "my own name"))
    # An answer that takes the place of another one is the only one.
    (tmp_path / "my own name.receipt.json").unlink()
    site.sign("all.sealed", yes_to(site, agreed))
    assert of_all() == (State.SIGNED, ("study", "all.sealed"))


# What becomes of a study, with the end of the file by which it is known, if there is one.
STATES = {
    "asked": (State.ASKED, ""),
    "signed": (State.SIGNED, ".approval"),
    "refused": (State.REFUSED, ".refused"),
    "running": (State.RUNNING, ".store.status.json"),
    "stopped": (State.STOPPED, ".store.status.json"),
    "failed": (State.STOPPED, ".store.status.json"),
    "finished": (State.DONE, ".store.status.json"),
    "done": (State.DONE, ".receipt.json"),
}
NAMES = st.text("abz-.南 ", min_size=1, max_size=9).filter(lambda name: not name.startswith("."))


@settings(max_examples=40, deadline=None)
@given(
    became=st.fixed_dictionaries(
        {(name, party): st.sampled_from(sorted(STATES)) for name in ("all", "again") for party in PARTIES}
    ),
    names=st.lists(NAMES, min_size=6, max_size=6, unique=True),
    backwards=st.booleans(),
)
def test_no_name_of_a_file_says_what_became_of_a_study(
    sealed: dict[str, bytes], became: dict[tuple[str, str], str], names: list[str], backwards: bool
) -> None:
    """Of two studies of one name, and of two sites with one folder: whatever files are called, in whatever order they came."""
    with TemporaryDirectory() as place:
        folder, files, titles = Path(place), {}, {}
        for (study, party), name in zip(became, names, strict=False):
            # A folder in which the study has its usual name makes what is then called otherwise.
            site = SiteFolder(folder / f"{study} of {party}", party)
            site.folder.mkdir()
            (site.folder / "usual.sealed").write_bytes(sealed[f"{study}.sealed"])
            agreed, (_, ending) = site.sealed("usual.sealed"), STATES[became[study, party]]
            titles[agreed.digest] = study
            if ending == ".refused":
                site.refuse("usual.sealed", agreed)
                files[name + ending] = next(site.folder.glob("*.refused")).read_bytes()
            elif ending == ".approval":
                files[name + ending] = approved(site, agreed)
            elif ending:
                made = receipt_of(agreed, party) if ending == ".receipt.json" else status_of(agreed, party, became[study, party])
                files[name + ending] = json.dumps(made).encode()
        for study, name in zip(("all", "again"), names[4:], strict=True):
            files[f"{name}.sealed"] = sealed[f"{study}.sealed"]
        for name in sorted(files, reverse=backwards):
            (folder / name).write_bytes(files[name])
        for party in PARTIES:
            site = SiteFolder(folder, party)
            found = {titles[site.sealed(study.name).digest]: study.state for study in inbox(site)}
            assert found == {study: STATES[became[study, party]][0] for study in ("all", "again")}


APPROVED: dict[tuple[str, str | None], bytes] = {}


def approved(site: SiteFolder, agreed: Sealed) -> bytes:
    """What is signed for a study and party: once, since a plan takes a second."""
    key = agreed.digest, site.party
    if key not in APPROVED:
        APPROVED[key] = yes_to(site, agreed).signed.to_file()
    return APPROVED[key]


def test_a_status_that_was_edited_hides_no_other_study(tmp_path: Path, sealed: dict[str, bytes]) -> None:
    site = SiteFolder(tmp_path, "south")
    for name in ("all.sealed", "yesterday.sealed"):
        (tmp_path / name).write_bytes(sealed[name])
    status = status_of(site.sealed("all.sealed"), "south", "running") | {"peers": 7}
    (tmp_path / "all-south.store.status.json").write_text(json.dumps(status))
    assert {study.state for study in inbox(site)} == {State.UNREADABLE, State.LATE}


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


def test_parts_and_times_of_a_survival_curve_have_scales_of_their_own() -> None:
    from support.outcomes import finished

    parts, times = pictures_of(finished("survival(x, yes, by=arm, bins=4)").to_json())
    assert not any("median" in line.label for line in parts.lines)
    assert all("median" in line.label or "quartile" in line.label for line in times.lines)
    assert float(parts.ends[1]) <= 1 < float(times.ends[1])


def test_what_noise_hides_beside_what_it_does_not_has_an_interval_and_no_point() -> None:
    from quietmean.statistics.tidy import terms_of
    from support.outcomes import finished

    document = finished("histogram(x)", noise=1.0).to_json()
    (picture,) = pictures_of(document)
    hidden = [term.hidden for term in terms_of(document["statistics"][0])]
    assert any(hidden)
    assert [line.at is None for line in picture.lines] == hidden
    assert all(line.thick and line.thin for line in picture.lines)


def test_no_picture_of_nothing() -> None:
    assert pictures_of({}) == []
    assert pictures_of({"statistics": []}) == []


@pytest.mark.parametrize("became", STATES)
def test_a_yes_is_asked_for_and_data_are_read_until_the_part_begins(
    became: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sealed: dict[str, bytes]
) -> None:
    monkeypatch.chdir(tmp_path)
    write_policy()
    (tmp_path / "all.sealed").write_bytes(sealed["all.sealed"])
    (tmp_path / "wards.csv").write_text("age\n30\n300\n")
    site, (state, ending) = SiteFolder(tmp_path, "south"), STATES[became]
    agreed = site.sealed("all.sealed")
    if ending == ".refused":
        site.refuse("all.sealed", agreed)
    elif ending:
        made = receipt_of(agreed, "south") if ending == ".receipt.json" else status_of(agreed, "south", became)
        (tmp_path / f"mine{ending}").write_bytes(approved(site, agreed) if ending == ".approval" else json.dumps(made).encode())
    here = Here(owner_key=tmp_path / "owner.key", data="wards.csv", key=tmp_path / "south.key")
    status, page = Pages(site, here).ask("/study/all.sealed")
    waits = state not in (State.RUNNING, State.DONE)
    assert status == 200
    assert ("1 value counts as the nearest bound." in page, 'id="yes"' in page, 'name="do"' in page) == (waits,) * 3
    # Who takes part can stop it; what has a result is over.
    assert (">Refuse<" in page, 'href="/result/mine"' in page) == (became != "done", became == "done")
