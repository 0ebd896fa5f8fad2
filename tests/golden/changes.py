"""Messages as a stranger might send them, and what a real machine makes of each."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from golden.interfaces import Message, PartyMachine, QuietmeanError
from golden.rounds import Recorded, Turn, step_text

Change = Callable[[Message], list[Message]]


def _content(change: Callable[[bytes], bytes]) -> Change:
    return lambda message: [replace(message, content=change(message.content))]


def _vector(change: Callable[[Any], Any]) -> Change:
    return lambda message: [replace(message, vector=np.asarray(change(message.vector), dtype=np.float64))]


def _weight(weight: float) -> Change:
    return lambda message: [replace(message, weight=weight)]


def _flipped(raw: bytes, place: int, bits: int) -> bytes:
    changed = bytearray(raw)
    changed[place] ^= bits
    return bytes(changed)


CONTENT: dict[str, Change] = {
    "content without its last byte": _content(lambda raw: raw[:-1]),
    "content without its first byte": _content(lambda raw: raw[1:]),
    "content with a byte more": _content(lambda raw: raw + b"\0"),
    "content twice": _content(lambda raw: raw + raw),
    "content empty": _content(lambda raw: b""),
    "content all zero": _content(lambda raw: bytes(len(raw))),
    "content all ones": _content(lambda raw: b"\xff" * len(raw)),
    "content, first byte, high bit": _content(lambda raw: _flipped(raw, 0, 0x80)),
    "content, first byte, low bit": _content(lambda raw: _flipped(raw, 0, 0x01)),
    "content, second byte, high bit": _content(lambda raw: _flipped(raw, min(1, len(raw) - 1), 0x80)),
    "content, middle byte, all bits": _content(lambda raw: _flipped(raw, len(raw) // 2, 0xFF)),
    "content, last byte, low bit": _content(lambda raw: _flipped(raw, -1, 0x01)),
    "content, last byte, high bit": _content(lambda raw: _flipped(raw, -1, 0x80)),
    "a vector besides": _vector(lambda vector: [1.0, 2.0, 3.0]),
}
VECTOR: dict[str, Change] = {
    "vector without its last entry": _vector(lambda vector: vector[:-1]),
    "vector with an entry more": _vector(lambda vector: [*vector, 0.0]),
    "vector empty": _vector(lambda vector: []),
    "content besides": _content(lambda raw: b"\1"),
}
ANY: dict[str, Change] = {
    "of another round": lambda message: [replace(message, round=message.round + 1)],
    "twice": lambda message: [message, message],
    "weight 0": _weight(0.0),
    "weight -1": _weight(-1.0),
    "weight 1e300": _weight(1e300),
}
OFF_GRID: dict[str, Change] = {
    "half a step off the grid": _vector(lambda vector: vector + 2.0**-40),
    "beyond 2^53 steps": _vector(lambda vector: vector + 2.0**60),
    "infinite": _vector(lambda vector: vector + np.inf),
    "not a number": _vector(lambda vector: vector * np.nan),
}


def changes_of(message: Message, on_grid: bool) -> dict[str, Change]:
    """Those that make sense for a message."""
    if on_grid:
        return OFF_GRID
    return ANY | (CONTENT if message.content else VECTOR)


def outcomes(recorded: Recorded, rounds: list[int], on_grid: bool) -> Iterator[str]:
    """One line for each change of one message in each of ``rounds``, per kind of receiver."""
    turns: dict[tuple[int, type], list[Turn]] = {}
    for turn in recorded.turns:
        if turn.round in rounds and turn.inbox:
            turns.setdefault((turn.round, type(recorded.machines[turn.party])), []).append(turn)
    for alike in turns.values():
        # One to whom it makes a difference, if there is one.
        chosen = next((turn for turn in alike if _matters(recorded.machines[turn.party], turn)), alike[0])
        yield from _of_turn(recorded.machines[chosen.party], chosen, on_grid)


def _matters(machine: PartyMachine[Any], turn: Turn) -> bool:
    return _outcome(machine, turn, list(turn.inbox[1:])) != step_text(turn.step)


def _of_turn(machine: PartyMachine[Any], turn: Turn, on_grid: bool) -> Iterator[str]:
    message, *others = turn.inbox
    usual, absent = step_text(turn.step), _outcome(machine, turn, others)
    # Whatever a state looks like, this must stay so.
    names = {absent: "as if not arrived", usual: "as usual" if usual != absent else "no difference"}
    place = f"{turn.round}: {message.sender}>{turn.party}"
    yield f"{place} not arrived: {absent}"
    for name, change in changes_of(message, on_grid).items():
        found = _outcome(machine, turn, [*change(message), *others])
        yield f"{place} {name}: {names.get(found, found)}"


def _outcome(machine: PartyMachine[Any], turn: Turn, inbox: list[Message]) -> str:
    try:
        return step_text(machine.end_round(turn.state, inbox, turn.delivered))
    except QuietmeanError as error:
        return f"raises {type(error).__name__}: {error}"
