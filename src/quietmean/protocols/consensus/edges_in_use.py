"""Which edges are in use after the last round: what both ends of each know."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from quietmean.graphs import History, Schedule
from quietmean.protocols.consensus.batch import link_deliveries
from quietmean.protocols.consensus.spec import ConsensusParameters


def edges_in_use(parameters: ConsensusParameters, schedule: Schedule, history: History) -> NDArray[np.bool_]:
    """Shape (m,), in the order of ``parameters.edges``."""
    links = parameters.links
    arrived = link_deliveries(parameters, schedule, history)
    active = arrived[0] & arrived[0][links.reverse]
    silent = np.zeros(len(links), dtype=np.int64)
    for row in arrived[1:]:
        heard = (row | row[links.reverse]) & active
        silent = np.where(heard, 0, silent + 1)
        active = active & (silent < parameters.patience)
    forward: NDArray[np.bool_] = active[links.sign > 0]
    return forward
