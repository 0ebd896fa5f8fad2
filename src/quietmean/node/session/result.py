"""The result of a study at one party: the released total, the real execution, and what could not be settled.

It is durable before this party leaves: one that crashes before goes on from its store, and one that is started again after the
end returns the same result.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from quietmean.core.party import Message, PartyId, Units, Vector
from quietmean.core.readable import percent_text
from quietmean.graphs import NEVER
from quietmean.node.monitor import Late, Refusal, event_fields
from quietmean.node.phase import Phase
from quietmean.protocols.execution import Execution
from quietmean.transcript import run_lockstep

if TYPE_CHECKING:
    from quietmean.node.monitor import Report
    from quietmean.node.net import Refusals
    from quietmean.node.storage import Store
    from quietmean.planning.gate import GateRecord, GateRefused
    from quietmean.planning.plan import Plan

_logger = logging.getLogger("quietmean.node")


@dataclass(frozen=True)
class NodeResult:
    """The result of a study as one node has it.

    ``total_vector`` (d,) and ``total_weight`` sum the releases of the parties ``heard``.

    ``execution`` is the mixing phase as it really went; ``transfers`` counts own messages that were accepted; bytes are those of
    all frames of this process, ``seconds`` its time in the study. ``remarks``: of the protocol, for the user. ``silent``: parties
    whose final log did not come. ``known_until``: for each party, the last mixing round that a log of it covers, final or
    gossiped. ``unresolved``: (phase, round, receiver) of own shares that were cancelled after the time-out and are in doubt.
    ``gate``: what happened at the gate before the release, if the plan has one. ``audits``: how far the others' audit logs had
    come, as they said, (party, bytes). ``impossible``: (party, digest) of releases that came and cannot be, which are not in the
    sums; ``equivocating``: (party, digest, other, digest) of releases of which an other party says that it was sent another.
    ``not_there``: (party, other) of releases in the sums that are not in those of the other one, as its log says.
    """

    total_vector: Vector
    total_weight: float
    heard: tuple[PartyId, ...]
    execution: Execution
    public_seed: str
    transfers: int
    bytes_sent: int
    bytes_received: int
    seconds: float
    late: tuple[Late, ...]
    refusals: tuple[str, ...]
    remarks: tuple[str, ...]
    silent: tuple[PartyId, ...]
    unresolved: tuple[tuple[int, int, PartyId], ...]
    known_until: tuple[int, ...]
    gate: GateRecord | None = None
    audits: tuple[tuple[PartyId, bytes], ...] = ()
    impossible: tuple[tuple[PartyId, str], ...] = ()
    equivocating: tuple[tuple[PartyId, str, PartyId, str], ...] = ()
    not_there: tuple[tuple[PartyId, PartyId], ...] = ()

    @property
    def mean(self) -> Vector:
        """The estimate, shape (d,)."""
        return self.execution.decode(self.total_vector, self.total_weight)

    @property
    def counted_twice(self) -> tuple[tuple[int, PartyId, PartyId], ...]:
        """The messages whose shares stayed with the sender to the end though the receiver used them, as (round, sender,
        receiver).

        Messages in doubt are left out: nothing that their receivers made of them is in this result. The execution has both,
        since a receiver may have seen the message.
        """
        if not self.execution.protocol.traits.transfers_mass:
            return ()
        settled = self.execution.trace.settled
        never = settled[(settled[:, 3] == NEVER) & (settled[:, 0] <= np.array(self.known_until)[settled[:, 2]])]
        return tuple((row[0], row[1], row[2]) for row in never.tolist())

    @property
    def counted_twice_part(self) -> float:
        """The largest part of the result's weight that may be in it a second time, in 0..1.

        A mean is off by no more than that part of the distance between its bounds: what counts twice is a mean of values.
        """
        twice = set(self.counted_twice)
        if not twice:
            return 0.0
        carried = sum(weight for message, weight in share_weights(self.execution).items() if message in twice)
        return min(carried / self.total_weight, 1.0)

    def arrived(self, plan: Plan) -> tuple[frozenset[PartyId], Execution]:
        """Return whose releases did not arrive here, and the execution without these where nothing of their values is in it."""
        releasers = plan.protocol.traits.releasers(plan.target.parties)
        inside = frozenset(np.nonzero(self.execution.contributors())[0].tolist())
        missing = (releasers & inside) - set(self.heard) if plan.releases_are_copies else frozenset()
        without = missing if len(releasers) == plan.target.parties else frozenset()
        if plan.protocol.traits.transfers_mass:
            # Who left before released nothing.
            without &= set(np.nonzero(self.execution.trace.finished)[0].tolist())
        return missing, self.execution.without(without) if without else self.execution

    def in_part_text(self, names: Sequence[str]) -> str:
        """Who counts in part, in a sentence with the parties' names; empty where everybody in the result is in it whole."""
        parts = self.execution.in_part
        parts_text = ", ".join(f"{names[party]} {percent_text(part)}" for party, part in parts.items())
        how = f"{parts_text} of each; means are of the records so weighted, sums and counts of as many"
        return f"a party left in between, and not all records count alike: {how}" if parts else ""

    def to_json(self) -> dict[str, Any]:
        fields = {name: getattr(self, name) for name in self.__dataclass_fields__}
        return fields | {
            "total_vector": self.total_vector.tolist(),
            "execution": self.execution.to_json(),
            "late": [event_fields(late) for late in self.late],
            "gate": None if self.gate is None else self.gate.to_json(self.execution),
            "audits": [[party, audit.hex()] for party, audit in self.audits],
        }

    @classmethod
    def from_json(cls, raw: Mapping[str, Any], execution: Execution | None = None) -> NodeResult:
        """The inverse of :meth:`to_json`, for files that this program wrote. ``execution``: that of the file, if it was read."""
        execution = execution or Execution.from_json(raw["execution"])
        return cls(
            **{
                **raw,
                "total_vector": np.array(raw["total_vector"], dtype=np.float64),
                "execution": execution,
                "heard": tuple(raw["heard"]),
                "late": tuple(_late(late) for late in raw["late"]),
                "refusals": tuple(raw["refusals"]),
                "remarks": tuple(raw["remarks"]),
                "silent": tuple(raw["silent"]),
                "unresolved": tuple((round_, sender, receiver) for round_, sender, receiver in raw["unresolved"]),
                "known_until": tuple(raw["known_until"]),
                "gate": None if raw["gate"] is None else _gate(raw["gate"], execution),
                "audits": tuple((party, bytes.fromhex(audit)) for party, audit in raw.get("audits", ())),
                "impossible": tuple((party, of) for party, of in raw.get("impossible", ())),
                "equivocating": tuple((party, of, other, sent) for party, of, other, sent in raw.get("equivocating", ())),
                "not_there": tuple((party, other) for party, other in raw.get("not_there", ())),
            }
        )


def _gate(raw: Mapping[str, Any], execution: Execution) -> GateRecord:
    # Certificates need much that a running party does not.
    from quietmean.planning.gate import GateRecord

    return GateRecord.from_json(raw, execution)


def _late(raw: Mapping[str, Any]) -> Late:
    return Late(Phase.from_label(raw["phase"]), raw["round"], tuple(raw["names"]))


class _NoNoise:
    """A source of no noise, for running machines whose weights alone matter."""

    def normal(self, purpose: str, index: int, dimension: int) -> Vector:
        return np.zeros(dimension)

    def shared_normal(self, other: PartyId, purpose: str, index: int, dimension: int) -> Vector:
        return np.zeros(dimension)

    def discrete(self, purpose: str, index: int, scale: float, dimension: int, shares: int = 0) -> Units:
        return np.zeros(dimension, dtype=np.int64)

    def shared_discrete(self, other: PartyId, purpose: str, index: int, scale: float, dimension: int) -> Units:
        return np.zeros(dimension, dtype=np.int64)

    def secret(self, purpose: str, index: int) -> bytes:
        return bytes(32)


def share_weights(execution: Execution) -> dict[tuple[int, PartyId, PartyId], float]:
    """The public weight of each message (round, sender, receiver) that arrived."""
    weights: dict[tuple[int, PartyId, PartyId], float] = {}

    def note(message: Message, reached: frozenset[PartyId]) -> None:
        weights.update({(message.round, message.sender, receiver): message.weight for receiver in reached})

    machines = [execution.machine(party, np.zeros(1), _NoNoise()) for party in range(execution.parties)]
    run_lockstep(machines, execution.trace, execution.arrivals(), note)
    return weights


def note_refusal(refusals: Refusals, report: Report, peer: str, reason: str) -> None:
    """Log a refusal by either side, once for each cause. ``peer``: a name or an address."""
    if (noted := refusals.note(peer, reason)) is not None:
        _logger.warning("refused %s: %s", *noted)
        report(Refusal(*noted))


def keep_result(store: Store, phase: Phase, result: NodeResult) -> None:
    """Make the result durable and wipe the party's secrets. ``phase``: the one whose release the result's total is."""
    # The total is the only large part, and in the store already.
    small = replace(result, total_vector=np.zeros(0))
    document = {"phase": int(phase), **small.to_json()} if store.is_read_again else {}
    store.finish(phase, json.dumps(document).encode())


def keep_refusal(store: Store, record: GateRecord) -> GateRefused:
    """Make it durable that the study ends without a result, and wipe the party's secrets. Returns the error to raise."""
    store.finish(Phase.MIXING, json.dumps({"refused": record.to_json()}).encode())
    return refusal(record.to_json())


def refusal(document: Mapping[str, Any]) -> GateRefused:
    """The error of a study that ended without a result; ``document``: a record of the gate with its history."""
    # Certificates need much that a running party does not: imported when it is due.
    from quietmean.planning.gate import GateRefused

    return GateRefused(read_record(document))


def read_record(document: Mapping[str, Any]) -> GateRecord:
    """A record of the gate with its history, as this program wrote it."""
    from quietmean.planning.gate import GateRecord

    return GateRecord.from_json(document, Execution.from_json(document["history"]))


def kept_result(store: Store) -> NodeResult | None:
    """The stored result, if this party has finished its study. Raises :class:`GateRefused` if it finished without one."""
    raw = store.result()
    if raw is None:
        return None
    document = json.loads(raw)
    if "refused" in document:
        raise refusal(document["refused"])
    return NodeResult.from_json(document | {"total_vector": store.required_release(document.pop("phase")).vector})
