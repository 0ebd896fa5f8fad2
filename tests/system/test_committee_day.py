"""A day of a committee: contributors hand in files, members take them when their time is over, and open one sum."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

import numpy as np
import pytest

from quietmean.cli.main import main
from quietmean.core.errors import InputError, NotYet, StorageError
from quietmean.core.portability import replace_durably
from quietmean.core.site_options import SiteOptions
from quietmean.node.committee import MailboxOpener
from quietmean.node.net import Identity
from quietmean.protocols.committee.contribution import read_header
from quietmean.protocols.committee.result import check_result, read_result
from quietmean.studies.agreement import study_keys
from quietmean.studies.agreement.contribution import session_of
from quietmean.studies.agreement.study_keys import StudyKeys
from quietmean.studies.agreement.voucher import Registrar
from quietmean.studies.outcome.opened_by_committee import OpenedStudy
from quietmean.studies.party import Observers, PartyContext
from quietmean.studies.party.by_file import CommitteeContributor
from quietmean.studies.party.executions import Register
from quietmean.studies.party.handing_in import contributor_keys
from quietmean.studies.party.member import MemberFiles, OpenedAtMember, open_with_others
from quietmean.studies.party.member_holdings import MemberHoldings
from support.committee_study import CommitteeStudy, soon
from support.disk import SYSTEM_ERRORS

FreePorts = Callable[[int], list[int]]
PAY = {"c1": 100.0, "c2": 400.0, "c3": 700.0}


class Day:
    """A sealed study whose time for contributions is over in four seconds, and a folder with the files of three contributors."""

    def __init__(
        self, folder: Path, ports: Iterable[int], vouchers: Mapping[str, object] | None = None, **fields: object
    ) -> None:
        addresses = {f"m{place}": f"127.0.0.1:{port}" for place, port in enumerate(ports, 1)}
        committee = {"contribute_by": soon(4.0), "grace": 0.0, "minimum": 2, **(vouchers or {})}
        general = {"epsilon": 20.0, **(fields or {"round_timeout": 4.0})}
        self.study = CommitteeStudy(folder, fields=general, committee=committee, addresses=addresses)
        self.box = folder / "box"
        self.box.mkdir()
        for name in PAY:
            self.hand_in(name)

    def hand_in(self, name: str) -> Path:
        return self._hand_in(name, self.study.identities[name], self.study.keys[name], PAY[name])

    def hand_in_by_voucher(self, name: str, content: bytes, pay: float) -> Path:
        """``content``: of the file that the registrar handed out."""
        key = self.study.folder / f"{name}.voucher"
        key.write_bytes(content)
        key.chmod(0o600)
        own = Identity.load(key)
        return self._hand_in(name, own, contributor_keys(self.study.sealed, own, key, None), pay)

    def _hand_in(self, name: str, identity: Identity, keys: StudyKeys, pay: float) -> Path:
        study = self.study
        register = Register(study.folder / f"register of {name}")
        contributor = CommitteeContributor(study.sealed, study.plan, identity, keys, register)
        encoded = study.sealed.study.workload.encode(np.array([[pay]]), step=study.plan.value_step)
        path = self.box / f"{name}.contribution"
        path.write_bytes(contributor.contribute(encoded).to_file())
        # It came in time, however slow this machine is.
        os.utime(path, (0, 0))
        return path

    def member(self, name: str, **options: object) -> MemberFiles:
        files = PartyContext.load(self.study.path, None, self.study.key(name), lambda path: self.study.identities[name])
        return MemberFiles(files, self.study.plan, SiteOptions(**options))  # type: ignore[arg-type]

    async def open(self, *names: str, **options: object) -> dict[str, OpenedAtMember]:
        show = Observers(lambda event: None)
        running = {name: open_with_others(self.member(name, **options), self.box, show, None) for name in names}
        return dict(zip(running, await asyncio.gather(*running.values()), strict=True))


def right(study: CommitteeStudy, opened: OpenedAtMember, names: Iterable[str]) -> None:
    """The mean of these contributions, within eight standard errors, and theirs alone."""
    identities = {study.identities[name].public_key for name in names}
    assert {key for _, key, _ in opened.checked.counted} == identities
    mean = np.mean([PAY[name] for name in names])
    assert opened.checked.weight == len(identities)
    shown = OpenedStudy.of(study.sealed, study.plan, opened.checked, opened.left_out).outcome.to_json()
    assert abs(shown["estimate"] - mean) < 8 * shown["standard_error"]


def test_members_open_one_sum_though_one_of_them_never_comes(tmp_path: Path, free_ports: FreePorts) -> None:
    day = Day(tmp_path, free_ports(4))
    (day.box / "foreign").write_text("no contribution")
    cut = day.box / "c3.contribution"
    cut.write_bytes(cut.read_bytes()[:-1])
    os.utime(cut, (0, 0))
    opened = asyncio.run(day.open("m1", "m2", "m3"))
    for name, end in opened.items():
        right(day.study, end, ["c1", "c2"])
        assert dict(end.left_out) == {
            "c3": "it is cut off, or was changed on the way",
            "foreign": "it is not a contribution to a committee",
        }
        shown = OpenedStudy.of(day.study.sealed, day.study.plan, end.checked, end.left_out)
        assert shown.headline.endswith(" opened from the sums of 3 members; NOT in it: c3")
        own = day.member(name)
        # What could open contributions is gone, and the member says so.
        assert not own.held.exists()
        assert own.beside(".end").exists()
        assert own.files.keys is not None
        assert own.files.keys.mailbox is None
        # Anybody checks the result.
        session = session_of(day.study.sealed, day.study.plan)
        assert check_result(session, read_result(session, own.sums.read_bytes())).counted == end.checked.counted
    assert len({end.checked.total.tobytes() for end in opened.values()}) == 1
    # The same again from the store, without the others and without the folder.
    (day.box / "c1.contribution").unlink()
    again = asyncio.run(day.open("m2"))["m2"]
    assert again.checked.total.tobytes() == opened["m2"].checked.total.tobytes()


def test_who_has_a_voucher_counts_beside_who_is_listed_and_once(tmp_path: Path, free_ports: FreePorts) -> None:
    identity = Identity.generate()
    day = Day(tmp_path, free_ports(4), {"registrar": identity.public_key, "vouchers": 2})
    registrar = Registrar.of(day.study.invitation, identity)
    files = registrar.make(2, None).files
    own = day.hand_in_by_voucher("v1", files["1.voucher"], 900.0).read_bytes()
    # The same voucher where nobody knows that it was used.
    again = tmp_path / "elsewhere"
    again.mkdir()
    (tmp_path / "v1.voucher").rename(again / "v1.voucher")
    twice = day.hand_in_by_voucher("v1again", files["1.voucher"], 100.0)
    assert twice.read_bytes() != own
    # Another one's voucher, and one of another study.
    size = read_header(session_of(day.study.sealed, day.study.plan), own).size
    for name, voucher in (("stolen", registrar.make(2, None).vouchers["2.voucher"]), ("foreign", None)):
        signature = bytes(64) if voucher is None else voucher.admission.signature
        path = day.box / f"{name}.contribution"
        path.write_bytes(own[: size - 64] + signature + own[size:])
        os.utime(path, (0, 0))
    opened = asyncio.run(day.open("m1", "m2", "m3", "m4"))
    for end in opened.values():
        shown = OpenedStudy.of(day.study.sealed, day.study.plan, end.checked, end.left_out)
        document = shown.to_json()
        assert document["contributions"]["counted"] == 4
        assert document["contributions"]["by_voucher"] == {"registrar": identity.public_key, "number": 2, "used": 1}
        assert document["contributions"]["missing"] == []
        assert set(document["contributions"]["digests"]) == {*PAY, "by voucher 1"}
        left_out = dict(end.left_out)
        assert left_out.keys() == {"foreign.contribution", "stolen.contribution", "v1again.contribution"}
        assert "no voucher that the registrar certified" in left_out["stolen.contribution"]
        assert "made another one" in left_out["v1again.contribution"]
        estimate = shown.outcome.to_json()
        assert abs(estimate["estimate"] - np.mean([*PAY.values(), 900.0])) < 8 * estimate["standard_error"]
        assert any("1 of these contributions came by vouchers of the registrar" in note for note in shown.notes)


@pytest.mark.slow
def test_anybody_shows_the_result(tmp_path: Path, free_ports: FreePorts, capsys: pytest.CaptureFixture[str]) -> None:
    registrar = Identity.generate()
    day = Day(tmp_path, free_ports(4), {"registrar": registrar.public_key, "vouchers": 2})
    day.hand_in_by_voucher("v2", Registrar.of(day.study.invitation, registrar).make(2, None).files["2.voucher"], 400.0)
    asyncio.run(day.open("m1", "m2", "m3", "m4"))
    sums = [str(day.member(name).sums) for name in ("m1", "m3")]
    main(["result", str(day.study.path), *sums, "--json", "--out", str(tmp_path / "shown")])
    document = json.loads(capsys.readouterr().out)
    assert document["contributions"]["counted"] == 4
    assert document["contributions"]["by_voucher"]["used"] == 1
    assert registrar.public_key in " ".join(document["notes"])
    for page in ("report", "privacy"):
        assert registrar.public_key in (tmp_path / "shown" / f"study.{page}.html").read_text()
    assert document["contributions"]["left_out"] == document["contributions"]["missing"] == []
    assert document["privacy"]["colluding_members"] == 1
    assert document["privacy"]["epsilon_a_priori"] <= 20.0
    assert abs(document["estimate"] - 400.0) < 8 * document["standard_error"]
    receipt = tmp_path / "shown" / "study.receipt.json"
    main(["verify", "receipt", str(receipt), "--json"])
    certified = json.loads(capsys.readouterr().out)
    assert certified["epsilon_a_priori"] == pytest.approx(document["epsilon_a_priori"], rel=1e-6)
    for content, reason in (
        (b"no sums", "it is not a result of a committee"),
        (Path(sums[0]).read_bytes()[:-20], "it is not a result of a committee"),
    ):
        wrong = tmp_path / "wrong.sums"
        wrong.write_bytes(content)
        with pytest.raises(SystemExit) as ended:
            main(["result", str(day.study.path), str(wrong), "--out", str(tmp_path / "other")])
        assert ended.value.code == 2
        assert reason in capsys.readouterr().err


@pytest.mark.slow
def test_members_meet_in_a_folder(tmp_path: Path) -> None:
    deadlines = {"first": soon(40), "interval": 20.0, "poll": 2.0}
    day = Day(tmp_path, (), transport="folder", deadlines=deadlines)
    post = tmp_path / "post"
    post.mkdir()
    opened = asyncio.run(day.open("m1", "m2", "m3", "m4", folder=str(post)))
    for end in opened.values():
        right(day.study, end, PAY)


def test_a_member_that_holds_something_takes_no_other(tmp_path: Path, free_ports: FreePorts) -> None:
    day = Day(tmp_path, free_ports(4))
    own = day.member("m1")
    session, terms, keys = own.session, own.terms, own.files.keys
    assert keys is not None
    assert keys.mailbox is not None
    opener = MailboxOpener(keys.mailbox)
    taken = MemberHoldings.take(own.held, session, own.files.party, opener, day.box, terms.lists_at)
    first = [held.digest for held in taken]
    for file in day.box.iterdir():
        file.unlink()
    again = MemberHoldings.load(own.held, session)
    assert again is not None
    assert [held.digest for held in again] == first
    assert len(first) == 3
    own.held.write_bytes(own.held.read_bytes()[:-1])
    with pytest.raises(InputError, match="takes no part any more"):
        MemberHoldings.load(own.held, session)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("kind", ["nothing", "missing", "late"])
def test_a_folder_without_contributions_opens_nothing(tmp_path: Path, free_ports: FreePorts, kind: str) -> None:
    day = Day(tmp_path, free_ports(4))
    if kind == "late":
        for file in day.box.iterdir():
            os.utime(file, (soon_late := day.member("m1").terms.lists_at + 60, soon_late))
    else:
        for file in day.box.iterdir():
            file.unlink()
    if kind == "missing":
        day.box.rmdir()
    with pytest.raises(InputError, match=r"Nothing was listed or opened"):
        asyncio.run(day.open("m1"))
    assert not day.member("m1").held.exists()
    assert not day.member("m1").store.exists()


def test_a_member_whose_disk_is_full_goes_on_once_there_is_room(
    tmp_path: Path, free_ports: FreePorts, monkeypatch: pytest.MonkeyPatch
) -> None:
    day = Day(tmp_path, free_ports(4))
    own = day.member("m1")
    # While it runs it waits for room itself; at its end the same command does.
    refusals = {own.sums: 2, own.beside(".end"): 1}
    real = replace_durably

    def refusing(path: Path, content: bytes) -> None:
        if refusals.get(path):
            refusals[path] -= 1
            raise SYSTEM_ERRORS["full"]()
        real(path, content)

    async def opening() -> list[OpenedAtMember | BaseException]:
        show = Observers(lambda event: None)
        running = [open_with_others(day.member(name), day.box, show, None) for name in ("m1", "m2", "m3", "m4")]
        return await asyncio.gather(*running, return_exceptions=True)

    monkeypatch.setattr(study_keys, "replace_durably", refusing)
    failed, *others = asyncio.run(opening())
    assert not any(refusals.values())
    assert isinstance(failed, StorageError), failed
    assert str(failed) == f"no space beside {own.beside('.end')}. Make room, then run the same command again."
    # The others are not needed for that.
    again = asyncio.run(day.open("m1"))["m1"]
    for end in (again, *others):
        assert isinstance(end, OpenedAtMember), end
        right(day.study, end, PAY)
        assert end.checked.total.tobytes() == again.checked.total.tobytes()
    assert own.beside(".end").exists()


def test_a_member_that_is_early_says_so(tmp_path: Path) -> None:
    day = Day(tmp_path, ())
    (tmp_path / "early").mkdir()
    early = CommitteeStudy(tmp_path / "early", committee={"contribute_by": soon(60)})
    files = PartyContext.load(early.path, None, early.key("m1"), lambda path: early.identities["m1"])
    own = MemberFiles(files, early.plan, SiteOptions(once=True))
    with pytest.raises(
        NotYet, match=r"0 of at least 3 contributions so far, until .*; members take them at .*. Start this member again then"
    ):
        asyncio.run(open_with_others(own, day.box, Observers(lambda event: None), None))


@pytest.mark.slow
def test_another_store_takes_no_part(tmp_path: Path, free_ports: FreePorts) -> None:
    day = Day(tmp_path, free_ports(4))
    asyncio.run(day.open("m1", "m2", "m3", "m4"))
    own = day.member("m2")
    own.store.unlink()
    with pytest.raises(InputError, match="with another store"):
        asyncio.run(day.open("m2"))
