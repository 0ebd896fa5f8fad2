"""Which weights parties may state before a study starts: everybody sees them, and the result is a mean by them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from quietmean.core.arrays import Array
from quietmean.core.domain import Neighbouring, PrivacyUnit, in_words_of
from quietmean.core.errors import ProtocolFailure
from quietmean.core.readable import percent_text
from quietmean.protocols.target import Target

# Doubles hold every whole number up to here.
_LARGEST_WHOLE = 2.0**53


@dataclass(frozen=True)
class StatedWeights:
    """``records``: how few and how many one party may say that it has, ``largest_share``: of all records, in 0..1.

    ``where``: these limits stand, and what ``option`` calls the first of them there. ``besides``: others that hold, too.
    Where whole parties are protected each weighs 1, and where numbers of records are private all weigh the same.
    """

    records: tuple[int, int] | None = None
    largest_share: float = 1.0
    where: str = "at this site"
    option: str = "records"
    besides: StatedWeights | None = None

    def refuse(self, target: Target, weights: Array, names: Sequence[str], own: float) -> None:
        """Raises :class:`ProtocolFailure` with the name of a party that states another weight, of (n,), than it may.

        ``own``: that of the party that looks.
        """
        total = float(weights.sum())
        for name, weight in zip(names, weights.tolist(), strict=True):
            if why := self.why_not(target, weight, total, own):
                raise ProtocolFailure(
                    f"the study did not start: {name} {why}. Ask that party. Nothing of this party's data has left."
                )

    def why_not(self, target: Target, weight: float, total: float, own: float) -> str:
        """Why a party may not state this weight, after its name; empty if it may. ``total``: of all parties."""
        why = in_words_of(target.unit, self._why_not(target, weight, total, own))
        return why if why or self.besides is None else self.besides.why_not(target, weight, total, own)

    def _why_not(self, target: Target, weight: float, total: float, own: float) -> str:
        if target.unit == PrivacyUnit.PARTY:
            return "" if weight == 1 else f"says that it weighs {weight:g}, but in this study each party counts once"
        if not (weight.is_integer() and 0 <= weight <= _LARGEST_WHOLE):
            return f"says that it has {weight:g} records, which is not a whole number of at least 0"
        if target.neighbouring == Neighbouring.ADD_REMOVE:
            return "" if weight == own else f"says that it has room for {weight:g} records, the study for {own:g}"
        low, high = self.records or (0, math.inf)
        if not low <= weight <= high:
            return f"says that it has {weight:.0f} records, allowed {self.where} are {low} to {high:g} ({self.option})"
        share = weight / total if total else 0.0
        if share > self.largest_share:
            most = percent_text(self.largest_share)
            return f"says that it has {percent_text(share)} of all records, allowed {self.where} are {most} (largest_share)"
        return ""
