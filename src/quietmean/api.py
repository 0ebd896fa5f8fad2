"""The Python interface in a handful of functions. Everything underneath is public too."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

import numpy as np

from quietmean.core.party import PartyId, Vector
from quietmean.planning.candidates import rank
from quietmean.planning.plan import Plan
from quietmean.privacy import Certificate
from quietmean.protocols import Protocol
from quietmean.protocols.execution import Execution
from quietmean.protocols.one_shot import OneShot
from quietmean.protocols.target import Target, colluding_count
from quietmean.simulation import SimulationResult

if TYPE_CHECKING:
    from quietmean.node import Identity, NodeResult, Roster


def plan(
    *,
    parties: int,
    epsilon: float,
    delta: float,
    colluding: float = 0.1,
    dropouts: float = 0.0,
    dimension: int = 1,
    sensitivity: float = 1.0,
    protocol: Protocol | str | None = None,
) -> Plan:
    """The calibrated plan of least predicted error; of one protocol if it is given, configured or by name.

    ``colluding`` is a count, or a fraction below 1. ``sensitivity`` is the L2 change of a party's vector when one protected unit
    is replaced. Raises :class:`InputError` for an impossible target.
    """
    target = Target(
        parties=parties,
        epsilon=epsilon,
        delta=delta,
        dimension=dimension,
        sensitivity=sensitivity,
        colluding=colluding_count(parties, colluding),
        dropouts=dropouts,
    )
    return rank(target, None if protocol is None else [protocol]).best


def simulate(plan: Plan, values: Vector | None = None, *, runs: int = 100, seed: int = 0) -> SimulationResult:
    """Simulate runs of a plan on values (n, d), or (n,) for one coordinate; on random ones without. Insecure randomness."""
    result: SimulationResult = plan.simulate(values, runs=runs, rng=seed)
    return result


def certify(
    execution: Execution | OneShot,
    corrupt: Iterable[PartyId] = (),
    observed: Iterable[tuple[PartyId, int]] = (),
    *,
    delta: float = 1e-6,
) -> Certificate:
    """What colluding parties and intercepted messages [party, round] reveal about each honest party, as the command says it.

    Raises :class:`InputError` for parties, messages or a delta that cannot be.
    """
    return execution.privacy(delta).against(corrupt, observed)


@dataclass(frozen=True, kw_only=True)
class node:  # noqa: N801 - reads as a function: async with qm.node(...) as me
    """One party of a study between machines: ``async with qm.node(...) as me: result = await me.mean(vector)``.

    ``store`` keeps the party's state, so that the same call continues after a crash.
    """

    identity: Identity
    roster: Roster
    plan: Plan
    store: Path
    round_timeout: float = 10.0
    start_timeout: float = 60.0

    async def __aenter__(self) -> node:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        return None

    async def mean(self, vector: Vector, weight: float = 1.0) -> NodeResult:
        """Take part with a vector (d,) and a public weight: the result is sum(vectors) / sum(weights)."""
        from quietmean.node import NodeSettings, run_party

        return await run_party(
            NodeSettings(
                identity=self.identity,
                roster=self.roster,
                plan=self.plan,
                value=np.asarray(vector, dtype=np.float64),
                weight=weight,
                store=self.store,
                round_timeout=self.round_timeout,
                start_timeout=self.start_timeout,
            )
        )
