"""How many parties' values are in the sum, where parties leave during a run."""

from __future__ import annotations

import math
from collections.abc import Mapping

from quietmean.protocols.target import Target

# The chance of too few inputs that a plan accepts: then the study has to be run again.
FEWER_INPUTS = 1e-3
# Rounds if the first leader stays: dealing, status, proposal, votes, sums; and the part of leavers that leave before dealing.
USUAL_ROUNDS = 5
DEALING_SHARE = 1 / USUAL_ROUNDS


def leaving(target: Target) -> int:
    """How many parties leave during a run."""
    return target.parties - target.responding


def input_chances(target: Target, share: float = DEALING_SHARE) -> Mapping[int, float]:
    """The chance of each number of inputs if every party that leaves misses dealing with chance ``share``."""
    leavers, missed, dealt = leaving(target), math.log(share), math.log1p(-share)
    ways = math.lgamma(leavers + 1)
    # By logarithms, as with many parties the number of ways is not a double.
    return {
        target.parties - missing: math.exp(
            ways - math.lgamma(missing + 1) - math.lgamma(leavers - missing + 1) + missing * missed + (leavers - missing) * dealt
        )
        for missing in range(leavers + 1)
    }


def chance_of_fewer(target: Target, minimum: int, share: float = DEALING_SHARE) -> float:
    """The chance of fewer than ``minimum`` inputs."""
    return math.fsum(chance for count, chance in input_chances(target, share).items() if count < minimum)


def least_inputs(target: Target, share: float = DEALING_SHARE) -> int:
    """u_min: the largest number of inputs that is missed with a chance of 1e-3 at most."""
    fewer, inputs = 0.0, target.parties
    for count, chance in sorted(input_chances(target, share).items()):
        if fewer > FEWER_INPUTS:
            break
        inputs, fewer = count, fewer + chance
    return inputs


def expected_error(target: Target, minimum: int, party_variance: float, share: float = DEALING_SHARE) -> tuple[float, float]:
    """Mean squared error per coordinate of the mean in runs with a result: of noise, and of values that are missing.

    ``party_variance``: what each input adds to the variance of the sum.
    """
    kept = {count: chance for count, chance in input_chances(target, share).items() if count >= minimum}
    total = math.fsum(kept.values())
    noise = math.fsum(chance * party_variance / count for count, chance in kept.items()) / total
    lost = math.fsum(chance * target.dropout_bias(count) for count, chance in kept.items()) / total
    return noise, lost
