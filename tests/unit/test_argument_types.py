"""Public calls with arguments of any other type: one sentence that names the argument, and no error of Python's or numpy's."""

from __future__ import annotations

import asyncio
import inspect
import random
import re
from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

import quietmean as qm
from quietmean.core.errors import QuietmeanError
from quietmean.core.keywords import WrongTypeError, python_call
from quietmean.core.schema import options_of
from quietmean.node import Identity, Roster, RosterEntry
from quietmean.planning import candidates
from quietmean.protocols import registry
from quietmean.studies.outcome import local
from quietmean.testing import example_execution
from support.refusals import raised

# What no type checker lets through is called, too.
called: Any = qm
SEED, SAMPLES = 20261128, 400
BUDGET: dict[str, Any] = {"epsilon": 1.0, "delta": 1e-6}
STUDY = qm.Study({"age": (0, 110)}, ["mean(age)"], **BUDGET, protocol="local-dp", colluding=0, accept_wide=True)
PLAN = qm.plan(parties=4, **BUDGET, protocol="local-dp")
EXECUTION = example_execution("local-dp", 4, sigma=1.0)
FRAME = pl.DataFrame({"age": [30.0, 40.0, 50.0, 60.0]})
NOTHING = dict.fromkeys(("domain", "nats", "committee", "eavesdropping"))
JOIN = {"study": "study.toml", "roster": "roster.toml", "key": "own.key", "data": FRAME, "account": "wards", "no_ledger": True}
TERMS = {"dimension": 2, "rounds": 2, **BUDGET}
Call = tuple[Callable[..., object], dict[str, Any]]
# Every call with all arguments as they may be.
CALLS: dict[str, Call] = {
    "plan": (qm.plan, {"parties": 4, **BUDGET, "colluding": 1, "dropouts": 0.0, "protocol": "local-dp", **NOTHING}),
    "simulate": (qm.simulate, {"plan": PLAN, "values": np.zeros((4, 1)), "runs": 2, "seed": 0}),
    "certify": (qm.certify, {"execution": EXECUTION, "corrupt": (0,), "observed": None, "delta": 1e-6}),
    "Target": (qm.Target, {"parties": 4, **BUDGET, "dimension": 1, "sensitivity": 1.0, "colluding": 1, "dropouts": 0.0}),
    "Study": (qm.Study, {"columns": {"age": (0, 110)}, "statistics": ["mean(age)"], **BUDGET, "options": None, "unit": "record"}),
    "Study.plan": (STUDY.plan, {"parties": 4}),
    "Study.run": (STUDY.run, {"data": FRAME, "parties": 2, "party_column": None, "a_priori_above_target": False}),
    "Study.save": (STUDY.save, {"path": "new.toml"}),
    "Study.load": (qm.Study.load, {"path": "study.toml"}),
    "Plan.save": (PLAN.save, {"path": "new.plan"}),
    "Execution.save": (EXECUTION.save, {"path": "new.json"}),
    "Execution.load": (qm.Execution.load, {"path": "new.json"}),
    "rank": (qm.rank, {"target": PLAN.target, "protocols": ["local-dp"]}),
    "propose": (qm.propose, {"plan": PLAN, "committee": None, "one_message": False}),
    "Committee": (qm.Committee, {"members": 3, "colluding": 1, "gone": 0}),
    "InputDomain": (qm.InputDomain, {"low": np.zeros(1), "high": np.ones(1)}),
    "Session": (qm.Session, {"parties": 4, **TERMS, "clip": 1.0}),
    "contract": (qm.contract, {"study": "study.toml", "roster": None, "key": "own.key", "store": None, "policy": None}),
    "contribute": (qm.contribute, {"study": "study.toml", "key": "own.key", "data": FRAME, "out": "new", "drop": None}),
    "join": (qm.join, {**JOIN, "accept": "0" * 64, "policy": None, "approvals": (), "report": None, "plan": None}),
    **{kind.__name__: (kind, dict.fromkeys(options_of(kind), ...)) for kind in registry().values()},
}
VALUES: list[Any] = [
    None, True, "x", "", b"x", 3.5, -1, float("nan"), float("inf"), 10**20, [], {}, object(), np.array([1.0, np.nan]), [None],
    ("a",), lambda: 1, complex(1), Path("x"), date(2020, 1, 1), np.float64(2), np.int64(2), "3", {"age": 1}, FRAME, PLAN,
]  # fmt: skip


# What names a command with its options is about that command.
_OPTION = re.compile(r"(?<![\w-])--[a-z]")
_OF_COMMAND = re.compile(r"quietmean( [a-z]+)+[^:;.]*")


class Went(BaseException):
    """What was asked for begins."""


def fault(call: Callable[..., object], given: dict[str, Any]) -> str:
    """What is wrong with how a call ends; empty for nothing."""
    try:
        answer = call(**given)
        if inspect.iscoroutine(answer):
            asyncio.run(answer)
    except QuietmeanError as error:
        said = str(error)
        of_shell = _OPTION.search(_OF_COMMAND.sub("", said)) or "(in a study file" in said
        return f"words of the shell: {said}" if of_shell else "" if "\n" not in said else f"several lines: {said}"
    except Went:
        return ""
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return ""


@pytest.mark.filterwarnings("ignore")
def test_calls_with_a_value_of_any_type_at_random(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)

    def begins(*anything: object, **named: object) -> None:
        raise Went

    monkeypatch.setattr(local, "run_study", begins)
    chance, faults = random.Random(SEED), {}
    for _ in range(SAMPLES):
        name = chance.choice(list(CALLS))
        call, usual = CALLS[name]
        given = {key: value for key, value in usual.items() if value is not ...}
        if not usual:
            continue
        argument, value = chance.choice(list(usual)), chance.choice(VALUES)
        # A frame in the place of a choice has no truth value.
        if isinstance(value, pl.DataFrame | np.ndarray) and any(one is ... for one in usual.values()):
            continue
        for new in Path().glob("new*"):
            new.unlink()
        if wrong := fault(call, {**given, argument: value}):
            faults[f"{name}({argument}={value!r})"] = wrong
    assert faults == {}


def _keywords(call: Callable[..., object]) -> list[str]:
    """All keywords of a public call, those of its options too."""
    of_call = call.__init__ if isinstance(call, type) else call  # type: ignore[misc]
    return [name for name in getattr(of_call, "accepted", ()) if name not in ("self", "cls")]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", CALLS)
def test_no_keyword_is_answered_in_words_of_the_shell(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def begins(*anything: object, **named: object) -> None:
        raise Went

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(local, "run_study", begins)
    # Its plans take seconds.
    general = [name for name in candidates.general_protocols() if name != "inca"]
    monkeypatch.setattr(candidates, "general_protocols", lambda *server: general)
    identities = [Identity.generate() for _ in range(4)]
    identities[0].save(Path("own.key"))
    entries = [RosterEntry(f"p{port}", ("127.0.0.1", port), each.public_key) for port, each in enumerate(identities, 9000)]
    Path("roster.toml").write_text(Roster(tuple(entries)).to_toml())
    STUDY.save("study.toml")
    call, usual = CALLS[name]
    given = {key: value for key, value in usual.items() if value is not ...}
    faults = {}
    for keyword in _keywords(call):
        for value in VALUES:
            for new in Path().glob("new*"):
                new.unlink()
            if (wrong := fault(call, {**given, keyword: value})).startswith("words of the shell"):
                faults[f"{name}({keyword}={value!r})"] = wrong
    assert faults == {}


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: called.simulate(3), "plan is of type int. Give a value of type Plan"),
        (lambda: called.simulate(PLAN, runs="many"), "runs is of type str. Give a whole number"),
        (lambda: called.plan(parties=4, **BUDGET, protocol=3), "protocol is of type int. Give a value of type Mechanism or text"),
        (
            lambda: called.certify(EXECUTION, observed=[1]),
            "observed is of type list with something else in it. Give a list, ",
        ),
        (lambda: called.Study.load(3), "path is of type int. Give text or a path"),
        (lambda: called.Study(3, "mean(age)", **BUDGET), "columns is of type int. Give a dict"),
        (lambda: called.Session(3, dimension=2), "Session needs epsilon, which is not given"),
        (lambda: called.IncA(injection=2), "field 'injection' is 2. Give "),
        (lambda: called.IncA(rounds=None), "field 'rounds' is None. Give a whole number"),
    ],
)
def test_the_sentence_names_the_argument_that_was_given(call: Callable[[], object], sentence: str) -> None:
    assert raised(QuietmeanError, "", call).startswith(sentence)


def test_the_value_is_not_told_and_a_defect_stays_one() -> None:
    @python_call
    def mean(values: list[float], *, scale: float = 1.0) -> float:
        return sum(values) / (len(values) * scale)

    with pytest.raises(WrongTypeError) as told:
        mean(["secret"])  # type: ignore[list-item]
    assert str(told.value) == "values is of type list with something else in it. Give a list, each a number."
    # All is as declared: nobody gave anything wrong.
    raised(ZeroDivisionError, "", mean, [])
