"""Which field of a study differs between two parties: named, without telling the value."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import msgspec
import pytest

from quietmean.core.errors import PeerError
from quietmean.node import Identity, Roster, RosterEntry
from quietmean.node.net import difference, differing, term_digests
from quietmean.node.net.terms import MOST_FIELDS
from quietmean.node.net.wire import Differs, Limits, decode_header, encode_frame
from quietmean.node.preflight import Agreed, PeerReadiness, Reply
from quietmean.studies import StudyTerms
from support.meeting import AGES, meet

STUDY: dict[str, Any] = copy.deepcopy(AGES) | {"study": {"name": "ages", "protocol": "local-dp", "colluding": 1}}
KEYS = {name: Identity.generate().public_key for name in ("ada", "bob", "eve")}


def roster(*names: str, **keys: str) -> Roster:
    found = KEYS | keys
    return Roster(tuple(RosterEntry(name, ("192.0.2.1", 7000 + place), found[name]) for place, name in enumerate(names)))


def agreed(members: Roster | None = None, **changes: Any) -> Agreed:
    tables = copy.deepcopy(STUDY)
    for name, value in changes.items():
        (tables["column"][0] if name in ("low", "high", "missing") else tables["study"])[name] = value
    found = members or roster("ada", "bob")
    return Agreed.of(found, StudyTerms.from_tables(tables, "the study").plan(len(found)))


def problems(mine: Agreed, theirs: Agreed) -> tuple[str, ...]:
    return PeerReadiness(1, mine, reply=Reply(theirs.readiness(), 0.0, 0.0)).problems


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"high": 120}, "columns.age.high"),
        ({"low": -1, "high": 120}, "columns.age.low, columns.age.high"),
        ({"epsilon": 0.5}, "epsilon"),
        ({"name": "other"}, "study"),
        ({"colluding": 0}, "colluding"),
        ({"missing": "indicator"}, "columns.age.missing (only there)"),
    ],
)
def test_the_field_of_the_study_is_named(changes: dict[str, Any], named: str) -> None:
    (problem,) = problems(agreed(), agreed(**changes))
    assert problem.startswith("other study: ")
    assert named in problem
    assert "plan." not in problem
    assert named in difference(agreed().fields, agreed(**changes).fields)


def test_the_entry_of_the_roster_is_named() -> None:
    mine = agreed()
    assert problems(mine, agreed()) == ()
    assert problems(mine, agreed(roster("bob", "ada"))) == ("other roster: roster.ada.place, roster.bob.place",)
    assert problems(mine, agreed(roster("ada", "bob", bob=KEYS["eve"]))) == ("other roster: roster.bob.key",)
    (renamed,) = problems(mine, agreed(roster("ada", "eve", eve=KEYS["bob"])))
    assert "roster.bob.key (only here)" in renamed
    assert "roster.eve.key (only there)" in renamed


def test_what_differs_in_a_plan_alone_is_named() -> None:
    study = StudyTerms.from_tables(STUDY, "the study")
    plan, members = study.plan(2), roster("ada", "bob")
    from dataclasses import replace

    other = replace(plan, prediction={**plan.prediction, "mse": -1.0})
    (problem,) = problems(Agreed.of(members, plan), Agreed.of(members, other))
    assert problem.startswith("other plan of the same study: plan.prediction.mse")


def test_the_seal_is_named_where_all_else_is_the_same(tmp_path: Path) -> None:
    meeting = meet(tmp_path, tables=STUDY)
    one, other = meeting.seal(), meeting.seal()
    plan = one.study.plan(3)
    first, second = Agreed.of(one.roster, plan), Agreed.of(other.roster, plan)
    assert problems(first, second) == ("other roster: sealed.instance",)
    assert difference(first.fields, second.fields) == "sealed.instance"


def test_values_are_not_told_and_sizes_are_bounded() -> None:
    digests = term_digests({"columns": [{"name": f"c{place}", "high": 1.0} for place in range(3 * MOST_FIELDS)]})
    assert len(digests) == MOST_FIELDS
    assert all(len(value) == 8 for value in digests.values())
    raw = encode_frame(Differs("study differs", digests))[8:]
    assert decode_header(raw) == Differs("study differs", digests)
    Limits.before_reply().check(len(raw), 0)
    for fields in ({"a": b"short"}, {"a" * 201: b"12345678"}, {**digests, "one more": b"12345678"}):
        with pytest.raises(PeerError):
            decode_header(msgspec.msgpack.encode(["D", "why", fields]))


def test_paths_only_one_side_has() -> None:
    assert differing({"a": b"1", "b": b"1"}, {"a": b"2", "c": b"1"}) == ["a", "b (only here)", "c (only there)"]
    assert difference({"a": b"1"}, {}) == ""
