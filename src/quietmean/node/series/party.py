"""One party in a series of rounds, as its store has it: a small record of where it is, and the last mean beside it."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Self

import msgspec
import numpy as np

from quietmean.core.arrays import PIECE
from quietmean.core.codec import digest, load_state
from quietmean.core.errors import InputError, PeerError, ProtocolFailure
from quietmean.core.outage import outage_of
from quietmean.core.party import PartyId
from quietmean.core.portability import replacing, return_free_memory
from quietmean.core.readable import count_of
from quietmean.node.net import AnswerFrame, AnyRequest, Payload, Roster, Seal, Start
from quietmean.node.party import BEFORE, Party
from quietmean.node.phase import Phase, Position
from quietmean.node.session import Brought, NodeResult, NodeSettings, PlannedValue, kept_result
from quietmean.node.storage import LAST, ROUND, Store, empty
from quietmean.planning import Admitted, Plan
from quietmean.protocols.execution import Execution


@dataclass(frozen=True)
class RoundEnd:
    """How a round of this party ended.

    ``number``: of the round, from 1. ``bytes_sent``: of this party in it.

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
        missing, execution = result.arrived(plan)
        return cls(number, result, bytes_sent, tuple(sorted(missing)), execution)


class SeriesOver(InputError):
    """This party has no further round."""


class SeriesProgress(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Where a party is in a series of rounds, as its store has it.

    ``current``: the last round that this party began, 0 before the first.

    ``begun``: how many it began; ``results``: of how many it has the mean. ``counted``: for each party, in how many of these
    means its vector is, by place; ``noted``: the last round that these count. ``left``: this party begins no other round, ever.
    """

    current: int = 0
    begun: int = 0
    results: int = 0
    counted: tuple[int, ...] = ()
    noted: int = 0
    left: bool = False

    def dump(self) -> bytes:
        """The bytes of the progress, for the store."""
        return msgspec.msgpack.encode(self)

    @classmethod
    def load(cls, raw: bytes | None, parties: int) -> SeriesProgress:
        """The inverse of :meth:`dump`; of a party that has done nothing yet where there is none."""
        return cls(counted=(0,) * parties) if raw is None else load_state(cls, raw)


def over_text(progress: SeriesProgress, rounds: int, most: int) -> str:
    """Why no round follows, and what to do."""
    if progress.left:
        return "this party has left the session for good, and takes part in no other round of it. Agree on a new one."
    if progress.begun >= most < rounds:
        return f"this party has taken part in {count_of(most, 'round')}, as many as it pays for: the session is over here"
    return f"the session's {count_of(rounds, 'round is', 'rounds are')} over. Keep what it has, or agree on a new one."


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


# What the store of a party that left has for a result.
_LEFT = b"left"


class SeriesParty(Party):
    """Where a party is in its series, on disk before anything of that leaves; and the round that it is in.

    ``settings``, ``rounds`` and ``most``: see :class:`Series`. ``ended``: no round that was begun may go on.
    """

    def __init__(self, settings: NodeSettings, rounds: int, most: int) -> None:
        super().__init__(settings)
        self.rounds, self.most = rounds, most
        self.progress = SeriesProgress()
        self.number = 0
        self.ended = True
        self._last: RoundEnd | None = None
        self._defect: BaseException | None = None

    def load(self) -> None:
        """Where this party is, as its store says."""
        self.load_start()
        self.progress = SeriesProgress.load(self.store.series(), len(self.inside.roster))

    def restore(self) -> None:
        """The round that was begun last: whether it may go on; its mean, if it has one, is :attr:`last`."""
        self.number = self.progress.current
        self.ended = not self._may_go_on() or self.progress.left

    def _may_go_on(self) -> bool:
        if not self.number or not self.round_store.exists():
            return False
        try:
            if self.nothing_has_left:
                return True
            with contextlib.closing(self._kept()) as store:
                result = kept_result(store)
        except (InputError, ProtocolFailure):
            return False
        if result is not None:
            self.note_end(result, 0)
        return result is None

    # --- who is in ---------------------------------------------------------------------------------------------------

    @property
    def members(self) -> Sequence[PartyId]:
        """Who is in, by their places in the roster; all, before that is settled."""
        return range(len(self.settings.roster)) if self.started is None else self.started.members

    async def start(self) -> None:
        """Agree with the others who is in, if that was not done."""
        await self.go_on()
        await self.agree()
        if len(self.inside.roster) < len(self.settings.roster) == len(self.progress.counted):
            # Parties have other places from here on.
            self.progress = SeriesProgress.load(None, len(self.inside.roster))

    # --- rounds ------------------------------------------------------------------------------------------------------

    @property
    def begins_none(self) -> bool:
        """Whether this party begins no other round."""
        progress = self.progress
        return progress.left or progress.current >= self.rounds or progress.begun >= self.most

    @property
    def over(self) -> bool:
        """Whether no round is left for this party: none to begin, and none to end that it began before a restart."""
        return self.begins_none and self.ended

    @property
    def why_over(self) -> str:
        return over_text(self.progress, self.rounds, self.most)

    @property
    def why_missed(self) -> str:
        return f"round {self.number} goes on only with the vector that it began with, and is missed: {self.why_over}"

    def begin(self, number: int) -> None:
        """Begin a round on disk, before anything of it exists; of what was kept of the one before, only its mean stays."""
        progress = self.progress
        if (last := self._last_ended) is not None:
            keep_last(self._last_mean, last)
        del last
        if not self.round_store.exists():
            # Before the record says that the round has begun: a store that is not there then was lost, and the round with it.
            empty(self.round_store)
        self.save(msgspec.structs.replace(progress, current=number, begun=progress.begun + 1))
        self.number, self.ended, self._last = number, False, None
        empty(self.round_store)

    @property
    def last(self) -> RoundEnd | None:
        """The last round of which this party has the mean, if no later one was begun, or only the one that goes on."""
        if self.ended:
            return self._last_ended
        before = kept_last(self._last_mean, self.inside.plan)
        return before if before is not None and before.number == self.number - 1 else None

    @property
    def _last_ended(self) -> RoundEnd | None:
        """The round that this party ended last, if none was begun after it."""
        end = self._last
        if end is None or end.result.total_vector.size:
            return end
        phase = Phase.DISSEMINATION if self.inside.plan.protocol.traits.releases_are_public else Phase.MIXING
        with contextlib.closing(self._kept()) as store:
            return replace(end, result=replace(end.result, total_vector=store.required_release(phase).vector))

    @property
    def _last_mean(self) -> Path:
        return self.round_store.with_name(self.round_store.name + LAST)

    def forget_round(self) -> None:
        """The round that was begun last never goes on, also after a restart."""
        self.round_store.unlink(missing_ok=True)

    def note_end(self, result: NodeResult, sent: int) -> RoundEnd:
        """Counted on disk with the next round, or by anyone who finds the result in its store."""
        progress, end = self.progress, RoundEnd.of(self.number, result, sent, self.inside.plan)
        if progress.noted < self.number:
            inside = end.execution.contributors()
            counted = tuple(before + bool(inside[party]) for party, before in enumerate(progress.counted))
            results = progress.results + 1
            self.progress = msgspec.structs.replace(progress, results=results, counted=counted, noted=self.number)
        # A long vector is in the store, and not in memory from this round to the next.
        long = result.total_vector.size > PIECE
        self._last = replace(end, result=replace(result, total_vector=np.zeros(0))) if long else end
        if long:
            # Of shares, which are shorter than vectors: what comes next would not fit into it.
            return_free_memory()
        self.ended = True
        return end

    def pass_by(self, number: int) -> None:
        """Take no part in rounds up to this one; it costs nothing, and a process after this one decides anew."""
        self.number = number

    def pass_all(self) -> None:
        """Note that the others are past the last round."""
        self.save(msgspec.structs.replace(self.progress, current=self.rounds))

    def leave(self) -> None:
        """Begin no other round, ever; on disk when this returns. The secrets of the series are deleted."""
        self.save(msgspec.structs.replace(self.progress, left=True))
        self.store.finish(int(Phase.MIXING), _LEFT)

    def save(self, progress: SeriesProgress) -> None:
        self.store.save_series(progress.dump())
        self.progress = progress

    # --- the store of a round ----------------------------------------------------------------------------------------

    def settings_of(self, number: int, value: Admitted) -> NodeSettings:
        return self._of_round(number, PlannedValue(self.inside.plan, value, wiped=True))

    @property
    def kept_settings(self) -> NodeSettings:
        """Those of the round that was begun last, whatever it was begun with."""
        return self._of_round(self.number, self.inside.brought)

    def _of_round(self, number: int, brought: Brought) -> NodeSettings:
        settings = self.inside
        label = digest({"format": "quietmean-round-1", "session": settings.study, "round": number})
        return replace(
            settings,
            roster=Roster(settings.roster.entries, Seal(label, settings.roster.conveners)),
            brought=brought,
            store=self.round_store,
        )

    @property
    def round_store(self) -> Path:
        return self.settings.store.with_name(self.settings.store.name + ROUND)

    @property
    def nothing_has_left(self) -> bool:
        """Whether what is kept is of a round before the one that was begun last, or empty; where it is gone, nobody knows."""
        if not self.round_store.stat().st_size:
            return True
        with contextlib.closing(self._kept()) as store:
            return store.study != self.kept_settings.study

    def goes_on(self, value: Admitted) -> bool:
        """Whether what is kept of the round that was begun last is of this value, or nothing of it has left yet."""
        with contextlib.suppress(InputError):
            settings = self.settings_of(self.progress.current, value)
            return self.round_store.exists() and (self.nothing_has_left or settings.store_exists())
        return False

    def _kept(self) -> Store:
        plan = self.inside.plan
        return Store(self.round_store, plan.target.dimension, plan.grid)

    # --- as the others see it ----------------------------------------------------------------------------------------

    async def handle(self, sender: PartyId, request: AnyRequest, payload: Payload) -> AnswerFrame:
        """The answer to a request that is about the start, where only such ones come."""
        return self.handle_start(sender, request, BEFORE)

    def handle_start(self, sender: PartyId, request: AnyRequest, position: Position) -> AnswerFrame:
        """The answer to a request that is about the start."""
        if not isinstance(request, Start):
            raise PeerError("it sent a request of a round before the first one")
        return self.gathering.handle(sender, request, position)

    # --- errors ------------------------------------------------------------------------------------------------------

    def fail(self, error: BaseException) -> None:
        """Note an error of what goes on beside a round; between rounds a defect ends the series when the next round begins."""
        if self.session is not None:
            self.session.fail(error)
        elif self.started is None:
            super().fail(error)
        elif outage_of(error, self.store.path) is None:
            self._defect = self._defect or error

    async def go_on(self) -> None:
        """Continue before a round: raises what nobody could learn until now, and reads anew what an outage has left of
        the store."""
        at_start = self.gathering.error
        error = self._defect or at_start
        if error is not None and outage_of(error, self.store.path) is None:
            raise error
        if self.store.stalled or at_start is not None:
            await self.open_start()
            self.gathering.start()
