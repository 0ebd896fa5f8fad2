"""The Python interface in a handful of functions. Everything underneath is public too."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

import numpy as np

from quietmean.api import rooms
from quietmean.core.errors import InputError
from quietmean.core.input_domain import InputDomain
from quietmean.core.keywords import python_call, python_class, warn_caller
from quietmean.core.party import PartyId, Vector
from quietmean.planning.automatic import AUTO, choose
from quietmean.planning.calibrate import calibrate
from quietmean.planning.candidates import rank
from quietmean.planning.plan import Plan
from quietmean.privacy import Certificate
from quietmean.protocols import Mechanism
from quietmean.protocols.committee import Committee
from quietmean.protocols.committee.mechanism import CommitteeSharing
from quietmean.protocols.execution import Execution
from quietmean.protocols.execution_files import OneShot
from quietmean.protocols.mechanism import require_privacy
from quietmean.protocols.target import Eavesdropping, Target, budget_warnings, colluding_count
from quietmean.simulation import SimulationResult


@python_call
def plan(
    *,
    parties: int,
    epsilon: float | None = None,
    delta: float,
    nats: float | None = None,
    colluding: float | None = None,
    committee: Committee | None = None,
    eavesdropping: Eavesdropping | None = None,
    dropouts: float = 0.0,
    dimension: int = 1,
    sensitivity: float | None = None,
    domain: InputDomain | None = None,
    protocol: Mechanism | str = AUTO,
    no_privacy: bool = False,
) -> Plan:
    """The calibrated plan of a protocol, given configured or by name; "auto" takes packed secret sharing where its conditions
    hold, else the protocol of least predicted error between peers that promises the target beforehand.

    ``colluding`` is a count, or a fraction below 1, by default 0.1. ``committee``: its members open the sum of what the
    ``parties`` contribute in one message each, and may collude in as many as it says with all other contributors.
    ``eavesdropping``: the adversary also reads messages between honest parties, each with that chance, or
    "all-after-first". ``domain`` is where a party's vector lies, and ``sensitivity`` its L2 change when one protected unit
    is replaced: by default the diameter of the domain, or 1. Without a domain every coordinate lies between 0 and
    sensitivity / sqrt(dimension), except for protocols that state another one. A study moves any vector into the domain.
    ``nats``: instead of epsilon, of protocol adqsp; see :class:`~quietmean.protocols.Target`.
    ``no_privacy`` asks for a protocol without privacy. Raises :class:`InputError` for an impossible target, and warns of
    one that promises next to nothing.
    """
    if epsilon is None and nats is None:
        raise InputError("the plan has no budget. Give epsilon, or with protocol adqsp nats.")
    epsilon = math.inf if epsilon is None else epsilon
    if sensitivity is None:
        sensitivity = 1.0 if domain is None else domain.diameter
    target = Target(
        parties=parties,
        epsilon=epsilon,
        delta=delta,
        nats=nats,
        dimension=dimension,
        sensitivity=sensitivity,
        colluding=_colluding(parties, colluding, committee),
        dropouts=dropouts,
        eavesdropping=eavesdropping,
        committee=committee,
    )
    if committee is not None:
        if protocol != AUTO:
            raise InputError("a committee has a protocol of its own. Leave protocol out.")
        committee.require_no_products()
        best = calibrate(target, CommitteeSharing())
    else:
        best = choose(target, domain=domain).plan if protocol == AUTO else rank(target, [protocol], no_privacy=no_privacy).best
    for sentence in budget_warnings(target):
        warn_caller(sentence)
    return best if domain is None else best.with_domain(domain)


def _colluding(parties: int, colluding: float | None, committee: Committee | None) -> int:
    if committee is None:
        return colluding_count(parties, 0.1 if colluding is None else colluding)
    if colluding is not None:
        raise InputError("colluding says nothing beside a committee, which says how many of its members may. Leave it out.")
    return committee.colluding


@python_call
def simulate(
    plan: Plan, values: Vector | None = None, *, runs: int = 100, seed: int = 0, workers: int | str = 1
) -> SimulationResult:
    """Simulate runs of a plan on values (n, d), or (n,) for one coordinate; on random ones without. Insecure randomness.

    Values outside the plan's domain are moved into it, as in a real study. ``workers``: a number of processes, or the address of
    a Dask scheduler; they change no result.
    """
    result: SimulationResult = plan.simulate(values, runs=runs, rng=seed, workers=workers)
    return result


@python_call
def certify(
    execution: Execution | OneShot,
    corrupt: Iterable[PartyId] = (),
    observed: Iterable[tuple[PartyId, int]] | None = None,
    *,
    delta: float = 1e-6,
) -> Certificate:
    """What colluding parties and intercepted messages [party, round] reveal about each honest party, as the command says it.

    By default those are intercepted that the target of the execution says are read, if it does.

    Raises :class:`InputError` for parties, messages or a delta that cannot be.
    """
    return execution.privacy(delta).against(corrupt, observed)


@python_class
@dataclass(frozen=True, kw_only=True)
class Node:
    """One party of a study between machines: ``async with qm.Node(...) as me: result = await me.mean(vector)``.

    ``store`` keeps the party's state, so that the same call continues after a crash. ``no_privacy`` agrees to a plan that
    protects nothing. Raises :class:`InputError` for such a plan otherwise.
    """

    identity: rooms.node.Identity
    roster: rooms.node.Roster
    plan: Plan
    store: Path
    round_timeout: float = 10.0
    start_timeout: float = 60.0
    no_privacy: bool = False

    def __post_init__(self) -> None:
        require_privacy(self.plan.protocol, self.no_privacy)

    async def __aenter__(self) -> Node:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        return None

    async def mean(self, vector: Vector, weight: float = 1.0) -> rooms.node.NodeResult:
        """Take part with a vector (d,) and a public weight: the result is sum(vectors) / sum(weights).

        A vector outside the plan's domain is moved into it, with a warning for this party only. Raises :class:`InputError` for
        another shape, never because of a value; :class:`ImpossibleResult` where the result cannot be of values in the domain.
        """
        from quietmean.planning.influence import require_possible
        from quietmean.studies.outcome.outcome import opened_of

        vector = np.asarray(vector, dtype=np.float64)
        admitted = self.plan.admit(vector, weight)
        # A step of the grid is rounding, which the plan states.
        if not np.allclose(admitted.vector, vector, rtol=1e-9, atol=self.plan.value_step):
            warn_caller(
                f"the vector lies outside the plan's domain ({self.plan.input_domain.text}) and was moved into it. "
                "To state another one, plan with domain=... Keep this to yourself: others would learn something "
                "about the data",
            )
        result = await rooms.node.run_party(
            rooms.node.NodeSettings(
                identity=self.identity,
                roster=self.roster,
                brought=rooms.node.PlannedValue(self.plan, admitted),
                store=self.store,
                waits=rooms.node.Waits(self.round_timeout, self.start_timeout),
            )
        )
        require_possible(self.plan, *opened_of(result, self.plan))
        return result
