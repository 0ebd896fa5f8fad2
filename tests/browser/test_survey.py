"""A survey by link in a real browser: what is entered is what members open, and what goes wrong is said and costs nothing."""

from __future__ import annotations

import json
import re
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import pytest

from quietmean import form
from quietmean.form import FormPage
from quietmean.form.files import source
from quietmean.node.net import Identity
from quietmean.protocols.committee.contribution import read_header
from quietmean.studies.agreement.contribution import PUBLISHED, RESULT_PAGE, DropPlace, DropReceipt
from quietmean.studies.agreement.voucher import Registrar
from support.browsers import FORMS, SIZES, wrong_on
from support.form_keys import Keys, answered_by_keys
from support.form_time import FILL, LONGEST, SEND, WAITED, large_survey
from support.survey import Survey

# Pay, sex, hired, union, job: what is entered, and the cells that are meant.
PEOPLE = [
    ("41000.5", "f", "2012-03-01", "yes", "cook", [41000.5, 0, 4443, 1, 0]),
    ("250000", "m", "2020-12-31", "no", "other", [250000, 1, 7670, 0, 7]),
    ("", "no answer", "", "no answer", "", [np.nan] * 5),
    ("-3", "f", "1999-01-01", "yes", "nurse", [-3, 0, -365, 1, 5]),
]
# Of the device: no full hours from UTC.
ZONE = "Asia/Kathmandu"
# While it does something.
CHECKING = re.compile("The page (checks this study|asks whether)")
ARRIVED = "Your answer has arrived"


@dataclass
class Visitor:
    """A browser of its own, with what its console said and what it sent."""

    page: Any
    address: str
    said: list[str] = field(default_factory=list)
    files: list[bytes] = field(default_factory=list)
    questions: list[bytes] = field(default_factory=list)

    def listen(self) -> None:
        self.page.on("console", lambda message: self.said.append(message.text))
        self.page.on("pageerror", lambda error: self.said.append(str(error)))
        self.page.on("request", self._note)

    def _note(self, request: Any) -> None:
        if request.method == "POST":
            (self.questions if request.url.endswith("/receipts") else self.files).append(request.post_data_buffer)

    def visit(self, fragment: str = "") -> None:
        # A new page, as from a mail: another fragment alone loads nothing.
        self.page.goto("about:blank")
        self.page.goto(f"{self.address}/" + (f"#{fragment}" if fragment else ""))
        self.page.locator("#state", has_not_text=CHECKING).wait_for()

    @property
    def state(self) -> str:
        return str(self.page.inner_text("#state"))

    def fill(self, pay: str, sex: str, hired: str, union: str, job: str) -> None:
        self.page.fill("#answer-0", pay)
        self.page.get_by_role("group", name="sex").get_by_label(sex, exact=True).check()
        self.page.fill("#answer-2", hired)
        self.page.get_by_role("group", name="union").get_by_label(union, exact=True).check()
        self.page.select_option("#answer-4", label=job or "no answer")

    def agree(self) -> None:
        self.page.check("#yes")
        self.page.click("#send")

    def wait(self, text: str) -> None:
        # Not by a function: the page's policy forbids what a browser would have to make of it.
        self.page.locator("#state", has_text=text).wait_for()


@pytest.fixture
def port(free_ports: Callable[[int], list[int]]) -> int:
    return free_ports(1)[0]


@pytest.fixture
def survey(tmp_path_factory: pytest.TempPathFactory, port: int) -> Survey:
    return Survey(tmp_path_factory.mktemp("survey"), name="Wages <b>&amp;</b>", drop=f"http://127.0.0.1:{port}")


@contextmanager
def visiting(browser: Any, survey: Survey, size: str = "telephone", scheme: str = "light") -> Iterator[Visitor]:
    width, height = SIZES[size]
    context = browser.new_context(viewport={"width": width, "height": height}, color_scheme=scheme, timezone_id=ZONE)
    page = context.new_page()
    visitor = Visitor(page, survey.drop)
    visitor.listen()
    yield visitor
    context.close()


def test_what_people_enter_is_what_members_open(browser: Any, survey: Survey, port: int) -> None:
    files, vectors = [], []
    with survey.served(port) as box:
        for number, (*entered, cells) in enumerate(PEOPLE, 1):
            size, scheme = FORMS[number % len(FORMS)]
            with visiting(browser, survey, size, scheme) as person:
                person.visit(survey.fragment(number))
                assert survey.fragment(number) not in person.page.evaluate("location.href + document.documentElement.outerHTML")
                assert person.page.inner_text("h1") == "Wages <b>&amp;</b>"
                person.fill(*entered)
                person.page.click("#send")
                assert "tick the box" in person.page.inner_text("#no-yes")
                assert person.page.evaluate("document.activeElement.id") == "yes"
                assert not person.files
                person.page.check("#yes")
                if not any(text for text in entered if text != "no answer"):
                    # Nothing at all is sent only where that is meant.
                    person.page.click("#send")
                    assert "You answered no question" in person.page.inner_text("#no-yes")
                    assert not person.files
                # Clicked twice.
                person.page.dblclick("#send")
                person.wait(ARRIVED)
                (file,) = person.files
                files.append(file)
                person.page.locator("#count", has_text=f"{number} of at most {survey.sealed.admitted} answers").wait_for()
                # Closed and opened again: it is not made anew.
                person.visit(survey.fragment(number))
                assert ARRIVED in person.state
                assert len(person.files) == 1
                with person.page.expect_download() as download:
                    person.page.click("#receipt-file")
                assert download.value.suggested_filename.endswith(".receipt")
                assert not person.said
            # What is dealt is what was meant, rounded up or down.
            whole = survey.program.numbers(np.array([cells, cells], dtype=np.float64), np.array([[0.0], [1 - 2**-53]]))
            assert ((survey.numbers_of(file) >= whole[0]) & (survey.numbers_of(file) <= whole[1])).all()
            vectors.append(survey.sealed.study.workload.encode(np.array([cells], dtype=np.float64)).vector)
        assert len(box) == len(PEOPLE)
    opened = survey.opened(files)
    assert len(opened.counted) == len(PEOPLE)
    # Rounding is a step for each, noise 8 standard deviations of each dealing at most.
    parameters = survey.session.parameters
    reach = len(PEOPLE) * parameters.step + parameters.dealings * 8 * parameters.sigma
    assert (np.abs(opened.total - np.sum(vectors, axis=0)) <= reach).all()


def test_one_voucher_on_two_devices_counts_once_and_the_page_says_so(browser: Any, survey: Survey, port: int) -> None:
    with survey.served(port) as box, visiting(browser, survey) as one, visiting(browser, survey) as other:
        for person in one, other:
            person.visit(survey.fragment(11))
            person.fill(*PEOPLE[0][:5])
        one.agree()
        one.wait(ARRIVED)
        before = len(box)
        other.agree()
        other.wait("came first")
        assert "has the first answer" in other.page.inner_text("#receipt-text")
        assert "has your answer" in one.page.inner_text("#receipt-text")
        assert len(box) == before
        assert one.files != other.files
        other.visit()
        assert "came first" in other.state


def test_a_second_device_learns_it_before_anything_is_typed(browser: Any, survey: Survey, port: int, tmp_path: Path) -> None:
    with survey.served(port) as box, visiting(browser, survey) as one, visiting(browser, survey) as other:
        one.visit(survey.fragment(9))
        assert "good for one answer" in one.state
        one.fill(*PEOPLE[0][:5])
        one.agree()
        one.wait(ARRIVED)
        other.visit(survey.fragment(9))
        other.wait("An answer with this link came on")
        assert "Another one would be left out" in other.state
        assert not other.page.is_visible("#answers")
        # It is the same receipt, and this device says what became of that answer, too.
        assert receipt_of(other) == receipt_of(one)
        other.visit()
        assert "An answer with this link came on" in other.state
        # It asked, and sent no file.
        assert [set(json.loads(asked)) for asked in other.questions] == [{"contributor", "signature"}]
        assert other.files == []
        assert len(box) == 1
        # Another link of the same survey has no answer yet.
        other.visit(survey.fragment(10))
        assert "good for one answer" in other.state


def own_receipt(survey: Survey, number: int, drop: Identity, session: str = "") -> bytes:
    """What a drop may sign of an answer that nobody gave."""
    own = Registrar.of(survey.sealed.invitation, survey.registrar).own(number).public_key
    place = DropPlace("ab" * 32, 1, "cd" * 32)
    return DropReceipt.sign(drop, session or survey.sealed.digest, own, place, time.time()).signed.to_file()


@pytest.mark.parametrize("lie", ["nothing", "silent", "no JSON", "another voucher's", "another study's", "changed"])
def test_a_drop_that_does_not_answer_the_question_keeps_nobody_from_answering(
    lie: str, browser: Any, survey: Survey, port: int
) -> None:
    signed = own_receipt(survey, 31, survey.drop_identity).decode()
    said = {
        "another voucher's": own_receipt(survey, 32, survey.drop_identity).decode(),
        "another study's": own_receipt(survey, 31, survey.drop_identity, "12" * 32).decode(),
        "changed": signed.replace("ab" * 32, "ba" * 32),
    }
    answer = json.dumps({"receipt": said.get(lie)}).encode()
    with survey.served(port), visiting(browser, survey) as person:
        if lie == "silent":
            person.page.route("**/receipts", lambda route: None)
        elif lie == "no JSON":
            person.page.route("**/receipts", hostile([], 500, b"<html>"))
        elif lie == "nothing":
            person.page.route("**/receipts", lambda route: route.abort())
        else:
            person.page.route("**/receipts", hostile([], 200, answer))
        person.visit(survey.fragment(31))
        person.wait("good for one answer")
        assert person.page.is_visible("#answers")


def test_a_drop_that_lies_of_an_answer_signs_the_proof_of_it(browser: Any, survey: Survey, port: int, tmp_path: Path) -> None:
    lie = own_receipt(survey, 33, survey.drop_identity)
    with survey.served(port), visiting(browser, survey) as person:
        person.page.route("**/receipts", hostile([], 200, json.dumps({"receipt": lie.decode()}).encode()))
        person.visit(survey.fragment(33))
        person.wait("If it is not yours, tell who sent you the link.")
        assert receipt_of(person) == lie
        # No member has such an answer in its log, whoever else answered.
        with visiting(browser, survey) as another:
            another.visit(survey.fragment(34))
            another.fill(*PEOPLE[0][:5])
            another.agree()
            another.wait(ARRIVED)
        result = ("m1.sums", survey.result_of(another.files))
        logs = [(f"m{n}.dropped", survey.log_of(n, another.files, {})) for n in (1, 2)]
        assert f"Its key: {survey.drop_identity.public_key}" in chosen_by(tmp_path, person, result, *logs)


def test_a_mistake_is_said_where_it_is_and_times_are_those_of_the_device(browser: Any, survey: Survey, port: int) -> None:
    with survey.served(port), visiting(browser, survey) as person:
        person.visit(survey.fragment(19))
        terms = survey.sealed.study.committee
        assert terms is not None
        assert f"{terms.contribute_by.astimezone(ZoneInfo(ZONE)):%-I:%M:%S}" in person.page.inner_text("#until")
        assert "GMT+5:45" in person.page.inner_text("#until")
        person.page.check("#yes")
        person.page.locator("#answer-0").press_sequentially("12e")
        person.page.click("#send")
        assert person.page.inner_text("#answer-0-note") == "pay is not a number. Write it as in 1000 or 1.5."
        assert person.page.get_attribute("#answer-0", "aria-invalid") == "true"
        assert person.page.get_attribute("#answer-0-note", "class") == "mistake"
        assert person.page.evaluate("document.activeElement.id") == "answer-0"
        person.page.fill("#answer-0", "12")
        assert person.page.get_attribute("#answer-0", "aria-invalid") == "false"
        # A comma is not dropped: whoever typed it says what it means.
        for typed, meant in (
            ("1,5", ["1.5"]),
            ("41,000", ["41000", "41"]),
            ("1.500", ["1.5", "1500"]),
            ("1,234", ["1234", "1.2340"]),
        ):
            person.page.fill("#answer-0", "")
            person.page.locator("#answer-0").press_sequentially(typed)
            assert person.page.inner_text("#answer-0-note") == f"pay is not clear. Write {' or '.join(meant)}."
            person.page.click("#send")
            assert person.page.inner_text("#no-yes") == person.page.inner_text("#answer-0-note")
            for text in meant:
                person.page.fill("#answer-0", typed)
                person.page.get_by_role("button", name=text, exact=True).click()
                assert person.page.input_value("#answer-0") == text
                assert person.page.inner_text("#answer-0-note") == ""
                assert person.page.evaluate("document.activeElement.id") == "answer-0"
        assert not person.files


def test_offline_nothing_is_lost_and_the_same_file_is_sent_again(browser: Any, survey: Survey, port: int) -> None:
    with visiting(browser, survey) as person:
        with survey.served(port):
            person.visit(survey.fragment(12))
            person.fill(*PEOPLE[0][:5])
        # The drop is gone now.
        person.agree()
        person.wait("not sent yet")
        assert person.page.is_visible("#file")
        with person.page.expect_download() as download:
            person.page.click("#file")
        assert Path(download.value.path()).read_bytes() == person.files[0]
        with survey.served(port) as box:
            count = len(box)
            # Closed at this point and opened without the link: the file is there, and the key is not needed.
            person.visit()
            person.wait(ARRIVED)
            assert len(box) == count + 1
        assert set(person.files) == {person.files[0]}
        stored = person.page.evaluate(
            """() => new Promise(done => { const ask = indexedDB.open("quietmean");
              ask.onsuccess = () => { const all = ask.result.transaction("kept").objectStore("kept").getAll();
                all.onsuccess = () => done(all.result.map(value => Object.keys(value).sort().join())); }; })"""
        )
        assert stored == ["contributor,digest,receipt,why"]


@pytest.mark.parametrize(
    ("unit", "committee"), [("record", {"verified": False}), ("party", {"verified": True}), ("party", {"verified": False})]
)
def test_other_kinds_of_studies_are_answered_as_well(
    unit: str, committee: dict[str, Any], browser: Any, port: int, tmp_path: Path
) -> None:
    ask = ("median(pay in 0..200000, bins=16)",) if unit == "record" else ("mean(pay in 0..200000)",)
    survey = Survey(tmp_path, ask=ask, committee=committee, drop=f"http://127.0.0.1:{port}", unit=unit)
    with survey.served(port), visiting(browser, survey) as person:
        person.visit(survey.fragment(1))
        person.page.fill("#answer-0", "42000")
        person.agree()
        person.wait(ARRIVED)
    opened, parameters = survey.opened(person.files), survey.session.parameters
    (vector,) = survey.program.vector.vectors(np.array([[42000.0]]))
    assert len(opened.counted) == 1
    reach = parameters.step + parameters.dealings * 8 * parameters.sigma
    assert (np.abs(opened.total - vector) <= reach).all()


def test_nobody_waits_from_yes_to_the_receipt(browser: Any, port: int, tmp_path: Path) -> None:
    survey = large_survey(tmp_path, f"http://127.0.0.1:{port}")
    with survey.served(port) as box:
        for number in 1, 2, 3:
            with visiting(browser, survey) as person:
                person.visit(survey.fragment(number))
                person.page.evaluate(FILL)
                person.page.evaluate(f"() => {{ {SEND} }}")
                person.wait(ARRIVED)
                waited = float(person.page.evaluate(WAITED)) / 1000
                print(f"{survey.session.layout(1.0).bits} bits, {len(person.files[0])} bytes: {waited:.3f} s")
                assert waited < LONGEST
        assert len(box) == 3


def test_two_people_of_one_device_answer_one_after_the_other(browser: Any, survey: Survey, port: int) -> None:
    with visiting(browser, survey) as device:
        with survey.served(port):
            device.visit(survey.fragment(5))
            device.fill(*PEOPLE[0][:5])
        device.agree()
        device.wait("not sent yet")
        with survey.served(port) as box:
            device.visit(survey.fragment(6))
            device.fill(*PEOPLE[1][:5])
            device.agree()
            device.wait(ARRIVED)
            assert len(box) == 1
            # The first one's file waits, whoever opens the page.
            device.visit()
            device.wait(ARRIVED)
            assert len(box) == 2
            for number in 5, 6:
                device.visit(survey.fragment(number))
                assert ARRIVED in device.state
            device.page.click("#forget")
            device.wait("has forgotten")
            device.visit(survey.fragment(6))
            assert "An answer with this link came on" in device.state
            device.visit(survey.fragment(5))
            assert ARRIVED in device.state
        assert len(set(device.files)) == 2


def chosen_by(folder: Path, person: Visitor, *files: tuple[str, bytes]) -> str:
    """What the page says of files that somebody chose."""
    place = Path(tempfile.mkdtemp(dir=folder))
    paths = [place / name for name, _ in files]
    for path, (_, content) in zip(paths, files, strict=True):
        path.write_bytes(content)
    person.page.set_input_files("#logs", paths)
    person.page.locator("#fate", has_not_text="reads these files").wait_for()
    return str(person.page.inner_text("#fate"))


def test_after_the_end_the_page_says_what_became_of_an_answer(browser: Any, survey: Survey, port: int, tmp_path: Path) -> None:
    chosen = partial(chosen_by, tmp_path)
    with survey.served(port), visiting(browser, survey) as one, visiting(browser, survey) as other:
        for number, person in enumerate((one, other), 1):
            person.visit(survey.fragment(number))
            person.fill(*PEOPLE[0][:5])
            person.agree()
            person.wait(ARRIVED)
        (first,), (second,) = one.files, other.files
        dealer = read_header(survey.session, second).contributor
        result = ("m1.sums", survey.result_of([first]))
        logs = [
            (f"m{n}.dropped", survey.log_of(n, [first, second], {dealer: "its shares contradict each other"})) for n in (1, 2)
        ]
        assert "Too few files" in chosen(other, result)
        assert chosen(one, result) == "Your answer is counted in this result."
        assert chosen(other, result, *logs) == (
            "Members read your answer, and left it out. The reason: its shares contradict each other."
        )
        forgetting = [(f"m{n}.dropped", survey.log_of(n, [first], {})) for n in (1, 2)]
        assert survey.drop_identity.public_key in chosen(other, result, *forgetting)
        assert other.page.locator("#proof-files a").all_inner_texts() == ["m1.sums", "m1.dropped", "m2.dropped"]
        # Without a result nothing is left out, and another file is no result.
        for person in one, other:
            assert "The result is missing" in chosen(person, *logs)
            assert "m1.json is none of these files" in chosen(person, *logs, ("m1.json", b"{}"))
        # One member may lie: of one log nothing follows.
        assert "Too few files" in chosen(other, result, forgetting[0])
        # Two receipts of one place prove that the drop keeps two logs; its true receipts do not.
        mine, theirs = (DropReceipt.of_file(receipt_of(person)) for person in (one, other))
        assert chosen(one, result, ("theirs.receipt", theirs.signed.to_file())) == "Your answer is counted in this result."
        place = DropPlace("ab" * 32, mine.place.position, "cd" * 32)
        at_drop = survey.drop_identity, survey.sealed.digest, theirs.contributor, place, 1.0
        forked = ("forked.receipt", DropReceipt.sign(*at_drop).signed.to_file())
        assert "The server lies" in chosen(one, result, forked)
        by_another = DropReceipt.sign(Identity.generate(), *at_drop[1:]).signed.to_file()
        assert chosen(one, result, ("another.receipt", by_another)) == "Your answer is counted in this result."
        # A result that nobody signed is no result.
        assert "m1.sums: The result was changed on the way" in chosen(
            one, ("m1.sums", result[1].replace(survey.session.session, b"x" * 32))
        )


def fate_of(person: Visitor) -> str:
    person.page.locator("#fate", has_text=re.compile(r"\S")).wait_for()
    person.page.locator("#fate", has_not_text="reads these files").wait_for()
    return str(person.page.inner_text("#fate"))


def test_after_the_end_it_finds_what_members_published_and_shows_what_they_signed(
    browser: Any, survey: Survey, port: int
) -> None:
    terms = survey.sealed.study.committee
    assert terms is not None
    with (
        survey.served(port),
        visiting(browser, survey) as one,
        visiting(browser, survey) as other,
        visiting(browser, survey) as late,
    ):
        for number, person in enumerate((one, other), 1):
            person.visit(survey.fragment(number))
            person.fill(*PEOPLE[0][:5])
            person.agree()
            person.wait(ARRIVED)
            assert "Open this page again on this device after" in person.page.inner_text("#fate")
        (first,), (second,) = one.files, other.files
        for person in one, other, late:
            person.page.clock.set_fixed_time((terms.lists_at + 60) * 1000)
        one.visit()
        assert fate_of(one) == "The members published nothing here yet."
        why = {read_header(survey.session, second).contributor: "its shares contradict each other"}
        page = survey.publish([first, second], [first], why)
        one.visit()
        assert fate_of(one) == "Your answer is counted in this result."
        assert one.page.inner_text("#signers") == "These members signed the page with the result: m1, m2, m3, m4, m5."
        with one.page.context.expect_page() as opened:
            one.page.click("#result-page")
        shown = opened.value
        shown.wait_for_load_state()
        assert "1 answer is in this result." in shown.inner_text("body")
        assert shown.inner_text("h1") == "Wages <b>&amp;</b>"
        # Its style is allowed where it is opened.
        assert shown.evaluate("getComputedStyle(document.querySelector('main')).maxWidth") != "none"
        other.visit()
        assert "left it out. The reason: its shares contradict each other." in fate_of(other)
        late.visit(survey.fragment(7))
        assert "The time for answers ended" in late.state
        assert "no receipt on this device" in fate_of(late)
        assert late.page.is_visible("#result-page")
        # The server changes the page, keeps logs back, or gives anything else.
        folder = survey.folder / "box" / PUBLISHED
        (folder / f"m1{RESULT_PAGE}").write_bytes(page.replace(b"1 answer is", b"9 answers are"))
        one.visit()
        assert fate_of(one) == "Your answer is counted in this result."
        assert "Too few members signed" in one.page.inner_text("#signers")
        assert not one.page.is_visible("#result-page")
        (folder / f"m1{RESULT_PAGE}").write_bytes(page)
        for name in ("m4", "m5"):
            (folder / f"{name}.dropped").write_bytes(b"<script>alert(1)</script>")
        one.visit()
        assert fate_of(one) == "Your answer is counted in this result."
        assert not one.page.is_visible("#result-page")
        assert not [text for person in (one, other, late) for text in person.said]


def receipt_of(person: Visitor) -> bytes:
    with person.page.expect_download() as download:
        person.page.click("#receipt-file")
    return Path(download.value.path()).read_bytes()


def hostile(sent: list[bytes], status: int, body: bytes) -> Callable[[Any], None]:
    """What answers in the place of a drop, and notes what was sent."""

    def answer(route: Any) -> None:
        sent.append(route.request.post_data_buffer)
        route.fulfill(status=status, body=body, content_type="application/json")

    return answer


def test_what_a_hostile_drop_answers_is_no_receipt(browser: Any, survey: Survey, port: int) -> None:
    sent: list[bytes] = []
    with survey.served(port) as box:
        with visiting(browser, survey) as before:
            before.visit(survey.fragment(20))
            before.fill(*PEOPLE[0][:5])
            before.agree()
            before.wait(ARRIVED)
            replayed = receipt_of(before)
        place = DropPlace("ab" * 32, 1, "cd" * 32)
        own = Registrar.of(survey.sealed.invitation, survey.registrar).own(21).public_key
        of_another_file = DropReceipt.sign(survey.drop_identity, survey.sealed.digest, own, place, 1.0).signed.to_file()
        unsigned = of_another_file.replace(b"ab" * 32, b"ef" * 32)
        answers = [
            (200, b"<script>alert(1)</script>"),
            (200, replayed),
            (200, of_another_file),
            (200, unsigned),
            (409, json.dumps({"receipt": replayed.decode()}).encode()),
            (409, b'{"receipt": 7}'),
            (503, b'{"error": "<img src=x onerror=alert(1)>"}'),
        ]
        with visiting(browser, survey) as person:
            person.visit(survey.fragment(21))
            person.fill(*PEOPLE[0][:5])
            for number, answer in enumerate(answers):
                person.page.route("**/contributions", hostile(sent, *answer))
                if number:
                    person.page.click("#again")
                else:
                    person.agree()
                person.page.locator("#again").wait_for()
                person.wait("not sent yet")
                assert person.page.is_visible("#file")
                assert not person.page.is_visible("#receipt")
                assert len(sent) == number + 1
                person.page.unroute("**/contributions")
            # Nothing of what it said is markup, and the one file that there is goes to the true drop.
            assert person.page.locator("img").count() == 0
            count = len(box)
            person.page.click("#again")
            person.wait(ARRIVED)
            assert len(box) == count + 1
            assert set(sent) == set(person.files)
            assert len(set(sent)) == 1


def test_hostile_texts_of_a_study_are_texts(browser: Any, port: int, tmp_path: Path) -> None:
    markup = "<img src=x onerror=alert(1)>"
    ask = (f"proportion(job in {{{markup}, b}})", "mean(pay in 0..100)")
    survey = Survey(tmp_path, ask=ask, name=f"</script>{markup}", drop=f"http://127.0.0.1:{port}")
    with survey.served(port), visiting(browser, survey) as person:
        person.page.add_init_script(
            "document.addEventListener('securitypolicyviolation', e => console.log('violation', e.blockedURI))"
        )
        person.page.on("dialog", lambda dialog: person.said.append(dialog.message))
        person.visit(survey.fragment(1))
        assert person.page.inner_text("h1") == f"</script>{markup}"
        person.page.get_by_label(markup, exact=True).check()
        person.page.evaluate("document.querySelectorAll('details').forEach(one => one.open = true)")
        assert markup in person.page.inner_text("#terms")
        person.agree()
        person.wait(ARRIVED)
        assert person.page.locator("img").count() == 0
        # The page of the result has the same texts, and what published files are called is a text, too.
        shown = opened_result(person, survey)
        assert shown.inner_text("h1") == f"</script>{markup}"
        assert markup in shown.inner_text("table")
        assert shown.locator("img, script").count() == 0
        assert person.said == []


# Names of one word that take two lines, in a table.
BROKEN = """[...document.querySelectorAll("tbody th")].filter((one) => {
  const all = document.createRange();
  all.selectNodeContents(one);
  const lines = new Set([...all.getClientRects()].filter(({ width }) => width).map(({ top }) => Math.round(top)));
  return !one.textContent.includes(" ") && lines.size > 1;
}).map((one) => one.textContent)"""


def opened_result(person: Visitor, survey: Survey) -> Any:
    """The page of the result of what this person sent, opened where the survey's page shows it after the end."""
    terms = survey.sealed.study.committee
    assert terms is not None
    survey.publish(person.files, person.files, {})
    person.page.clock.set_fixed_time((terms.lists_at + 60) * 1000)
    person.visit()
    with person.page.context.expect_page() as opened:
        person.page.click("#result-page")
    shown = opened.value
    shown.on("console", lambda message: person.said.append(message.text))
    shown.wait_for_load_state()
    return shown


def changed(survey: Survey, before: bytes, after: bytes) -> FormPage:
    """The page with other bytes in its data, as a server could give it that is not the coordinator's."""
    assert before in survey.page.content
    return FormPage(survey.page.content.replace(before, after), survey.page.policy)


@pytest.mark.parametrize("part", ["program", "instance", "mailbox", "script"])
def test_a_page_that_was_changed_asks_nothing(part: str, browser: Any, survey: Survey, port: int) -> None:
    member = survey.sealed.computing[0].mailbox
    step = f'\\"step\\":{survey.program.step!r}'.encode()
    page = {
        "program": lambda: changed(survey, step, f'\\"step\\":{2 * survey.program.step!r}'.encode()),
        "instance": lambda: changed(survey, survey.sealed.instance[:20].encode(), b"A" * 20),
        "mailbox": lambda: changed(survey, member[:40].encode(), b"A" * 40),
        "script": lambda: changed(survey, b'"use strict";\n', b'"use strict";\nalert(1);\n'),
    }[part]()
    with survey.served(port, page), visiting(browser, survey) as person:
        person.page.goto(f"{person.address}/#{survey.fragment(13)}")
        person.page.wait_for_timeout(500)
        assert not person.page.is_visible("#answers")
        # A script that is not the page's own does not run at all.
        assert CHECKING.match(person.state) if part == "script" else "This page was changed" in person.state
        assert not person.files


# A check that is left out of the page's code: module, text, and what stands there instead.
MUTANTS = {
    "program": ("seal", " || program !== body.program", ""),
    "voucher": ("main", "if (!(await isAdmitted(this.study, voucher)))", "if (false)"),
    "receipt": ("drop", "if (isOwn && receipt.place.digest === toHex(digest))", "if (isOwn)"),
}


@pytest.mark.parametrize("check", MUTANTS)
def test_without_its_checks_a_page_is_deceived(
    check: str, browser: Any, survey: Survey, port: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module, before, after = MUTANTS[check]
    assert source(f"{module}.js").count(before) == 1
    monkeypatch.setattr(
        form, "source", lambda name: source(name).replace(before, after) if name == f"{module}.js" else source(name)
    )
    page, fragment = form.form_page(survey.sealed, survey.choice, survey.drop), survey.fragment(22)
    if check == "program":
        step = f'\\"step\\":{survey.program.step!r}'.encode()
        assert step in page.content
        other_step = f'\\"step\\":{2 * survey.program.step!r}'.encode()
        page = FormPage(page.content.replace(step, other_step), page.policy)
    if check == "voucher":
        fragment = Survey(tmp_path, ask=("mean(pay in 0..200000)",), vouchers=5).fragment(1)
    with survey.served(port, page), visiting(browser, survey) as person:
        if check == "receipt":
            own = Registrar.of(survey.sealed.invitation, survey.registrar).own(22).public_key
            receipt = DropReceipt.sign(survey.drop_identity, survey.sealed.digest, own, DropPlace("ab" * 32, 1, "cd" * 32), 1.0)
            person.page.route("**/contributions", hostile([], 200, receipt.signed.to_file()))
        person.visit(fragment)
        person.wait("good for one answer")
        if check == "receipt":
            person.fill(*PEOPLE[0][:5])
            person.agree()
            person.wait(ARRIVED)


def test_a_voucher_of_another_study_or_none_opens_nothing(browser: Any, survey: Survey, port: int, tmp_path: Path) -> None:
    other = Survey(tmp_path, vouchers=5)
    with survey.served(port), visiting(browser, survey) as person:
        for fragment, why in ((other.fragment(1), "another study"), ("nothing", "no whole voucher")):
            person.visit(fragment)
            assert why in person.page.inner_text("#no-voucher")
            assert not person.page.is_visible("#answers")
        # As a file, and as a pasted link.
        name, content = next(iter(survey.made.files.items()))
        (tmp_path / name).write_bytes(content)
        person.page.set_input_files("#pick", tmp_path / name)
        person.wait("good for one answer")
        person.visit()
        person.page.fill("#voucher", f"https://elsewhere.example.org/#{survey.fragment(14)}")
        person.page.click("#use")
        person.wait("good for one answer")


def test_a_page_on_a_disk_sends_to_the_same_drop(browser: Any, survey: Survey, port: int, tmp_path: Path) -> None:
    saved = tmp_path / "form.html"
    saved.write_bytes(survey.page.content)
    with survey.served(port) as box, visiting(browser, survey) as person:
        person.page.goto(saved.as_uri())
        person.page.fill("#voucher", survey.fragment(18))
        person.page.click("#use")
        person.wait("good for one answer")
        person.fill(*PEOPLE[1][:5])
        person.agree()
        person.wait(ARRIVED)
        assert len(box) == 1
        assert not person.said


def test_a_browser_without_these_keys_is_told_so(browser: Any, survey: Survey, port: int) -> None:
    with survey.served(port), visiting(browser, survey) as person:
        person.page.add_init_script("SubtleCrypto.prototype.importKey = () => Promise.reject(new Error('unknown'))")
        person.visit(survey.fragment(17))
        assert "Use a newer one" in person.state
        assert not person.page.is_visible("#answers")


@pytest.mark.parametrize(("size", "scheme"), [("screen", "dark"), ("telephone", "light")])
def test_the_keyboard_is_enough(size: str, scheme: str, browser: Any, survey: Survey, port: int) -> None:
    with survey.served(port) as box, visiting(browser, survey, size, scheme) as person:
        person.visit()
        page = person.page
        keys = Keys(page.keyboard.press, lambda text: page.evaluate(f"() => {{{text}}}"), person.wait)
        answered_by_keys(keys, survey.fragment(15))
        assert len(box) == 1
        (file,) = person.files
        # What was chosen by keys is what members open.
        whole = survey.program.numbers(np.array([[1500, 1, np.nan, np.nan, np.nan]] * 2), np.array([[0.0], [1 - 2**-53]]))
        assert ((survey.numbers_of(file) >= whole[0]) & (survey.numbers_of(file) <= whole[1])).all()


def test_nothing_keeps_people_from_reading_it(browser: Any, survey: Survey, port: int) -> None:
    wrong: list[Any] = []
    with survey.served(port):
        for number, (size, scheme) in enumerate(FORMS, 24):
            width, height = SIZES[size]
            look = {"viewport": {"width": width, "height": height}, "color_scheme": scheme, "bypass_csp": True}
            for fragment in "", survey.fragment(number):
                context = browser.new_context(**look)
                person = Visitor(context.new_page(), survey.drop)
                person.listen()
                person.visit(fragment)
                person.page.evaluate("document.querySelectorAll('details').forEach(one => one.open = true)")
                wrong += [(size, scheme, bool(fragment), one) for one in wrong_on(person.page)]
                if fragment:
                    person.fill(*PEOPLE[0][:5])
                    person.agree()
                    person.wait(ARRIVED)
                    # After the end, with the page of the result.
                    for page in opened_result(person, survey), person.page:
                        wrong += [(size, scheme, "after the end", one) for one in wrong_on(page)]
                        assert page.evaluate("document.documentElement.scrollWidth") <= width
                        # It was as narrow as any is.
                        page.set_viewport_size({"width": width, "height": height})
                        assert page.evaluate(BROKEN) == []
                context.close()
    assert wrong == []
