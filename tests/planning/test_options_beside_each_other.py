"""No option is silently without effect beside another: where it says nothing there, it is refused, or a sentence tells it.

Each option is given alone and beside each other one. What changes a plan alone and not beside another says nothing there.
"""

from __future__ import annotations

import itertools
import json
from dataclasses import fields
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from quietmean.cli import plan as planning
from quietmean.cli.console import Progress
from quietmean.cli.main import main
from quietmean.cli.options import AgreementOptions
from quietmean.cli.study_options import NO_COMMITTEE, TargetOptions
from quietmean.core.domain import CountVisibility, PrivacyUnit
from quietmean.core.errors import InputError
from quietmean.planning.calibrate import calibrate
from quietmean.planning.choices import CalibrationMethod
from quietmean.protocols import Server, Target, configure
from quietmean.protocols.cordp_dme.design import SensitivityConvention
from quietmean.studies.agreement.study import StudyTerms
from support.every_option import VALUES

# Two statistics, for what divides a budget among them.
STUDY = {
    "name": "ages",
    "column": [{"name": "age", "low": 0, "high": 100}],
    "statistic": [{"kind": "mean", "column": "age"}, {"kind": "variance", "column": "age"}],
}
TARGET: dict[str, Any] = {
    "epsilon": 2.0,
    "delta": 1e-4,
    "nats": 0.4,
    "eavesdropping": "0.5",
    "dimension": 3,
    "colluding": 1,
    "dropouts": 0.25,
    "responding": 3,
    "sensitivity": 3.0,
    "domain": planning.Domain.UNIT_BALL,
    "convention": SensitivityConvention.TABLE_II,
    "unit": PrivacyUnit.RECORD,
}
SEARCH: dict[str, Any] = {
    "server": Server.CURATOR,
    "max_messages": 1,
    "calibration": CalibrationMethod.PAPER,
    "trials": 59,
    "no_privacy": True,
    "details": True,
}
# Which protocols: not beside what they are about.
OTHER_SEARCH = {"protocol"}
OF_STUDY: dict[str, Any] = {
    "epsilon": 2.0,
    "delta": 1e-4,
    "nats": 0.4,
    "eavesdropping": "all-after-first",
    "unit": PrivacyUnit.PERSON,
    "rows": "2",
    "sites_per_person": 2,
    "count": CountVisibility.PRIVATE,
    "most_records": 50,
    "colluding": 2,
    "dropouts": 0.25,
    "protocol": "adqsp",
    "allocate": "widths",
    "population": "these records",
    "accept_wide": True,
}
NOT_SAID = "refused: "


def names_of(options: type) -> set[str]:
    return {field.name for field in fields(options)}


def test_every_option_has_a_value_here() -> None:
    assert TARGET.keys() == names_of(planning.AskedTarget)
    assert SEARCH.keys() == names_of(planning.SearchOptions) - OTHER_SEARCH
    assert OF_STUDY.keys() == names_of(TargetOptions)


@cache
def planned(protocol: str, *names: str) -> str:
    """What a plan and its warnings are, but for the target, which says again what was given."""
    given = TARGET | SEARCH
    wanted = planning.AskedTarget(**{name: given[name] for name in names if name in TARGET})
    search = planning.SearchOptions(protocol=[protocol], **{name: given[name] for name in names if name in SEARCH})
    try:
        wanted.require_one_target()
        answer, best = planning._answer(wanted.target(4), wanted, {}, search, NO_COMMITTEE, Progress(None))
    except InputError as error:
        return f"{NOT_SAID}{error}"
    documents = answer, best.to_json()
    for document in documents:
        del document["target"]
    return json.dumps(documents, sort_keys=True, default=str)


def silent_in_plans(protocol: str) -> list[tuple[str, str]]:
    """(option, beside which other one it says nothing)."""
    nothing = planned(protocol)
    alone = {name: planned(protocol, name) for name in TARGET | SEARCH}
    effective = [name for name, answer in alone.items() if answer != nothing and not answer.startswith(NOT_SAID)]
    pairs = itertools.product(effective, alone)
    possible = [(name, other) for name, other in pairs if name != other and not alone[other].startswith(NOT_SAID)]
    return [(name, other) for name, other in possible if planned(protocol, *sorted((name, other))) == alone[other]]


@pytest.mark.parametrize("protocol", ["adqsp", "cordp-dme"])
def test_of_a_plan(protocol: str) -> None:
    assert silent_in_plans(protocol) == []


def studied(*names: str) -> str:
    given = {name: OF_STUDY[name] for name in names}
    # What no default of a command goes with.
    usual: dict[str, Any] = {"unit": PrivacyUnit.PARTY} if "nats" in names else {}
    try:
        study = StudyTerms.parse({**STUDY, **TargetOptions(**{**usual, **given}).fields()})
    except InputError as error:
        return f"{NOT_SAID}{error}"
    target, workload = study.target(6), study.workload
    bound = None if target.nats is not None else (target.epsilon, target.delta)
    return repr((bound, target.nats, target.eavesdropping, target.unit, target.colluding, target.dropouts, study.protocol,
                 workload.rows, workload.sites_per_person, workload.count, workload.scales, target.sensitivity,
                 workload.allocated, workload.these_records, study.accept_wide))  # fmt: skip


def test_of_a_study() -> None:
    alone = {name: studied(name) for name in OF_STUDY}
    said = [name for name, answer in alone.items() if answer != studied() and not answer.startswith(NOT_SAID)]
    pairs = itertools.permutations(said, 2)
    assert [(name, other) for name, other in pairs if studied(name, other) == alone[other]] == []


def test_of_a_search_beside_a_study(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """All parties make the plan of the study: nothing that searches for another one says anything there, and details do."""
    study = tmp_path / "study.toml"
    study.write_text('[study]\nname = "ages"\n\n[[column]]\nname = "age"\nlow = 0\nhigh = 100\n')
    plain = ["plan", "--study", str(study), "--parties", "5"]
    shown = []
    for line in (plain, [*plain, "--details"]):
        main(line)
        shown.append(capsys.readouterr().out)
    first = shown[0].splitlines()
    *above, more, after = first
    assert more.startswith("More: --details. Plan ")
    assert shown[1].splitlines()[: len(above) + 1] == [*above, ""]
    assert shown[1].splitlines()[-1] == after
    for name in SEARCH.keys() - {"no_privacy", "details"}:
        value = [] if SEARCH[name] is True else [str(SEARCH[name])]
        with pytest.raises(SystemExit) as ended:
            main([*plain, f"--{name.replace('_', '-')}", *value])
        assert ended.value.code == 2, name
        assert f"--{name.replace('_', '-')} cannot go with --study" in " ".join(capsys.readouterr().err.split())


def test_of_an_agreement_that_says_it_all() -> None:
    values: dict[str, Any] = {"roster": Path("roster.toml"), "plan": Path("plan.json"), "no_privacy": True}
    assert values.keys() == names_of(AgreementOptions) - {"key"}
    for name, value in values.items():
        with pytest.raises(InputError, match=(f"--{name.replace('_', '-')} has no effect in a study by file. Leave it out")):
            AgreementOptions(**{name: value}).require_key_alone("a study by file", None)
    with pytest.raises(InputError, match=r"--store has no effect in a study by file\. Leave it out"):
        AgreementOptions().require_key_alone("a study by file", Path("store"))
    AgreementOptions().require_key_alone("a study by file", None)


# Of more parties than a test has: who is a neighbour of whom is of no matter among a few.
OF_MANY = {("secagg-plus", "security_bits"), ("secagg-plus", "correctness_bits")}
PROTOCOL_OPTIONS = [(name, key) for name, given in VALUES.items() for key in given if (name, key) not in OF_MANY]


@cache
def calibrated(name: str, given: str) -> str:
    # Values of unit length, whose sensitivity is 2, are all that one protocol has.
    target = Target(5, 1.0, 1e-6, 2, 2.0 if name == "priv-unit-g" else 1.0, 1)
    try:
        return json.dumps(calibrate(target, configure(name, json.loads(given))).to_json(), sort_keys=True, default=str)
    except InputError as error:
        return f"{NOT_SAID}{error}"


@pytest.mark.sampled(15)
@pytest.mark.parametrize(("name", "key"), PROTOCOL_OPTIONS)
def test_of_a_protocol(name: str, key: str) -> None:
    """Given without what it needs, an option is in the plan, or none of its values is taken. Some are those of the plan."""
    values = [options[key] for options in VALUES[name][key]]
    if isinstance(values[0], int | float):
        values += [True, False] if isinstance(values[0], bool) else [1, 2, 3, 7, 0.6]
    plans = (calibrated(name, json.dumps({key: value})) for value in values)
    assert any(plan != calibrated(name, "{}") for plan in plans)
