"""When a study starts and its rounds end, with those who are there: by deadlines of a folder, or with a committee."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import AwareDatetime, BaseModel, BeforeValidator, ConfigDict, Field, PlainSerializer

from quietmean.core.errors import InputError, named
from quietmean.core.limits import ATTEMPTS, DAY, LONGEST_SECONDS, least_minimum
from quietmean.core.readable import count_of
from quietmean.core.readable_days import by_this_clock
from quietmean.core.schema import require_usual
from quietmean.planning.automatic import Choice
from quietmean.planning.plan import Plan
from quietmean.protocols import Mechanism
from quietmean.protocols.committee import Committee, Size
from quietmean.protocols.committee.keys import raw_key

if TYPE_CHECKING:
    from quietmean.node.folder import Timetable

# A file is found within one, its answer within another.
_POLLS = 2
# Of an attempt to start: proposed, accepted, committed, revealed, bound.
_POLLS_OF_AN_ATTEMPT = 5


def _no_bare_number(value: Any) -> Any:
    """A bare number would be taken for seconds since 1970. Raises ValueError."""
    if value is not None and (not isinstance(value, str | datetime) or (isinstance(value, str) and value.strip().isdigit())):
        raise ValueError("must be a time with its offset from UTC, such as 2027-03-01T12:00:00Z")
    return value


# In plain data equal times are the same text, whatever their offset from UTC.
TimeWithOffset = Annotated[
    AwareDatetime,
    BeforeValidator(_no_bare_number),
    PlainSerializer(lambda time: time.astimezone(UTC).isoformat(), return_type=str, when_used="json"),
]


class Deadlines(BaseModel):
    """The deadlines of a study: the first is for the start; each later wait ends ``interval`` seconds after the one before.

    ``poll``: at least so often, in seconds, every party looks into the folder, by a schedule or all the time.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    first: TimeWithOffset
    interval: float = Field(le=LONGEST_SECONDS, allow_inf_nan=False)
    # A process that runs all the time looks every two seconds.
    poll: float = Field(ge=2.0, allow_inf_nan=False)

    def require_possible(self) -> None:
        """Raises :class:`InputError` where a file could not be found and answered before its round ends."""
        if self.interval < _POLLS * self.poll:
            raise InputError(
                f"deadlines.interval is {self.interval:g} s and deadlines.poll {self.poll:g} s. Give an interval of {_POLLS} "
                "polls or more. A file has to be found and answered before its round ends."
            )

    def require_attempts(self, start_by: datetime) -> None:
        """Raises :class:`InputError` where not all attempts to start, from ``start_by`` on, have time before the first one."""
        needed = (ATTEMPTS + 1) * _POLLS_OF_AN_ATTEMPT * self.poll
        if (self.first - start_by).total_seconds() < needed:
            raise InputError(
                f"the study has start_by {in_words(start_by)} and its first deadline {in_words(self.first)}. Give a first "
                f"deadline {in_hours(needed)} or more after start_by. Up to {ATTEMPTS} attempts to start with those who are "
                f"there take {_POLLS_OF_AN_ATTEMPT} polls each."
            )

    def start_timeout(self, start_by: datetime) -> float:
        """The seconds of all attempts to start: one more has room before the first deadline."""
        return (self.first - start_by).total_seconds() * ATTEMPTS / (ATTEMPTS + 1)

    def require_ahead(self, now: datetime) -> None:
        """Raises :class:`InputError` once nobody can begin any more."""
        if now >= self.first:
            raise InputError(
                f"the study had to start by {in_words(self.first)}, its first deadline, which has passed. Agree on later "
                f"deadlines ({by_this_clock(now)})."
            )

    def timetable(self, plans: Iterable[Plan]) -> Timetable:
        """All of them, of the rounds that the plans have, whichever the study starts with."""
        # Who only writes or plans a study needs no node.
        from quietmean.node.folder import Timetable

        return Timetable.of(plans, self.first.timestamp(), self.interval)

    def to_json(self, plans: Sequence[Plan]) -> dict[str, Any]:
        """Return when each wait ends, in plain data."""
        ends = {name: datetime.fromtimestamp(end, UTC).isoformat() for name, end in self.timetable(plans)}
        return {"poll_seconds": self.poll, "ends": ends}

    def last_end(self, plans: Iterable[Plan], rounds: int) -> datetime:
        """When the last of ``rounds`` executions of a plan ends at the latest."""
        return datetime.fromtimestamp(self.timetable(plans).last_end(rounds), UTC)

    def in_words(self, plans: Sequence[Plan], rounds: int) -> str:
        """Until when others are waited for, in ``rounds`` executions of a plan, in a sentence."""
        start, end, each = in_words(self.first), in_words(self.last_end(plans, rounds)), in_hours(self.interval)
        steps = len(self.timetable(plans).waits) - 1
        waits = f"for {count_of(steps, 'round')}" if rounds == 1 else f"for {rounds} rounds of {count_of(steps, 'step')}"
        return (
            f"for the start until {start}, then {waits}, each {each} longer, until {end} at the latest. Every party "
            f"looks into the folder every {in_hours(self.poll)} or more often. What is put there counts as seen"
        )


def in_words(when: datetime) -> str:
    """A time for people, in UTC."""
    return f"{when.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"


def in_hours(seconds: float) -> str:
    """A length of time for people."""
    for name, length in (("days", DAY), ("hours", 3600.0), ("minutes", 60.0)):
        if seconds >= 2 * length:
            return f"{seconds / length:.3g} {name}"
    return f"{seconds:g} s"


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
            f"minimum is {minimum}, but {colluding} of {parties} parties may collude. Choose {least}..{parties}, "
            "more than half of their sum: else two results could be made."
        )
    if parties > MOST_PARTIES:
        raise InputError(f"start_by is for up to {MOST_PARTIES} parties, these are {parties}. Leave it out, or start in parts.")
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
        raise InputError(
            f"the {subject} has a minimum and no time when it starts with the connected parties. Give "
            f"{named('start-by', 'TIME', file='start_by')}."
        )


def require_ahead(start_by: datetime | None, now: datetime) -> None:
    """Raises :class:`InputError` for a study that would start in the past."""
    if start_by is not None and start_by <= now:
        when = f"{start_by.astimezone(UTC):%Y-%m-%d %H:%M} UTC"
        raise InputError(f"start_by is {when}, which has passed. Choose a time that leaves all parties days to accept.")


def start_text(start_by: datetime, parties: int, fewest: int) -> str:
    """When and with whom a study starts that does not wait for all, in a sentence."""
    fewer = f", with those who are there if they are {fewest} or more, or before that if its first coordinator says so"
    fewer = fewer if fewest < parties else ""
    return (
        f"as soon as all {parties} parties are there, or at {in_words(start_by)}{fewer}. Who is in is agreed on "
        "first, by proposal of one of the parties. A party that is not in takes no part"
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
            f"option {_LEAST_INPUTS} is {inputs}. With start_by, two groups of parties could each make a result. "
            f"Choose {least} or more."
        )
    return planned(plan.target.parties, plan.protocol.name, {**options, _LEAST_INPUTS: least})


def require_alike(protocol: Mechanism) -> None:
    """Raises :class:`InputError` for a protocol that needs certain parties."""
    if protocol.traits.trusted or protocol.traits.indispensable:
        raise InputError(
            f"protocol {protocol.name} has a party with a role of its own. Choose a peer-to-peer one with start_by, "
            "such as packed-sharing, or leave start_by out."
        )


def _refuse(plan: Plan) -> None:
    """Raises :class:`InputError` for a protocol that draws some of the parties from the public seed."""
    protocol, parties = plan.protocol, plan.target.parties
    if getattr(protocol, "members", parties) < parties:
        raise InputError(
            f"protocol {protocol.name} draws some of the parties from the public seed. Up to {ATTEMPTS} attempts to "
            "start could draw them again. Leave option members out, or start_by."
        )


MOST_VOUCHERS = 1_000_000


class CommitteeTerms(BaseModel):
    """What a study says of its committee.

    ``members`` of whom ``colluding`` may put together what they see, and ``gone`` may be missing; see :class:`Committee`.

    Contributions come until ``contribute_by``; what a member holds ``grace`` seconds later, by its own clock, it lists, once.
    Besides those who are listed so many contribute by ``vouchers`` of the ``registrar``, an identity key: without one, of who
    invites.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    members: int = Field(strict=True)
    colluding: int = Field(default=1, strict=True)
    gone: int = Field(default=1, strict=True)
    size: Size = Size.GONE
    contribute_by: TimeWithOffset
    grace: float = Field(default=600.0, ge=0, le=LONGEST_SECONDS, allow_inf_nan=False)
    minimum: int | None = Field(default=None, strict=True)
    largest_weight: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    verified: bool = Field(default=False, strict=True)
    # None, so that studies without say nothing of it.
    products: bool | None = Field(default=None, strict=True)
    registrar: str | None = None
    vouchers: int | None = Field(default=None, strict=True, ge=1, le=MOST_VOUCHERS)

    def require_possible_vouchers(self) -> None:
        """Raises :class:`InputError` for a registrar without vouchers, or with an impossible key."""
        if self.registrar is None:
            return
        if self.vouchers is None:
            raise InputError(f"a registrar makes vouchers. Give {named('vouchers')}, how many, or leave the registrar out.")
        raw_key(self.registrar)

    @property
    def committee(self) -> Committee:
        """The committee for the target. Raises :class:`InputError` for numbers that no result can come of."""
        numbers = self.members, self.colluding, self.gone, self.size, self.minimum, self.largest_weight
        return Committee(*numbers, verified=self.verified, products=bool(self.products))

    @property
    def lists_at(self) -> float:
        """When members list what they hold, in seconds since 1970."""
        return self.contribute_by.timestamp() + self.grace

    def require_open(self, now: datetime) -> None:
        """Raises :class:`InputError` once contributions come too late."""
        if now >= self.contribute_by:
            raise InputError(
                f"contributions came until {in_words(self.contribute_by)}, and members take none that comes later: nothing was "
                f"charged. Ask the coordinator for a study with a later time ({by_this_clock(now)})."
            )

    def arrived(self, count: int, least: int, now: datetime) -> str:
        """How many contributions came, of how many that a result takes at ``least``, until when, and what follows at the end."""
        until = in_words(self.contribute_by)
        if now < self.contribute_by:
            return f"{count:,} of at least {least:,} contributions so far, until {until}"
        came = f"{count_of(count, 'contribution')} came until {until}, and a result takes {least:,}"
        return came if count >= least else f"{came}: members open nothing, and delete what they hold"

    def words_due(self, now: float) -> list[float]:
        """When to say how many came, in seconds since 1970: now, a day and an hour before the end, and at the end."""
        ends = self.contribute_by.timestamp()
        return [now, *(when for when in (ends - DAY, ends - 3600.0, ends) if when > now)]

    def describe(self) -> dict[str, Any]:
        """What all agree on: the same of the same time, whatever its offset from UTC."""
        return {
            **self.committee.describe(),
            "contribute_by": self.contribute_by.astimezone(UTC).isoformat(),
            "grace": self.grace,
            **({} if self.registrar is None else {"registrar": self.registrar}),
            **({} if self.vouchers is None else {"vouchers": self.vouchers}),
        }
