"""When a study starts and its rounds end: with those who are there, and by deadlines of a folder."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import AwareDatetime, BaseModel, BeforeValidator, ConfigDict, Field, PlainSerializer

from quietmean.core.errors import InputError
from quietmean.core.readable import count_of
from quietmean.core.readable_days import by_this_clock
from quietmean.core.start_quorum import ATTEMPTS
from quietmean.core.waits import DAY, LONGEST_SECONDS
from quietmean.planning.plan import Plan

if TYPE_CHECKING:
    from quietmean.node.folder import Timetable

# A file is found within one, its answer within another.
_POLLS = 2
# Of an attempt to start: proposed, accepted, committed, revealed, bound.
_POLLS_OF_AN_ATTEMPT = 5


def _no_bare_number(value: Any) -> Any:
    """A bare number would be taken for seconds since 1970. Raises ValueError."""
    if value is not None and not isinstance(value, str | datetime):
        raise ValueError("no time with its offset from UTC")
    return value


# In plain data equal times are the same text, whatever their offset from UTC.
TimeWithOffset = Annotated[
    AwareDatetime,
    BeforeValidator(_no_bare_number),
    PlainSerializer(lambda time: time.astimezone(UTC).isoformat(), return_type=str, when_used="json"),
]


class Deadlines(BaseModel):
    """The first one is for the start; each later wait of the study ends ``interval`` seconds after the one before.

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
                f"deadlines.interval is {self.interval:g} s and deadlines.poll {self.poll:g} s: give an interval of {_POLLS} "
                "polls or more, as a file has to be found and answered before its round ends"
            )

    def require_attempts(self, start_by: datetime) -> None:
        """Raises :class:`InputError` where not all attempts to start, from ``start_by`` on, have time before the first one."""
        needed = (ATTEMPTS + 1) * _POLLS_OF_AN_ATTEMPT * self.poll
        if (self.first - start_by).total_seconds() < needed:
            raise InputError(
                f"the study has start_by {in_words(start_by)} and waits for the start until {in_words(self.first)}, its first "
                f"deadline: give one {in_hours(needed)} or more after start_by, as up to {ATTEMPTS} attempts to start with those "
                f"who are there take {_POLLS_OF_AN_ATTEMPT} polls each"
            )

    def start_timeout(self, start_by: datetime) -> float:
        """In seconds, of all attempts to start: one more has room before the first deadline."""
        return (self.first - start_by).total_seconds() * ATTEMPTS / (ATTEMPTS + 1)

    def require_ahead(self, now: datetime) -> None:
        """Raises :class:`InputError` once nobody can begin any more."""
        if now >= self.first:
            raise InputError(
                f"the study had to start by {in_words(self.first)}, its first deadline, which has passed: agree on later "
                f"deadlines ({by_this_clock(now)})"
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

    def in_words(self, plans: Sequence[Plan], rounds: int) -> str:
        """Until when others are waited for, in ``rounds`` executions of a plan, in a sentence."""
        table, each = self.timetable(plans), in_hours(self.interval)
        start, end = (in_words(datetime.fromtimestamp(time, UTC)) for time in (table.first, table.last_end(rounds)))
        steps = len(table.waits) - 1
        waits = f"for {count_of(steps, 'round')}" if rounds == 1 else f"for {rounds} rounds of {count_of(steps, 'step')}"
        return (
            f"for the start until {start}, then {waits}, each {each} longer, until {end} at the latest; every party looks into "
            f"the folder every {in_hours(self.poll)} or more often, and what is put there counts as seen"
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
