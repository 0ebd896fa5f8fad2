"""A study that starts with those who are there: with how many at least, and a plan for every number of parties."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from quietmean.core.errors import InputError
from quietmean.core.schema import require_usual
from quietmean.core.start_quorum import ATTEMPTS, least_minimum
from quietmean.planning.automatic import Choice
from quietmean.planning.plan import Plan
from quietmean.protocols import Mechanism
from quietmean.studies.agreement.deadlines import in_words

# What parties tell each other of an attempt is one short message.
MOST_PARTIES = 500
# The option of protocols that give no result from fewer inputs.
_LEAST_INPUTS = "minimum"


# The plan for so many parties, by the protocol of this name with these options.
Planned = Callable[[int, str, Mapping[str, Any]], Plan]


def minimum_of(chosen: int | None, parties: int, colluding: int) -> int:
    """With how many parties a study may start, by default all. Raises :class:`InputError` where two results could be made."""
    least = least_minimum(parties, colluding)
    minimum = parties if chosen is None else chosen
    if not least <= minimum <= parties:
        raise InputError(
            f"minimum is {minimum}: with {parties} parties of whom {colluding} may collude choose {least}..{parties}, more than "
            "half of their sum, so that no two results can be made"
        )
    if parties > MOST_PARTIES:
        raise InputError(f"start_by is for up to {MOST_PARTIES} parties, these are {parties}: leave it out, or start in parts")
    return minimum


def parties_that_could(**numbers: int | None) -> int:
    """A number of parties of whom ``colluding`` may collude and ``minimum`` may start, before it is known who comes.

    Raises :class:`InputError` where one of them is more than any study has.
    """
    for name, number in numbers.items():
        require_usual(name, number or 0)
    return 2 + max(0, *(number or 0 for number in numbers.values()))


def require_start_by(minimum: int | None, start_by: datetime | None, subject: str) -> None:
    """Raises :class:`InputError` for a least number of parties without a time; ``subject`` it is of."""
    if minimum is not None and start_by is None:
        raise InputError(f"the {subject} has a minimum and no start_by: say when it starts with those who are there")


def require_ahead(start_by: datetime | None, now: datetime) -> None:
    """Raises :class:`InputError` for a study that would start in the past."""
    if start_by is not None and start_by <= now:
        when = f"{start_by.astimezone(UTC):%Y-%m-%d %H:%M} UTC"
        raise InputError(f"start_by is {when}, which has passed: choose a time that leaves all parties days to accept")


def start_text(start_by: datetime, parties: int, fewest: int) -> str:
    """When and with whom a study starts that does not wait for all, in a sentence."""
    fewer = f", with those who are there if they are {fewest} or more, or before that if its first convener says so"
    fewer = fewer if fewest < parties else ""
    return (
        f"as soon as all {parties} parties are there, or at {in_words(start_by)}{fewer}; who is in is agreed on "
        "first, by proposal of one of the parties, and a party that is not in takes no part"
    )


def for_quorum(choice: Choice, minimum: int, options: Mapping[str, Any], planned: Planned) -> Choice:
    """The choice with plans for every number of parties with which a study may start, from ``minimum`` on.

    ``options``: the protocol's, as the study gives them. All plans are of one protocol and against the same number of colluders,
    however many are in. Raises :class:`InputError` for a protocol that cannot start so.
    """
    target = choice.plan.target
    least = least_minimum(target.parties, target.colluding)
    plan = _enough_inputs(choice.plan, least, options, planned)
    require_alike(plan.protocol)
    _refuse(plan)
    smaller = {}
    for size in range(minimum, target.parties):
        fewer = planned(size, plan.protocol.name, options)
        smaller[size] = _enough_inputs(fewer, least, options, planned)
        _refuse(smaller[size])
    return replace(choice, plan=plan, smaller=smaller)


def _enough_inputs(plan: Plan, least: int, options: Mapping[str, Any], planned: Planned) -> Plan:
    """The plan, with no result from fewer inputs than ``least`` where the protocol itself sees to that."""
    inputs = getattr(plan.protocol, _LEAST_INPUTS, least)
    if inputs >= least:
        return plan
    if _LEAST_INPUTS in options:
        raise InputError(
            f"option {_LEAST_INPUTS} is {inputs}: with start_by choose {least} or more, so that no two results can be made"
        )
    return planned(plan.target.parties, plan.protocol.name, {**options, _LEAST_INPUTS: least})


def require_alike(protocol: Mechanism) -> None:
    """Raises :class:`InputError` for a protocol that needs certain parties."""
    if protocol.traits.trusted or protocol.traits.indispensable:
        raise InputError(
            f"protocol {protocol.name} has a party with a role of its own: with start_by choose a peer-to-peer one, such as "
            "packed-sharing, or leave start_by out"
        )


def _refuse(plan: Plan) -> None:
    """Raises :class:`InputError` for a protocol that draws some of the parties from the public seed."""
    protocol, parties = plan.protocol, plan.target.parties
    if getattr(protocol, "members", parties) < parties:
        raise InputError(
            f"protocol {protocol.name} draws some of the parties from the public seed, which up to {ATTEMPTS} attempts to start "
            "could draw again: with start_by leave option members out"
        )
