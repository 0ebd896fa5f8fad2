"""Eavesdroppers that a target is about: besides colluding parties, the adversary reads messages between honest ones.

What a party sends in one round counts as one message, whoever receives it (IncA, sections 2.3 and 4.1). Which messages are read
is independent of values, of the graph and of who colludes; the coalition may be chosen with all of this in sight.

* A number: each message is read with that chance, independently. The set is drawn from the public seed of a study before it
  starts, by a stream of its own, and what is said of the study is about that set (Definition 2.2 takes a set as given). Nobody
  else who listens is bound to it: whatever holds for all sets is the figure a priori.
* ``all-after-first``: only the messages of the first round are private, all later ones are read (ADQSP, section VI-B).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Final, Self, TypeAlias

import numpy as np

from quietmean.core.arrays import Mask
from quietmean.core.assumptions import Assumption, Key
from quietmean.core.bounds import APriori
from quietmean.core.codec import convert
from quietmean.core.errors import InputError, unfit_field
from quietmean.core.schema import number_shown
from quietmean.graphs import ExecutionTrace, Schedule
from quietmean.randomness import BitStream, Seed

if TYPE_CHECKING:
    from quietmean.privacy import Eavesdropper

Eavesdropping: TypeAlias = float | str

ALL_AFTER_FIRST: Final = "all-after-first"
_CHOICES = f'choose the chance that a message is read, above 0 and at most 1, such as 0.5, or "{ALL_AFTER_FIRST}"'


def require_eavesdropping(given: object) -> None:
    """Raises :class:`InputError` for anything but a chance above 0 and at most 1, or :data:`ALL_AFTER_FIRST`."""
    if given == ALL_AFTER_FIRST:
        return
    if isinstance(given, bool) or not isinstance(given, int | float):
        raise InputError(f"eavesdropping is {str(given)[:40]!r}: {_CHOICES}")
    if not 0 < given <= 1:
        raise InputError(f"eavesdropping is {number_shown(given)}: {_CHOICES}")


def read_eavesdropping(text: str | None) -> Eavesdropping | None:
    """From the text of an option; None without one. Raises :class:`InputError` for what it cannot be."""
    if text is None:
        return None
    try:
        eavesdropping: Eavesdropping = float(text)
    except ValueError:
        eavesdropping = text
    require_eavesdropping(eavesdropping)
    return eavesdropping


def is_random(eavesdropping: Eavesdropping | None) -> bool:
    """Is it chance which messages are read? Then a figure of one study is about one set only."""
    return eavesdropping is not None and eavesdropping != ALL_AFTER_FIRST


def eavesdropping_text(eavesdropping: Eavesdropping) -> str:
    """Who reads what, one clause."""
    if eavesdropping == ALL_AFTER_FIRST:
        return "all messages after the first round are read"
    return f"each message is read with a chance of {eavesdropping:g}"


class CanBeOverheard:
    """What a protocol promises against eavesdroppers.

    ``counts_intercepted``: plans and certificates count messages that are read, and what is promised a priori holds whichever
    these are. Where not, ``unpromised_if_read`` says why nothing is promised, one clause.
    """

    name: ClassVar[str]
    counts_intercepted: ClassVar[bool] = False
    unpromised_if_read: ClassVar[str] = "what its messages would tell is not known"

    def already_public(self, eavesdropping: Eavesdropping) -> str | None:
        """Why such an eavesdropper learns nothing that does not count as known to everybody already, one clause; None if it may.

        The protocol must be complete.
        """
        return None

    def require_promise_if_read(self, eavesdropping: Eavesdropping | None) -> None:
        """Raises :class:`InputError` for a target with an eavesdropper against whom nothing is promised."""
        if eavesdropping is None or self.counts_intercepted or self.already_public(eavesdropping) is not None:
            return
        raise InputError(
            f"protocol {self.name} promises nothing where {eavesdropping_text(eavesdropping)}: {self.unpromised_if_read}; "
            "name inca, or leave eavesdropping out"
        )

    def whichever_are_read(self, promised: APriori, eavesdropping: Eavesdropping | None) -> APriori:
        """What is ``promised`` a priori, with the reason that counts where it is chance which messages are read."""
        if not (self.counts_intercepted and is_random(eavesdropping)):
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
    def of(cls, protocol: CanBeOverheard, eavesdropping: Eavesdropping | None, schedule: Schedule, seed: Seed) -> Self | None:
        """The messages that are read of this schedule, by a public seed; None if none are, or if they disclose nothing more.

        The draw is of rounds and parties alone: neither the schedule nor what happens has a part in it. A larger chance reads all
        that a smaller one does.
        """
        if eavesdropping is None or protocol.already_public(eavesdropping) is not None:
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
                "Messages of the first round are encrypted (TLS 1.3), and nobody but sender and receivers reads them; all later "
                "ones count as read by the adversary.",
            )
        return Assumption(
            Key.CHANNELS,
            f"Each message between two parties is read by the adversary with a chance of {self.eavesdropping:g}, what a party "
            "sends in one round being one message; the figures of what happened are about those that the public seed drew, "
            "whatever the graph, the values and who colludes; whoever reads others is covered by the figure a priori only.",
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
                raise InputError("field 'intercepted' stands without 'eavesdropping': give both, or neither")
            return None
        require_eavesdropping(raw["eavesdropping"])
        if not is_random(raw["eavesdropping"]):
            return cls.after_first(schedule)
        listed = convert(raw.get("intercepted"), list[tuple[int, int]], partial(unfit_field, "intercepted"))
        read = np.zeros((schedule.rounds, schedule.parties), dtype=np.bool_)
        for party, round_ in listed:
            if not (0 <= party < schedule.parties and 0 <= round_ < schedule.rounds):
                raise InputError(f"intercepted message [{party}, {round_}] does not exist: name [party, round]")
            read[round_, party] = True
        return cls(float(raw["eavesdropping"]), read)
