"""Eavesdroppers that a target is about: besides colluding parties, the adversary reads messages between honest ones.

What a party sends in one round counts as one message to all (IncA, sections 2.3 and 4.1). Which messages are read
is independent of values, of the graph and of who colludes; the coalition may be chosen with all of this in sight.

* A number: each message is read with that chance, independently. The set is drawn from the public seed of a study before it
  starts, by a stream of its own, and what is said of the study is about that set (Definition 2.2 takes a set as given). Nobody
  else who listens is bound to it: whatever holds for all sets is the figure a priori.
* ``all-after-first``: only the messages of the first round are private, all later ones are read (ADQSP, section VI-B).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeAlias

from quietmean.core.errors import InputError
from quietmean.core.schema import number_shown

if TYPE_CHECKING:
    pass

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
    """Read the text of an option; None without one. Raises :class:`InputError` for what it cannot be."""
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
