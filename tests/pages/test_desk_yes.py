"""A yes on the desk's pages is one at a terminal: the same marks, the same words to type, the same digest."""

from __future__ import annotations

import io
import itertools
import re
from dataclasses import dataclass, replace
from html import unescape
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest

from quietmean.cli.main import main
from quietmean.core.errors import InputError
from quietmean.desk import Here, SiteFolder
from quietmean.desk.site_folder import words_of
from quietmean.node import Identity
from quietmean.studies.agreement.sealed import Sealed
from quietmean.studies.party import Agreement, OwnerApproval
from quietmean.studies.party.admission import own_data_at
from quietmean.studies.party.first_screen import FirstScreen, to_compare
from support.before_yes import UNITS
from support.before_yes import asked as asked_for
from support.command_lines import fails
from support.desks import Pages
from support.meeting import AGES, meet
from support.site_policy import write_policy

NAMES = ("north", "south", "east", "west")
PROMISES_NOTHING = {"protocol": "consensus", "dropouts": 0.0, "epsilon": 4.0, "delta": 1e-6, "options": {"open_edges": "each"}}
# What has to be typed, and what is asked for.
STUDIES: dict[str, dict[str, Any]] = {
    "yes": {},
    "yes without promise": PROMISES_NOTHING,
    "yes without privacy": {"protocol": "gossip"},
}


@dataclass
class Asked:
    """A site whose data controller signs on the pages of a study."""

    pages: Pages
    sealed: Sealed
    contract: Agreement
    answer: str

    @property
    def words(self) -> dict[str, str]:
        return {f"word.{number}": word for number, word in enumerate(words_of(self.sealed.digest).words, 1)}

    def says(self, **changed: str) -> tuple[int, str]:
        """The code and the page that follow the form, in which all words are ticked."""
        given = {
            "do": "sign",
            "account": "wards",
            "until": "2999-01-01",
            "passphrase": "",
            **self.words,
            "accept": self.contract.accept_digest[:32],
        }
        status, page = self.pages.ask("/study/ages.sealed/accept", {**given, **changed})
        return status, unescape(page)

    def marks(self, fields: dict[str, str]) -> list[tuple[str, str]]:
        status, part = self.pages.ask(f"/study/ages.sealed/marks?{urlencode(fields)}")
        assert status == 200
        return marks_of(part)


def test_the_owner_sees_what_of_the_data_does_not_fit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of every unit, by a node and by file: what a terminal marks, with the columns, their bounds, and what becomes public."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "wards.csv").write_text("age,who\n30,a\n300,a\n,b\n40,c\n50,c\n60,c\n70,c\n80,d\n")
    keys: list[str] = []
    for unit, way in itertools.product(UNITS, ("sealed", "committee")):
        try:
            sealed = asked_for("packed-sharing", unit, "all", way, "bounds").sealed
            assert sealed is not None
            (tmp_path / "ages.sealed").write_bytes(sealed.signed.to_file())
            contract = (site := SiteFolder(tmp_path, "south")).contract(sealed)
        except InputError:
            # Hopeless with so few sites, or not to be had of a committee.
            continue
        of_persons = '[mapping]\nperson = "who"\n' if sealed.study.unit == "person" else ""
        (tmp_path / "wards.format.toml").write_text(of_persons)
        own = own_data_at("wards.csv", sealed.study, contract.plan.value_step)
        screen = FirstScreen.of(contract, own)
        pages = Pages(site, Here(owner_key=tmp_path / "owner.key", data="wards.csv"))
        status, page = pages.ask("/study/ages.sealed")
        seen = unescape(re.sub(r"(?s)<details>.*?</details>", "", page))
        assert (status, marks_of(seen)) == (200, [(fact.key, fact.text) for fact in screen.always])
        assert [row.key for row in screen.rows if row.key in ("uses", "shown") and row.text not in seen] == []
        assert "0 to 110" in seen
        assert re.search(r"\d rows( of \d people)? in wards.csv", seen)
        assert "1 value counts as the nearest bound." in dict(marks_of(seen))["CLIPPED"]
        # A tick in the form reads nothing again, and loses nothing.
        (tmp_path / "wards.csv").rename(tmp_path / "away.csv")
        assert marks_of(pages.ask("/study/ages.sealed/marks")[1]) == marks_of(seen)
        assert "Your data cannot be read" in pages.ask("/study/ages.sealed")[1]
        (tmp_path / "away.csv").rename(tmp_path / "wards.csv")
        keys += [fact.key for fact in own.marks]
    assert set(keys) == {"CLIPPED", "ROWS"}
    assert keys.count("CLIPPED") >= 4


def marks_of(page: str) -> list[tuple[str, str]]:
    return [(key, unescape(text)) for key, text in re.findall(r"<li><strong>(.*?)</strong> (.*?)</li>", page)]


@pytest.fixture(params=STUDIES)
def asked(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Asked:
    monkeypatch.chdir(tmp_path)
    study = {**AGES["study"], "records": 3000, **STUDIES[request.param]}
    sealed = meet(tmp_path, NAMES, {**AGES, "study": study}).seal()
    (tmp_path / "ages.sealed").write_bytes(sealed.signed.to_file())
    owner = Identity.generate()
    owner.save(tmp_path / "owner.key")
    write_policy(approvers=[owner.public_key], largest_epsilon=100.0)
    site = SiteFolder(tmp_path, "south")
    return Asked(Pages(site, Here(owner_key=tmp_path / "owner.key")), sealed, site.contract(sealed), request.param)


def test_what_is_typed_says_that_nothing_is_promised_or_protected(asked: Asked, tmp_path: Path) -> None:
    screen = FirstScreen.of(asked.contract)
    assert screen.answer == asked.answer
    page = asked.pages.ask("/study/ages.sealed")[1]
    assert ('name="answer"' in page) == (asked.answer != "yes")
    assert f'name="accept" value="{asked.contract.accept_digest[:32]}"' in page
    # Ticks alone, and what another study would need, are no yes.
    for typed in ({}, *({"answer": other} for other in (*STUDIES, "Yes", "") if other != asked.answer)):
        if asked.answer != "yes":
            status, said = asked.says(**typed)
            # Where it is wrong the keyboard is, too.
            assert (status, "Type exactly the words" in said, "autofocus" in said) == (400, True, True), typed
    # Nor is a yes to something else than what is shown.
    other = replace(asked.contract, party=(asked.contract.party + 1) % len(NAMES)).accept_digest
    for digest in ("", asked.sealed.digest, other[:32], asked.contract.accept_digest[:31]):
        assert asked.says(answer=asked.answer, accept=digest)[0] == 400, digest
    assert not list(tmp_path.glob("*.approval"))
    status, said = asked.says(answer=f" {asked.answer} ", **{"compared.2": "any"})
    assert status == 200, said
    options = {"yes without promise": "--a-priori-above-target ", "yes without privacy": "--no-privacy "}
    assert f"--approval ages-south.approval {options.get(asked.answer, '')}--compared {to_compare(asked.contract)[1]}<" in said


def test_marks_stand_above_the_button_and_go_when_all_have_compared(asked: Asked) -> None:
    """Of each choice of sites, with and without all words: as the terminal has them."""
    page = asked.pages.ask("/study/ages.sealed")[1]
    form = page[page.index('<form method="post" action="/study/') : page.index('<p class="buttons">')]
    shown = [(fact.key, fact.text) for fact in FirstScreen.of(asked.contract).always]
    assert marks_of(form) == marks_of(page) == shown
    behind = form[form.rindex("</ul>") :]
    assert re.findall(r'name="([^"]+)"', behind) == (["answer"] if asked.answer != "yes" else [])
    words, others = asked.words, to_compare(asked.contract)
    assert set(others) == set(NAMES) - {"south"}
    for count in range(len(others) + 1):
        for chosen in itertools.combinations(range(len(others)), count):
            fields = {f"compared.{place + 1}": others[place] for place in chosen}
            compared = [others[place] for place in chosen]
            expected = [(fact.key, fact.text) for fact in FirstScreen.of(asked.contract, compared=compared).always]
            assert asked.marks({**words, **fields}) == expected
            assert ("KEYS" in dict(expected)) == (count < len(others))
            # Nobody has compared words that are not ticked.
            assert asked.marks({**words, **fields, "word.8": "abandon"}) == shown
            assert asked.marks(fields) == shown


def test_the_terminal_signs_what_the_page_signs(
    asked: Asked, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each study by its own answer, and by that of no other."""
    approve = "site approve ages.sealed --party south --owner-key owner.key --account wards --until 2999-01-01"
    for typed in sorted(STUDIES, key=lambda answer: answer == asked.answer):
        stdin = io.StringIO(f"{typed}\n")
        monkeypatch.setattr(stdin, "isatty", lambda: True)
        monkeypatch.setattr("sys.stdin", stdin)
        if typed == asked.answer:
            main([*approve.split(), "--out", "signed.approval"])
        else:
            assert "you did not say yes" in fails([*approve.split(), "--out", "signed.approval"], capsys, warned=True)
            assert not (tmp_path / "signed.approval").exists()
    assert OwnerApproval.load(tmp_path / "signed.approval").terms.contract == asked.contract.digest
