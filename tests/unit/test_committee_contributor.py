"""A contributor hands in one file, once: durable and charged before it leaves, the same again, and nothing else ever."""

from __future__ import annotations

import shutil
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import quietmean as qm
from quietmean.core.errors import InputError
from quietmean.node.committee import MailboxOpener
from quietmean.planning.plan import Plan
from quietmean.protocols.committee.contribution import excerpt, open_excerpt, read_header
from quietmean.randomness import SecureNoise, Seed
from quietmean.statistics import Encoded
from quietmean.studies.agreement.contribution import session_of
from quietmean.studies.outcome.forecast import Forecast
from quietmean.studies.party import Contract, Policy
from quietmean.studies.party.by_file import CommitteeContributor
from quietmean.studies.party.executions import Register
from quietmean.studies.party.handing_in import contribution_digest, contributor_of
from support.committee_study import CommitteeStudy, soon
from support.consent import accept as yes_of
from support.refusals import raised, refused


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> CommitteeStudy:
    return CommitteeStudy(tmp_path_factory.mktemp("committee"))


@pytest.fixture
def contributor(world: CommitteeStudy, tmp_path: Path) -> CommitteeContributor:
    return contributor_at(world, tmp_path)


def contributor_at(world: CommitteeStudy, folder: Path) -> CommitteeContributor:
    """With keys and register of its own in a folder."""
    from quietmean.studies.agreement.study_keys import StudyKeys

    path = folder / world.keys["c1"].path.name
    if not path.exists():
        shutil.copy(world.keys["c1"].path, path)
    register = Register(folder / "register")
    return CommitteeContributor(world.sealed, world.plan, world.identities["c1"], StudyKeys.load(path), register)


def encoded(world: CommitteeStudy, pay: float) -> Encoded:
    workload = world.sealed.study.workload
    return workload.encode(np.array([[pay]]), step=world.plan.value_step)


def test_the_same_data_give_the_same_file_which_members_take(world: CommitteeStudy, contributor: CommitteeContributor) -> None:
    charged: list[bytes] = []
    handed = contributor.contribute(encoded(world, 400.0), charged.append)
    again = contributor_at(world, contributor.keys.path.parent).contribute(encoded(world, 400.0), charged.append)
    assert handed.to_file() == again.to_file()
    assert charged == [bytes.fromhex(handed.digest)] * 2
    session = session_of(world.sealed, world.plan)
    header = read_header(session, handed.to_file())
    assert (header.contributor, header.weight, header.digest.hex()) == (contributor.identity.public_key, 1.0, handed.digest)
    assert contribution_digest(handed.to_file()) == handed.digest
    for member, entry in enumerate(world.sealed.computing):
        mailbox = world.keys[entry.name].mailbox
        assert mailbox is not None
        own = excerpt(session, handed.to_file(), member)
        part = open_excerpt(session, header, own, member, MailboxOpener(mailbox))
        assert part.values.shape == (session.parameters.blocks,)


def test_it_is_durable_and_charged_before_it_leaves(world: CommitteeStudy, contributor: CommitteeContributor) -> None:
    def crash(content: bytes) -> None:
        # What the ledger is told is on disk already, and not known elsewhere.
        assert contributor.stored_at.exists()
        assert contributor.register.get(contributor.study) is None
        raise KeyboardInterrupt

    raised(KeyboardInterrupt, "", contributor.contribute, encoded(world, 400.0), crash)
    kept = contributor.stored_at.read_bytes()
    handed = contributor.contribute(encoded(world, 400.0))
    assert kept.endswith(handed.to_file())
    assert contributor.register.get(contributor.study) == bytes.fromhex(handed.digest)


def test_other_data_are_refused(world: CommitteeStudy, contributor: CommitteeContributor) -> None:
    handed = contributor.contribute(encoded(world, 400.0))
    refused("contributed other data to this study", contributor.contribute, encoded(world, 401.0))
    assert contributor.contribute(encoded(world, 400.0)).to_file() == handed.to_file()


def test_what_the_budget_refused_may_be_mended(world: CommitteeStudy, contributor: CommitteeContributor) -> None:
    def refuse(content: bytes) -> None:
        raise InputError("more than the budget")

    refused("more than the budget", contributor.contribute, encoded(world, 400.0), refuse)
    assert not contributor.has_contributed
    handed = contributor.contribute(encoded(world, 401.0))
    # Refused later, what has left stays.
    refused("more than the budget", contributor.contribute, encoded(world, 401.0), refuse)
    assert contributor.contribute(encoded(world, 401.0)).to_file() == handed.to_file()


def lost(contributor: CommitteeContributor) -> None:
    contributor.stored_at.unlink()


def cut(contributor: CommitteeContributor) -> None:
    content = contributor.stored_at.read_bytes()
    contributor.stored_at.write_bytes(content[:-1])


def of_another(contributor: CommitteeContributor) -> None:
    contributor.stored_at.write_text("{}\n")


@pytest.mark.parametrize(
    ("harm", "reason"),
    [(lost, "Its keys were restored or copied"), (cut, "it was changed"), (of_another, "it was changed")],
)
def test_a_store_that_is_not_the_one_contributes_nothing(
    world: CommitteeStudy, contributor: CommitteeContributor, harm: object, reason: str
) -> None:
    assert callable(harm)
    contributor.contribute(encoded(world, 400.0))
    harm(contributor)
    refused(reason, contributor.contribute, encoded(world, 400.0))


def test_a_copy_of_the_keys_contributes_nothing_else(world: CommitteeStudy, tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    second.mkdir(parents=True)
    first.mkdir()
    contributor_at(world, first).contribute(encoded(world, 400.0))
    shutil.copytree(first / "register", second / "register")
    refused("Its keys were restored or copied", contributor_at(world, second).contribute, encoded(world, 400.0))


def test_what_comes_late_is_refused_but_what_was_made_is_given_again(tmp_path: Path) -> None:
    late = CommitteeStudy(tmp_path, committee={"contribute_by": soon(-5.0)})
    with pytest.raises(InputError, match=r"contributions came until .* set that if it is wrong"):
        contributor_of(late.sealed, late.plan, late.identities["c1"], late.keys["c1"])
    made = CommitteeContributor(late.sealed, late.plan, late.identities["c1"], late.keys["c1"], Register(tmp_path / "register"))
    made.contribute(encoded(late, 3.0))
    assert contributor_of(late.sealed, late.plan, late.identities["c1"], late.keys["c1"]).study == made.study
    assert late.sealed.study.committee is not None
    late.sealed.study.committee.require_open(datetime(2020, 1, 1, tzinfo=UTC))


def test_the_contract_says_who_must_not_collude(world: CommitteeStudy) -> None:
    contract = Contract.by_file(world.sealed, world.identities["c1"], world.sealed.study.choice(7))
    lines = dict(contract.lines())
    names = ", ".join(entry.name for entry in world.sealed.computing)
    assert f"at most 1 of these 4 institutions ({names}) and all other contributors together" in lines["against"]
    assert "more than 1 of the members together can read every contribution" in lines["if more collude"]
    assert "one file, until" in lines["contributes"]
    document = contract.to_json()
    assert document["committee"]["names"] == [entry.name for entry in world.sealed.computing]
    # All other contributors may collude at the same price.
    assert document["epsilon_if_all_others_collude"] == pytest.approx(document["epsilon_a_priori"])
    assert document["epsilon_a_priori"] <= 8.0
    # Whoever hands in a file dials nobody, so no rule about hosts is broken.
    assert Policy().broken(contract) == []
    assert any("of the committee's 4 members share what they see (collude)" in str(one) for one in contract.plan.assumptions)
    assert not any("parties collude" in str(one) for one in contract.plan.assumptions)


def test_the_plan_is_read_again_and_its_noise_is_the_members(world: CommitteeStudy) -> None:
    plan = world.plan
    assert Plan.from_json(plan.to_json()).digest == plan.digest
    assert plan.epsilon_a_priori <= 8.0
    # The noise of three members, whoever contributes: the sum's deviation is the same for 3 and for 7 contributions.
    sharing = session_of(world.sealed, plan).parameters
    noise = Forecast(world.sealed.study, plan, 7.0).noise
    assert noise == pytest.approx(np.sqrt(3 * sharing.sigma**2 + 7 * sharing.step**2 / 6), rel=1e-4)


def test_from_python(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "configuration"))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    here = CommitteeStudy(tmp_path)
    table, out = tmp_path / "c1.csv", tmp_path / "c1.contribution"
    table.write_text("pay\n400\n")
    given: dict[str, Any] = {"data": table, "out": out, "accept": yes_of("c1", here.sealed), "compared": here.members}
    made = pytest.warns(UserWarning, match=r"people\.key is made. The ledger recognises people by it. Keep it there and secret")
    with made, pytest.warns(UserWarning, match=r"account 'c1-party' .* is made"):
        handed = qm.contribute(here.path, here.key("c1"), **given)
    assert out.read_bytes() == handed.contribution.to_file()
    assert handed.account is not None
    # Charged once, however often the same is handed in.
    again = qm.contribute(here.path, here.key("c1"), **given)
    assert again.account is not None
    assert (again.contribution.digest, again.account.entries) == (handed.contribution.digest, handed.account.entries)
    table.write_text("pay\n401\n")
    refused("contributed other data", qm.contribute, here.path, here.key("c1"), **given)
    with pytest.raises(InputError, match="Take part with quietmean send"):
        qm.join(here.path, key=here.key("m1"), data=table, no_ledger=True, accept=yes_of("m1", here.sealed))


def test_a_plan_with_a_committee_from_python() -> None:
    plan = qm.plan(parties=200, epsilon=1.0, delta=1e-6, committee=qm.Committee(members=5, colluding=1, gone=1))
    assert plan.epsilon_a_priori <= 1.0
    # Four members' noise, of which three count: a third more variance than a curator's.
    curator = qm.plan(parties=200, epsilon=1.0, delta=1e-6, protocol="central-dp")
    assert 1.25 < plan.prediction["mse_noise"] / curator.prediction["mse_noise"] < 1.45
    refused("Leave it out", qm.plan, parties=200, epsilon=1.0, delta=1e-6, colluding=2, committee=qm.Committee(members=5))
    with pytest.raises(InputError, match="send one file each"):
        plan.machine(plan.schedule(Seed.public("no machine")), 0, plan.admit(np.zeros(1)), SecureNoise(Seed.public("none")))
