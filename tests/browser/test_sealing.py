"""Contributions that a real browser makes: members open them, and nobody waits for them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from quietmean.protocols.committee import Committee
from support.committee_world import CommitteeWorld
from support.form_studies import RandomStudy, differences, shown_voucher, study_of, voucher_for
from support.in_firefox import asked_in_firefox
from support.javascript import DRIVER, FORM

ASK = """async (questions) => {
  const { answering } = await import("/sealing.mjs");
  const answer = await answering("/form");
  const answers = [];
  for (const question of questions) answers.push(await answer(question));
  return answers;
}"""
# From yes to receipt it is a second at most, with 30 numbers and 9 members; making the file is the smaller part of it.
NUMBERS, MEMBERS, LONGEST = 30, 9, 0.5


@pytest.fixture(params=["chromium", "firefox"])
def asked(request: pytest.FixtureRequest) -> Any:
    """Ask questions to the modules in a page of a secure origin."""
    if request.param == "firefox":
        return lambda questions: asked_in_firefox(questions, request.getfixturevalue("tmp_path") / "profile")
    return lambda questions: _asked_in_chromium(request.getfixturevalue("browser"), questions)


def _asked_in_chromium(browser: Any, questions: list[dict[str, Any]]) -> Any:
    def serve(route: Any) -> None:
        name = route.request.url.rpartition("/")[2]
        if not name:
            route.fulfill(body="<!doctype html><title>Sealing</title>", content_type="text/html")
            return
        path = DRIVER if name == DRIVER.name else FORM / name
        route.fulfill(body=path.read_text(), content_type="text/javascript")

    page = browser.new_page()
    page.route("http://localhost/**", serve)
    page.goto("http://localhost/")
    answers = page.evaluate(ASK, questions)
    page.close()
    return answers


def test_files_of_random_studies_are_those_of_members_software(asked: Any) -> None:
    studies = [RandomStudy.number(number) for number in range(100)]
    different, compared = differences(studies, asked([study.question for study in studies]))
    assert different == []
    assert compared > 75


def test_nobody_waits_for_a_file(asked: Any) -> None:
    changes = {"dimension": NUMBERS, "clip": 2.0**15, "step": 1.0, "sigma": 4.0, "centre": 0.0}
    world = CommitteeWorld(Committee(MEMBERS, 2, 2, verified=True), 2, NUMBERS, changes=changes, vouchers=2)
    name = "contributor 2"
    question = {"call": "measure", "study": study_of(world.session), "vector": [7] * NUMBERS, "times": 20}
    (found,) = asked([question | {"voucher": shown_voucher(name, voucher_for(name))}])
    seconds = np.array(found["answer"])
    print(f"{world.session.layout(1.0).bits} bits: first {seconds[0]:.3f} s, then {np.median(seconds[1:]):.3f} s")
    assert seconds[0] < LONGEST
    assert np.median(seconds[1:]) < LONGEST
