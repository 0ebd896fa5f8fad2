"""A study that starts with those who are there: with how many at least, and a plan for every number of parties."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from quietmean.core.errors import InputError
from quietmean.node.quorum import ATTEMPTS, least_minimum
from quietmean.planning.automatic import Choice
from quietmean.planning.calibrate import calibrate
from quietmean.planning.plan import Plan
from quietmean.protocols import Target, get_protocol

if TYPE_CHECKING:
    from quietmean.studies.study import Study

# What parties tell each other of an attempt is one short message.
MOST_PARTIES = 500
# The option of protocols that give no result from fewer inputs.
_LEAST_INPUTS = "minimum"


def minimum_of(study: Study, parties: int) -> int:
    """With how many parties the study may start. Raises :class:`InputError` where two results could be made."""
    colluding = study.target(parties).colluding
    least = least_minimum(parties, colluding)
    minimum = parties if study.minimum is None else study.minimum
    if not least <= minimum <= parties:
        raise InputError(
            f"minimum is {minimum}: with {parties} parties of whom {colluding} may collude choose {least}..{parties}, more than "
            "half of their sum, so that no two results can be made"
        )
    if parties > MOST_PARTIES:
        raise InputError(f"start_by is for up to {MOST_PARTIES} parties, these are {parties}: leave it out, or start in parts")
    return minimum


def for_quorum(study: Study, choice: Choice) -> Choice:
    """The choice with plans for every number of parties with which the study may start.

    All are of one protocol and against the same number of colluders, whoever is in. Raises :class:`InputError` for a minimum
    that is too small, and for a protocol that cannot start so.
    """
    target = choice.plan.target
    minimum = minimum_of(study, target.parties)
    least = least_minimum(target.parties, target.colluding)
    plan = _enough_inputs(study, choice.plan, least)
    _refuse(plan)
    smaller = {}
    for size in range(minimum, target.parties):
        smaller[size] = _enough_inputs(study, _calibrated(study, replace(target, parties=size), plan, study.options), least)
        _refuse(smaller[size])
    return replace(choice, plan=plan, smaller=smaller)


def _calibrated(study: Study, target: Target, like: Plan, options: Mapping[str, Any]) -> Plan:
    return study.placed(calibrate(target, get_protocol(like.protocol.name).from_options(options)))


def _enough_inputs(study: Study, plan: Plan, least: int) -> Plan:
    """The plan, with no result from fewer inputs than ``least`` where the protocol itself sees to that."""
    inputs = getattr(plan.protocol, _LEAST_INPUTS, least)
    if inputs >= least:
        return plan
    if _LEAST_INPUTS in study.options:
        raise InputError(
            f"option {_LEAST_INPUTS} is {inputs}: with start_by choose {least} or more, so that no two results can be made"
        )
    return _calibrated(study, plan.target, plan, {**study.options, _LEAST_INPUTS: least})


def _refuse(plan: Plan) -> None:
    """Raises :class:`InputError` for a protocol that needs certain parties, or draws some from the public seed."""
    protocol, parties = plan.protocol, plan.target.parties
    if protocol.trusted or protocol.indispensable:
        raise InputError(
            f"protocol {protocol.name} has a party with a role of its own: with start_by choose one among equals, such as "
            "packed-sharing, or leave start_by out"
        )
    if getattr(protocol, "members", parties) < parties:
        raise InputError(
            f"protocol {protocol.name} draws some of the parties from the public seed, which up to {ATTEMPTS} attempts to start "
            "could draw again: with start_by leave option members out"
        )
