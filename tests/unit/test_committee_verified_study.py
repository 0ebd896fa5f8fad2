"""A sealed study whose members check contributions: files of any weight, what members take of them, and what contracts say."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pytest

from quietmean.node.committee import MailboxOpener
from quietmean.protocols.committee import Committee
from quietmean.protocols.committee.design import decode
from quietmean.protocols.committee.lists import check_numbers, fitting
from quietmean.protocols.packed_sharing.packing import open_sums
from quietmean.statistics import Encoded
from quietmean.studies.agreement.contribution import session_of
from quietmean.studies.party import Contract
from quietmean.studies.party.by_file import CommitteeContributor
from quietmean.studies.party.contract import CommitteeWords
from quietmean.studies.party.executions import Register
from quietmean.studies.party.member_holdings import MemberHoldings
from support.committee_study import CommitteeStudy
from support.refusals import refused

COLUMNS = [{"name": "pay", "low": 0.0, "high": 1000.0}, {"name": "job", "levels": ["a", "b", "c"]}]
ASKED = [{"kind": "proportion", "column": "job"}, {"kind": "mean", "column": "pay"}]
AGE = {"name": "age", "low": 0.0, "high": 100.0}
NAMES = ("c1", "c2", "c3")


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> CommitteeStudy:
    return CommitteeStudy(
        tmp_path_factory.mktemp("verified"),
        {"unit": "record", "column": COLUMNS, "statistic": ASKED},
        {"verified": True, "largest_weight": 50},
        members=("m1", "m2", "m3", "m4", "m5"),
    )


def encoded(world: CommitteeStudy, rows: int) -> Encoded:
    rng = np.random.default_rng(rows)
    records = np.column_stack([rng.uniform(0, 1000, rows), rng.integers(3, size=rows)]).astype(np.float64)
    records[0] = np.nan
    return world.sealed.study.workload.encode(records, step=world.plan.value_step)


def test_files_of_any_weight_are_taken_checked_and_added_up(world: CommitteeStudy, tmp_path: Path) -> None:
    session, box = session_of(world.sealed, world.plan), tmp_path / "box"
    box.mkdir()
    parts = [encoded(world, rows) for rows in (1, 17, 50)]
    for name, part in zip(NAMES, parts, strict=True):
        register = Register(tmp_path / f"{name}.register")
        contributor = CommitteeContributor(world.sealed, world.plan, world.identities[name], world.keys[name], register)
        (box / name).write_bytes(contributor.contribute(part).to_file())
    told, sums = [], {}
    for member, entry in enumerate(world.sealed.computing):
        mailbox = world.keys[entry.name].mailbox
        assert mailbox is not None
        path = tmp_path / f"{entry.name}.held"
        MemberHoldings.take(path, session, member, MailboxOpener(mailbox), box, float(1 << 33))
        held = MemberHoldings.load(path, session)
        assert held is not None
        assert len(held) == 3
        assert not held.left_out
        told.append([check_numbers(session, one.digest, one.part) for one in held])
        prime = session.parameters.prime
        sums[member] = np.sum([one.part.summed(prime) for one in held], axis=0, dtype=np.uint64) % prime
    numbers = np.array(told, dtype=np.uint32)
    assert numbers.shape == (5, 3, 12)
    assert fitting(session.parameters.packing, range(5), numbers).all()
    shares = {member: np.asarray(share, dtype=np.uint32) for member, share in sums.items()}
    opened = open_sums(session.parameters.packing, shares, session.parameters.dimension)
    total = decode(session.parameters, opened, [part.weight for part in parts])
    assert total == pytest.approx(sum(part.vector for part in parts), abs=3 * session.parameters.step)


SURVEY = [
    {"kind": "variance", "column": "pay"},
    {"kind": "group-means", "column": "pay", "by": "job"},
    {"kind": "proportion", "column": "job"},
]
MOMENTS = [
    {"kind": "correlation", "columns": ["pay", "age"]},
    {"kind": "linear-regression", "formula": "pay ~ age + job"},
]
ROWS = [[130.0, 0.0, 20], [np.nan, 2.0, 30], [999.0, 1.0, 95], [130.0, 0.0, 70], [1400.0, 2.0, 80], [0.0, np.nan, 10]]


def of_single_records(folder: Path, statistics: Sequence[Mapping[str, object]], **committee: object) -> CommitteeStudy:
    return CommitteeStudy(
        folder,
        {"unit": "record", "column": [*COLUMNS, AGE], "statistic": [dict(statistic) for statistic in statistics]},
        {"verified": True, "products": True, "largest_weight": 1, **committee},
        members=("m1", "m2", "m3", "m4", "m5"),
        contributors=tuple(f"c{number}" for number in range(len(ROWS))),
    )


@pytest.mark.parametrize("statistics", [SURVEY, MOMENTS], ids=["powers", "moments"])
def test_products_of_single_records_are_checked_and_their_sum_is_that_of_the_records(
    tmp_path: Path, statistics: list[dict[str, object]]
) -> None:
    world = of_single_records(tmp_path, statistics)
    assert all(
        feature.of_single_record for feature in world.sealed.study.workload.scales if feature.family() or feature.size == 5
    )
    session, workload = session_of(world.sealed, world.plan), world.sealed.study.workload
    registers = {name: Register(tmp_path / f"{name}.register") for name in world.contributors}
    parts = [workload.encode(np.array([row]), step=world.plan.value_step) for row in ROWS]
    told, sums = [], {}
    files = [
        CommitteeContributor(world.sealed, world.plan, world.identities[name], world.keys[name], registers[name])
        .contribute(part)
        .to_file()
        for name, part in zip(world.contributors, parts, strict=True)
    ]
    assert {len(raw) for raw in files} == {len(files[0])}
    (tmp_path / "box").mkdir()
    for name, raw in zip(world.contributors, files, strict=True):
        (tmp_path / "box" / name).write_bytes(raw)
    for member, entry in enumerate(world.sealed.computing):
        mailbox = world.keys[entry.name].mailbox
        assert mailbox is not None
        path = tmp_path / f"{entry.name}.held"
        MemberHoldings.take(path, session, member, MailboxOpener(mailbox), tmp_path / "box", float(1 << 33))
        held = MemberHoldings.load(path, session)
        assert held is not None
        told.append([check_numbers(session, one.digest, one.part) for one in held])
        prime = session.parameters.prime
        sums[member] = np.sum([one.part.summed(prime) for one in held], axis=0, dtype=np.uint64) % prime
    assert fitting(session.parameters.packing, range(5), np.array(told, dtype=np.uint32)).all()
    shares = {member: np.asarray(share, dtype=np.uint32) for member, share in sums.items()}
    total = decode(session.parameters, open_sums(session.parameters.packing, shares, workload.dimension), [1.0] * len(ROWS))
    step = world.plan.protocol.numbers().step
    opened = workload.decode(total / len(ROWS), 0.0, float(len(ROWS)), step=step)
    exact = workload.decode(np.sum([part.vector for part in parts], axis=0) / len(ROWS), 0.0, float(len(ROWS)))
    # Of each record a number is off by less than a step, at random, and a product of two, both at most 1, by less than 3.
    assert np.abs(total - np.sum([part.vector for part in parts], axis=0)).max() < 3 * session.parameters.step * len(ROWS)
    for answer, expected in zip(opened, exact, strict=True):
        # Slopes of six records so rounded differ by 4 %, one standard deviation: these are 7 deviations.
        np.testing.assert_allclose(answer.estimates.value, expected.estimates.value, rtol=0.3, atol=0.05)


def test_the_contract_says_of_which_statistics_products_are_checked(tmp_path: Path) -> None:
    world = of_single_records(tmp_path, [*SURVEY, {"kind": "quantiles", "column": "pay"}])
    contract = Contract.by_file(world.sealed, world.identities["c1"], world.sealed.study.choice(world.sealed.admitted))
    checks = dict(contract.lines())["checks"]
    assert "also that they are those of one record, with all products" in checks
    assert "of quantiles(pay, 0.25 0.5 0.75) these bounds only" in checks


def test_products_are_refused_where_a_contribution_may_be_several_records(tmp_path: Path) -> None:
    refused("Give the committee largest_weight 1", of_single_records, tmp_path, SURVEY, largest_weight=2)
    refused("none of these statistics states products", of_single_records, tmp_path, [{"kind": "proportion", "column": "job"}])
    refused("a plan without a study has none", Committee(5, verified=True, products=True).require_no_products)


def test_the_contract_says_what_is_checked_of_which_statistic(world: CommitteeStudy) -> None:
    contract = Contract.by_file(world.sealed, world.identities["c1"], world.sealed.study.choice(8))
    checks = dict(contract.lines())["checks"]
    assert "is within its bounds, without learning it" in checks
    assert "of proportion(job) also that they are those of as many records" in checks
    assert "of mean(pay) these bounds only" in checks
    assert contract.to_json()["committee"]["checked"] == checks
    assert "right result with up to 1 of them gone or lying" in dict(contract.lines())["opens"]
    terms = world.sealed.study.committee
    assert terms is not None
    plain = CommitteeWords(terms.model_copy(update={"verified": False}), None, world.sealed.study.workload)
    assert plain.checked == ""
    assert "checks" not in dict(plain.lines())
