"""What a party knows when its study is over."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import msgspec
import numpy as np

from quietmean.core.party import PartyId, Vector
from quietmean.graphs.churn import NEVER
from quietmean.protocols.execution import Execution


@dataclass(frozen=True)
class Late:
    """Who had not come by the end of a round."""

    phase: str
    round: int
    names: tuple[str, ...]


@dataclass(frozen=True)
class NodeResult:
    """``total_vector`` (d,) and ``total_weight`` sum the releases of the parties ``heard``.

    ``execution`` is the mixing phase as it really went; ``transfers`` counts own messages that were accepted; bytes are those of
    all frames of this process, ``seconds`` its time in the study. ``remarks``: what the protocol has to say, for people.
    ``silent``: who told nothing at the end of what happened to it. ``unresolved``: (phase, round, receiver) of own messages that
    were taken back after the time-out, and of which the receiver has not told since whether it had used them.
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

    @property
    def mean(self) -> Vector:
        """The estimate, shape (d,)."""
        execution = self.execution
        return execution.protocol.decode(execution.parameters, execution.parties, self.total_vector, self.total_weight)

    @property
    def counted_twice(self) -> tuple[tuple[int, PartyId, PartyId], ...]:
        """(round, sender, receiver) of messages whose shares stayed with the sender to the end though the receiver used them.

        Of receivers that told nothing it is not known; the execution has them too, since they may have seen the message.
        """
        if not self.execution.protocol.sends_shares:
            return ()
        settled = self.execution.history.settled
        never = settled[(settled[:, 3] == NEVER) & ~np.isin(settled[:, 2], list(self.silent))]
        return tuple((row[0], row[1], row[2]) for row in never.tolist())

    def to_json(self) -> dict[str, Any]:
        fields = {name: getattr(self, name) for name in self.__dataclass_fields__}
        return fields | {
            "total_vector": self.total_vector.tolist(),
            "execution": self.execution.to_json(),
            "late": [asdict(late) for late in self.late],
        }

    @classmethod
    def from_json(cls, raw: Mapping[str, Any]) -> NodeResult:
        """The inverse of :meth:`to_json`, for files that this program wrote."""
        return cls(
            **{
                **raw,
                "total_vector": np.array(raw["total_vector"], dtype=np.float64),
                "execution": Execution.from_json(raw["execution"]),
                "heard": tuple(raw["heard"]),
                "late": msgspec.convert(raw["late"], tuple[Late, ...]),
                "refusals": tuple(raw["refusals"]),
                "remarks": tuple(raw["remarks"]),
                "silent": tuple(raw["silent"]),
                "unresolved": msgspec.convert(raw["unresolved"], tuple[tuple[int, int, int], ...]),
            }
        )
