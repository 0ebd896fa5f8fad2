"""A survey by link as large as one machine holds: pages in a real browser, one real drop, members as processes.

``python tools/survey_scale.py RESPONDENTS [--tabs N] [--within SECONDS]`` prints what was measured, as JSON. Kept is one of them,
tools/survey_scale.json, of which docs/measurements/scale.md tells. For each respondent the page is loaded anew by its link, in
one of N tabs of one headless Chromium, which have storages of their own. A script fills in its fields, ticks the box and presses
the button; the page's own code checks the study, seals in its worker and sends. Of five members, each a process, one is killed
for good once all have answered.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from committee_scale import LOOK, MOST, Member, require
from playwright.async_api import Page, async_playwright

from quietmean.core.file_kinds import package_version
from quietmean.form import SignedPage, form_page, place_of
from quietmean.node.net import Identity
from quietmean.studies.agreement.voucher import Registrar

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from support.browsers import FLAGS, browser_path
from support.committee_study import CommitteeStudy, soon
from support.ports import reserved

SEED = 20261130
MEMBERS = ("m1", "m2", "m3", "m4", "m5")
HIGH = 100_000
ASK = (f"mean(pay in 0..{HIGH})", "proportion(union in yes/no)")

# Once it is asked: what somebody does on the page; how long it takes from the button to the receipt (ms).
ANSWER = """async ([pay, union]) => {
  const at = (id) => document.getElementById(id);
  const seen = (id) => new Promise((done) => {
    const look = () => at(id).hidden || done();
    new MutationObserver(look).observe(at(id), {attributes: true});
    look();
  });
  await seen("answers");
  at("answer-0").value = pay;
  at("answer-0").dispatchEvent(new Event("input"));
  [...document.querySelectorAll("#questions label")].find(({ textContent }) => textContent === union).click();
  at("yes").click();
  const begun = performance.now();
  at("send").click();
  await seen("receipt");
  return performance.now() - begun;
}"""
# So long one may take (s), and so many people use a tab one after the other before it is thrown away.
LONGEST, SHARED = 300.0, 25


@dataclass
class Drop:
    """A drop in a process of its own, and what it used."""

    process: subprocess.Popen[bytes]

    def end(self) -> tuple[float, float]:
        """Stop it; processor seconds, and most memory (MB)."""
        self.process.send_signal(signal.SIGTERM)
        _, status, used = os.wait4(self.process.pid, 0)
        self.process.returncode = os.waitstatus_to_exitcode(status)
        return used.ru_utime + used.ru_stime, used.ru_maxrss * 1024 / 1e6


@dataclass
class SurveyDay:
    """So many ``respondents``, ``tabs`` at a time, who have ``within`` so many seconds; all files are in a new ``folder``."""

    respondents: int
    tabs: int
    within: float
    folder: Path
    ports: Sequence[int]

    def __post_init__(self) -> None:
        drawn = np.random.default_rng(SEED)
        self.pay = np.round(HIGH * drawn.beta(2, 5, self.respondents)).astype(int)
        self.union = drawn.random(self.respondents) < 0.3
        self.registrar = Identity.generate()
        self.waited: list[float] = []

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.ports[-1]}"

    @cached_property
    def study(self) -> CommitteeStudy:
        committee = {
            "contribute_by": soon(self.within),
            "grace": 5.0,
            "verified": True,
            "largest_weight": 1.0,
            "registrar": self.registrar.public_key,
            "vouchers": self.respondents,
            "minimum": 2,
        }
        fields = {"unit": "record", "epsilon": 1.0, "delta": 1e-6, "ask": list(ASK)}
        addresses = {name: f"127.0.0.1:{port}" for name, port in zip(MEMBERS, self.ports, strict=False)}
        return CommitteeStudy(self.folder, fields, committee, MEMBERS, (), addresses)

    def serve(self) -> Drop:
        """Make the page and start its drop."""
        study, page = self.study, self.folder / "form.html"
        content = form_page(study.sealed, study.sealed.choice(), self.address).content
        page.write_bytes(content)
        signed = SignedPage.sign(content, study.sealed, study.identities["m1"], package_version())
        place_of(page).write_bytes(signed.signed.to_file())
        Identity.generate().save(self.folder / "drop.key")
        line = ["serve", "drop", str(page), "--study", str(study.path), "--listen", self.address.removeprefix("http://")]
        line += ["--folder", str(self.folder / "box"), "--key", str(self.folder / "drop.key"), "--json"]
        process = subprocess.Popen([sys.executable, "-m", "quietmean", *line], stdout=subprocess.PIPE)
        require(process.stdout is not None and bool(process.stdout.readline()), "the drop does not listen")
        return Drop(process)

    async def respond(self) -> None:
        """All respondents, each once."""
        vouchers = Registrar.of(self.study.invitation, self.registrar).make(self.respondents, None)
        waiting = list(enumerate(vouchers.fragments.values()))
        async with async_playwright() as play:
            browser = await play.chromium.launch(executable_path=browser_path(), args=FLAGS)

            async def tab() -> None:
                while waiting:
                    context = await browser.new_context()
                    page = await context.new_page()
                    page.set_default_timeout(1000 * LONGEST)
                    for number, fragment in [waiting.pop() for _ in range(min(SHARED, len(waiting)))]:
                        await asyncio.wait_for(self.answer(page, number, fragment), LONGEST)
                    await context.close()

            await asyncio.gather(*[tab() for _ in range(self.tabs)])
            await browser.close()

    async def answer(self, page: Page, number: int, fragment: str) -> None:
        # Another fragment alone loads nothing.
        await page.goto("about:blank")
        await page.goto(f"{self.address}/#{fragment}")
        meant = [str(self.pay[number]), "yes" if self.union[number] else "no"]
        self.waited.append(float(await page.evaluate(ANSWER, meant)) / 1000)
        if len(self.waited) % 100 == 0:
            print(f"{len(self.waited)} have a receipt", file=sys.stderr, flush=True)

    def run(self) -> dict[str, Any]:
        """What was measured. Raises :class:`SystemExit` where the result is not what it has to be."""
        deadline = time.time() + self.within
        members = [Member(self.study, name, self.folder / "box") for name in MEMBERS]
        drop = self.serve()
        try:
            for member in members:
                member.start()
            begun = time.monotonic()
            asyncio.run(self.respond())
            took, spare = time.monotonic() - begun, deadline - time.time()
            require(spare > 0, f"answers took {-spare:.0f} s longer than there was: say more with --within")
            members[-1].kill()
            while sum(not member.ended() for member in members):
                require(time.time() < deadline + MOST, "the session did not end")
                time.sleep(LOOK)
            opened = time.time() - deadline
        finally:
            seconds, megabytes = drop.end()
            for member in members:
                member.kill()
        return {
            "respondents": self.respondents,
            "tabs": self.tabs,
            **self.checked(members[:-1]),
            "answering_seconds": took,
            "yes_to_receipt_seconds": [float(np.quantile(self.waited, share)) for share in (0.5, 0.99, 1.0)],
            "opening_seconds": opened,
            "drop_milliseconds": 1000 * seconds / self.respondents,
            "drop_megabytes": megabytes,
            "member_milliseconds": 1000 * max(member.seconds for member in members) / self.respondents,
            "member_megabytes": max(member.largest for member in members) / 1e6,
        }

    def checked(self, stayed: Sequence[Member]) -> dict[str, Any]:
        results = [json.loads(member.out.read_text() or "{}") for member in stayed]
        for member, document in zip(stayed, results, strict=True):
            require("statistics" in document, f"{member.name} has no result: {member.err.read_text()[-2000:]}")
        first = results[0]
        require(all(document["statistics"] == first["statistics"] for document in results), "members differ")
        counted = first["contributions"]["counted"]
        require(counted == self.respondents, f"{counted} counted of {self.respondents}")
        truth = [float(self.pay.mean()), float(self.union.mean())]
        answers = [(each["estimate"], each["standard_error"]) for each in first["statistics"]]
        away = [(estimate - true) / error for (estimate, error), true in zip(answers, truth, strict=True)]
        return {"counted": counted, "answers": answers, "truth": truth, "away": away}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("respondents", type=int)
    parser.add_argument("--tabs", type=int, default=4, help="how many answer at a time")
    parser.add_argument("--within", type=float, default=900.0, help="seconds for all answers")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as new, reserved(len(MEMBERS) + 1) as ports:
        print(json.dumps(SurveyDay(asked.respondents, asked.tabs, asked.within, Path(new), ports).run()))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
