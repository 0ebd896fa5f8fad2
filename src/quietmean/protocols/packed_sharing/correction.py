"""Sums that disagree: which are corrected, when the result is refused, and who is named.

The sums of k members are k points of polynomials of degree < T: a Reed-Solomon word, of which every two differ in k - T + 1
places. So up to e wrong places are found as long as k >= T + 2e, and as long as e + e' <= k - T up to e' > e wrong ones are not
taken for e others. All coordinates of one sum stand at the same place: three random combinations of them show which places are
wrong, but for a chance of p^-3.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from quietmean.core.arrays import Ints, Mask, pieces
from quietmean.core.party import Units
from quietmean.protocols.packed_sharing.packing import (
    Elements,
    Packing,
    Residues,
    lagrange,
    member_points,
    null_vector,
    open_sums,
    powers,
    product,
    uniform,
)
from quietmean.randomness import BitStream, Seed

# The number of random combinations of the coordinates.
_CHECKS = 3


@dataclass(frozen=True, eq=False)
class Conclusion:
    """The corrected sum of the members' sums.

    ``total``, shape (size,): the sum of all numbers, or None if it is refused; ``wrong``: members whose sums disagree with it.

    ``problem``: why it is refused, one sentence; empty otherwise.
    """

    total: Units | None
    wrong: tuple[int, ...] = ()
    problem: str = ""

    def messages(self) -> tuple[str, ...]:
        """One sentence for each wrong sum."""
        return tuple(f"member {member}'s sum disagrees: it, or a dealer that dealt it a wrong share" for member in self.wrong)


def conclude(packing: Packing, sums: Mapping[int, Elements], lies: int, size: int, secret: Seed) -> Conclusion:
    """The result of the ``sums`` (blocks,) of T members or more, by number, of which ``lies`` (e) wrong ones are corrected.

    With k sums up to min(e, (k - T) / 2) wrong ones are corrected, and more are refused: for certain as long as they and the
    corrected ones together are k - T at most, and in any number if they do not fit together. ``secret``: the receiver's own, for
    this study and only for this; what is drawn from it must not be known to anybody before the sums are in. Raises ValueError for
    fewer than T sums.
    """
    members = sorted(sums)
    spare = len(members) - packing.threshold
    if spare < 0:
        raise ValueError(f"{len(members)} sums do not determine polynomials of degree {packing.threshold - 1}")
    right = members
    if spare:
        words = _combined(packing, [sums[member] for member in members], secret)
        agreeing = agreeing_members(packing, members, words, min(lies, spare // 2))
        if agreeing is None:
            return Conclusion(None, problem=_problem(min(lies, spare // 2)))
        right = agreeing
    total = open_sums(packing, {member: sums[member] for member in right}, size)
    return Conclusion(total, tuple(sorted(set(members) - set(right))))


def _problem(corrected: int) -> str:
    able = f"more than {corrected} of them are wrong" if corrected else "at least one of them is wrong"
    return (
        f"the members' sums do not fit together: {able}. The result is refused. Start a new study, with its own "
        "charge. Plan it for more wrong sums (option lies) to learn whose they are."
    )


def _combined(packing: Packing, sums: Sequence[Elements], secret: Seed) -> Residues:
    """Random combinations of the coordinates of k sums, (blocks,) each, shape (k, 3)."""
    stream = BitStream(secret.derive("checks of sums"))
    combined = np.zeros((len(sums), _CHECKS), dtype=np.uint64)
    for piece in pieces(len(sums[0])):
        part = np.array([one[piece] for one in sums], dtype=np.uint32)
        drawn = uniform(stream, _CHECKS * part.shape[1], packing.prime).reshape(part.shape[1], _CHECKS)
        combined += product(part, drawn, packing.prime)
    return (combined % np.uint64(packing.prime)).astype(np.uint32)


def agreeing_members(packing: Packing, members: Sequence[int], words: Residues, corrected: int) -> list[int] | None:
    """The members whose ``words``, (k, c), lie on polynomials that at most ``corrected`` ones miss; None if there are none.

    Each column has its own polynomial; a word is wrong if it is in any column.
    """
    if not (wrong := _missed(packing, members, words, range(packing.threshold))).any():
        return list(members)
    if not corrected:
        return None
    points = member_points(packing, members)
    # A wrong word looks right in one combination with a chance of 1 / p: then another combination shows it.
    for check in range(words.shape[1]):
        trusted = _trusted(packing, points, words[:, check], corrected)
        if len(trusted) < packing.threshold:
            continue
        wrong = _missed(packing, members, words, trusted[: packing.threshold])
        if wrong.sum() <= corrected:
            return [member for member, bad in zip(members, wrong.tolist(), strict=True) if not bad]
    return None


def _trusted(packing: Packing, points: Ints, word: Residues, corrected: int) -> list[int]:
    """The places of a word (k,) that are right if at most ``corrected`` are wrong: Berlekamp and Welch's.

    Polynomials Q of degree < T + e and E of degree <= e with Q(x) = y E(x) at all points: Q = P E, and E is 0 at every wrong one.
    """
    prime = packing.prime
    left = powers(points, packing.threshold + corrected, prime)
    locator = powers(points, corrected + 1, prime)
    right = (np.uint64(prime) - locator.astype(np.uint64) * word[:, None] % np.uint64(prime)) % np.uint64(prime)
    coefficients = null_vector(np.concatenate([left, right.astype(np.uint32)], axis=1), prime)
    if coefficients is None:
        return []
    value = product(locator, coefficients[packing.threshold + corrected :, None], prime)[:, 0]
    return np.nonzero(value)[0].tolist()


def _missed(packing: Packing, members: Sequence[int], words: Residues, basis: Sequence[int]) -> Mask:
    """The places, (k,), whose ``words``, (k, 3), are off the polynomials through the T places ``basis``."""
    points = member_points(packing, members)
    others = np.array(sorted(set(range(len(members))) - set(basis)), dtype=np.int64)
    places = np.array(basis, dtype=np.int64)
    expected = product(lagrange(points[places], points[others], packing.prime), words[places], packing.prime)
    missed = np.zeros(len(members), dtype=np.bool_)
    missed[others] = (expected != words[others]).any(axis=1)
    return missed
