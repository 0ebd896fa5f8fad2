"""How many rounds connect the honest parties by messages that no corrupt party sees, but for a small chance.

Theorem 4.5 of the IncA paper asks for that: then only the sum of the honest values is left without the noise that is cancelled.
Let c parties be corrupt, or leave, which counts as if all their messages were seen, and h = n - c. If the rest is not connected,
it falls into two sets of s <= h / 2 and r = h - s parties without a message between them in any round. Rounds are drawn
independently. So the chance is at most the sum over s = 1..h/2 of C(h, s) p_s^T, p_s that one round has no message between two
given sets of these sizes:

- in a ``permutation``, where a party sends to the next of a random cycle, the c others divide it into c gaps, of which none may
  hold parties of both sets. j gaps hold the s, in C(c, j) C(s - 1, j - 1) s! ways, and the c - j others the r, in
  C(r + c - j - 1, r) r! ways; the c have (c - 1)! circular orders, of (n - 1)! of all.
- in a ``uniform`` schedule each sends to one of n - 1 others: ((s + c - 1) / (n - 1))^s ((r + c - 1) / (n - 1))^r.

It is the chance for parties that are given, not chosen once the schedule is known.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from quietmean.core.arrays import Ints
from quietmean.core.lazy_scipy import special

# What is left to chance.
FAILURE = 1e-9


def disconnected_bound(parties: int, corrupt: int, rounds: int, schedule: str) -> float:
    """The chance at most that the honest parties are not connected, with one receiver a round; 1 for other schedules."""
    honest = parties - corrupt
    if honest < 2:
        return 0.0
    if schedule not in ("permutation", "uniform"):
        return 1.0
    apart = _apart_in_a_cycle if schedule == "permutation" else _apart_in_draws
    terms = [_log_choose(honest, some) + rounds * apart(parties, corrupt, some) for some in range(1, honest // 2 + 1)]
    return min(1.0, float(np.exp(terms).sum()))


def rounds_that_connect(parties: int, corrupt: int, schedule: str, most: int) -> int:
    """The least number of rounds, up to ``most``, with which that chance is at most 1e-9."""
    return next((rounds for rounds in range(1, most) if disconnected_bound(parties, corrupt, rounds, schedule) <= FAILURE), most)


def _apart_in_a_cycle(parties: int, corrupt: int, some: int) -> float:
    """The logarithm of p_s of a permutation."""
    others, gaps = parties - corrupt - some, np.arange(1, min(some, corrupt - 1) + 1)
    if not gaps.size:
        return -math.inf
    ways = (
        _log_choose(corrupt, gaps)
        + _log_choose(some - 1, gaps - 1)
        + _log_choose(others + corrupt - gaps - 1, others)
        + special.gammaln(some + 1)
        + special.gammaln(others + 1)
    )
    return float(special.logsumexp(ways) + special.gammaln(corrupt) - special.gammaln(parties))


def _apart_in_draws(parties: int, corrupt: int, some: int) -> float:
    """The logarithm of p_s of a uniform schedule."""
    others = parties - corrupt - some
    sides = [(side, side + corrupt - 1) for side in (some, others)]
    return sum(side * math.log(inside / (parties - 1)) if inside else -math.inf for side, inside in sides)


def _log_choose(of: int | Ints, chosen: int | Ints) -> Any:
    return special.gammaln(of + 1) - special.gammaln(chosen + 1) - special.gammaln(of - chosen + 1)
