"""Fields declared once: what is read, checked, written and compared, and what a wrong one is told."""

from __future__ import annotations

import json
import pickle
from dataclasses import FrozenInstanceError, dataclass, replace
from enum import StrEnum
from typing import Any

import pytest

from quietmean.core.codec import canonical_json, digest
from quietmean.core.schema import AUTO, OPEN, Configured, filled, given_value, nearest, parameter, parameters_of, require_complete
from quietmean.planning.calibrate import refuse_levels
from quietmean.protocols import Mechanism, Target, configure, get_protocol, registry
from quietmean.protocols.mechanism import template_of
from support.as_declared import OfEvery, as_declared
from support.refusals import refused, refused_rows


class Shape(StrEnum):
    ROUND = "round"
    SQUARE = "square"


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Example(Configured):
    rounds: int = parameter(help="rounds", option=True, at_least=1, remedy="choose at least 1 round")
    share: float = parameter(0.5, help="share", option=True, above=0, below=1, remedy="choose 0 < share < 1")
    step: float = parameter(help="step", required=False, option=True, auto=True, above=0, remedy='choose > 0, or "auto"')
    kind: str = parameter("plain", help="kind", option=True, flag="sort", choices=("plain", "fancy"))
    shape: Shape = parameter(Shape.ROUND, help="shape", option=True, flag=None)
    limit: int | None = parameter(None, help="limit", key="cap", at_most=9, remedy="choose 9 or less")
    offset: float = parameter(0.0, help="offset")
    loud: bool = parameter(False, help="loud", written=lambda example: example.loud)


# Of every registered protocol, what an execution file of eight parties has.
RAW = OfEvery(
    {
        "inca": {"rounds": 2, "sigma_star": 0.5, "sigma_delta": 2.0, "out_degree": 2},
        "gossip": {"rounds": 3, "value_bits": 32, "grid": 2.0**-12, "largest_value": 7.0},
        "local-dp": {"sigma": 1.5},
        "central-dp": {"sigma": 1.5, "curator": 3},
        "cordp-dme": {"sigma_own": 1.0, "sigma_pair": 2.0, "decoder": "biased", "radius": 1.0, "partners": 4, "aggregator": 2},
        "gopa": {"sigma_star": 1.0, "sigma_delta": 2.0, "partners": 3, "aggregator": 7},
        "muffliato": {"sigma": 1.0, "rounds": 4, "momentum": "chebyshev"},
        "priv-unit-g": {"epsilon": 2.0},
        "consensus": {
            "graph": "ring",
            "sigma_z": 3.0,
            "theta": 0.2,
            "c": "auto",
            "bits": 4,
            "local_noise": "laplace",
            "sigma_local": 1,
        },
        "secret-sharing": {"graph": "ring", "bound": 10.0, "fraction_bits": 8},
        "secagg": {"threshold": 5, "minimum": 6, "granularity": 0.25, "sigma": 1.0, "clip": 2.0, "dimension": 3},
        "secagg-plus": {"threshold": 3, "minimum": 6, "granularity": 0.25, "sigma": 1.0, "clip": 2.0, "degree": 4},
        "packed-sharing": {
            "members": 8,
            "colluding": 1,
            "colluding_members": 1,
            "secrets": 2,
            "minimum": 5,
            "gone": 1,
            "ballots": 3,
            "step": 0.03125,
            "sigma": 0.25,
            "clip": 2.0,
            "dimension": 3,
        },
    },
    lambda name: as_declared(name, PARTIES),
)
PARTIES = 8


def example(name: str, **changes: Any) -> Mechanism:
    return get_protocol(name).read(RAW[name] | changes).resolved(PARTIES)


# --- open fields -----------------------------------------------------------------------------------------------------------


def test_a_field_without_default_is_open_until_it_is_filled() -> None:
    value = Example()
    assert value.rounds is OPEN
    assert value.step is OPEN
    assert value.describe() == {"share": 0.5, "kind": "plain", "shape": "round", "offset": 0.0}
    started = filled(value, rounds=3, share=0.9)
    assert (started.rounds, started.share) == (3, 0.5), "what has a value keeps it"
    assert value.rounds is OPEN, "values are frozen"
    with pytest.raises(FrozenInstanceError):
        value.rounds = 2  # type: ignore[misc]
    assert given_value(OPEN, 4) == 4
    assert given_value(0, 4) == 0


def test_what_nothing_runs_without_is_named() -> None:
    refused(r"^field 'rounds' is missing. Add it, it is a whole number.$", require_complete, Example())
    require_complete(Example(rounds=1))


@pytest.mark.parametrize("name", registry())
def test_of_every_protocol_only_options_may_be_open(name: str) -> None:
    """Execution files without a field that is needed are told which; plans leave all of them open."""
    kind = get_protocol(name)
    needed = [one for one in parameters_of(kind).values() if one.required and one.default is OPEN]
    for one in needed:
        rest = {key: value for key, value in RAW[name].items() if key != one.key}
        refused(f"field '{one.key}' is missing. Add it, it is a", kind.read(rest).resolved, PARTIES)
    asked = configure(kind.name)
    assert all(getattr(asked, one.name) is OPEN for one in needed)
    refuse_levels(asked)
    assert repr(asked) == f"{kind.__name__}()"
    assert asked == configure(kind.name)


# --- reading and checking --------------------------------------------------------------------------------------------------


def test_reading_takes_whole_numbers_for_numbers_and_ignores_what_is_not_its_own() -> None:
    value = Example.read({"rounds": 2, "offset": 3, "shape": "square", "cap": None, "loud": True, "online": [True]})
    assert (value.rounds, value.offset, value.shape, value.limit, value.loud) == (2, 3.0, Shape.SQUARE, None, True)
    assert isinstance(value.offset, float)
    assert value.describe()["loud"] is True


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        ({"rounds": "3"}, "field 'rounds' is '3'. Give a whole number."),
        ({"rounds": True}, "field 'rounds' is True. Give a whole number."),
        ({"rounds": 1.5}, "field 'rounds' is 1.5. Give a whole number."),
        ({"rounds": None}, "field 'rounds' is None. Give a whole number."),
        ({"rounds": 0}, "rounds is 0. Choose at least 1 round."),
        ({"share": 0}, "share is 0. Choose 0 < share < 1."),
        ({"share": 1.0}, "share is 1. Choose 0 < share < 1."),
        ({"share": float("nan")}, "field 'share' is nan. Give a number."),
        ({"share": float("inf")}, "share is inf. Choose 0 < share < 1."),
        ({"offset": float("-inf")}, "offset is -inf. Choose a finite number."),
        ({"step": "fast"}, "field 'step' is 'fast'. Give a number or \"auto\"."),
        ({"step": -1.0}, 'step is -1. Choose > 0, or "auto".'),
        ({"kind": "odd"}, "kind 'odd' is unknown. Choose one of plain, fancy."),
        ({"kind": 3}, "field 'kind' is 3. Give a text."),
        ({"shape": "oval"}, "shape 'oval' is unknown. Choose one of round, square."),
        ({"shape": ["round"]}, "shape ['round'] is unknown. Choose one of round, square."),
        ({"cap": 10}, "cap is 10. Choose 9 or less."),
        ({"cap": "10"}, "field 'cap' is '10'. Give a whole number."),
        ({"loud": 1}, "field 'loud' is 1. Give true or false."),
    ],
)
def test_wrong_fields_are_told_their_name_their_value_and_a_remedy(raw: dict[str, Any], message: str) -> None:
    assert refused("", Example.read, {"rounds": 1, **raw}) == message


def test_values_made_in_python_and_changed_ones_are_checked_too() -> None:
    refused("rounds is 0. Choose at least 1", Example, rounds=0)
    refused("kind 'odd' is unknown. Choose one of plain, fancy", replace, Example(rounds=1), kind="odd")


def test_what_has_a_range_has_a_remedy_of_its_own() -> None:
    for kind in registry().values():
        for one in parameters_of(kind).values():
            assert one.help, f"{kind.name} {one.name}"
            if any(end is not None for end in (one.at_least, one.above, one.at_most, one.below)):
                assert one.remedy not in ("", "choose a finite number"), f"{kind.name} {one.name}"


def test_auto_stands_for_what_is_computed() -> None:
    value = Example.read({"rounds": 1, "step": "auto"})
    assert value.step is AUTO
    assert value.describe()["step"] == "auto"
    assert repr(value) == "Example(rounds=1, step=auto)"
    assert filled(value, step=2.0).step is AUTO, "it is asked for, not open"
    assert value != Example(rounds=1)
    assert Example.read(value.describe()) == value
    finalize = example("consensus")
    assert finalize.describe()["c"] not in ("auto", 1.0)


# --- options ---------------------------------------------------------------------------------------------------------------


def test_flags_and_keys_are_names_unless_said_otherwise() -> None:
    known = parameters_of(Example)
    assert list(known) == ["rounds", "share", "step", "kind", "shape", "limit", "offset", "loud"]
    assert {name: one.flag for name, one in known.items()} == {
        "rounds": "rounds",
        "share": "share",
        "step": "step",
        "kind": "sort",
        "shape": None,
        "limit": None,
        "offset": None,
        "loud": None,
    }
    assert known["limit"].key == "cap"
    assert parameters_of(Example) is known


@refused_rows("unknown_options_are_refused_with_the_nearest_name")
def test_unknown_options_are_refused_with_the_nearest_name(name: str, option: str, message: str) -> None:
    refused(message, configure, name, {option: 3})


def test_nearest_names() -> None:
    assert nearest("roundss", ["rounds", "schedule"]) == " (did you mean 'rounds'?)"
    assert nearest("speed", ["rounds", "schedule"]) == ""
    refused(r"protocol 'inka' is unknown \(did you mean 'inca'\?\). Choose one of", get_protocol, "inka")


def test_options_are_checked_like_files() -> None:
    refused("field 'rounds' is 'x'. Give a whole number", configure, "inca", {"rounds": "x"})
    refused("schedule 'sideways' is unknown. Choose one of", configure, "inca", {"schedule": "sideways"})


# --- values as values ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", registry())
def test_every_protocol_survives_json(name: str) -> None:
    value = example(name)
    document = json.loads(json.dumps(value.describe()))
    again = get_protocol(name).read(document).resolved(PARTIES)
    assert canonical_json(again.describe()) == canonical_json(value.describe())
    assert digest(again.describe()) == digest(value.describe())
    assert again == value
    assert hash(again) == hash(value)
    assert again is not value
    assert repr(again) == repr(value)


@pytest.mark.parametrize("name", registry())
def test_what_is_known_of_a_protocol_is_built_once_and_not_pickled(name: str) -> None:
    value = example(name)
    assert value.traits is value.traits
    again = pickle.loads(pickle.dumps(value))  # noqa: S301
    assert again == value
    assert again.traits.trust == value.traits.trust


@pytest.mark.parametrize("name", registry())
def test_a_value_is_printed_in_one_line(name: str) -> None:
    shown = repr(example(name))
    assert shown.startswith(f"{get_protocol(name).__name__}(")
    assert "\n" not in shown
    assert len(shown) < 400


def test_the_line_has_what_differs_from_the_defaults() -> None:
    assert repr(example("inca")) == "IncA(rounds=2, injection='incremental', sigma_star=0.5, sigma_delta=2, out_degree=2)"
    again = get_protocol("inca").read(json.loads(json.dumps(example("inca").describe()))).resolved(PARTIES)
    assert repr(again) == repr(example("inca")), "defaults that a file names are defaults"
    assert repr(example("central-dp", curator=0)) == "CentralDP(sigma=1.5)"
    assert repr(Example(rounds=1, kind="fancy", shape=Shape.SQUARE)) == "Example(rounds=1, kind='fancy', shape='square')"


def test_equal_values_are_those_of_one_type_with_the_same_fields() -> None:
    one, other = example("inca"), example("inca", rounds=3)
    assert one == example("inca")
    assert one != other
    assert len({one, example("inca"), other}) == 2
    assert get_protocol("inca").read({**other.describe(), "rounds": one.rounds}).resolved(6) == one
    # Where lists are compared, too: the same noise on every edge, named once or edge by edge.
    ring = {"edges": [[0, 1], [1, 2], [0, 2]], "theta": 0.2, "c": 1.0, "iterations": 9}
    consensus = get_protocol("consensus")
    assert consensus.read({**ring, "sigma_z": 2.0}).resolved(3) == consensus.read({**ring, "sigma_z": [[2.0, 2.0]] * 3}).resolved(
        3
    )
    assert example("secagg") != example("secagg-plus")
    assert Example(rounds=1) != {"rounds": 1}
    # What files leave out says how the rest is made: it counts until that is made.
    assert configure(consensus.name, {"graph": "ring"}) != configure(consensus.name, {"graph": "star"})
    assert configure("inca", {"value_bits": 32}) != configure("inca", {"value_bits": 64})
    assert example("consensus", graph="harary", connectivity=2) == example("consensus")


def test_a_whole_number_is_the_same_number() -> None:
    """Plans made in Python and read from their files have the same digest."""
    one, other = Example(rounds=1, offset=2), Example(rounds=1, offset=2.0)
    assert one == other
    assert canonical_json(one.describe()) == canonical_json(other.describe())
    assert isinstance(one.describe()["rounds"], int)


@pytest.mark.parametrize("name", registry())
def test_given_levels_of_noise_are_refused_where_they_are_to_be_found(name: str) -> None:
    value = example(name)
    levels = [one.key for one in parameters_of(type(value)).values() if not one.option and one.default is OPEN and one.required]
    if levels:
        refused(f"{levels[0]} is given, but calibration chooses it. Leave it out", refuse_levels, value)


def test_templates_are_complete() -> None:
    target = Target(parties=PARTIES, epsilon=1.0, delta=1e-6, colluding=1)
    for name in ("inca", "gossip", "local-dp", "central-dp", "cordp-dme", "gopa", "muffliato", "consensus", "secret-sharing"):
        template = template_of(configure(name), target)
        require_complete(template)
        assert get_protocol(name).read(template.describe()).resolved(PARTIES) == template


@pytest.mark.parametrize(
    ("field", "wrong", "right"), [("unit", "recrd", "record"), ("neighbouring", "replacment", "replacement")]
)
def test_a_target_with_an_unknown_choice_is_refused(field: str, wrong: str, right: str) -> None:
    target = Target(parties=8, epsilon=1.0, delta=1e-6).describe()
    refused(rf"{field} '{wrong}' is unknown \(did you mean '{right}'\?\). Choose one of", Target.parse, {**target, field: wrong})


def test_a_field_hides_no_method() -> None:
    """Whoever writes a protocol does not know all its hooks: a hidden one would be called as what the field holds."""

    @dataclass(frozen=True, kw_only=True, eq=False, repr=False)
    class Ring(Mechanism):
        traffic: int = parameter(help="how many places away a partner is at most", option=True)  # type: ignore[assignment]

    refused("field 'traffic' of Ring hides the method of that name of Mechanism. Rename the field", parameters_of, Ring)
