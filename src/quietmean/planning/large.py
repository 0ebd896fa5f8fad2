"""Calibration of large populations: the ratio of noise levels from a model of some hundred parties, their size from bounds.

At a fixed ratio mu is proportional to 1 / sigma. So one certified upper bound of mu at sigma_star = 1 gives the noise that is
needed, and bounds for a few parties need no matrix of all parties. One coalition holds the receivers of many parties at once.
"""

from __future__ import annotations

import numpy as np

from quietmean.core.errors import InputError
from quietmean.core.party import PartyId
from quietmean.planning.scenarios import draw_execution
from quietmean.privacy import bound_mu
from quietmean.protocols import Mechanism, Target
from quietmean.protocols.execution import Execution
from quietmean.randomness import BitStream, Seed

# Parties whose mu is bounded in each execution.
WATCHED = 16
# Bounds may be this wide, relative to mu: far less than the margin.
_WIDTH = 5e-3


def worst_mu(target: Target, protocol: Mechanism, seed: Seed, dropouts: float) -> float:
    """An upper bound of mu, at unit sensitivity, of the worst of some parties in one simulated execution.

    The coalition holds everybody who received from them or shares noise with them, as far as there are colluders enough. Raises
    :class:`InputError` if a value would be disclosed.
    """
    execution = draw_execution(target, protocol, seed, dropouts)
    watched, coalition = _exposed(execution, target.colluding, protocol.traits.trusted, seed)
    adversary = execution.eavesdropper.with_corrupt(coalition)
    bounds = bound_mu(execution.transcript(), adversary, 1.0, watched, _WIDTH)
    worst = max(bound.upper for bound in bounds)
    if not np.isfinite(worst):
        raise InputError(
            f"with {target.parties} parties and {target.colluding} colluding some value would be disclosed: take more rounds"
        )
    return worst


def _exposed(
    execution: Execution, colluding: int, trusted: frozenset[PartyId], seed: Seed
) -> tuple[list[PartyId], frozenset[PartyId]]:
    stream = BitStream(seed.derive("coalition"))
    order = [int(party) for party in stream.permutation(execution.parties)]
    able = [party for party in order if party not in trusted]
    coalition: set[PartyId] = set()
    watched: list[PartyId] = []
    for party in able:
        near = _counterparts(execution, party) - trusted
        if len(watched) == WATCHED or len(coalition | near) > colluding or party in coalition or near & set(watched):
            continue
        watched.append(party)
        coalition |= near
    # Where the counterparts of not even one party fit, take as many of them as there are colluders.
    if not watched:
        watched = able[:1]
        coalition = set(sorted(_counterparts(execution, watched[0]) - trusted)[:colluding])
    rest = (party for party in reversed(able) if party not in coalition and party not in watched)
    coalition |= {party for party, _ in zip(rest, range(colluding - len(coalition)), strict=False)}
    return watched, frozenset(coalition)


def _counterparts(execution: Execution, party: PartyId) -> set[PartyId]:
    """The parties that receive from a party in any round, or share noise with it."""
    sent = execution.schedule.neighbours[:, party]
    return {int(other) for other in np.unique(sent[sent >= 0])} | set(execution.schedule.partners(party))
