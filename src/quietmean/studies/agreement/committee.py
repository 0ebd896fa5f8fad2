"""What a study says of the committee that opens its sum: who may lie or be gone, and until when contributions come."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from quietmean.core.errors import InputError
from quietmean.core.limits import LONGEST_SECONDS
from quietmean.core.readable_days import by_this_clock
from quietmean.protocols.committee import Committee, Size
from quietmean.protocols.committee.keys import raw_key
from quietmean.studies.agreement.deadlines import TimeWithOffset, in_words

MOST_VOUCHERS = 1_000_000


class CommitteeTerms(BaseModel):
    """What a study says of its committee.

    ``members`` of whom ``colluding`` may put together what they see, and ``gone`` may be missing; see :class:`Committee`.

    Contributions come until ``contribute_by``; what a member holds ``grace`` seconds later, by its own clock, it lists, once.
    Besides those who are listed so many contribute by ``vouchers`` of the ``registrar``, an identity key.
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
        """Raises :class:`InputError` for vouchers without a registrar, a registrar without vouchers, or an impossible key."""
        if (self.registrar is None) != (self.vouchers is None):
            raise InputError(
                "vouchers are those of a registrar: give registrar, its public key, and vouchers, how many, or neither"
            )
        if self.registrar is not None:
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
                f"charged, ask the convener for another study ({by_this_clock(now)})"
            )

    def describe(self) -> dict[str, Any]:
        """What all agree on: the same of the same time, whatever its offset from UTC."""
        return {
            **self.committee.describe(),
            "contribute_by": self.contribute_by.astimezone(UTC).isoformat(),
            "grace": self.grace,
            **({} if self.vouchers is None else {"registrar": self.registrar, "vouchers": self.vouchers}),
        }
