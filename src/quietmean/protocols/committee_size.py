"""A committee that holds shares of others' contributions: how many members there are, who of them may lie or be gone.

Contributors hand in one message each and are done; the members' noise hides the sum that they open. What a contributor is
promised holds although all other contributors collude with ``colluding`` of the members.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from enum import StrEnum
from typing import Any

from quietmean.core.errors import InputError
from quietmean.core.keywords import python_class
from quietmean.core.schema import refuse_unknown, require_number
from quietmean.protocols.fields import optional_choice, optional_field, required_field

# A member's place takes one byte, and every member is connected to every other.
MOST_MEMBERS = 64


class Size(StrEnum):
    """What a result has to survive: members that are gone, or as many that are gone or lie.

    With ``gone`` members that lie can prevent a result, or have it refused, and never falsify it. With ``lying`` their sums are
    corrected, for about twice the bytes.
    """

    GONE = "gone"
    LYING = "lying"


@python_class
@dataclass(frozen=True)
class Committee:
    """``members`` (m) of whom up to ``colluding`` (c_m) put together what they see, and ``gone`` (f) are missing at any moment.

    ``size``: whether these f may also lie. ``minimum``: so many contributions at least give a result, for usefulness, not for
    privacy; None means 3, or for all if they are fewer. ``largest_weight``: of one contribution; None leaves it to the plan.
    ``verified``: members check that each number of a contribution, and of each other's noise, is one that it may be, without
    learning it; that takes as many lists as correcting lies does, and sums are corrected as well. ``products``: each contributes
    one record, and members also check that its numbers' products are those that they are.

    Raises :class:`InputError` for numbers that no result can come of, or nothing promised.
    """

    members: int
    colluding: int = 1
    gone: int = 1
    size: Size = Size.GONE
    minimum: int | None = None
    largest_weight: float | None = None
    verified: bool = False
    products: bool = False

    def __post_init__(self) -> None:
        for name in ("members", "colluding", "gone", "minimum"):
            if getattr(self, name) is not None:
                require_number(f"committee.{name}", getattr(self, name), int)
        if self.colluding < 1:
            raise InputError(
                f"{self.colluding} colluding members are too few: each member knows its own noise. Count at least 1 that may "
                "collude."
            )
        if self.gone < self.colluding:
            raise InputError(
                f"the committee has {self.gone} members gone but {self.colluding} colluding: members that collude may stay away."
                f" Plan for {self.colluding} gone or more."
            )
        if self.members > MOST_MEMBERS:
            raise InputError(f"a committee of {self.members} is too large. Choose {MOST_MEMBERS} members or fewer.")
        if self.secrets < 1:
            absent = "gone or lying" if self.corrects else "gone"
            checks = " that checks contributions" if self.verified else ""
            raise InputError(
                f"a committee of {self.members}{checks} is too small for {self.colluding} colluding and {self.gone} {absent}. "
                f"Take {self.fewest_members} members or more, or plan for fewer that collude or are gone."
            )
        if self.votes_needed > self.members - self.gone:
            raise InputError(
                f"a committee of {self.members} with {self.gone} gone cannot decide: {self.votes_needed} have to vote for the "
                f"same contributions. For {self.colluding} of them may vote twice. Count on fewer that are gone."
            )
        if self.minimum is not None and self.minimum < 1:
            raise InputError(f"minimum is {self.minimum} contributions. Choose 1 or more.")
        if self.products and not self.verified:
            raise InputError("products are checked where contributions are. Give verified, or leave products out.")
        if self.largest_weight is not None:
            require_number("committee.largest_weight", self.largest_weight, float)
            if not (math.isfinite(self.largest_weight) and self.largest_weight > 0):
                raise InputError(f"largest_weight is {self.largest_weight:g}. Choose a finite number > 0.")

    def require_no_products(self) -> None:
        """Raises :class:`InputError` where products are to be checked, and nothing says of what."""
        if self.products:
            raise InputError(
                "products are those of a study's statistics, and a plan without a study has none. Leave products out, or give "
                "the study."
            )

    @property
    def corrects(self) -> bool:
        """Is there a right result with f members gone or lying?"""
        return self.size == Size.LYING or self.verified

    @property
    def lies(self) -> int:
        """How many wrong sums are corrected."""
        return self.colluding if self.corrects else 0

    @property
    def _room(self) -> int:
        """The largest l with which there is a result with f members gone."""
        return self.members - self.gone - 2 * self.colluding - self.lies

    @property
    def secrets(self) -> int:
        """l, how many numbers may lie on one polynomial: as many as leave a result with f members gone. Below 1 there is none.

        What is verified are products of polynomials, and with one number on each their degree stays small.
        """
        return min(self._room, 1) if self.verified else self._room

    @property
    def fewest_members(self) -> int:
        """With how many members there would be a result."""
        return self.members - self._room + 1

    @property
    def dealings(self) -> int:
        """k, of how many members' noise the sum has: of all that are sure to be there."""
        return self.members - self.gone

    @property
    def votes_needed(self) -> int:
        """q, the votes that decide which contributions count: two sets cannot both have them."""
        return quorum(self.members, self.colluding)

    def against(self, names: tuple[str, ...] | None = None) -> str:
        """Who must not collude for the promise to hold, in words; ``names``: of the members, where they are known."""
        listed = "" if names is None else f" ({', '.join(names)})"
        return f"at most {self.colluding} of these {self.members} institutions{listed}"

    def describe(self) -> dict[str, Any]:
        """Plain JSON data; what has its usual value is left out."""
        plain = {field.name: getattr(self, field.name) for field in fields(self)}
        return {
            name: str(value) if isinstance(value, Size) else value
            for name, value in plain.items()
            if name in ("members", "colluding", "gone") or value != type(self).__dataclass_fields__[name].default
        }

    @classmethod
    def parse(cls, raw: Mapping[str, Any]) -> Committee:
        """The inverse of :meth:`describe`. Raises :class:`InputError` for a missing, wrong or unknown field."""
        refuse_unknown("committee", raw, [field.name for field in fields(cls)])
        return cls(
            members=required_field(raw, "members", int),
            colluding=optional_field(raw, "colluding", int, 1),
            gone=optional_field(raw, "gone", int, 1),
            size=optional_choice(raw, "size", Size, Size.GONE),
            minimum=None if raw.get("minimum") is None else required_field(raw, "minimum", int),
            largest_weight=required_field(raw, "largest_weight", float) if raw.get("largest_weight") is not None else None,
            verified=optional_field(raw, "verified", bool, False),
            products=optional_field(raw, "products", bool, False),
        )


def quorum(members: int, colluding: int) -> int:
    """q = floor((m + c_m) / 2) + 1: two sets of so many members have an honest one in common."""
    return (members + colluding) // 2 + 1
