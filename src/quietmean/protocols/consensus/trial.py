"""How many bits a quantiser needs: found by running the protocol on made-up values, since no formula gives the largest input.

In the end a quantiser's input is made of the last quantisation errors alone, in units of the cell always the same; before, of the
noise and the values. A trial sees both. Everything in it comes from public seeds: all parties find the same, and no private
value is needed. What it finds is an estimate, with a margin; overloads are counted in every run.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from quietmean.core.arrays import Mask
from quietmean.core.errors import InputError
from quietmean.core.party import Vector
from quietmean.protocols.consensus.edges_in_use import Deliveries
from quietmean.protocols.consensus.population import follow
from quietmean.protocols.consensus.spec import EACH, ConsensusParameters, Quantisation
from quietmean.randomness import BitStream, Seed

# Bits enough for any input, so that the trial itself does not overload.
_WIDE = 16
# The largest input of a trial may fill this part of the range; a trial sees some 5 standard deviations of it.
_ROOM = 0.8
# The same at the start, of which a trial sees fewer numbers: some 3 to 4 standard deviations.
_ROOM_AT_START = 0.5
# Numbers per iteration of a trial, and the iterations that count as the end.
_NUMBERS, _END = 10_000, 80
_FEWEST, _MOST = 40, 1500
# By the end of a trial a vanishing input is this small relative to the cells.
_VANISHED = 1e-5
# Beyond this share of permanent overloads a plan is refused.
TOLERATED = 0.005


@dataclass(frozen=True, eq=False)
class Trial:
    """``start`` and ``end``: the largest input in cells, before and after what is not quantisation error has vanished.

    ``overloads``: their share of all numbers in the end.
    """

    start: float
    end: float
    overloads: float


def attempt(parameters: ConsensusParameters, settings: Quantisation, value_sd: float, rate: float) -> Trial:
    """Try the protocol on normal values of standard deviation ``value_sd``.

    ``rate``: how fast differences shrink by themselves.
    """
    shrinking = rate / settings.gamma
    before = math.ceil(math.log(_VANISHED) / math.log(shrinking)) if 0 < shrinking < 1 else _MOST
    before = min(max(before, _FEWEST), _MOST)
    links = parameters.links
    # Nobody is away, so no edge is ever given up: that a plan's patience may be shorter than the trial means nothing here.
    silent: dict[str, Any] = {"local_noise": "none", "sigma_local": 0.0, "open_edges": EACH}
    tried = replace(parameters.quantised(settings), iterations=before + _END, **silent)
    dimension = max(1, min(256, _NUMBERS // max(1, len(links))))
    stream = BitStream(Seed.public("consensus trial"))
    values: Vector = stream.standard_normal((parameters.parties, dimension)) * value_sd
    z: Vector = stream.standard_normal((len(links), dimension)) * links.sigma[:, None]
    present: Mask = np.ones((tried.rounds + 1, parameters.parties), dtype=np.bool_)
    run = follow(tried, Deliveries.complete(tried), present, values, np.ones(parameters.parties), z)
    numbers = _END * dimension * (parameters.parties if parameters.broadcast else len(links))
    start, end = float(run.peaks[:before].max()), float(run.peaks[before:].max())
    return Trial(start, end, float(run.overloads[before:].sum()) / max(1, numbers))


def enough_bits(parameters: ConsensusParameters, settings: Quantisation, value_sd: float, rate: float) -> Quantisation:
    """The fewest bits, 2 at least, and a first cell, with which nothing overloads. Raises :class:`InputError` if 16 do not do."""
    from quietmean.protocols.consensus.analysis import default_delta_0

    spread = float(np.sqrt((parameters.deviations**2).mean())) if parameters.deviations.size else 0.0
    for bits in range(2, _WIDE + 1):
        first = max(default_delta_0(bits, spread, value_sd), settings.delta_min)
        chosen = replace(settings, bits=bits, delta_0=first)
        # While cells shrink, older and larger errors are part of the inputs: a smallest cell only makes it easier.
        trial = attempt(parameters, replace(chosen, bits=_WIDE, delta_min=0.0), value_sd, rate)
        room = _ROOM * chosen.largest_input
        if trial.end <= room:
            return replace(chosen, delta_0=first * max(1.0, trial.start / (_ROOM_AT_START * chosen.largest_input)))
    raise InputError(f"differences overload even {_WIDE} bits: take a slower gamma than {settings.gamma:g}")


def refuse_overload(parameters: ConsensusParameters, value_sd: float) -> None:
    """Raises :class:`InputError` for a plan whose quantisers would overload permanently."""
    from quietmean.protocols.consensus.analysis import Dynamics, slowest_difference

    settings = parameters.quantisation
    if settings is None:
        return
    rate = slowest_difference(Dynamics.of(parameters), parameters.broadcast)
    share = attempt(parameters, replace(settings, send_overloads=False), value_sd, rate).overloads
    if share > TOLERATED:
        needed = enough_bits(parameters, settings, value_sd, rate).bits
        kind = "broadcasts" if parameters.broadcast else f"differences over {'two steps' if settings.two_step else 'one step'}"
        raise InputError(
            f"bits is {settings.bits}, but with theta {parameters.theta:g} and {kind} {share:.1%} of the numbers would overload "
            f'for ever and follow in full, which costs more bytes than is predicted: take {needed}, or "auto"'
        )
