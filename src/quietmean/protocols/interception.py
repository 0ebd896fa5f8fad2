"""The messages between parties that an eavesdropper reads in one execution, and what a protocol promises against it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from quietmean.core.arrays import Mask
from quietmean.core.assumptions import Assumption, Key
from quietmean.core.bounds import APriori
from quietmean.core.codec import convert
from quietmean.core.errors import InputError, unfit_field
from quietmean.graphs import ExecutionTrace, Schedule
from quietmean.protocols.mechanism import Mechanism
from quietmean.protocols.target import (
    ALL_AFTER_FIRST,
    Eavesdropping,
    eavesdropping_text,
    is_random,
    require_eavesdropping,
)
from quietmean.randomness import BitStream, Seed

if TYPE_CHECKING:
    from quietmean.privacy import Eavesdropper


def already_public(protocol: Mechanism, eavesdropping: Eavesdropping) -> str | None:
    """Why such an eavesdropper learns nothing that does not count as known to everybody already, one clause; None if it may.

    The protocol must be complete.
    """
    traits = protocol.traits
    return traits.already_public or (traits.after_first_public if eavesdropping == ALL_AFTER_FIRST else None)


def require_promise_if_read(protocol: Mechanism, eavesdropping: Eavesdropping | None) -> None:
    """Raises :class:`InputError` for a target with an eavesdropper against whom nothing is promised."""
    if eavesdropping is None or protocol.TRAITS.counts_intercepted or already_public(protocol, eavesdropping) is not None:
        return
    raise InputError(
        f"protocol {protocol.name} promises nothing where {eavesdropping_text(eavesdropping)}: "
        f"{protocol.TRAITS.unpromised_if_read}. Name inca, or leave eavesdropping out."
    )


def whichever_are_read(protocol: Mechanism, promised: APriori, eavesdropping: Eavesdropping | None) -> APriori:
    """What is ``promised`` before the start, with the reason that counts where it is chance which messages are read."""
    if not (protocol.TRAITS.counts_intercepted and is_random(eavesdropping)):
        return promised
    return replace(
        promised,
        enforced_by="each party's own noise: nobody knows which messages are read, so all of them may be",
        nats=math.inf,
    )


@dataclass(frozen=True, eq=False)
class Interception:
    """The messages of one execution that are read. ``read``, (T, n): what a party sends in a round is, if it sends anything."""

    eavesdropping: Eavesdropping
    read: Mask

    @classmethod
    def of(cls, protocol: Mechanism, eavesdropping: Eavesdropping | None, schedule: Schedule, seed: Seed) -> Self | None:
        """The messages that are read of this schedule, by a public seed; None if none are, or if they disclose nothing more.

        The draw is of rounds and parties alone: neither the schedule nor what happens has a part in it. A larger chance reads all
        that a smaller one does.
        """
        if eavesdropping is None or already_public(protocol, eavesdropping) is not None:
            return None
        if isinstance(eavesdropping, str):
            return cls.after_first(schedule)
        shape = schedule.rounds, schedule.parties
        chances = BitStream(seed.derive("eavesdropping")).uniform(math.prod(shape)).reshape(shape)
        return cls(eavesdropping, chances < eavesdropping)

    @classmethod
    def after_first(cls, schedule: Schedule) -> Self:
        """All messages but those of the first round."""
        read = np.ones((schedule.rounds, schedule.parties), dtype=np.bool_)
        read[:1] = False
        return cls(ALL_AFTER_FIRST, read)

    def eavesdropper(self, schedule: Schedule, trace: ExecutionTrace) -> Eavesdropper:
        """Who reads them, in an execution: of all that was sent, also if it did not arrive."""
        # Running parties certify nothing: they start without this import.
        from quietmean.privacy import Eavesdropper

        rounds, senders = np.nonzero(self.read & trace.online[1:] & (schedule.out_degree > 0))
        observed = frozenset(zip(senders.tolist(), rounds.tolist(), strict=True))
        drawn = ", drawn from the public seed before the start" if is_random(self.eavesdropping) else ""
        return Eavesdropper(observed, f"{eavesdropping_text(self.eavesdropping)}{drawn}")

    @property
    def assumption(self) -> Assumption:
        """What is taken for granted of channels, instead of that nobody reads them."""
        if not is_random(self.eavesdropping):
            return Assumption(
                Key.CHANNELS,
                "Only sender and receivers read messages of the first round (TLS 1.3); an eavesdropper reads all later ones.",
            )
        return Assumption(
            Key.CHANNELS,
            f"An eavesdropper reads each message with chance {self.eavesdropping:g}. "
            "Realised figures count the messages that were drawn, guaranteed figures count all.",
        )

    def to_json(self) -> dict[str, Any]:
        """Fields of an execution file. ``intercepted`` is as in :class:`~quietmean.privacy.Adversary`: [party, round]."""
        if not is_random(self.eavesdropping):
            return {"eavesdropping": self.eavesdropping}
        rounds, senders = np.nonzero(self.read)
        return {"eavesdropping": self.eavesdropping, "intercepted": np.stack([senders, rounds], axis=1).tolist()}

    @classmethod
    def from_json(cls, raw: Mapping[str, Any], schedule: Schedule) -> Self | None:
        """The inverse of :meth:`to_json`; None without these fields. Raises :class:`InputError` for what cannot be."""
        if "eavesdropping" not in raw:
            if "intercepted" in raw:
                raise InputError("field 'intercepted' stands without 'eavesdropping'. Give both, or neither.")
            return None
        require_eavesdropping(raw["eavesdropping"])
        if not is_random(raw["eavesdropping"]):
            return cls.after_first(schedule)
        listed = convert(raw.get("intercepted"), list[tuple[int, int]], partial(unfit_field, "intercepted"))
        read = np.zeros((schedule.rounds, schedule.parties), dtype=np.bool_)
        for party, round_ in listed:
            if not (0 <= party < schedule.parties and 0 <= round_ < schedule.rounds):
                raise InputError(f"intercepted message [{party}, {round_}] does not exist. Name [party, round].")
            read[round_, party] = True
        return cls(float(raw["eavesdropping"]), read)
