"""From an empty folder to a link that works: four commands of the coordinator, and one of each member before the survey."""

from __future__ import annotations

import csv
import json
import re
import shlex
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from quietmean.cli.main import main
from quietmean.form import form_page
from quietmean.node.net import Identity
from quietmean.studies.agreement.contribution import DropReceipt
from quietmean.studies.agreement.sealed import Sealed
from support.command_lines import fails
from support.committee_study import soon
from support.pages import commands

MEMBERS = ("m1", "m2", "m3", "m4", "m5")


def typed(line: str, capsys: pytest.CaptureFixture[str]) -> str:
    """What a line prints."""
    capsys.readouterr()
    main(shlex.split(line)[1:])
    return capsys.readouterr().out


@contextmanager
def serving(line: str) -> Iterator[dict[str, Any]]:
    """A drop in a process of its own, and what it says of itself."""
    command = [sys.executable, "-m", "quietmean", *shlex.split(line)[1:], "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield json.loads(process.stdout.readline())
        finally:
            process.send_signal(signal.SIGTERM)
    assert process.returncode == 0


@pytest.mark.slow
def test_four_commands_lead_to_a_link(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], free_ports: Callable[[int], list[int]]
) -> None:
    monkeypatch.chdir(tmp_path)
    address = f"127.0.0.1:{free_ports(1)[0]}"
    lines = [line for line in commands("take-part/committee.md") if "pay." in line]
    assert [re.findall(r"[a-z]+", line)[1:3] for line in lines] == [
        ["study", "new"], ["study", "invite"], ["study", "seal"], ["serve", "drop"]
    ]  # fmt: skip
    new, invite, seal, serve = (line.replace("https://drop.example.org", f"http://{address}") for line in lines)
    typed(new.replace("2027-03-01T12:00:00Z", soon()).replace("--vouchers 500", "--vouchers 12 --minimum 1"), capsys)
    typed(invite, capsys)
    for name in MEMBERS:
        typed(f"quietmean accept pay.invitation --key {name}.key --name {name} --member --address {name}.example:7000", capsys)
    told = typed(seal, capsys)
    # Each thing that was made is named.
    for path in ("pay.html", "pay.html.signed", "pay.vouchers/links.csv"):
        assert path in told
        assert Path(path).stat().st_size > 0
    here = serve[: serve.index(" --certificate")]
    assert here.replace(":443", address) in told
    # For others it would send to their own machines.
    fails(here.removeprefix("quietmean "), capsys, "takes for its own machine")
    assert not Path("box").exists()
    sealed = Sealed.load(Path("pay.sealed"))
    with serving(here.replace(":443", address)) as about:
        with urllib.request.urlopen(f"http://{address}/") as shown:
            assert shown.read() == form_page(sealed, sealed.choice(), f"http://{address}").content
        assert about["page"] == f"http://{address}/"
        assert about["key"] == Identity.load(Path("box.key")).public_key
        with Path("pay.vouchers/links.csv").open() as table:
            links = {row["voucher"]: row["link"] for row in csv.DictReader(table)}
        assert sorted(links) == sorted(path.name for path in Path("pay.vouchers").glob("*.voucher"))
        assert all(link.startswith(f"http://{address}#") for link in links.values())
        Path("one.csv").write_text("pay\n51000\n")
        send = "quietmean send pay.sealed --key pay.vouchers/01.voucher --data one.csv --out one.contribution"
        accept = json.loads(typed("quietmean site contract pay.sealed --key pay.vouchers/01.voucher --json", capsys))["accept"]
        typed(f"{send} --accept {accept} --no-ledger --drop http://{address}", capsys)
        receipt = DropReceipt.of_file(Path("one.contribution.receipt").read_bytes())
        assert receipt.drop == about["key"]
    # A drop that has acknowledged something has a key already.
    Path("box.key").rename("elsewhere.key")
    fails(here.replace(":443", address).removeprefix("quietmean "), capsys, "Restore it")
    assert not Path("box.key").exists()
    # What is there already stays: another seal would be of another study.
    before = Path("pay.html").read_bytes()
    Path("pay.sealed").unlink()
    fails(seal.removeprefix("quietmean "), capsys, "pay.html")
    assert Path("pay.html").read_bytes() == before
    assert not Path("pay.sealed").exists()
