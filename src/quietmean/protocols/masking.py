"""What whole numbers cost where parties publish one masked value each: own noise, and noise that pairs share with opposite signs.

A whole change of the value of an honest party can be hidden by a whole change of its own noise. All other whole changes of noise
that leave the view as it was are sums of few short ones:

* an edge between two honest parties whose messages are seen: its noise, and the own noise of both ends;
* an edge to an honest party of which nothing is seen: its noise, and the own noise of the end that is seen;
* where several messages are seen as a sum only: the own noise of two of them, with opposite signs.

Each coordinate along these that the best real shift uses is rounded, at a cost of a quarter of the squared standardised norm.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from quietmean.core.arrays import Ints, Mask
from quietmean.core.party import PartyId
from quietmean.privacy import Adversary


@dataclass(frozen=True, eq=False)
class MaskedMessages:
    """One message from each party of the mask ``arrived`` (n,), and the pairs (M, 2) that share noise.

    Standard deviations ``own`` and ``pair`` are in the units of ``step``. ``aggregator``: the party that alone sees single
    messages; None if they are public. ``symmetric``: all pairs share noise, and none of it is taken out again, so that the best
    shift passes from each party to all others alike.
    """

    own: float
    pair: float
    step: float
    pairs: Ints
    arrived: Mask
    aggregator: PartyId | None
    symmetric: bool

    def most_rounding(self) -> float:
        """:meth:`rounding` against any colluders, at most: whether the aggregator is one of them or not."""
        nobody, everyone = Adversary(), range(self.arrived.size)
        # Fewer honest parties share fewer terms. Nobody's number is -1.
        return max(replace(self, aggregator=who).rounding(nobody, everyone) for who in (None, -1))

    def rounding(self, adversary: Adversary, honest: Sequence[PartyId]) -> float:
        """b^2: what rounding the shift adds to mu squared for each coordinate, at most."""
        is_honest = np.zeros(self.arrived.size, dtype=np.bool_)
        is_honest[list(honest)] = True
        hidden = self.pairs[is_honest[self.pairs].all(axis=1)] if self.pair else self.pairs[:0]
        from_own = (self.step / self.own) ** 2 if self.own else np.inf
        from_pair = (self.step / self.pair) ** 2 if self.pair else 0.0
        if adversary.observed:
            # Any of the messages may be seen alone, and any others as a sum.
            return (len(hidden) * (from_pair + 2 * from_own) if len(hidden) else 0.0) / 4.0 + len(honest) * from_own / 2.0
        seen_ends = self.arrived[hidden].sum(axis=1)
        both, single = int((seen_ends == 2).sum()), int((seen_ends == 1).sum())
        others = max(int((is_honest & self.arrived).sum()) - 1, 0)
        if self.aggregator is None or self.aggregator in adversary.corrupt:
            used = others if self.symmetric and both else both
            norms = used * (from_pair + 2 * from_own) if used else 0.0
        else:
            norms = others * 2 * from_own if others else 0.0
        return float(norms + (single * (from_pair + from_own) if single else 0.0)) / 4.0
