"""Who injects what in a round, and who sends when: shared by the declared transcript and the batch kernels."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from quietmean.graphs import History
from quietmean.protocols.inca.spec import IncaParameters, Terms


def injection_groups(
    parameters: IncaParameters, history: History, round_: int
) -> Iterator[tuple[NDArray[np.int64], float, Terms]]:
    """The parties online in a round, grouped by what they inject: (parties, portion of the value, noise terms)."""
    injection = parameters.injections
    online = np.nonzero(history.online[round_])[0]
    injections = history.online[:round_].sum(axis=0)[online]
    last = round_ == parameters.rounds
    for count in np.unique(injections):
        terms = injection.cancellations[count] if last else injection.rows[count]
        yield online[injections == count], float(injection.portion[count]), terms


def next_online(history: History) -> NDArray[np.int64]:
    """Entry (t, i): the first round after t in which i is online; T + 1 if there is none."""
    rounds = len(history.online) - 1
    upcoming = np.full(history.online.shape, rounds + 1)
    for round_ in range(rounds - 1, -1, -1):
        upcoming[round_] = np.where(history.online[round_ + 1], round_ + 1, upcoming[round_ + 1])
    return upcoming
