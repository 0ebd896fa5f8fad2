"""The parameters of a committee that holds shares, and what must hold between them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any, Self

from quietmean.core.codec import convert
from quietmean.core.errors import InputError
from quietmean.protocols.committee_size import Committee, Size, quorum
from quietmean.protocols.packed_sharing.ballots import LARGEST_BALLOTS, ballots_needed
from quietmean.protocols.packed_sharing.packing import Packing
from quietmean.protocols.packed_sharing.spec import (
    BALL,
    BOX,
    LARGE_PRIME,
    LEAST_SCALE,
    Condition,
    PackedSharingParameters,
)
from quietmean.randomness.layered_gaussian import LARGEST_SCALE

# Masks a contribution for each kind of check, and check numbers a list states of it: what is wrong passes with a chance of p^-6.
REPETITIONS = 6
# Rounds from one proposal to the next: lists may be fetched, and locks are sent before the next leader proposes.
BALLOT_ROUNDS = 5
# No noise of a dealing is larger than so many times its scale, but for this chance: the tail of discrete Gaussian noise beyond a
# whole number m is at most the Gaussian's beyond m - 1 (Canonne, Kamath and Steinke 2020), which is 2 Phi(-8) = 1.2442e-15.
NOISE_REACH, NOISE_BEYOND = 8, 1.245e-15


def wrong_sums_corrected(sums: int, threshold: int, colluding: int) -> int:
    """Return how many of T + c_m members' sums or more: c_m wrong ones are found all the same."""
    return min(colluding, sums - threshold - colluding)


@dataclass(frozen=True, kw_only=True)
class CommitteeParameters:
    """``contributors`` (n) that are admitted deal their values to m ``members`` of whom ``colluding`` (c_m) collude at most.

    ``gone`` (f) members may be away at any moment. ``secrets`` (l) numbers lie on one polynomial. There is a result from
    ``minimum`` contributions on, which is for usefulness: privacy rests on the members' noise alone. ``ballots`` (B) leaders
    propose. A contribution of public weight w <= ``largest_weight`` lies within w ``clip`` of w ``centre`` in each of
    ``dimension`` coordinates, with the region ball in norm, and is rounded to whole multiples of ``step``. Each member deals
    noise of standard deviation ``sigma``. ``verified``: contributions and noise are dealt bit by bit, with l = 1, and members
    check what is stated of them. ``rounded``: coordinates of all contributions of a person that rounding may change by a step
    more, by default one contribution's. ``bits_of_record``: of a contribution, where each is a single record and its products are
    checked, else 0. Raises :class:`InputError` for parameters that contradict each other.
    """

    members: int
    colluding: int
    gone: int
    size: Size
    contributors: int
    minimum: int
    dimension: int
    secrets: int
    ballots: int
    region: str
    centre: float
    clip: float
    step: float
    sigma: float
    largest_weight: float
    verified: bool = False
    bits_of_record: int = 0
    rounded: int | None = None

    def __post_init__(self) -> None:
        # What must hold whatever is summed.
        _ = self.committee
        for condition in _conditions(self):
            if not condition.holds:
                raise InputError(condition.problem)

    def to_json(self) -> dict[str, Any]:
        plain = {**asdict(self), "size": str(self.size)}
        return {name: value for name, value in plain.items() if value or name not in ("verified", "bits_of_record", "rounded")}

    @classmethod
    def from_json(cls, raw: Mapping[str, Any]) -> Self:
        """The inverse of :meth:`to_json`. Raises :class:`InputError`."""

        def refuse(reason: str) -> Exception:
            return InputError(f"The committee's parameters are not valid ({reason}). Use the plan that belongs to this study.")

        fields = set(cls.__dataclass_fields__)
        if unknown := sorted(set(raw) - fields):
            raise refuse(f"unknown: {', '.join(map(str, unknown))}")
        return convert(dict(raw), cls, refuse)

    # --- the committee ---

    @property
    def committee(self) -> Committee:
        """Its size, and who of it may lie or be gone."""
        return Committee(self.members, self.colluding, self.gone, self.size, verified=self.verified)

    @property
    def prime(self) -> int:
        return LARGE_PRIME

    @property
    def threshold(self) -> int:
        """T, the number of sums that determine the result, and of shares that determine a polynomial."""
        return self.colluding + self.secrets

    @property
    def votes_needed(self) -> int:
        """q, the number of votes that decide on one choice, and of echoes that a vote needs."""
        return quorum(self.members, self.colluding)

    @property
    def dealings(self) -> int:
        """k, the number of noise dealings in a sum: exactly so many."""
        return self.members - self.gone

    @property
    def lists_needed(self) -> int:
        """Return the least number of lists |M| with which honest shares determine each polynomial, whatever liars send."""
        if self.verified:
            return self.product_threshold + self.colluding
        return self.threshold + (2 if self.size == Size.LYING else 1) * self.colluding

    @property
    def product_threshold(self) -> int:
        """2T - 1, the number of shares that determine a product of two polynomials."""
        return 2 * self.threshold - 1

    @property
    def checks(self) -> int:
        """Check numbers of an entry: of degrees, and with verified contributions as many of products."""
        return (2 if self.verified else 1) * REPETITIONS

    @property
    def sums_needed(self) -> int:
        """T + c_m sums: fewer give no result, as too little could be checked."""
        return self.threshold + self.colluding

    @property
    def rounds(self) -> int:
        """Rounds of a member's machine at most."""
        return rounds_for(self.ballots)

    # --- numbers ---

    @property
    def blocks(self) -> int:
        """Polynomials of one sum: the numbers in a share of it, and in one of a value that is not dealt bit by bit."""
        return self.packing.blocks(self.dimension)

    @property
    def range(self) -> int:
        """W: the values of weight 1 are whole numbers in 0..W."""
        return 2 * math.ceil(self.clip / self.step)

    @property
    def scale(self) -> float:
        """The noise of one member in steps."""
        return self.sigma / self.step

    @property
    def largest_noise(self) -> int:
        """The largest number of a noise dealing in steps, where that is verified."""
        return math.ceil(NOISE_REACH * self.scale)

    @property
    def largest_sum(self) -> float:
        """What a sum over all who are admitted does not exceed in steps, k dealings of noise included."""
        return self.contributors * self.largest_weight * self.range + self.dealings * NOISE_REACH * self.scale

    @cached_property
    def packing(self) -> Packing:
        return Packing(self.members, self.secrets, self.colluding, self.prime)

    @cached_property
    def numbers(self) -> PackedSharingParameters:
        """The grid and the noise, as of members that deal only noise: k inputs, of which the colluders know c_m."""
        return PackedSharingParameters(
            members=self.members,
            colluding=self.colluding,
            colluding_members=self.colluding,
            secrets=self.secrets,
            minimum=self.dealings,
            lies=0,
            gone=self.gone,
            ballots=self.ballots,
            prime=self.prime,
            step=self.step,
            sigma=self.sigma,
            region=self.region,
            centre=self.centre,
            clip=self.clip,
            largest_weight=self.largest_weight,
            dimension=self.dimension,
            rounded=self.rounded,
        )


def rounds_for(ballots: int, each: int = BALLOT_ROUNDS) -> int:
    """Noise, lists, the proposals of all ballots ``each`` so many rounds apart, and what follows the last one."""
    return 3 + each * (ballots - 1) + 7


def ballots_for(members: int, colluding: int, gone: int) -> int:
    """B: as between peers, and one more for each leader that lies."""
    return ballots_needed(members, gone) + colluding


def _conditions(parameters: CommitteeParameters) -> Iterator[Condition]:
    yield Condition("contributors", parameters.contributors >= 1, "nobody is admitted as a contributor. Admit 1 or more.")
    yield Condition(
        "minimum",
        1 <= parameters.minimum <= parameters.contributors,
        f"minimum is {parameters.minimum} contributions of {parameters.contributors} contributors. Choose 1 to "
        f"{parameters.contributors}.",
    )
    most = parameters.committee.secrets
    yield Condition(
        "lists and sums with f members gone",
        1 <= parameters.secrets <= most,
        f"{parameters.secrets} numbers on a polynomial need more members than stay. Choose 1 to {most}.",
    )
    yield Condition(
        "ballots",
        1 <= parameters.ballots <= LARGEST_BALLOTS,
        f"ballots is {parameters.ballots}. Choose 1 to {LARGEST_BALLOTS}.",
    )
    yield Condition("dimension", parameters.dimension >= 1, "a value has at least 1 coordinate")
    yield Condition("region", parameters.region in (BOX, BALL), f"region is {parameters.region!r}. Choose {BOX} or {BALL}.")
    yield Condition(
        "what is verified has ranges",
        parameters.region == BOX or not parameters.verified,
        "the norm of a value in a ball is not verified in this version. Leave verified out, or state bounds of each number.",
    )
    yield Condition(
        "products are those of one record",
        not parameters.bits_of_record
        or (parameters.bits_of_record > 0 and parameters.verified and parameters.largest_weight == 1 and not parameters.centre),
        "products are checked of single records only. Give verified, and largest_weight 1.",
    )
    yield from _numbers(parameters)


def _numbers(parameters: CommitteeParameters) -> Iterator[Condition]:
    for name in ("clip", "step", "sigma", "largest_weight"):
        value = getattr(parameters, name)
        yield Condition(name, math.isfinite(value) and value > 0, f"{name} is {value:g}. Choose a finite number > 0.")
    yield Condition("centre", math.isfinite(parameters.centre), f"centre is {parameters.centre:g}. Choose a finite number.")
    yield Condition(
        "rounding stays inside the box",
        parameters.region != BOX or (parameters.clip / parameters.step).is_integer(),
        f"bounds {parameters.clip:g} from the centre are not a multiple of the step {parameters.step:g}. "
        f"Choose a step that divides {parameters.clip:g}.",
    )
    yield Condition(
        "scale",
        LEAST_SCALE <= parameters.scale <= LARGEST_SCALE,
        f"sigma is {parameters.scale:g} steps. Choose {LEAST_SCALE:g} to {LARGEST_SCALE:g} steps.",
    )
    room = parameters.prime // 2
    yield Condition(
        "the sum is that of whole numbers for any contributors",
        parameters.largest_sum < room,
        f"a sum over {parameters.contributors} contributors reaches {parameters.largest_sum:.6g} steps, and there is room for "
        f"{room}. Take a larger step, a smaller largest_weight, or fewer contributors.",
    )
