"""The declared transcript of CorDP-DME."""

from __future__ import annotations

import numpy as np
from scipy.sparse import csr_array

from quietmean.graphs import History, Schedule
from quietmean.protocols.cordp_dme.masks import hidden_noise
from quietmean.protocols.cordp_dme.spec import CordpDmeParameters
from quietmean.transcript import Transcript


def declared_transcript(parameters: CordpDmeParameters, schedule: Schedule, history: History) -> Transcript:
    """A row for each party online in round 1: what it sent, or published together with what it received.

    A party without recipients publishes. Shared noise is known to both ends, also to one that dropped out; who sends to an
    aggregator shows its message to it alone, so a coalition with the aggregator sees every message.
    """
    parties = schedule.parties
    online = np.nonzero(history.online[1])[0]
    sends = (schedule.out_degree[0] > 0)[online]
    # A row may only use earlier ones: those who publish come last.
    order = np.concatenate([online[sends], online[~sends]])
    publishes = np.concatenate([sends[sends], sends[~sends]]) == 0
    row_of = np.full(parties, -1)
    row_of[order] = np.arange(order.size)
    arrived = history.delivered(schedule)[0]
    senders, slots = np.nonzero(arrived)
    receivers = schedule.neighbours[0][senders, slots].astype(np.int64)
    used = publishes[row_of[receivers]]
    dependence = csr_array(
        (np.ones(int(used.sum())), (row_of[receivers[used]], row_of[senders[used]])), shape=(order.size, order.size)
    )
    rows = np.concatenate([np.arange(order.size), row_of[senders]])
    knowers = np.concatenate([order, receivers])
    known = csr_array((np.ones(rows.size, dtype=np.bool_), (rows, knowers)), shape=(order.size, parties))
    pairs = schedule.pairs
    noise_rows = np.concatenate([np.arange(parties), np.repeat(parties + np.arange(len(pairs)), 2)])
    ends = np.concatenate([np.arange(parties), pairs.ravel()])
    values = csr_array((np.ones(order.size), (np.arange(order.size), order)), shape=(order.size, parties))
    return Transcript(
        dependence=dependence,
        values=values,
        noise=csr_array(values @ hidden_noise(parties, pairs)),
        noise_scale=np.repeat([parameters.sigma_own, parameters.sigma_pair], [parties, len(pairs)]),
        noise_group=np.repeat(["star", "delta"], [parties, len(pairs)]),
        sender=order,
        message_round=np.where(publishes, 2, 1),
        released=publishes,
        message_known=known,
        noise_known=csr_array((np.ones(ends.size, dtype=np.bool_), (noise_rows, ends)), shape=(parties + len(pairs), parties)),
    )
