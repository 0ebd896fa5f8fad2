"""Where a party is in a series of rounds: a small record in its store, of the same size whatever the number of rounds."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Self

import msgspec
import numpy as np

from quietmean.core.codec import load_state
from quietmean.core.errors import InputError
from quietmean.core.party import PartyId
from quietmean.core.portability import replacing
from quietmean.core.readable import count_of
from quietmean.node.session import NodeResult
from quietmean.planning import Plan
from quietmean.protocols.execution import Execution


@dataclass(frozen=True)
class RoundEnd:
    """``number``: of the round, from 1. ``bytes_sent``: of this party in it.

    ``not_heard``: parties whose releases did not arrive here, or cannot be; they may be in what others have. ``execution``: the
    round as it really went, without these where nothing of their values can be in the mean.
    """

    number: int
    result: NodeResult
    bytes_sent: int
    not_heard: tuple[PartyId, ...]
    execution: Execution

    @classmethod
    def of(cls, number: int, result: NodeResult, bytes_sent: int, plan: Plan) -> Self:
        missing, execution = what_arrived(result, plan)
        return cls(number, result, bytes_sent, tuple(sorted(missing)), execution)


def what_arrived(result: NodeResult, plan: Plan) -> tuple[frozenset[PartyId], Execution]:
    """Whose releases did not arrive here, and the execution as :class:`RoundEnd` has it."""
    releasers = plan.protocol.traits.releasers(plan.target.parties)
    inside = frozenset(np.nonzero(result.execution.contributors())[0].tolist())
    missing = (releasers & inside) - set(result.heard) if plan.releases_are_copies else frozenset()
    without = missing if len(releasers) == plan.target.parties else frozenset()
    if plan.protocol.traits.transfers_mass:
        # Who left before released nothing.
        without &= set(np.nonzero(result.execution.trace.finished)[0].tolist())
    return missing, result.execution.without(without) if without else result.execution


class SeriesOver(InputError):
    """This party has no further round."""


class SeriesProgress(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """``current``: the last round that this party began, 0 before the first.

    ``begun``: how many it began; ``results``: of how many it has the mean. ``counted``: for each party, in how many of these
    means its vector is, by place. ``left``: this party begins no other round, ever.
    """

    current: int = 0
    begun: int = 0
    results: int = 0
    counted: tuple[int, ...] = ()
    left: bool = False

    def dump(self) -> bytes:
        """For the store."""
        return msgspec.msgpack.encode(self)

    @classmethod
    def load(cls, raw: bytes | None, parties: int) -> SeriesProgress:
        """The inverse of :meth:`dump`; of a party that has done nothing yet where there is none."""
        return cls(counted=(0,) * parties) if raw is None else load_state(cls, raw)


def over_text(progress: SeriesProgress, rounds: int, most: int) -> str:
    """Why no round follows, and what to do."""
    if progress.left:
        return "this party has left the session for good, and takes part in no other round of it: agree on a new one"
    if progress.begun >= most < rounds:
        return f"this party has taken part in {count_of(most, 'round')}, as many as it pays for: the session is over here"
    return f"the session's {count_of(rounds, 'round is', 'rounds are')} over: keep what it has, or agree on a new one"


# The last mean, kept while the round after it goes on: who comes back makes the same vector from it again. A line of JSON,
# then the sum, 8 bytes a coordinate: as text it would take several times its size in memory.
_NUMBERS = np.dtype("<f8")


def keep_last(path: Path, end: RoundEnd) -> None:
    """Write what a round ended with. All of it was released: nothing in the file is secret."""
    bare = replace(end.result, total_vector=np.zeros(0))
    with replacing(path) as file:
        file.write(json.dumps({"number": end.number, "result": bare.to_json()}).encode() + b"\n")
        file.write(np.ascontiguousarray(end.result.total_vector, dtype=_NUMBERS).data)


def kept_last(path: Path, plan: Plan) -> RoundEnd | None:
    """What is kept there, of a round with this plan; None where there is nothing."""
    if not path.exists():
        return None
    with path.open("rb") as file:
        document = json.loads(file.readline())
        numbers = np.fromfile(file, dtype=_NUMBERS)
    result = replace(NodeResult.from_json(document["result"]), total_vector=numbers.astype(np.float64, copy=False))
    return RoundEnd.of(document["number"], result, 0, plan)
