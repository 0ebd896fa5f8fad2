"""Parameters of push-sum with injections: (c, Z), the noise levels and the grid (IncA, Definitions 3.3 and 3.4)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

import numpy as np

from quietmean.core.arrays import Array
from quietmean.core.errors import InputError
from quietmean.core.grid import Numbers, check_step, rounded_numbers, whole_numbers
from quietmean.core.schema import OPEN, Configured, given_value, parameter
from quietmean.graphs import SCHEDULES
from quietmean.protocols.discrete import NOISE_HELP, WITHOUT_LAPLACE, NoiseNumbers

# Conditions of a valid injection are checked in floating point; files carry 15 digits at best.
_TOLERANCE = 1e-9

Terms = tuple[tuple[int, float], ...]
# The number of the guard of a party's noise terms; those of Z count from 1.
GUARD_TERM = 0
# The remedy in errors about standard deviations.
DEVIATION = "choose a finite number >= 0"


@dataclass(frozen=True, eq=False)
class Injection:
    """A (c, Z)-Gaussian injection (IncA, Definitions 3.3 and 3.4): row r is what a party adds in its r-th online round.

    ``portion`` is c, shape (T + 1,); ``noise`` is Z with the relative scales of its columns, shape (T + 1, K).
    """

    name: str
    portion: Array
    noise: Array

    @property
    def rounds(self) -> int:
        return len(self.portion) - 1

    @property
    def noise_terms(self) -> int:
        return int(self.noise.shape[1])

    @cached_property
    def portions(self) -> int:
        """Into how many steps a value must be divisible for all its portions to be whole; 0 where whole numbers do not work.

        They do where (c, Z) is whole with determinant +-1, or where c is 1 / (T + 1) throughout and Z without its last row is so:
        then the noise behind whole changes of injections is whole as well.
        """
        if not self.noise_terms:
            return int(self.name == "plain")
        rows = len(self.portion)
        equal = bool((np.abs(self.portion * rows - 1.0) <= _TOLERANCE).all())
        is_whole = bool((self.noise == np.rint(self.noise)).all()) and (
            equal or bool((self.portion == np.rint(self.portion)).all())
        )
        if not is_whole or abs(abs(np.linalg.det(self.noise[:-1])) - 1.0) > _TOLERANCE * rows**2:
            return 0
        return rows if equal else 1

    @cached_property
    def rows(self) -> tuple[Terms, ...]:
        """The noise terms to add in each online round, as (index from 1, coefficient)."""
        return tuple(_terms(row) for row in self.noise)

    @cached_property
    def portion_before(self) -> Array:
        """Entry r, shape (T + 2,): the portion of the value that was injected in the first r online rounds."""
        return np.concatenate([[0.0], np.cumsum(self.portion)])

    @cached_property
    def cancellations(self) -> tuple[Terms, ...]:
        """Entry r: what cancels all the noise added in the first r online rounds."""
        added = np.vstack([np.zeros(self.noise_terms), np.cumsum(self.noise, axis=0)])
        added[np.abs(added) < _TOLERANCE * max(1.0, float(np.abs(self.noise).max(initial=0.0)))] = 0.0
        return tuple(_terms(-row) for row in added)

    @classmethod
    def incremental(cls, rounds: int) -> Injection:
        """D_Inc: 1 / (T + 1) of the value a round, the noise renewed each time (IncA, Example 3.2, corrected)."""
        noise = np.eye(rounds + 1, rounds) - np.eye(rounds + 1, rounds, -1)
        return cls("incremental", np.full(rounds + 1, 1.0 / (rounds + 1)), noise)

    @classmethod
    def early(cls, rounds: int) -> Injection:
        """D_EI: the value and all noise at once, one noise term taken out per round (IncA, Example 3.1)."""
        noise = np.vstack([np.ones(rounds), -np.eye(rounds)])
        return cls("early", np.eye(rounds + 1)[0], noise)

    @classmethod
    def plain(cls, rounds: int) -> Injection:
        """The value at once and no noise: gossip averaging."""
        return cls("plain", np.eye(rounds + 1)[0], np.zeros((rounds + 1, 0)))

    @classmethod
    def general(cls, portion: Array, noise: Array) -> Injection:
        """Any valid (c, Z): ``portion`` is c, shape (T + 1,), ``noise`` is Z, shape (T + 1, T).

        Raises :class:`InputError` with the violated condition for an invalid one.
        """
        rounds = len(portion) - 1
        if noise.shape != (rounds + 1, rounds):
            raise InputError(
                f"Z has shape {noise.shape} but c has {rounds + 1} entries. Give Z the shape ({rounds + 1}, {rounds})."
            )
        if not (np.isfinite(portion).all() and np.isfinite(noise).all()):
            raise InputError("one of the tables c and Z holds an entry that is infinite or no number. Give finite numbers only.")
        scale = max(1.0, float(np.abs(noise).max()))
        if abs(portion.sum() - 1) > _TOLERANCE:
            raise InputError(f"c sums to {portion.sum():.12g}. Let the portions of the value sum to 1.")
        worst = int(np.argmax(np.abs(noise.sum(axis=0))))
        if abs(noise[:, worst].sum()) > _TOLERANCE * scale:
            raise InputError(
                f"column {worst} of Z sums to {noise[:, worst].sum():.6g}. Let every column sum to 0, so that it cancels."
            )
        for matrix, name in ((np.column_stack([portion, noise]), "(c, Z)"), (noise[:-1], "Z without its last row")):
            if np.linalg.matrix_rank(matrix, tol=_TOLERANCE * scale) < len(matrix):
                raise InputError(f"{name} is singular, so noise could be guessed. Make it invertible (IncA, Definition 3.4).")
        return cls("general", portion, noise)

    @classmethod
    def named(cls, name: str, rounds: int) -> Injection:
        """The incremental or the early injection for this number of rounds."""
        return cls.early(rounds) if name == "early" else cls.incremental(rounds)

    @classmethod
    def parse(cls, raw: object) -> Injection:
        """Read an injection from JSON: {"c": [...], "Z": [[...]], "sigma": [...] (relative scales, optional)}.

        Raises :class:`InputError`.
        """
        if not (isinstance(raw, Mapping) and {"c", "Z"} <= set(raw) <= {"c", "Z", "sigma"}):
            raise InputError(f'injection {raw!r} is unknown. Use "incremental", "early" or an object with "c" and "Z".')
        try:
            portion, noise = np.array(raw["c"], dtype=np.float64), np.array(raw["Z"], dtype=np.float64)
            noise = noise * np.array(raw.get("sigma", 1.0), dtype=np.float64)
        except (TypeError, ValueError) as error:
            raise InputError(f"c, Z or sigma of the injection is not an array of numbers ({error}). Correct it.") from None
        if portion.ndim != 1 or noise.ndim != 2:
            raise InputError(f"c has shape {portion.shape} and Z {noise.shape}. Give a list of portions and a list of rows.")
        return cls.general(portion, noise)

    def describe(self) -> object:
        if self.name == "general":
            return {"c": self.portion.tolist(), "Z": self.noise.tolist()}
        return self.name


def _terms(row: Array) -> Terms:
    return tuple((int(index) + 1, float(row[index])) for index in np.nonzero(row)[0])


def check_fixed_point(value_bits: int, grid: float, largest_value: float, discrete: bool = False) -> None:
    """Raises :class:`InputError` for fields of a grid that do not fit together. ``discrete``: is the noise?"""
    if value_bits == 64 and ((grid and not discrete) or largest_value):
        name, number = ("grid", grid) if grid and not discrete else ("largest_value", largest_value)
        raise InputError(f"{name} is {number:g} but value_bits is 64. Set value_bits = 32 too, a grid belongs to 32-bit values.")
    if value_bits not in (32, 64):
        raise InputError(f"value_bits is {value_bits}. Choose 32 (whole numbers on a public grid) or 64 (float64).")
    if grid:
        check_step(grid)


def _check_portions(shape: tuple[int, ...], rounds: int) -> None:
    if shape != (rounds + 1,):
        raise InputError(f"c has shape {shape} with {rounds} rounds. Give {rounds + 1} portions, one per round 0..T.")


def _has_grid(parameters: Any) -> bool:
    return bool(parameters.grid)


def _has_short_grid(parameters: Any) -> bool:
    return bool(parameters.grid) and parameters.value_bits == 32


def _has_guard(parameters: Any) -> bool:
    return bool(parameters.sigma_guard)


def _has_kind(parameters: PushSumParameters) -> bool:
    return parameters.noise is not None


def _states_dimension(parameters: PushSumParameters) -> bool:
    return bool(parameters.grid) and parameters.dimension is not None


def _read_injection(raw: Any) -> str | Injection:
    """A named one is made when the number of rounds is known."""
    if raw in ("incremental", "early"):
        return str(raw)
    return Injection.parse(raw)


def _describe_injection(injection: str | Injection) -> object:
    return injection.describe() if isinstance(injection, Injection) else injection


# Fields that all protocols share that mix shares.
ROUNDS: dict[str, Any] = {
    "help": "mixing rounds",
    "option": True,
    "at_least": 1,
    "at_most": 1000,
    "remedy": "choose 1..1000, which are enough for any number of parties",
}
SCHEDULE: dict[str, Any] = {"help": "who sends to whom", "option": True, "choices": SCHEDULES}
OUT_DEGREE: dict[str, Any] = {
    "help": "to how many others each party sends in a round",
    "option": True,
    # Its range depends on the number of parties, which is known when the schedule is drawn.
    "flag": "neighbours",
}
VALUE_BITS: dict[str, Any] = {
    "help": "bits of a value on the wire: 32 for a public grid on which shares take no more, else 64",
    "option": True,
    "written": _has_short_grid,
}
GRID: dict[str, Any] = {
    "help": "step of the public grid, a power of two; 0 for none",
    "remedy": "choose a power of two, or leave it out",
    "written": _has_grid,
}
LARGEST_VALUE: dict[str, Any] = {
    "help": "with 32 bits: the largest absolute coordinate of any party's vector, for the finest grid with room for it",
    "option": True,
    "at_least": 0,
    "remedy": "give the largest absolute coordinate of any party's value",
    "written": _has_short_grid,
}


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class PushSumParameters(Configured):
    """The parameters of a push-sum protocol.

    ``sigma_star`` is the standard deviation of the independent noise, ``sigma_delta`` of the cancelled noise terms.

    ``sigma_guard`` is that of the guard: noise that is injected along with the value, in the same portions, and taken out in the
    last round. Until then it hides the value also from parties that see all that its owner sends.
    ``injection``: "incremental", "early" or any (c, Z). With ``grid``, a power of two in the units of the values, every number
    that a party holds is a multiple of it; a grid of 0 is chosen once the noise is known, and until then values are float64.
    ``noise`` that is discrete is whole as well; files of versions before that have float64 noise, and with ``value_bits`` = 32
    a grid to which injections are rounded and shares of at most 32 bits. ``value_bits`` = 32 asks for a grid on which shares
    take 32 bits; then no coordinate of a value may be larger than ``largest_value``. Certificates of executions on a grid need
    the ``dimension`` of the values.
    """

    rounds: int = parameter(**ROUNDS)
    injection: str | Injection = parameter(
        help='how values and noise are injected: early, incremental, or in a file an object with "c" and "Z"',
        option=True,
        required=False,
        read=_read_injection,
        write=_describe_injection,
    )
    sigma_star: float = parameter(help="standard deviation of the noise that stays in the result", at_least=0, remedy=DEVIATION)
    sigma_delta: float = parameter(help="standard deviation of the noise that is cancelled", at_least=0, remedy=DEVIATION)
    sigma_guard: float = parameter(
        0.0,
        help="standard deviation of the noise on the value that is cancelled in the last round",
        at_least=0,
        remedy=DEVIATION,
        written=_has_guard,
    )
    schedule: str = parameter("permutation", **SCHEDULE)
    out_degree: int = parameter(1, **OUT_DEGREE)
    noise: NoiseNumbers | None = parameter(
        None,
        help=NOISE_HELP,
        option=True,
        choices=WITHOUT_LAPLACE,
        written=_has_kind,
    )
    value_bits: int = parameter(64, **VALUE_BITS)
    grid: float = parameter(0.0, **GRID)
    largest_value: float = parameter(0.0, **LARGEST_VALUE)
    dimension: int | None = parameter(
        None, help="coordinates of a value", at_least=1, remedy="choose 1 or more", written=_states_dimension
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        check_fixed_point(self.value_bits, self.grid, self.largest_value, self.noise == NoiseNumbers.DISCRETE)
        if isinstance(self.injection, str) and self.injection not in ("incremental", "early"):
            raise InputError(
                f'injection {self.injection!r} is unknown. Use "incremental", "early" or an object with "c" and "Z".'
            )
        if self.rounds is not OPEN:
            # Read at once, so that a wrong injection is refused here.
            self.injections  # noqa: B018
            if self.whole:
                self.require_whole()

    @classmethod
    def read(cls, raw: Mapping[str, Any]) -> Self:
        injection, rounds = raw.get("injection"), raw.get("rounds")
        round_count = rounds if isinstance(rounds, int) and not isinstance(rounds, bool) else 0
        if isinstance(injection, Mapping) and isinstance(injection.get("c"), list) and round_count >= 1:
            # Checked first: where c and Z do not fit together, the number of rounds decides which of them is wrong.
            _check_portions((len(injection["c"]),), round_count)
        return super().read(raw)

    @cached_property
    def injections(self) -> Injection:
        """The injection of every round. Raises :class:`InputError` where it does not fit the number of rounds."""
        injection = given_value(self.injection, "incremental")
        if isinstance(injection, str):
            return Injection.named(injection, self.rounds)
        _check_portions(injection.portion.shape, self.rounds)
        chosen: Injection = injection
        return chosen

    @property
    def whole(self) -> bool:
        """Are values and noise whole numbers of steps?"""
        return bool(self.grid) and self.noise == NoiseNumbers.DISCRETE

    @property
    def portions(self) -> int:
        """The number of steps that values, and noise that is injected in the same portions, are multiples of."""
        return self.injections.portions if self.whole else 1

    def require_whole(self) -> None:
        """Raises :class:`InputError` for an injection with which whole numbers prove nothing."""
        if not self.injections.portions:
            raise InputError(
                "injection is not a whole (c, Z) of determinant 1 or -1, which discrete noise needs. Choose early or "
                "incremental, or noise = insecure-float64."
            )

    def numbers(self) -> Numbers:
        """What values and noise are, for the machines and for the population program alike."""
        return whole_numbers(self.grid, self.portions) if self.whole else rounded_numbers(self.grid)

    def terms(self, count: int, *, last: bool) -> Terms:
        """The noise that a party injects after ``count`` injections; in the ``last`` round it takes out all that it added.

        The guard is term :data:`GUARD_TERM`, where there is one.
        """
        injection = self.injections
        terms = injection.cancellations[count] if last else injection.rows[count]
        if not self.sigma_guard:
            return terms
        guard = -float(injection.portion_before[count]) if last else float(injection.portion[count])
        return ((GUARD_TERM, guard), *terms) if guard else terms
