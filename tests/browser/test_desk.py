"""``quietmean site desk`` in real browsers: of five sites four sign and one refuses; nodes run the study, and pages show it."""

from __future__ import annotations

import re
import select
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from quietmean.node import Identity
from quietmean.studies.agreement.sealed import Sealed
from quietmean.studies.party.approval import fingerprint
from support.browsers import looked_at
from support.meeting import meet
from support.site_policy import write_policy

NAMES = ("north", "south", "east", "west", "centre")
REFUSES = "west"
# The one that refuses is waited for until then.
WAITS = timedelta(seconds=120)
STUDY: dict[str, Any] = {
    "study": {"name": "Length of stay", "epsilon": 2.0, "delta": 1e-6, "colluding": 1, "records": 5000, "minimum": 4},
    "column": [{"name": "age", "low": 0, "high": 110}, {"name": "stay", "low": 0, "high": 60}],
}

# Of all kinds of pages that the desk has.
PATHS = (
    *("/", "/study/stay.sealed", "/node/stay-south", "/result/stay-south"),
    *("/ledger", "/audit", "/board", "/nothing", "/login"),
)


@dataclass
class Site:
    """A folder of its own, with the node's key, the owner's, a policy and data; and the desk that runs there."""

    name: str
    folder: Path
    # A browser of its own, in which its user is logged in.
    page: Any = None

    @property
    def policy(self) -> Path:
        return self.folder / "policy.toml"

    def command(self, *arguments: str) -> list[str]:
        return [sys.executable, "-m", "quietmean", *arguments]

    def join(self, *more: str) -> subprocess.Popen[str]:
        own = ["--key", f"{self.name}.key", "--data", "wards.csv", "--policy", "policy.toml", "--ledger", "ledger", *more]
        pipe = subprocess.PIPE
        return subprocess.Popen(self.command("join", "stay.sealed", *own), cwd=self.folder, stdout=pipe, stderr=pipe, text=True)


@pytest.fixture
def scripts() -> bool:
    """Whether pages may run theirs."""
    return True


@pytest.fixture
def sites(browser: Any, scripts: bool, tmp_path: Path, free_ports: Callable[[int], list[int]]) -> Iterator[dict[str, Site]]:
    addresses = {name: f"127.0.0.1:{port}" for name, port in zip(NAMES, free_ports(5), strict=True)}
    identities = {name: Identity.generate() for name in NAMES}
    found = {}
    with ExitStack() as stack:
        for name in NAMES:
            site = Site(name, tmp_path / name)
            site.folder.mkdir()
            identities[name].save(site.folder / f"{name}.key")
            rows = "\n".join(f"{20 + row % 70},{1 + (row + len(name)) % 50}" for row in range(1000))
            (site.folder / "wards.csv").write_text(f"age,stay\n{rows}\n")
            owner = Identity.generate()
            owner.save(site.folder / "owner.key", b"open sesame")
            log = {"log": str(site.folder / "audit.jsonl")}
            write_policy(site.policy, approvers=[owner.public_key], budget={"epsilon": 5.0, "delta": 1e-5}, audit=log)
            desk = [
                "site",
                "desk",
                ".",
                "--party",
                name,
                "--policy",
                "policy.toml",
                "--ledger",
                "ledger",
                "--owner-key",
                "owner.key",
            ]
            running = stack.enter_context(
                subprocess.Popen(site.command(*desk, "--no-browser"), cwd=site.folder, stderr=subprocess.PIPE, text=True)
            )
            stack.callback(running.send_signal, signal.SIGINT)
            assert running.stderr is not None
            assert select.select([running.stderr], [], [], 60)[0]
            # At once: the link is good for one minute, and five desks start one after the other.
            site.page = entered(browser, re.findall(r"http\S+", running.stderr.readline())[0], scripts)
            stack.callback(site.page.context.close)
            found[name] = site
        # Only now: five desks need more than these minutes where the machine does other things too.
        start_by = (datetime.now(UTC) + WAITS).isoformat(timespec="seconds")
        meeting = meet(tmp_path, NAMES, {**STUDY, "study": {**STUDY["study"], "start_by": start_by}}, identities, addresses)
        sealed = meeting.seal().signed.to_file()
        for name, site in found.items():
            keys = meeting.keys[name].path
            shutil.copy(keys, site.folder / keys.name)
            (site.folder / "stay.sealed").write_bytes(sealed)
            site.page.reload()
        yield found


def test_a_study_from_the_signature_to_the_result(browser: Any, sites: dict[str, Site]) -> None:
    words = fingerprint(Sealed.load(sites["north"].folder / "stay.sealed").digest).words
    pages = {name: site.page for name, site in sites.items()}
    # Nobody has signed yet: no node starts.
    refused = sites["south"].join()
    assert "approvers" in refused.communicate(timeout=120)[1]
    assert refused.returncode == 2
    for name, page in pages.items():
        page.click('a:text-is("Decide")')
        # Until then its script has not put the words in their order.
        page.wait_for_load_state()
        for number in range(1, len(words) + 1):
            # None can be ticked before its turn; the next one is where the keyboard is.
            assert number == len(words) or page.is_disabled(f"input[name='word.{number + 1}']")
            if number == 1:
                page.focus("input[name='word.1']")
            page.keyboard.press("Space")
        assert page.eval_on_selector_all(".code input:checked", "all => all.map(one => one.value)") == list(words)
        page.fill("#account", "wards")
        page.fill("#passphrase", "open sesame")
        page.click('button:text-is("Sign")')
        assert "Good until" in page.inner_text("main")
        if name == REFUSES:
            page.goto(origin(page) + "/study/stay.sealed")
            page.click('button:text-is("Refuse")')
            assert "stay-west.approval was taken away" in page.inner_text("main")
            page.goto(origin(page) + "/")
            assert "refused" in page.inner_text("main")
    without = sites[REFUSES].join("--approval", f"stay-{REFUSES}.approval")
    assert "stay-west.approval" in without.communicate(timeout=120)[1]
    assert without.returncode == 2
    # Three begin, and are watched; the fourth is killed once and begins again.
    nodes = {name: sites[name].join("--approval", f"stay-{name}.approval") for name in ("north", "south", "centre")}
    page = pages["south"]
    wait_for(sites["south"].folder / "stay-south.store.status.json")
    page.goto(origin(page) + "/node/stay-south")
    page.wait_for_selector("text=is waited for")
    late = sites["east"].join("--approval", "stay-east.approval")
    wait_for(sites["east"].folder / "stay-east.store.status.json")
    late.kill()
    late.communicate()
    nodes["east"] = sites["east"].join("--approval", "stay-east.approval")
    for name, node in nodes.items():
        told = node.communicate(timeout=240)
        assert node.returncode == 0, (name, told)
    # The page has followed by itself.
    page.wait_for_selector("text=finished")
    for name, page in pages.items():
        if name == REFUSES:
            page.goto(origin(page) + "/ledger")
            assert "Length of stay" not in page.inner_text("main")
            continue
        page.goto(origin(page) + f"/result/stay-{name}")
        page.click("text=The report, with pictures")
        assert "Who is left out?" in page.inner_text("body")
        assert REFUSES in page.inner_text("body")
        page.goto(origin(page) + "/ledger")
        assert "Length of stay" in page.inner_text("main")
        page.goto(origin(page) + "/audit")
        log = page.inner_text("main")
        assert "Receipts here that say the same: 1" in log
        assert all(event in log for event in ("approvals used", "charged", "ended")), log
        with page.expect_download() as saved:
            page.click("text=Save the audit log as a file")
        assert Path(saved.value.path()).read_bytes() == (sites[name].folder / "audit.jsonl").read_bytes()
    south = pages["south"]
    addresses = [origin(south) + path for path in PATHS]
    assert looked_at(browser, addresses, storage_state=south.context.storage_state()) == []


def entered(browser: Any, link: str, scripts: bool) -> Any:
    """A browser of its own, by the link that was printed; without scripts the token of the link is pasted into the form."""
    page = browser.new_context(java_script_enabled=scripts).new_page()
    # Of a busy machine; it is over as soon as the page is there.
    page.set_default_timeout(120_000)
    if scripts:
        page.goto(link)
    else:
        address, _, token = link.partition("#")
        page.goto(address)
        page.fill("#token", token)
        page.click("button")
    page.wait_for_selector("text=What this site takes part in")
    assert "#" not in page.url
    return page


def origin(page: Any) -> str:
    return re.match(r"http://[^/]+", page.url)[0]  # type: ignore[index]


def wait_for(path: Path) -> None:
    import time

    for _ in range(1200):
        if path.exists():
            return
        time.sleep(0.1)
    raise AssertionError(f"{path.name} never came")


@pytest.mark.parametrize("scripts", [False])
def test_without_scripts(sites: dict[str, Site]) -> None:
    """All but what moves."""
    page = sites["south"].page
    page.click('a:text-is("Decide")')
    assert "Compare the safety code" in page.inner_text("main")
    page.click("body > header button")
    assert "You are logged out" in page.inner_text("main")
