"""A day of a real drop: contributors of a list and by voucher send to it, it is killed and goes on, and members open one sum."""

from __future__ import annotations

import asyncio
import json
import re
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest

from quietmean.cli.main import main
from quietmean.core.errors import InputError, ProtocolFailure
from quietmean.core.site_options import SiteOptions
from quietmean.node.net import Identity, Purpose
from quietmean.protocols.committee.contribution import read_header
from quietmean.studies.agreement.contribution import DropLog, DropReceipt, session_of
from quietmean.studies.agreement.signed import signed_in
from quietmean.studies.agreement.voucher import Registrar
from quietmean.studies.outcome.opened_by_committee import OpenedStudy
from quietmean.studies.party import Observers, PartyContext, member
from quietmean.studies.party.by_file import CommitteeContributor
from quietmean.studies.party.executions import Register
from quietmean.studies.party.handing_in import contributor_keys, send_to_drop
from support.committee_study import CommitteeStudy, soon
from support.consent import accept as yes_of
from support.outside import Authority

LISTED = tuple(f"c{number}" for number in range(1, 7))
BY_VOUCHER = tuple(f"v{number}" for number in range(1, 7))
PAY = {name: 100.0 + 70.0 * place for place, name in enumerate((*LISTED, *BY_VOUCHER))}


RUNNING: list[subprocess.Popen[str]] = []


@pytest.fixture(autouse=True)
def _none_stays() -> Iterator[None]:
    yield
    for process in RUNNING:
        process.kill()
        process.wait(30)
        if process.stdout is not None:
            process.stdout.close()
    RUNNING.clear()


@dataclass
class RunningDrop:
    """A drop in a process of its own."""

    process: subprocess.Popen[str]
    url: str
    key: str

    @classmethod
    def start(cls, study: CommitteeStudy, port: int, folder: Path, options: Sequence[str]) -> RunningDrop:
        places = ["--study", str(study.path), "--listen", f"localhost:{port}", "--folder", str(folder)]
        command = [sys.executable, "-m", "quietmean", "serve", "drop", *places, *options, "--json"]
        with folder.with_suffix(".said").open("a") as said:
            process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=said, text=True)
        RUNNING.append(process)
        assert process.stdout is not None
        about = json.loads(process.stdout.readline())
        return cls(process, f"https://{about['listening']}", about["key"])

    def end(self, how: signal.Signals) -> int:
        self.process.send_signal(how)
        return self.process.wait(30)


@dataclass
class Contributors:
    """Whose files are made here."""

    study: CommitteeStudy
    registrar: Registrar

    def content(self, name: str, pay: float, place: str = "here") -> tuple[bytes, Identity]:
        """The file of a contributor; another ``place`` is a machine on which nobody knows of the first."""
        study, folder = self.study, self.study.folder / place
        folder.mkdir(exist_ok=True)
        if name in study.identities:
            identity, keys = study.identities[name], study.keys[name]
        else:
            key = folder / f"{name}.voucher"
            key.write_bytes(self.registrar.make(6, None).files[f"{name[1:]}.voucher"])
            key.chmod(0o600)
            identity = Identity.load(key)
            keys = contributor_keys(study.sealed, identity, key, None)
        contributor = CommitteeContributor(study.sealed, study.plan, identity, keys, Register(folder / f"register of {name}"))
        encoded = study.sealed.study.workload.encode(np.array([[pay]]), step=study.plan.value_step)
        return contributor.contribute(encoded).to_file(), identity

    def send(self, drop: RunningDrop, name: str) -> DropReceipt:
        content, identity = self.content(name, PAY[name])
        return self.post(drop, content, identity)

    def post(self, drop: RunningDrop, content: bytes, identity: Identity) -> DropReceipt:
        digest = read_header(session_of(self.study.sealed, self.study.plan), content).digest.hex()
        return send_to_drop(drop.url, content, self.study.sealed.digest, identity.public_key, digest)


def refused(drop: RunningDrop, study: CommitteeStudy, content: bytes) -> str:
    with pytest.raises(InputError) as error:
        send_to_drop(drop.url, content, study.sealed.digest, "", "")
    return str(error.value)


def test_what_a_drop_acknowledged_is_in_the_result_though_it_was_killed(
    tmp_path: Path, free_ports: Callable[[int], list[int]], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    names, (port, *ports) = tuple(f"m{number}" for number in range(1, 6)), free_ports(6)
    addresses = {name: f"127.0.0.1:{one}" for name, one in zip(names, ports, strict=True)}
    identity = Identity.generate()
    vouchers = {"registrar": identity.public_key, "vouchers": 6, "minimum": 2}
    study = CommitteeStudy(tmp_path, {"epsilon": 8.0}, vouchers, names, LISTED, addresses)
    day = Contributors(study, Registrar.of(study.invitation, identity))
    box, key = tmp_path / "box", tmp_path / "drop.key"
    Identity.generate().save(key)
    authority = Authority(tmp_path, "authority")
    certificate, private_key = authority.leaf("localhost")
    monkeypatch.setenv("SSL_CERT_FILE", str(authority.file))
    options = ("--key", str(key), "--certificate", str(certificate), "--private-key", str(private_key))
    first = RunningDrop.start(study, port, box, options)
    receipts = until_killed(day, first, (*LISTED[:4], *BY_VOUCHER[:3]))
    assert len(receipts) >= 3
    with pytest.raises(ProtocolFailure, match="same command again, which sends it again"):
        day.send(first, "c5")
    # In the middle of an append, of which nobody was told.
    with (box / "drop-0001.m02.parts").open("ab") as torn:
        torn.write(b"torn")
    drop = RunningDrop.start(study, port, box, options)
    assert {name: day.send(drop, name) for name in receipts} == receipts
    receipts |= {name: day.send(drop, name) for name in PAY if name not in receipts and name != "c6"}
    receipts["c6"] = by_command(study, drop, tmp_path, capsys)
    assert {receipt.drop for receipt in receipts.values()} == {drop.key}
    # One twice, garbage, with the voucher of another one and of another study.
    own, _ = day.content("v1", PAY["v1"])
    size = read_header(session_of(study.sealed, study.plan), own).size
    second, thief = day.content("v1", 900.0, "elsewhere")
    with pytest.raises(InputError, match=f"since {receipts['v1'].came}, and one counts"):
        day.post(drop, second, thief)
    stolen = day.registrar.make(2, None).vouchers["2.voucher"].admission.signature
    assert "not a contribution to a committee" in refused(drop, study, b"garbage")
    for signature in (stolen, bytes(64)):
        assert "no voucher that the registrar certified" in refused(drop, study, own[: size - 64] + signature + own[size:])
    with urllib.request.urlopen(f"{drop.url}/health", timeout=10) as answer:  # noqa: S310 - of this machine
        assert json.load(answer)["contributions"] == 12
    assert drop.end(signal.SIGTERM) == 0
    # After the time to contribute.
    monkeypatch.setattr(member, "until_listed", at_once)
    everybody = asyncio.run(opening(study, names, box))
    # The chain of the drop that was killed goes on, and each member read all of it.
    session = session_of(study.sealed, study.plan)
    assert sorted(one.place.position for one in receipts.values()) == [*range(1, 13)]
    for name in names:
        signed = signed_in(Purpose.COMMITTEE_LOG, (tmp_path / f"study-{name}.dropped").read_bytes())
        log = DropLog.verified(signed, session)
        assert (log.member, len(log.chains)) == (study.identities[name].public_key, 12)
        assert all(log.has(one.place) for one in receipts.values())
        files = PartyContext.load(study.path, None, study.key(name), Identity.load)
        published = member.MemberFiles(files, study.plan, SiteOptions()).published
        assert [path.name for path in published] == [f"study-{name}.sums", f"study-{name}.dropped"]
    for opened in everybody:
        shown = OpenedStudy.of(study.sealed, study.plan, opened.checked, opened.left_out)
        assert opened.left_out == ()
        assert {digest for digest, _, _ in opened.checked.counted} == {bytes.fromhex(one.digest) for one in receipts.values()}
        document = shown.outcome.to_json()
        assert abs(document["estimate"] - np.mean(list(PAY.values()))) < 8 * document["standard_error"]


@pytest.mark.slow
def test_what_comes_late_is_told_so_and_kept_nowhere(tmp_path: Path, free_ports: Callable[[int], list[int]]) -> None:
    late = {"contribute_by": soon(-1.0), "registrar": (identity := Identity.generate()).public_key, "vouchers": 6, "minimum": 2}
    study, key, box = CommitteeStudy(tmp_path, {"epsilon": 8.0}, late), tmp_path / "drop.key", tmp_path / "box"
    day = Contributors(study, Registrar.of(study.invitation, identity))
    Identity.generate().save(key)
    drop = RunningDrop.start(study, free_ports(1)[0], box, ("--key", str(key)))
    drop = replace(drop, url=drop.url.replace("https", "http"))
    for name in ("c1", "v1"):
        with pytest.raises(InputError, match="the time for contributions to this study is over"):
            day.send(drop, name)
    assert drop.end(signal.SIGTERM) == 0
    # Its operator was told what follows.
    said = " ".join(box.with_suffix(".said").read_text().split())
    assert re.search(r"drop: 0 contributions came until .*, and a result takes 2: members open nothing", said)
    assert all(path.stat().st_size < 1000 for path in box.iterdir())


def until_killed(day: Contributors, drop: RunningDrop, names: Sequence[str]) -> dict[str, DropReceipt]:
    """The receipts that arrived though the drop was killed after the third while it took others."""
    receipts: dict[str, DropReceipt] = {}
    files = {name: day.content(name, PAY[name]) for name in names}
    with ThreadPoolExecutor(4) as pool:
        sent = {pool.submit(day.post, drop, *files[name]): name for name in names}
        for done in as_completed(sent):
            with suppress(ProtocolFailure):
                receipts[sent[done]] = done.result()
            if len(receipts) == 3 and drop.process.poll() is None:
                assert drop.end(signal.SIGKILL) == -signal.SIGKILL
    return receipts


def by_command(study: CommitteeStudy, drop: RunningDrop, folder: Path, capsys: pytest.CaptureFixture[str]) -> DropReceipt:
    """Contributor c6 types it."""
    (folder / "c6.csv").write_text(f"pay\n{PAY['c6']}\n")
    line = ["send", str(study.path), "--key", str(study.key("c6")), "--data", str(folder / "c6.csv"), "--drop", drop.url]
    consent = ["--accept", yes_of("c6", study.sealed), "--no-ledger", "--out", str(folder / "c6.contribution"), "--json"]
    capsys.readouterr()
    main([*line, *consent])
    document = json.loads(capsys.readouterr().out)
    receipt = DropReceipt.of_file(Path(document["receipt"]).read_bytes())
    assert (receipt.digest, receipt.came) == (document["digest"], document["received"])
    return receipt


async def at_once(terms: object, arrived: object, say: object, *, once: bool) -> None:
    """As if the time for contributions were over."""


async def opening(study: CommitteeStudy, names: tuple[str, ...], box: Path) -> list[member.OpenedAtMember]:
    running = []
    for name in names:
        files = PartyContext.load(study.path, None, study.key(name), Identity.load)
        own = member.MemberFiles(files, study.plan, SiteOptions())
        running.append(member.open_with_others(own, box, Observers(lambda event: None), None))
    return await asyncio.gather(*running)
