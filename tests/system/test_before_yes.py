"""What nobody may agree to without seeing is on the first screen, of every protocol, unit, start, way and kind of column."""

from __future__ import annotations

import itertools
import math
import re
from functools import partial
from typing import Any

import numpy as np
import pytest

from quietmean.core.readable import AlwaysFact, ShortFact
from quietmean.graphs import ExecutionTrace
from quietmean.planning import Plan
from quietmean.randomness import Seed
from quietmean.studies import StudyTerms
from quietmean.studies.party import Agreement, Contract
from quietmean.studies.party import first_screen as module
from quietmean.studies.party.first_screen import FirstScreen, OwnData
from support.before_yes import COLUMNS, PARTIES, asked, every, of_flower, of_session


def shown_alone(plan: Plan, party: int) -> float:
    """What remains of a party's privacy when all others collude, from the analysis of an execution."""
    everyone = ExecutionTrace.everyone(plan.protocol.rounds, plan.target.parties)
    analysis = plan.execution(Seed.public("before yes"), everyone).privacy(plan.target.delta)
    return analysis.against([other for other in range(plan.target.parties) if other != party]).max_epsilon


def expected_keys(protocol: str, unit: str, way: str, promised: bool) -> set[str]:
    """By what was asked for, and by the plan's figure."""
    committee, contributes, bare = way == "committee", way in ("file", "committee"), protocol == "gossip" and way != "committee"
    keys = {"ONCE"} if contributes else {"COST"} if promised else set()
    keys |= {"NO PRIVACY"} if bare else set() if promised else {"NO PROMISE"}
    keys |= {"SITE", "PEOPLE"} if unit != "party" and not bare else set()
    keys |= {"ROWS"} if unit in ("person", "rows") else set()
    keys |= {"READS"} if committee or protocol == "central-dp" else set()
    keys |= {"LARGEST"} if contributes and unit in ("record", "person") else set()
    # Their keys are as north says, until somebody compares: of all with whom this party, or its file, has to do.
    keys |= {"KEYS"} if way in ("sealed", "file", "committee") else set()
    return keys


def counts_as_middle(contract: Contract) -> bool:
    """Whether a missing cell gives the same vector as the middle of the bounds."""
    (column,), workload = contract.study.workload.columns, contract.study.workload
    missing, middle = (workload.encode(np.array([[cell]])) for cell in (np.nan, column.centre))
    return bool(np.array_equal(missing.vector, middle.vector)) and missing.weight == middle.weight


def faults(chosen: tuple[str, ...], contract: Contract) -> list[str]:
    protocol, unit, _, way, columns = chosen
    screen = FirstScreen.of(
        contract, OwnData(marks=(ShortFact("CLIPPED", "9 values count as the nearest bound. 3 cells count as missing."),))
    )
    most = max(plan.charge.epsilon(plan.target.delta) for plan in contract.plans)
    bare = protocol == "gossip" and way != "committee"
    promised = bare or most <= 4.0 * (1 + 1e-6)
    keys = [fact.key for fact in screen.always]
    found = [] if set(keys) == expected_keys(protocol, unit, way, promised) | {"CLIPPED"} else [f"facts {keys}"]
    found += [f"{len(keys)} facts twice"] if len(set(keys)) < len(keys) else []
    lines, marked = screen.lines(), screen.marked()
    found += [f"{len(lines)} lines and {len(marked)}"] if len(lines) > 10 or len(marked) > 8 else []
    found += [line for line in (*lines, *marked) if len(line) > 80]
    rows = {fact.key: fact.text for fact in screen.rows}
    if unit in ("record", "party") and columns == "bounds":
        says = "missing counts as 55" in rows["uses"]
        found += [] if says is counts_as_middle(contract) else [f"uses {rows['uses']}"]
    if (sealed := contract.sealed) is not None:
        others = {entry.name for entry in sealed.entries if way != "committee" or entry.member} - {contract.own.name}
        compared = [FirstScreen.of(contract, compared=others - {name}).always for name in sorted(others)]
        named = [fact.text for facts in compared for fact in facts if fact.key == "KEYS"]
        found += [] if [name in text for name, text in zip(sorted(others), named, strict=True)] == [True] * len(others) else named
        found += ["KEYS"] if "KEYS" in {fact.key for fact in FirstScreen.of(contract, compared=others).always} else []
    if not bare and promised:
        (cost,) = re.findall(r"epsilon ([\d.]+)", rows["costs"])
        found += [] if -1e-9 <= float(cost) - most <= 0.01 else [f"costs {cost}, is {most}"]
    if not bare and way != "committee":
        alone = max(shown_alone(plan, min(contract.party, plan.target.parties - 1)) for plan in contract.plans)
        figure = re.search(r"epsilon ([\d.]+) if all others", rows["against"])
        right = figure is None if math.isinf(alone) else figure is not None and -1e-4 <= float(figure[1]) - alone <= 0.011
        found += [] if right else [f"against {rows['against']}, is {alone}"]
    found += (
        [] if screen.answer == ("yes without privacy" if bare else "yes" if promised else "yes without promise") else ["answer"]
    )
    return found


def test_every_fact_is_on_the_first_screen() -> None:
    wrong, count, keys, imputed = {}, 0, set(), set()
    for chosen, contract in every():
        count += 1
        keys |= {fact.key for fact in contract.always}
        imputed |= {"missing counts as" in str(contract.lines())} if chosen[1] in ("record", "party") else set()
        if found := faults(chosen, contract):
            wrong[chosen] = found
    assert wrong == {}
    assert count >= 40
    assert keys >= {"KEYS", "NO PRIVACY", "SITE", "PEOPLE", "ROWS", "READS", "LARGEST", "ONCE", "COST"}


def _named(key: str, agreed: Agreement) -> str:
    return f"[{key}]"


@pytest.mark.parametrize("own", [(), ("CLIPPED",), ("CLIPPED", "ROWS")])
def test_however_many_facts_hold_eight_words_say_all_of_them(own: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    """Any of the facts together, beside those of the data and of the keys: none is dropped, none is said twice."""
    contract, facts = asked("local-dp", "record", "all", "file", "bounds"), module.ALWAYS
    for held in itertools.product((False, True), repeat=len(facts)):
        forced = [fact for fact, holds in zip(facts, held, strict=True) if holds]
        # A cost that is not promised, values that nothing protects, and a contribution exclude the others of their kind.
        if {"NO PROMISE", "NO PRIVACY"} <= {fact.key for fact in forced} or {"ONCE", "COST"} <= {fact.key for fact in forced}:
            continue
        made = tuple(AlwaysFact[Agreement](fact.key, bool, partial(_named, fact.key)) for fact in forced)
        monkeypatch.setattr(module, "ALWAYS", made)
        screen = FirstScreen.of(contract, OwnData(marks=tuple(ShortFact(key, f"[own {key}]") for key in own)))
        said = " ".join(fact.text for fact in screen.always)
        wanted = [*(f"[{fact.key}]" for fact in forced), *(f"[own {key}]" for key in own), "Nobody compared"]
        assert [said.count(text) for text in wanted] == [1] * len(wanted)
        assert len(screen.always) <= 8
        assert {"NO PROMISE", "NO PRIVACY"} & {fact.key for fact in forced} <= {fact.key for fact in screen.always}


@pytest.mark.parametrize("dropped", [fact.key for fact in module.ALWAYS if fact.key not in ("AVERAGE", "BUDGET", "NO PROMISE")])
def test_a_screen_without_a_fact_is_found(dropped: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "ALWAYS", tuple(fact for fact in module.ALWAYS if fact.key != dropped))
    chosen = {
        "NO PRIVACY": ("gossip", "record", "all", "join", "bounds"),
        "COST": ("local-dp", "record", "all", "join", "bounds"),
        "READS": ("central-dp", "record", "all", "join", "bounds"),
        "ROWS": ("local-dp", "person", "all", "join", "bounds"),
    }.get(dropped, ("cordp-dme", "record", "all", "file", "bounds"))
    assert faults(chosen, asked(*chosen)) != []


@pytest.mark.parametrize("make", [of_session, of_flower])
def test_of_sessions_too(make: Any) -> None:
    contract: Agreement = make()
    unit = str(contract.study.unit)
    assert {fact.key for fact in contract.always} == {"COST"} | ({"SITE", "PEOPLE"} if unit != "party" else set())
    screen = FirstScreen.of(contract)
    assert len(screen.lines()) <= 12
    assert f"at most {contract.rounds} means" in " ".join(screen.lines())


def test_without_a_promise() -> None:
    fields = {"name": "ages", "epsilon": 4.0, "delta": 1e-6, "colluding": 1, "protocol": "consensus", "dropouts": 0.0}
    study = StudyTerms.parse({"column": COLUMNS["bounds"], **fields, "options": {"open_edges": "each"}})
    contract = Contract(study, PARTIES, 1, choice=study.choice(len(PARTIES)))
    screen = FirstScreen.of(contract)
    assert max(plan.charge.epsilon(1e-6) for plan in contract.plans) > 4.0
    assert (screen.answer, "COST" in {fact.key for fact in screen.always}) == ("yes without promise", False)
    assert any(line.startswith("! NO PROMISE") for line in screen.marked())


def test_the_digest_to_accept_is_of_one_party_and_of_what_it_saw(monkeypatch: pytest.MonkeyPatch) -> None:
    contract = asked("local-dp", "record", "all", "join", "bounds")
    own, agreed = contract.accept_digest, contract.digest
    others = [Contract(contract.study, PARTIES, place, choice=contract.choice) for place in (0, 2, 3)]
    assert {other.digest for other in others} == {agreed}
    assert len({own, agreed, *(other.accept_digest for other in others)}) == 5
    monkeypatch.setattr(module, "ALWAYS", module.ALWAYS[:-1])
    assert Contract(contract.study, PARTIES, 1, choice=contract.choice).accept_digest != own
