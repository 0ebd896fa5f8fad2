"""Contributors whom no list names: a registrar certified their keys for one study, and each counts once."""

from __future__ import annotations

import json
import math
import re
import shlex
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import segno

from quietmean.cli.main import main
from quietmean.core.errors import InputError
from quietmean.node.net import Identity, Purpose
from quietmean.protocols.committee import Committee
from quietmean.protocols.committee.contribution import ContributionError, excerpt, header_digest, make_contribution, read_header
from quietmean.protocols.committee.keys import ADMISSION_BYTES, AdmissionByVoucher, raw_key, voucher_content
from quietmean.protocols.committee.lists import HeldInMemory, entries_of, read_list, write_list
from quietmean.protocols.committee.result import check_result, read_result
from quietmean.protocols.publishing import ContentError
from quietmean.randomness import Seed
from quietmean.report import ReportFacts
from quietmean.studies.agreement.contribution import session_of
from quietmean.studies.agreement.study import StudyTerms
from quietmean.studies.agreement.study_keys import StudyKeys
from quietmean.studies.agreement.voucher import Registrar, Voucher, vouching_of
from quietmean.studies.outcome.opened_by_committee import names_of
from quietmean.studies.party import Contract
from quietmean.studies.party.by_file import CommitteeContributor
from quietmean.studies.party.executions import Register
from quietmean.studies.party.handing_in import contributor_keys
from support.command_lines import fails
from support.committee_run import CommitteeRun
from support.committee_study import CommitteeStudy
from support.committee_world import SEALER, CommitteeWorld, identity
from support.refusals import raised, refused

# Contributors 0 and 1 are listed, 2 and 3 have vouchers; more may be certified, and there is no room for them.
WORLD = CommitteeWorld(Committee(4), contributors=2, vouchers=2)
BY_VOUCHER = WORLD.contribution(2)
NUMBERS = np.zeros(4, dtype=np.int64)


def with_admission(raw: bytes, admission: AdmissionByVoucher) -> bytes:
    """The same file with another voucher's part, which its contributor did not sign."""
    size = read_header(WORLD.session, raw).size
    return raw[: size - ADMISSION_BYTES] + admission.to_bytes() + raw[size:]


def of_own_hand(number: int) -> AdmissionByVoucher:
    """A contributor certifies itself."""
    own = identity(f"contributor {number}")
    return AdmissionByVoucher(None, own.sign(Purpose.COMMITTEE_VOUCHER, voucher_content("ab" * 32, own.public_key, None)))


def of_another_study(number: int) -> AdmissionByVoucher:
    registrar, key = identity("registrar"), identity(f"contributor {number}").public_key
    return AdmissionByVoucher(None, registrar.sign(Purpose.COMMITTEE_VOUCHER, voucher_content("cd" * 32, key, None)))


def test_who_has_a_voucher_contributes_as_who_is_listed() -> None:
    header = read_header(WORLD.session, BY_VOUCHER)
    assert header.contributor == WORLD.contributor(2).public_key
    # The digest is a matter of the contributor alone.
    assert header.digest == header_digest(with_admission(BY_VOUCHER, of_own_hand(2)))
    own = excerpt(WORLD.session, BY_VOUCHER, 1)
    assert read_header(WORLD.session, own) == header
    ended = CommitteeRun(WORLD, {number: WORLD.contribution(number) for number in range(4)}).run()
    for state in ended.states:
        checked = check_result(WORLD.session, read_result(WORLD.session, state.result.content))
        assert {key for _, key, _ in checked.counted} == {WORLD.contributor(number).public_key for number in range(4)}


@pytest.mark.parametrize(
    "admission",
    [
        of_own_hand(2),
        of_another_study(2),
        WORLD.admission(3),
        AdmissionByVoucher(0.5, WORLD.admission(2).signature),
        AdmissionByVoucher(math.nan, WORLD.admission(2).signature),
        AdmissionByVoucher(None, bytes(64)),
    ],
)
def test_a_voucher_that_its_registrar_did_not_certify_for_this_key_and_study_is_none(admission: AdmissionByVoucher) -> None:
    with pytest.raises(ContributionError, match="no voucher that the registrar certified for this study"):
        read_header(WORLD.session, with_admission(BY_VOUCHER, admission))
    with pytest.raises(ContributionError, match="no voucher that the registrar certified for this study"):
        make_contribution(WORLD.session, WORLD.contributor(2), SEALER, NUMBERS, 1.0, Seed(bytes(32)), admission)
    held = HeldInMemory(WORLD.session, 0, WORLD.opener(0))
    assert not held.take(with_admission(BY_VOUCHER, admission))
    assert len(held) == 0


def test_a_voucher_cannot_be_left_out_nor_cut() -> None:
    size = read_header(WORLD.session, BY_VOUCHER).size
    for wrong in (BY_VOUCHER[: size - ADMISSION_BYTES] + BY_VOUCHER[size:], BY_VOUCHER[: size - 1]):
        raised(ContributionError, r"cut off|no voucher", read_header, WORLD.session, wrong)


def test_a_voucher_says_how_much_its_contribution_may_weigh() -> None:
    admission = WORLD.admission(2, 0.5)
    raw = make_contribution(WORLD.session, WORLD.contributor(2), SEALER, NUMBERS, 0.5, Seed(bytes(32)), admission)
    assert read_header(WORLD.session, raw).weight == 0.5
    with pytest.raises(ContributionError, match=r"may have 0.5 at most"):
        make_contribution(WORLD.session, WORLD.contributor(2), SEALER, NUMBERS, 0.75, Seed(bytes(32)), admission)
    with pytest.raises(ContributionError, match="may have 1 at most"):
        make_contribution(WORLD.session, WORLD.contributor(2), SEALER, NUMBERS, 2.0, Seed(bytes(32)), WORLD.admission(2, 5.0))


def test_a_voucher_counts_once_and_no_more_of_them_than_the_study_has() -> None:
    held = HeldInMemory(WORLD.session, 0, WORLD.opener(0))
    assert held.take(BY_VOUCHER)
    # Fresh masks: another contribution with the same voucher.
    assert not held.take(WORLD.contribution(2))
    assert held.take(WORLD.contribution(3))
    # The registrar certified a third one. Who is listed has a place of its own.
    assert not held.take(WORLD.contribution(4))
    assert held.take(WORLD.contribution(0))
    assert [why for _, why in held.left_out] == [
        "another contribution of the same contributor came first",
        "2 others came by voucher before, and the study has no more vouchers",
    ]


def listed(numbers: list[int], weight: float = 1.0) -> bytes:
    """The signed list of member 0 with entries of these contributors."""
    told = [
        (bytes([number]) * 32, raw_key(WORLD.contributor(number).public_key), weight, np.zeros(6, dtype=np.uint32))
        for number in numbers
    ]
    none = entries_of([], 6)
    return write_list(WORLD.session, WORLD.signer(0), 0, entries_of(told, 6), none)


def test_no_list_and_no_result_has_more_contributors_by_voucher_than_there_are() -> None:
    assert len(read_list(WORLD.session, listed([0, 1, 2, 4])).values) == 4
    for wrong in (listed([2, 3, 4]), listed([2, 2]), listed([2], 1.5), listed([0], 1.5)):
        raised(ContentError, "not admitted", read_list, WORLD.session, wrong)


def test_the_plan_counts_all_vouchers() -> None:
    with pytest.raises(InputError, match="4 contributors are admitted, and the plan is for 3"):
        replace(WORLD.session, parameters=replace(WORLD.parameters, contributors=3))
    room = {"clip": 0.5, "step": 2.0**-16}
    CommitteeWorld(Committee(4), 2, vouchers=16000, changes=room)
    refused("there is room for", CommitteeWorld, Committee(4), 2, vouchers=17000, changes=room)


# --- documents ----------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> CommitteeStudy:
    committee = {"registrar": identity("registrar").public_key, "vouchers": 12}
    return CommitteeStudy(tmp_path_factory.mktemp("study"), committee=committee, contributors=("c1",))


@pytest.fixture(scope="module")
def registrar(study: CommitteeStudy) -> Registrar:
    return Registrar.of(study.invitation, identity("registrar"))


def test_vouchers_made_again_are_the_same_and_show_no_key(registrar: Registrar, study: CommitteeStudy, tmp_path: Path) -> None:
    made, again = registrar.make(12, None), registrar.make(3, None)
    assert list(made.files) == [f"{place:02}.voucher" for place in range(1, 13)]
    assert {name: made.files[name] for name in again.files} == again.files
    assert len({one.key for one in made.vouchers.values()}) == 12
    path = tmp_path / "01.voucher"
    path.write_bytes(made.files["01.voucher"])
    path.chmod(0o600)
    own, voucher = Identity.load(path), Voucher.of_key(path)
    assert voucher == made.vouchers["01.voucher"]
    voucher.require_for(study.invitation, own.public_key)
    secret = own.private_key.private_bytes_raw()
    for shown in (repr(made), repr(registrar), repr(voucher), repr(own)):
        assert secret.hex() not in shown
        assert "PRIVATE KEY" not in shown
    # Another study's invitation has other keys.
    other = CommitteeStudy(tmp_path, committee={"registrar": registrar.public_key, "vouchers": 12})
    others = Registrar.of(other.invitation, identity("registrar")).make(12, None)
    assert not {one.key for one in others.vouchers.values()} & {one.key for one in made.vouchers.values()}
    refused("for another study", others.vouchers["01.voucher"].require_for, study.invitation, others.vouchers["01.voucher"].key)


def test_a_voucher_admits_nobody_else(registrar: Registrar, study: CommitteeStudy) -> None:
    voucher = registrar.make(1, None).vouchers["01.voucher"]
    refused("the voucher is for the key", voucher.require_for, study.invitation, identity("mallory").public_key)
    mine = Voucher.certify(identity("mallory"), study.invitation.digest, identity("mallory").public_key, None)
    refused("is not signed by", mine.require_for, study.invitation, mine.key)
    refused("your key is", Registrar.of, study.invitation, identity("mallory"))
    line = voucher.signed.to_line()
    for wrong in (line[:-8], line.replace("committee-voucher", "entry"), line[:40] + "A" + line[41:]):
        with pytest.raises(InputError, match=r"voucher|entry"):
            Voucher.load(wrong).require_for(study.invitation, voucher.key)
    for weight in (0.0, -1.0, math.nan, math.inf):
        refused("Give one above 0", registrar.make, 1, weight)
    for number in (0, 13):
        refused("Choose 1 to 12", registrar.make, number, None)


@pytest.mark.parametrize("fields", [{"registrar": "ed25519:" + "A" * 43 + "="}, {"registrar": "me", "vouchers": 3}])
def test_a_registrar_has_vouchers_and_a_key(fields: dict[str, Any]) -> None:
    committee = {"members": 4, "contribute_by": "2090-01-01T00:00:00Z", **fields}
    column = [{"name": "pay", "low": 0.0, "high": 1.0}]
    with pytest.raises(InputError, match=r"registrar|public key"):
        StudyTerms.parse({"name": "wages", "column": column, "unit": "party", "committee": committee})


@pytest.mark.parametrize("named", [None, "registrar"])
def test_who_invites_is_the_registrar_unless_the_study_names_one(named: str | None, tmp_path: Path) -> None:
    key = None if named is None else identity(named).public_key
    study = CommitteeStudy(tmp_path, committee={"vouchers": 3, "registrar": key})
    vouching = vouching_of(study.sealed.invitation)
    assert vouching is not None
    assert vouching.registrar == (key or study.identities["m1"].public_key)
    # Members and contributors read it where they say yes.
    contract = Contract.by_file(study.sealed, study.identities["c1"], study.sealed.choice(), None)
    assert f"whose keys the registrar {vouching.registrar} certified" in str(contract.to_json()["committee"]["admits"])


def handed_in(study: CommitteeStudy, key: Path, pay: float) -> bytes:
    own = Identity.load(key)
    keys = contributor_keys(study.sealed, own, key, None)
    contributor = CommitteeContributor(study.sealed, study.plan, own, keys, Register(key.parent / "register"))
    encoded = study.sealed.study.workload.encode(np.array([[pay]]), step=study.plan.value_step)
    return contributor.contribute(encoded).to_file()


def test_a_contributor_hands_in_by_voucher_once(registrar: Registrar, study: CommitteeStudy, tmp_path: Path) -> None:
    session = session_of(study.sealed, study.plan)
    assert session.parameters.contributors == 4 + 1 + 12
    assert names_of(study.sealed)[-2:] == ["by voucher 11", "by voucher 12"]
    key = tmp_path / "07.voucher"
    key.write_bytes(registrar.make(7, None).files["07.voucher"])
    key.chmod(0o600)
    raw = handed_in(study, key, 300.0)
    assert read_header(session, raw).contributor == Identity.load(key).public_key
    assert handed_in(study, key, 300.0) == raw
    refused("contributed other data", handed_in, study, key, 301.0)
    # A voucher for the contributor's own key stands beside it, and what was mended counts until something was handed in.
    own = tmp_path / "own.key"
    Identity.generate().save(own)
    public = Identity.load(own).public_key
    refused("is the key of nobody in this study", handed_in, study, own, 400.0)
    for weight in (0.5, None):
        (content,) = registrar.certify([public], weight).files.values()
        own.with_suffix(".voucher").write_bytes(content)
        if weight is not None:
            raised(ContributionError, r"may have 0.5 at most", handed_in, study, own, 400.0)
    assert read_header(session, handed_in(study, own, 400.0)).contributor == public
    # Who is listed needs none, and its file has none.
    StudyKeys.make(tmp_path / "c1.studykeys", study.invitation, study.identities["c1"], "c1", "")
    assert read_header(session, handed_in(study, study.key("c1"), 1.0)).contributor == study.identities["c1"].public_key


def test_the_contract_says_who_admits_and_what_it_can_do(registrar: Registrar, study: CommitteeStudy) -> None:
    made = registrar.make(1, None)
    voucher = made.vouchers["01.voucher"]
    own = registrar.identity.derive("committee voucher", study.invitation.digest, "1")
    assert own.secret.hex() not in repr(made)
    choice = study.sealed.study.choice(study.sealed.admitted)
    contract = Contract.by_file(study.sealed, registrar.own(1), choice, voucher)
    said = dict(contract.lines())["admits"]
    assert registrar.public_key in said
    assert "up to 12" in said
    assert "A registrar that lies can contribute in the place of all of them" in said
    assert "learns nothing more than all other contributors together" in said
    assert contract.to_json()["committee"]["registrar"] == registrar.public_key
    assert (contract.own.name, contract.digest) == ("by voucher", study.sealed.digest)
    assert ("the registrar", registrar.public_key) in study.sealed.holders()
    listed_one = Contract.by_file(study.sealed, study.identities["c1"], choice)
    assert dict(listed_one.lines())["admits"] == said
    refused("is not in the sealed study", Contract.by_file, study.sealed, registrar.own(1), choice)


def test_who_answers_for_the_data_reads_who_admitted_others() -> None:
    by_voucher = {"registrar": "ed25519:key", "number": 12, "used": 7}
    receipt = {"origin": {"committee": {"contributions": {"by_voucher": by_voucher}}}}
    said = ReportFacts.of_receipt(receipt, "wages").admitted
    assert "up to 12 by vouchers of the registrar ed25519:key, 7 of whom are in the result" in said
    for other in ({}, {"origin": {"committee": 1}}, {"origin": {"committee": {"contributions": {"by_voucher": {"number": 3}}}}}):
        assert ReportFacts.of_receipt(other, "wages").admitted == ""


# --- the command ----------------------------------------------------------------------------------------------------------------


@pytest.fixture
def office(tmp_path: Path, study: CommitteeStudy, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The registrar's folder."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "study.invitation").write_bytes(study.invitation.signed.to_file())
    identity("registrar").save(tmp_path / "registrar.key")
    return tmp_path


def told(line: str, capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    main([*shlex.split(line), "--json"])
    document: dict[str, Any] = json.loads(capsys.readouterr().out)
    return document


def test_the_registrar_makes_no_more_vouchers_than_the_study_has(office: Path, capsys: pytest.CaptureFixture[str]) -> None:
    vouchers = "study vouchers study.invitation --key registrar.key"
    keys = [Identity.generate().public_key for _ in range(3)]
    (office / "keys.txt").write_text("\n".join(keys[:2]) + "\n")
    document = told(f"{vouchers} --own-keys keys.txt", capsys)
    assert len(document["vouchers"]) == 2
    assert len(told(vouchers, capsys)["vouchers"]) == 10
    before = {path.name: path.read_bytes() for path in (office / "study.vouchers").iterdir()}
    assert len(before) == 12
    assert all((path.stat().st_mode & 0o077) == 0 for path in (office / "study.vouchers").iterdir())
    # The same again.
    told(vouchers, capsys)
    (office / "keys.txt").write_text(keys[2] + "\n")
    for wrong, reason in (
        (f"{vouchers} --own-keys keys.txt", "that would be 13 vouchers"),
        (f"{vouchers} --number 11", "that would be 13 vouchers"),
        (f"{vouchers} --number 2 --own-keys keys.txt", "Leave one of them out"),
        (f"{vouchers} --weight 0.5", "exists already"),
    ):
        fails(shlex.split(wrong), capsys, reason)
    assert {path.name: path.read_bytes() for path in (office / "study.vouchers").iterdir()} == before
    (office / "keys.txt").write_text(f"{keys[2]}\n{keys[2]}\n")
    for content, reason in ((f"{keys[2]}\n{keys[2]}\n", "a key twice"), ("me\n", "line 1 of keys.txt"), ("\n", "no public key")):
        (office / "keys.txt").write_text(content)
        raised(SystemExit, "", main, shlex.split(f"{vouchers} --own-keys keys.txt --out other"))
        assert reason in capsys.readouterr().err
    assert not (office / "other").exists()


def test_a_voucher_is_printed_as_a_code_of_its_text(office: Path, capsys: pytest.CaptureFixture[str]) -> None:
    line = "study vouchers study.invitation --key registrar.key --number 2"
    document = told(f"{line} --qr", capsys)
    assert [Path(name).name for name in document["vouchers"]] == ["01.voucher", "02.voucher"]
    folder = office / "study.vouchers"
    pictures = {path.name: path for path in folder.glob("*.svg")}
    assert pictures.keys() == {"01.voucher.svg", "02.voucher.svg"}
    assert all((path.stat().st_mode & 0o077) == 0 for path in pictures.values())
    for path in pictures.values():
        # A row of the picture after the other, as the library makes it of the voucher's bytes.
        wanted = segno.make((folder / path.stem).read_bytes(), error="m", micro=False)
        (drawn,) = re.findall(r'<path [^>]*d="([^"]*)"', path.read_text())
        assert drawn == re.findall(r'd="([^"]*)"', wanted.svg_inline(scale=4))[0]
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    # The same again; and vouchers alone are not those with pictures made anew.
    told(f"{line} --qr", capsys)
    told(line, capsys)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


def test_links_of_vouchers_are_made_for_a_page_and_are_as_secret(office: Path, capsys: pytest.CaptureFixture[str]) -> None:
    line = "study vouchers study.invitation https://drop.example.org --key registrar.key --number 2 --qr"
    document = told(line, capsys)
    assert [Path(name).name for name in document["vouchers"]] == ["01.voucher", "02.voucher"]
    links = office / "study.vouchers" / "links.csv"
    assert (links.stat().st_mode & 0o077) == 0
    head, *rows = [row.split(",") for row in links.read_text().splitlines()]
    assert head == ["voucher", "link"]
    assert [name for name, _ in rows] == ["01.voucher", "02.voucher"]
    for name, link in rows:
        assert re.fullmatch(r"https://drop\.example\.org#[A-Za-z0-9_-]{139}", link)
        (drawn,) = re.findall(r'<path [^>]*d="([^"]*)"', links.with_name(f"{name}.svg").read_text())
        assert drawn == re.findall(r'd="([^"]*)"', segno.make(link.encode(), error="m", micro=False).svg_inline(scale=4))[0]
    told(line, capsys)
    (office / "keys.txt").write_text(Identity.generate().public_key + "\n")
    page = "study vouchers study.invitation https://drop.example.org --key registrar.key --out other"
    for wrong, reason in (
        (f"{page} --own-keys keys.txt", "Leave the page out"),
        (page.replace("https://", "ftp://"), "Write https://HOST"),
    ):
        fails(shlex.split(wrong), capsys, reason)
    assert not (office / "other").exists()


def test_without_the_library_no_voucher_is_made(
    office: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "segno", None)
    fails(
        shlex.split("study vouchers study.invitation --key registrar.key --qr"),
        capsys,
        "a QR code needs the extra 'qr', which is not installed. Run pip install \"segno>=1.6\"",
    )
    assert not (office / "study.vouchers").exists()
