"""The attack behind the impossibility results: corrupt parties add up what honest neighbours between them hold.

Who knows all messages, and z^(0) on the edges of the corrupt parties, computes the sum of the values of every group of honest
parties that corrupt ones cut off from the rest. Single values within a group stay hidden by the noise on its edges.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from quietmean.core.errors import InputError
from quietmean.core.party import Message, PartyId, PopulationNoise, Vector
from quietmean.graphs import ExecutionTrace
from quietmean.protocols.consensus.error import honest_components
from quietmean.protocols.consensus.quantiser import dither, reconstruct, unpack
from quietmean.protocols.consensus.spec import ConsensusParameters
from quietmean.protocols.execution import Execution
from quietmean.transcript import run_lockstep


@dataclass(frozen=True, eq=False)
class Recording:
    """What corrupt parties have: the meaning of every message, shape (iterations, 2m, d), and z^(0), (2m, d), NaN where unknown.

    A unicast message means the step of z that it makes, a broadcast the sender's x.
    """

    meanings: Vector
    initial: Vector


def record(execution: Execution, values: Vector, noise: PopulationNoise, corrupt: frozenset[PartyId]) -> Recording:
    """Run the real machines on values (n, d) and keep what the corrupt parties and everybody else can hear."""
    parameters = execution.protocol
    if not isinstance(parameters, ConsensusParameters) or not execution.trace.delivered(execution.schedule)[:, 0, 0].all():
        raise InputError(f"protocol {execution.protocol.name!r} or its losses do not fit: record a consensus without any")
    links = parameters.links
    number = {(int(i), int(j)): link for link, (i, j) in enumerate(zip(links.sender, links.receiver, strict=True))}
    heard: dict[tuple[int, int], Message] = {}

    def on_send(message: Message, reached: frozenset[PartyId]) -> None:
        for receiver in reached:
            heard[message.round, number[message.sender, receiver]] = message

    machines = [execution.machine(party, values[party], noise.party(party)) for party in range(execution.parties)]
    run_lockstep(machines, ExecutionTrace.everyone(parameters.rounds, execution.parties), lambda *_: True, on_send)
    initial = np.full((len(links), values.shape[1]), np.nan)
    for (sender, receiver), link in number.items():
        if corrupt & {sender, receiver}:
            initial[link] = heard[1, link].vector
    return Recording(_meanings(parameters, heard, values.shape[1]), initial)


def _meanings(parameters: ConsensusParameters, heard: dict[tuple[int, int], Message], dimension: int) -> Vector:
    settings, links = parameters.quantisation, len(parameters.links)
    meanings = np.empty((parameters.iterations, links, dimension))
    for t in range(parameters.iterations):
        for link in range(links):
            message = heard[t + 2, link]
            if settings is None:
                meanings[t, link] = message.vector
                continue
            indices = unpack(settings, message.content, dimension)
            if indices is None:
                raise InputError(f"message {link} of iteration {t + 1} cannot be read: record it again")
            row = message.sender if parameters.broadcast else link
            said = reconstruct(settings, t + 1, indices, dither(settings, t + 1, row, 1, dimension)[0])
            before = meanings[t - 1, link] if t else np.zeros(dimension)
            if parameters.broadcast:
                said = said + before
            elif settings.two_step:
                said = said - before
            meanings[t, link] = said
    return meanings


def component_sums(
    parameters: ConsensusParameters, corrupt: frozenset[PartyId], recording: Recording
) -> dict[tuple[PartyId, ...], Vector]:
    """The sum of the values of every honest component, shape (d,): exact, or off by some cells of the last quantiser."""
    if not corrupt or parameters.iterations < 2:
        raise InputError(f"{len(corrupt)} corrupt parties and {parameters.iterations} iterations: the attack needs 1 and 2")
    links, c, rest = parameters.links, parameters.c, 1.0 - parameters.theta
    z = _followed(parameters, recording)
    meaning, degree = recording.meanings[-1], links.degree
    groups = honest_components(parameters, corrupt)
    known = ~np.isnan(z[:, 0])
    x = _estimates(parameters, z, meaning, known)
    tension = np.zeros_like(x)  # sum over j of B_{i|j} (z_{i|j} - z_{j|i}) on edges between honest parties
    if parameters.broadcast:
        # One iteration earlier, so that the next x shows where z went.
        before = recording.meanings[-2][links.first[:-1]]
        z = _followed(parameters, Recording(recording.meanings[:-1], recording.initial))
        pulled = np.zeros_like(x)
        np.add.at(pulled, links.sender, before[links.receiver])
        tension = (1 + c * degree)[:, None] * (x - before) / rest - 2 * c * pulled
        np.add.at(tension, links.sender[known], -(links.sign[:, None] * (z - z[links.reverse]))[known])
        x = before
    else:
        apart = meaning / rest - 2 * c * links.sign[:, None] * x[links.sender]
        np.add.at(tension, links.sender[~known], (links.sign[:, None] * apart)[~known])
    held = np.zeros_like(x)
    np.add.at(held, links.sender[known], (links.sign[:, None] * z)[known])
    values = (1 + c * degree)[:, None] * x + held + tension / 2
    return {group: values[list(group)].sum(axis=0) for group in groups}


def _followed(parameters: ConsensusParameters, recording: Recording) -> Vector:
    """z on the known edges when the last message was computed: shape (2m, d)."""
    links, rest = parameters.links, 1.0 - parameters.theta
    z = recording.initial.copy()
    for meaning in recording.meanings[:-1]:
        step = meaning
        if parameters.broadcast:
            step = (z - z[links.reverse] + 2 * parameters.c * links.sign[:, None] * meaning) * rest
        z = z + step[links.reverse]
    return z


def _estimates(parameters: ConsensusParameters, z: Vector, meaning: Vector, known: NDArray[np.bool_]) -> Vector:
    """x of every party, shape (n, d): from the edges of corrupt parties, and on from neighbour to neighbour."""
    links, pull = parameters.links, 2 * parameters.c * (1.0 - parameters.theta)
    if parameters.broadcast:
        broadcast: Vector = meaning[links.first[:-1]]
        return broadcast
    x = np.full((parameters.parties, z.shape[1]), np.nan)
    here = links.sender[known]
    x[here] = ((meaning - (1.0 - parameters.theta) * (z - z[links.reverse])) * links.sign[:, None] / pull)[known]
    while np.isnan(x).any():
        for link in np.nonzero(~np.isnan(x[links.sender, 0]) & np.isnan(x[links.receiver, 0]))[0].tolist():
            both = meaning[link] + meaning[links.reverse[link]]
            x[links.receiver[link]] = x[links.sender[link]] - links.sign[link] * both / pull
    return x
