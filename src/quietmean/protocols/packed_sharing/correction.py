"""Sums that disagree: which are corrected, which make the result be refused, and who is named."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from quietmean.core.party import Units
from quietmean.protocols.packed_sharing.packing import Elements, Packing
from quietmean.randomness import Seed


@dataclass(frozen=True, eq=False)
class Conclusion:
    """``total``, shape (size,): the sum of all numbers, or None if it is refused; ``wrong``: members whose sums disagree with it.

    ``problem``: why it is refused, one sentence; empty otherwise.
    """

    total: Units | None
    wrong: tuple[int, ...] = ()
    problem: str = ""

    def messages(self) -> tuple[str, ...]:
        """One sentence for each wrong sum."""
        return tuple(f"member {one}'s sum disagrees: it, or a dealer that dealt it a wrong share" for one in self.wrong)


def conclude(packing: Packing, sums: Mapping[int, Elements], lies: int, size: int, secret: Seed) -> Conclusion:
    """The result of the ``sums`` (blocks,) of T members or more, by number, of which ``lies`` (e) wrong ones are corrected.

    With more than T + 2e sums any further disagreement of up to (their number) - T - e members is noticed and refused; liars that
    do not coordinate are noticed in any number from T + 1 sums on. ``secret``: the receiver's own, for this study and only for
    this: three random combinations of the coordinates are drawn from it after the sums are in. Raises ValueError for fewer than
    T sums.
    """
    raise ValueError
