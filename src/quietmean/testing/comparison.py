"""Comparison of two transcripts: whether all messages and their joint distribution agree, in whatever order variables are."""

from __future__ import annotations

from collections import defaultdict

import numpy as np

from quietmean.core.arrays import Matrix
from quietmean.core.party import PartyId
from quietmean.transcript import Transcript

# The key of a message: sender, round, everybody who knows it, and whether it is released to all.
MessageKey = tuple[PartyId, int, tuple[PartyId, ...], bool]


def assert_same_transcript(first: Transcript, second: Transcript, one: str, other: str, tolerance: float) -> None:
    """Raises ``AssertionError`` naming what differs between transcript ``one`` and transcript ``other``.

    Only what leaves a party counts. The data maps must agree; of the noise, whose columns may be in any order, the covariance
    of all messages must, for the noise of every group and every set of parties that know it.
    """
    keys, rows = _message_keys(first)
    others, other_rows = _message_keys(second)
    difference = {one: sorted(set(keys) - set(others)), other: sorted(set(others) - set(keys))}
    assert not any(difference.values()), f"only in one of them, as (sender, round, known to, released): {difference}"
    assert keys == others, f"{one} and {other} repeat a message a different number of times"
    values, noise = first.eliminated()
    other_values, other_noise = second.eliminated()
    _assert_equal(values[rows], other_values[other_rows], f"values in messages, {one} and {other}", tolerance)
    grams, other_grams = _grams(first, noise[rows]), _grams(second, other_noise[other_rows])
    nothing = np.zeros((len(rows), len(rows)))
    units = _unit(first) | _unit(second)
    for key in sorted(grams.keys() | other_grams.keys()):
        subject = f"covariance of {key[0]!r} noise known to {list(key[1])}, {one} and {other}"
        _assert_equal(grams.get(key, nothing), other_grams.get(key, nothing), subject, tolerance, units[key[0]])


def _message_keys(transcript: Transcript) -> tuple[list[MessageKey], list[int]]:
    """Return keys of the messages that a party other than the sender knows, in canonical order, and their rows."""
    knowers_of = transcript.message_known.toarray()
    keyed: list[tuple[MessageKey, int]] = []
    for row in range(transcript.messages):
        sender, released = int(transcript.sender[row]), bool(transcript.released[row])
        knowers = tuple(np.nonzero(knowers_of[row])[0].tolist())
        if released or set(knowers) - {sender}:
            keyed.append(((sender, int(transcript.message_round[row]), knowers, released), row))
    keyed.sort()
    return [key for key, _ in keyed], [row for _, row in keyed]


def _grams(transcript: Transcript, noise: Matrix) -> dict[tuple[str, tuple[PartyId, ...]], Matrix]:
    """The part of the messages' covariance that comes from each group of noise and each set of parties that know it."""
    knowers_of = transcript.noise_known.toarray()
    columns: dict[tuple[str, tuple[PartyId, ...]], list[int]] = defaultdict(list)
    for column, group in enumerate(transcript.noise_group):
        columns[str(group), tuple(np.nonzero(knowers_of[column])[0].tolist())].append(column)
    return {key: noise[:, members] @ noise[:, members].T for key, members in columns.items()}


def _unit(transcript: Transcript) -> dict[str, float]:
    """The variance of the largest single contribution of each group of noise: what rounding errors are relative to."""
    sizes = np.abs(transcript.noise.data * transcript.noise_scale[transcript.noise.indices]) ** 2
    groups = transcript.noise_group[transcript.noise.indices]
    return {str(group): float(sizes[groups == group].max(initial=0.0)) for group in np.unique(transcript.noise_group)}


def _assert_equal(first: Matrix, second: Matrix, subject: str, tolerance: float, unit: float = 1.0) -> None:
    scale = max(unit, float(np.abs(first).max(initial=0.0)))
    worst = float(np.abs(first - second).max(initial=0.0))
    assert worst <= tolerance * scale, f"{subject} differ by {worst:.3g}"
