"""No number breaks a file or a call: every numeric key of files that people write, and every numeric argument from Python.

Found from the declarations, each with numbers that nobody should give: one sentence that names the key, or it is taken.
"""

from __future__ import annotations

import inspect
import json
import math
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, get_type_hints

import pytest
from pydantic import BaseModel

import quietmean as qm
from quietmean.cli.main import main
from quietmean.core.errors import InputError
from quietmean.core.schema import parameters_of
from quietmean.node import Identity, Roster
from quietmean.node.monitor import status_path, write_status
from quietmean.protocols import registry
from quietmean.statistics import Column
from quietmean.studies.agreement.deadlines import Deadlines
from quietmean.studies.agreement.invitation import Invitation
from quietmean.studies.agreement.session_study import SessionStudy
from quietmean.studies.agreement.study import StudyTerms
from quietmean.studies.party import Policy
from quietmean.studies.party.policy import PolicyRules
from support.hostile_numbers import NUMBERS, has_remedy, kinds, named_by, within

VALUES: tuple[float, ...] = (
    *(0, -1, 2, 2**63, 10**30, 10**400, -(10**400)),
    *(-0.0, 0.5, 2.5, math.nan, math.inf, -math.inf, 1e308, 1e-308, 1e-320),
)  # fmt: skip
# What Python's callers may give in place of a number.
NO_NUMBERS: tuple[object, ...] = ("1", "", b"1", [1.0], {}, object())
# Of work of this process, for each number.
SECONDS = 20.0


def refusal_fault(name: str, call: Callable[[], object]) -> str:
    """What is wrong with how a call ends; empty for nothing."""
    try:
        with within(SECONDS), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            call()
    except InputError as error:
        said = str(error)
        if "\n" in said or not has_remedy(said):
            return f"no sentence with a remedy: {said!r}"
        return "" if named_by(name, said) else f"{name} is not named: {said!r}"
    except Exception as error:
        return f"{type(error).__name__}: {str(error)[:200]}"
    return ""


def faults(name: str, call: Callable[[Any], object], values: Sequence[Any] = VALUES) -> list[str]:
    found = ((value, refusal_fault(name, lambda value=value: call(value))) for value in values)  # type: ignore[misc]
    return [f"{str(value)[:30]}: {fault}" for value, fault in found if fault]


def numeric(model: type[BaseModel]) -> list[str]:
    return [one.alias or name for name, one in model.model_fields.items() if kinds(one.annotation) & NUMBERS - {bool}]


# --- files -------------------------------------------------------------------------------------------------------------------

COLUMN = {"name": "age", "low": 0.0, "high": 100.0}
BASE: dict[str, Any] = {"name": "ages", "epsilon": 1.0, "colluding": 0, "protocol": "local-dp"}
# Where a key says something only beside others.
BESIDE: dict[str, dict[str, Any]] = {
    "most_records": {"count": "private"},
    "minimum": {"start_by": "2100-01-01T00:00:00Z", "protocol": "secagg"},
}
FOLDER = {"transport": "folder", "deadlines": {"first": "2100-01-01T00:00:00Z", "interval": 7200.0, "poll": 60.0}}


@pytest.mark.parametrize("key", numeric(StudyTerms))
def test_each_number_of_a_study(key: str) -> None:
    base = {**BASE, **BESIDE.get(key, {})}
    assert refusal_fault(key, lambda: StudyTerms.parse({**base, "column": [COLUMN]}).plan(4)) == "" or key in BESIDE
    assert faults(key, lambda value: StudyTerms.parse({**base, "column": [COLUMN], key: value}).plan(4)) == []


@pytest.mark.parametrize("key", numeric(StudyTerms))
def test_nobody_is_invited_to_a_number_that_no_study_has(key: str) -> None:
    """An invitation is signed before anything is planned: its parties would find out one by one."""
    convener = Identity.generate()
    for value in VALUES:
        raw = {**BASE, **BESIDE.get(key, {}), "column": [COLUMN], key: value}

        def invited(raw: dict[str, Any] = raw) -> StudyTerms:
            return Invitation.make(StudyTerms.parse(raw), convener).study

        assert refusal_fault(key, invited) == "", value
        try:
            study = invited()
        except InputError:
            continue
        # Somebody can be found who agree on it.
        study.target(max(4, 2 + (study.colluding or 0), study.minimum or 0))


SESSION: dict[str, Any] = {"dimension": 2, "rounds": 2}


@pytest.mark.parametrize("key", numeric(SessionStudy))
def test_nobody_is_invited_to_a_number_that_no_session_has(key: str) -> None:
    convener = Identity.generate()

    def invited(value: float) -> object:
        return Invitation.make(SessionStudy.parse({**SESSION, **BESIDE.get(key, {}), key: value}), convener)

    assert faults(key, invited) == []


@pytest.mark.parametrize("key", numeric(Deadlines))
def test_each_number_of_deadlines(key: str) -> None:
    def parsed(value: float) -> object:
        return StudyTerms.parse({**BASE, **FOLDER, "column": [COLUMN], "deadlines": {**FOLDER["deadlines"], key: value}}).plan(4)  # type: ignore[dict-item]

    assert faults(key, parsed) == []


@pytest.mark.parametrize("key", numeric(Column))
def test_each_number_of_a_column(key: str) -> None:
    many = kinds(Column.model_fields[key].annotation) and "tuple" in str(Column.model_fields[key].annotation)

    def parsed(value: float) -> object:
        given = [10.0, value] if many else value
        return StudyTerms.parse({**BASE, "column": [{**COLUMN, key: given}]}).plan(4)

    assert faults(key, parsed) == []


def toml(value: float) -> str:
    return str(value) if isinstance(value, int) or math.isfinite(value) else str(value).replace("infinity", "inf")


@pytest.mark.parametrize("key", numeric(PolicyRules))
def test_each_number_of_a_policy(key: str, tmp_path: Path) -> None:
    many = "tuple" in str(PolicyRules.model_fields[key].annotation)

    def loaded(value: float) -> object:
        place = tmp_path / "policy.toml"
        place.write_text(f"[policy]\n{key} = {f'[{toml(value)}]' if many else toml(value)}\n")
        place.chmod(0o600)
        return Policy.load(place)

    assert faults(key, loaded) == []


@pytest.mark.parametrize("key", ["epsilon", "delta"])
def test_each_number_of_a_policy_s_budget(key: str, tmp_path: Path) -> None:
    def loaded(value: float) -> object:
        given = {"epsilon": 1.0, "delta": 1e-6, key: value}
        place = tmp_path / "policy.toml"
        place.write_text("[budget]\n" + "".join(f"{name} = {toml(one)}\n" for name, one in given.items()))
        place.chmod(0o600)
        return Policy.load(place)

    assert faults(key, loaded) == []


def test_each_port_of_a_roster(tmp_path: Path) -> None:
    keys = [Identity.generate().public_key for _ in range(2)]

    def loaded(value: float) -> object:
        entries = zip("ab", keys, (value, 7001), strict=True)
        text = "".join(
            f'[[party]]\nname = "{name}"\naddress = "127.0.0.1:{port}"\nkey = "{key}"\n' for name, key, port in entries
        )
        (tmp_path / "roster.toml").write_text(text)
        return Roster.load(tmp_path / "roster.toml")

    assert faults("address", loaded) == []


def numbers_in(document: Mapping[str, Any]) -> list[str]:
    return [name for name, value in document.items() if isinstance(value, int | float) and not isinstance(value, bool)]


def test_each_number_of_a_status(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Written by a program: what is wrong in it is named by the store."""
    store, when = tmp_path / "my.store", "2027-03-01T12:00:00.000+00:00"
    counts = dict.fromkeys(("round", "of", "messages_sent", "messages_received", "bytes_sent", "bytes_received", "refusals"), 1)
    texts = {"party": "ada", "state": "running", "reason": "", "phase": "mixing", "study": "ages"}
    times = dict.fromkeys(("started", "since", "updated"), when)
    lists: dict[str, Any] = {key: [] for key in ("waiting_for", "late", "refused", "peers")}
    write_status(status_path(store), {**counts, **texts, **times, **lists, "seconds": [0.5], "last_event": None})
    right = json.loads(status_path(store).read_text())
    found = []
    for key in [*numbers_in(right), "seconds"]:
        for value in VALUES:
            text = str(value) if isinstance(value, int) else json.dumps(value)
            changed = json.dumps({**right, key: "HERE"}).replace('"HERE"', f"[{text}]" if key == "seconds" else text)
            status_path(store).write_text(changed)
            capsys.readouterr()
            try:
                with within(SECONDS):
                    main(["site", "status", str(store)])
            except SystemExit as end:
                said = capsys.readouterr().err
                if end.code not in (0, 3) and (end.code != 2 or said.count("\n") != 1 or "my.store" not in said):
                    found.append(f"{key} {value!s:.30}: exit {end.code}, {said!r}")
            except Exception as error:
                found.append(f"{key} {value!s:.30}: {type(error).__name__} {error}")
    assert found == []


# --- Python ------------------------------------------------------------------------------------------------------------------


def arguments_of(call: Callable[..., object]) -> Iterator[str]:
    hints = get_type_hints(call.__init__ if inspect.isclass(call) else call)
    for name in inspect.signature(call).parameters:
        if kinds(hints.get(name)) & NUMBERS and "Mapping" not in str(hints[name]):
            yield name


TARGET: dict[str, Any] = {"parties": 4, "epsilon": 1.0, "delta": 1e-6}
STUDY: dict[str, Any] = {"columns": {"age": (0, 100)}, "epsilon": 1.0, "delta": 1e-6, "colluding": 0, "protocol": "local-dp"}
CALLS: dict[str, tuple[Callable[..., object], dict[str, Any], list[str]]] = {
    "Target": (qm.Target, TARGET, [name for name, hint in get_type_hints(qm.Target).items() if kinds(hint) & NUMBERS]),
    "plan": (qm.plan, {**TARGET, "protocol": "local-dp"}, list(arguments_of(qm.plan))),
    "Study": (
        lambda **more: qm.Study(**more).plan(4),
        STUDY,
        [one for one in arguments_of(qm.Study) if one not in ("columns", "statistics", "missing_codes")],
    ),
}


@pytest.mark.parametrize(("call", "name"), [(call, name) for call, (_, _, names) in CALLS.items() for name in names])
def test_each_number_of_a_call(call: str, name: str) -> None:
    function, right, _ = CALLS[call]
    beside = BESIDE.get(name, {}) if call == "Study" else {}
    assert faults(name, lambda value: function(**{**right, **beside, name: value}), [*VALUES, *NO_NUMBERS]) == []


@pytest.mark.parametrize("protocol", sorted(registry()))
def test_each_number_of_each_protocol(protocol: str) -> None:
    kind = registry()[protocol]
    found = []
    for name, one in parameters_of(kind).items():
        if kinds(one.kind) & NUMBERS:
            values = [*VALUES, *NO_NUMBERS]
            found += [f"{name} {fault}" for fault in faults(one.key, lambda value, name=name: kind(**{name: value}), values)]  # type: ignore[misc]
    assert found == []
