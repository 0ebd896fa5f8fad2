"""Which executions are golden. Read by the generator alone: the tests read the files that it wrote."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from golden.interfaces import BitStream, Seed, example_execution, registry
from golden.rounds import Network, run_rounds
from support.as_declared import as_declared

EDGES = [[0, 1], [0, 2], [1, 2], [1, 3], [2, 4], [3, 4]]
TRIANGLE = [[0, 1], [0, 2], [1, 2]]
QUANTISED = {"bits": 3, "gamma": 0.9, "delta_0": 1.5}
SECAGG = {"threshold": 4, "minimum": 4, "granularity": 0.01, "sigma": 0.05, "clip": 2.0, "bits": 16}
GENERAL = {
    "c": [0.5, 0.25, 0.125, 0.125],
    "Z": [[1.0, 0.0, 0.5], [-1.0, 1.0, 0.0], [0.0, -1.0, 1.0], [0.0, 0.0, -1.5]],
}
# 2^-12, on which values and noise of a few units have room in 32 bits.
# Whole numbers with discrete noise: 2^20 steps of some sixth of a unit, and so few that every table is used.
WHOLE = {"grid": 2.0**-22, "dimension": 3}
COARSE = {"grid": 2.0**-8, "dimension": 3}
GRID = {"value_bits": 32, "grid": 0.000244140625, "largest_value": 100.0}


@dataclass(frozen=True)
class Case:
    """``churn``: (fraction that leaves, probability to be away); ``lose`` and ``settle``: every so many of the messages.

    ``bad``: rounds of which messages are changed. ``exact``: equal to the last bit on any machine.
    """

    protocol: str
    name: str
    parties: int
    parameters: dict[str, Any]
    churn: tuple[float, float] = (0.0, 0.0)
    lose: int = 0
    settle: int = 0
    weighted: bool = False
    bad: tuple[int, ...] = ()
    exact: bool = True
    unit: bool = False
    # Of ``certify``: who colludes, and how many.
    corrupt: str = "0,2"
    colluding: int = 2
    options: tuple[str, ...] = ()
    # Another one, another schedule and churn.
    variant: int = 0

    @property
    def seed(self) -> int:
        return int(BitStream(Seed.public("golden case", self.protocol, self.name, self.variant)).integers(10_000, 1)[0])


def _inca(name: str, rounds: int = 3, **more: Any) -> Case:
    settings = {key: more.pop(key) for key in ("churn", "lose", "settle", "weighted", "bad", "options", "variant") if key in more}
    return Case("inca", name, 6, {"rounds": rounds, "sigma_star": 0.8, "sigma_delta": 3.0} | more, **settings)


def _consensus(name: str, **more: Any) -> Case:
    settings = {key: more.pop(key) for key in ("churn", "lose", "settle", "weighted", "bad", "exact", "variant") if key in more}
    base = {"edges": EDGES, "theta": 0.0, "c": 0.7, "sigma_z": 2.0, "iterations": 5}
    return Case("consensus", name, 5, base | more, **settings)


def _secagg(name: str, protocol: str = "secagg", **more: Any) -> Case:
    settings = {key: more.pop(key) for key in ("churn", "lose", "weighted", "bad", "variant") if key in more}
    return Case(protocol, name, 6, {**SECAGG, "dimension": 3} | more, **settings)


INCA = [
    _inca("incremental"),
    _inca("early, two neighbours, weights", injection="early", out_degree=2, weighted=True),
    _inca("general injection", injection=GENERAL),
    _inca("dropouts and lost messages", 5, churn=(0.34, 0.2), lose=6, options=("--epsilon", "2", "--prior-sd", "1")),
    _inca("settled later", 5, churn=(0.0, 0.2), settle=3, schedule="uniform"),
    _inca("on a grid", 3, **GRID, dimension=3, bad=(1, 2)),
    _inca(
        "on a grid, early, dropouts, lost, settled", 5, churn=(0.2, 0.1), lose=7, settle=5, injection="early", **GRID, dimension=3
    ),
]
CONSENSUS = [
    _consensus("unicast", bad=(1, 2)),
    _consensus("broadcast, ADMM", mode="broadcast", theta=0.5, bad=(1, 2, 3)),
    _consensus("quantised unicast, two steps", **QUANTISED, bad=(1, 2, 3)),
    _consensus("quantised unicast, one step", theta=0.3, **QUANTISED, delta_min=0.01, bad=(2, 6)),
    _consensus("quantised broadcast", mode="broadcast", theta=0.3, **QUANTISED, bad=(1, 2, 3)),
    _consensus("quantised broadcast, lossy, weights", mode="broadcast", churn=(0.2, 0.2), lose=5, **QUANTISED, weighted=True),
    _consensus("quantised unicast, lossy, edges given up", lose=6, patience=1, **QUANTISED),
    _consensus("lossy, settled", theta=0.2, churn=(0.0, 0.1), lose=7, settle=6, sigma_z=[[1.0, 2.0]] * len(EDGES)),
    _consensus("gaussian local noise", local_noise="gaussian", sigma_local=0.7),
    _consensus("uniform local noise, quantised", local_noise="uniform", sigma_local=0.7, **QUANTISED),
    # A logarithm of the platform's library is in it.
    _consensus("laplace local noise", local_noise="laplace", sigma_local=0.7, exact=False),
]
SECURE = [
    _secagg("all there", bad=(1, 2, 3, 4, 5, 6, 7)),
    _secagg("conditional rounding, 32 bits, weights", rounding="conditional", bits=32, largest_weight=4.0, weighted=True),
    _secagg("without noise", noise="none", sigma=0.0, rotation=2, centre=0.5, bad=(5,)),
    _secagg("dropouts", threshold=4, churn=(0.34, 0.0)),
    _secagg("lost messages", lose=18, aggregator=2),
    _secagg("all needed", threshold=6, minimum=6, bad=(1, 3, 5, 6, 7)),
    _secagg("too few", threshold=6, minimum=6, churn=(0.34, 0.0)),
    _secagg("four neighbours", "secagg-plus", degree=4, threshold=3, minimum=3, bad=(2, 3, 4, 7)),
    _secagg(
        "four neighbours, dropouts", "secagg-plus", variant=2, degree=4, threshold=3, minimum=3, churn=(0.34, 0.0), rotation=1
    ),
]
SINGLE = [
    Case("cordp-dme", "all pairs, all publish", 6, {"sigma_own": 0.5, "sigma_pair": 4.0}),
    Case(
        "cordp-dme",
        "aggregator, dropouts",
        6,
        {"sigma_own": 0.5, "sigma_pair": 4.0, "aggregator": 1},
        (0.34, 0.0),
        weighted=True,
        variant=1,
    ),
    Case("cordp-dme", "partners, lost", 7, {"sigma_own": 0.5, "sigma_pair": 4.0, "aggregator": 0, "partners": 4}, lose=3),
    Case("cordp-dme", "biased decoder", 6, {"sigma_own": 0.5, "sigma_pair": 4.0, "decoder": "biased", "radius": 1.0}, (0.2, 0.0)),
    Case("cordp-dme", "whole numbers", 6, {"sigma_own": 0.5, "sigma_pair": 4.0, **WHOLE}, corrupt="2"),
    Case(
        "cordp-dme",
        "whole numbers, aggregator, partners, dropouts, lost",
        7,
        {"sigma_own": 0.5, "sigma_pair": 4.0, "aggregator": 0, "partners": 4, **COARSE},
        (0.2, 0.0),
        lose=3,
    ),
    Case("local-dp", "dropouts", 5, {"sigma": 1.5}, (0.4, 0.0), weighted=True),
    Case("local-dp", "whole numbers", 5, {"sigma": 1.5, **WHOLE}, (0.4, 0.0)),
    Case("central-dp", "curator 1", 5, {"sigma": 1.5, "curator": 1}, weighted=True),
    Case("central-dp", "dropouts, lost", 6, {"sigma": 1.5}, (0.2, 0.0), lose=3, corrupt="1,2"),
    Case("central-dp", "whole numbers", 5, {"sigma": 1.5, **WHOLE}, corrupt="1,2"),
    Case("priv-unit-g", "epsilon 2", 4, {"epsilon": 2.0}, (0.25, 0.0), exact=False, unit=True),
]
PACKED = {
    "members": 6,
    "colluding": 1,
    "colluding_members": 1,
    "secrets": 2,
    "minimum": 3,
    "gone": 2,
    "ballots": 2,
    "step": 2.0**-5,
    "sigma": 0.25,
    "clip": 2.0,
    "dimension": 3,
}


def _packed(name: str, **more: Any) -> Case:
    settings = {key: more.pop(key) for key in ("churn", "lose", "weighted", "bad", "variant") if key in more}
    return Case("packed-sharing", name, 6, PACKED | more, **settings)


PACKED_SHARING = [
    _packed("all there", bad=(1, 2, 3, 4, 5)),
    _packed("2 bytes a number, weights, off centre", prime=65521, largest_weight=4.0, weighted=True, centre=0.5, bad=(1, 5)),
    _packed("one lie corrected", secrets=1, gone=1, lies=1, bad=(5,)),
    _packed("dropouts", churn=(0.34, 0.0)),
    _packed("lost messages, away, three ballots", ballots=3, churn=(0.0, 0.15), lose=9, bad=(5, 6, 7)),
    _packed("too many away", churn=(0.5, 0.3)),
]
NOISE = {"sigma_star": 0.6, "sigma_delta": 5.0}
GOSSIP = [
    Case("gopa", "three partners", 6, {**NOISE, "partners": 3, "aggregator": 0}, bad=(1, 2)),
    Case("gopa", "dropouts", 7, {**NOISE, "partners": 3, "aggregator": 2}, (0.3, 0.0), lose=6, bad=(1, 2, 3), weighted=True),
    Case("gopa", "complete, lost", 6, {**NOISE, "partners": 5, "aggregator": 0}, lose=4),
    Case("gopa", "whole numbers, dropouts", 7, {**NOISE, "partners": 3, "aggregator": 2, **WHOLE}, (0.3, 0.0), lose=6),
    Case("gopa", "whole numbers, complete", 5, {**NOISE, "partners": 4, "aggregator": 0, **COARSE}),
    Case("gopa", "all publish", 6, {**NOISE, "partners": 3, "least_partners": 2}, bad=(1,)),
    Case(
        "gopa",
        "all publish, dropouts, lost, settled",
        8,
        {**NOISE, "partners": 4, "least_partners": 3},
        (0.3, 0.1),
        6,
        4,
        bad=(1,),
    ),
    Case(
        "gopa", "all publish, whole numbers", 7, {**NOISE, "partners": 6, "least_partners": 4, **WHOLE}, (0.3, 0.0), weighted=True
    ),
    Case("muffliato", "whole numbers", 6, {"sigma": 1.2, "rounds": 3, "schedule": "ring", **WHOLE}, (0.2, 0.1)),
    Case("muffliato", "hypercube", 8, {"sigma": 1.2, "rounds": 3, "schedule": "hypercube"}),
    Case("muffliato", "momentum", 6, {"sigma": 1.2, "rounds": 4, "schedule": "ring", "momentum": 1.3}, weighted=True),
    Case(
        "muffliato", "momentum, lossy", 6, {"sigma": 1.2, "rounds": 4, "schedule": "expander", "momentum": 1.2}, (0.2, 0.1), 7, 9
    ),
    Case("gossip", "two neighbours", 6, {"rounds": 3, "out_degree": 2}),
    Case("gossip", "grid, dropouts, lost, settled", 6, {"rounds": 5, **GRID}, (0.2, 0.2), 6, 4, bad=(1,)),
    Case("secret-sharing", "all there", 3, {"edges": TRIANGLE, "bound": 2.0, "fraction_bits": 6}, bad=(1, 2, 3)),
    Case(
        "secret-sharing",
        "one message lost",
        4,
        {"edges": EDGES[:4], "bound": 8.0, "fraction_bits": 4, "c": 0.5},
        lose=150,
        weighted=True,
    ),
]
LISTED = [*INCA, *CONSENSUS, *SECURE, *SINGLE, *GOSSIP, *PACKED_SHARING]
# A protocol that is not listed has one case all the same: weights, a party that leaves, lost messages.
CASES = LISTED + [
    Case(name, "as declared", 6, as_declared(name, 6), (0.2, 0.0), lose=5, weighted=True)
    for name in sorted(registry().keys() - {case.protocol for case in LISTED})
]


def described(case: Case) -> dict[str, Any]:
    """What the file of a case says before anything has run: execution, values (n, 3), seed, who refuses."""
    (leaving, away), number = case.churn, case.seed
    execution = example_execution(
        case.protocol, case.parties, number, permanent=leaving, temporary=away, sensitivity=1.5, **case.parameters
    )
    document = execution.to_json()
    if case.weighted:
        document["weights"] = [1.0 + 0.5 * (party % 3) for party in range(case.parties)]
    values = _values(case)
    refusing = registry()[case.protocol].TRAITS.refuses_messages
    document = _with_losses(case, document, values, number, refusing)
    return {
        "name": case.name,
        "exact": case.exact,
        "refusing": refusing,
        "bad_rounds": list(case.bad),
        "seed": number,
        "values": values.tolist(),
        "execution": document,
    }


def _values(case: Case) -> NDArray[np.float64]:
    values = BitStream(Seed.public("golden values", case.seed)).uniform(3 * case.parties).reshape(-1, 3) * 4.0 - 2.0
    if case.unit:
        values /= np.linalg.norm(values, axis=1, keepdims=True)
    return np.round(values, 3) if not case.unit else values


def _with_losses(case: Case, document: dict[str, Any], values: NDArray[np.float64], seed: int, refusing: bool) -> dict[str, Any]:
    """Some of the messages that arrive lost, and some known to their senders only later, or never where these send no shares."""
    arriving = list(_arriving(document, values, seed, refusing))
    lost = [list(row) for row in arriving[case.lose // 2 :: case.lose]] if case.lose else []
    document = document | ({"lost": lost} if lost else {})
    if case.settle:
        kept = [row for row in _arriving(document, values, seed, refusing) if list(row) not in lost]
        rows = (_settled(row, document["online"], case) for row in kept[case.settle // 2 :: case.settle])
        document |= {"settled": [row for row in rows if row is not None]}
    return document


def _settled(row: tuple[int, int, int], online: list[list[bool]], case: Case) -> list[int] | None:
    round_, sender, _ = row
    if case.protocol in ("consensus", "muffliato"):
        return [*row, 0]
    later = [number for number in range(round_ + 1, len(online)) if online[number][sender]]
    return [*row, later[-1] if sender % 2 else later[0]] if later else None


def _arriving(document: dict[str, Any], values: NDArray[np.float64], seed: int, refusing: bool) -> Iterator[tuple[int, int, int]]:
    network = Network(document, refusing=False)
    for message in run_rounds(document, values, seed, refusing).messages:
        for other in sorted(network.reached(message, [])):
            yield message.round, message.sender, other
