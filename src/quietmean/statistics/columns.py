"""The columns that a study declares: bounds of numbers and dates, levels, transforms, and what counts in place of a missing
cell."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import pairwise
from typing import Annotated, Any, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ModelWrapValidatorHandler, model_validator

from quietmean.core.domain import PrivacyUnit
from quietmean.core.errors import InputError, in_sentences, named
from quietmean.core.keywords import declared_in_python
from quietmean.core.schema import nearest, require_known
from quietmean.statistics.dates import in_days
from quietmean.statistics.transforms import Transform

# The rules for missing values.
CENTRE, INDICATOR = "centre", "indicator"
RULES = (CENTRE, INDICATOR)
# How the bins of a column grow, where no edges are given: by equal widths, by equal factors, or by equal log odds.
SCALES = LINEAR, LOG, LOG_ODDS = ("linear", "log", "log-odds")
# The levels of a column that is true or false, and how cells may be written, in small letters: as people and spreadsheets in
# several languages do.
NO, YES = "no", "yes"
_NO = "no n false f 0 0.0 0,0 off nein falsch non faux falso não nao nee onwaar nej nie ei"
_YES = "yes y true t 1 1.0 1,0 on ja j wahr oui vrai sí si sì verdadero vero sim verdadeiro waar tak kyllä"
TRUTH = {NO: tuple(_NO.split(" ")), YES: tuple(_YES.split(" "))}
# The level of a cell that is empty, or holds none of the declared ones where these are all; else that of any other text.
MISSING, OTHER = "missing", "other"


# How a column is declared, in sentences.
_BOUNDS = named("bounds", "LOW", "HIGH", file="low and high")
_LEVELS = named("levels", "A", "B", file='levels = ["A", "B"]')
_BOOLEAN = named("boolean", file="boolean = true")
# The eighth powers of values, which the errors of variances need, must be finite.
LARGEST_BOUND = 1e30
# The bounds of a column of which nothing is known.
ANY_NUMBER = 1e18


def domain_alone(name: str, form: str = "LOW..HIGH") -> str:
    """What to do where nothing is said of a column, as a clause."""
    return f'Add "{name} in {form}" as {named("alone", file="a text of its own in ask")}'


# What a column lacks that may hold numbers or levels.
EITHER = "bounds or levels"


class UndeclaredColumn(InputError):
    """A statistic needs a column that nothing is said of: its ``name``, the ``known`` ones, and what it lacks.

    ``asked``: the question with all domains; ``others``: further columns that it needs, each with what it lacks; ``besides``: a
    sentence on those of its condition.
    """

    def __init__(
        self,
        name: str,
        known: tuple[str, ...],
        lacks: str = "bounds",
        asked: str = "",
        others: tuple[tuple[str, str], ...] = (),
        besides: str = "",
    ) -> None:
        self.name, self.known, self.lacks, self._asked, self._others, self._besides = name, known, lacks, asked, others, besides
        every = ((name, lacks), *others)
        either = next((each for each, without in every if without == EITHER), "")
        both = f"For numbers write {asked}, for levels {either} in {{A, B}}"
        remedy = domain_alone(name, self.form) if not asked else both if either else f"Write {asked}"
        *more, last = [f"{each}{nearest(each, known)}" for each, _ in others] or [""]
        either_way = f" Nothing is said of {', '.join(more)}{' and ' if more else ''}{last} either." if last else ""
        first = f"{name} has no {'bounds' if lacks == EITHER else lacks}{nearest(name, known)}"
        super().__init__(in_sentences(f"{first}.{either_way}", remedy, besides))

    def of_texts(self, holds_texts: Callable[[str], bool]) -> UndeclaredColumn:
        """The error where the data hold texts in some columns: those that may have numbers or levels lack levels."""
        asked, every = self._asked, []
        for name, lacks in ((self.name, self.lacks), *self._others):
            texts = holds_texts(name) and lacks == EITHER
            every.append((name, "levels" if texts else lacks))
            asked = asked.replace(f"{name} in LOW..HIGH", f"{name} in {{A, B}}") if texts else asked
        return UndeclaredColumn(self.name, self.known, every[0][1], asked, tuple(every[1:]), self._besides)

    @property
    def form(self) -> str:
        """What to write behind its name."""
        return {"levels": "{A, B}", "domain": "yes/no"}.get(self.lacks, "LOW..HIGH")

    @property
    def possible(self) -> Column:
        """A column of that form, to find out what else a question needs."""
        shapes: dict[str, dict[str, Any]] = {"levels": {"levels": ("A", "B")}, "domain": {"boolean": True}}
        return Column(name=self.name, **shapes.get(self.lacks, {"low": 1.0, "high": 2.0}))


def _pairs(raw: Any) -> Any:
    """Texts by level, as pairs, which cannot change."""
    return tuple(raw.items()) if isinstance(raw, Mapping) else raw


class Column(BaseModel):
    """A column and what is public about it: a number between bounds in its own units, one of ``levels``, or ``boolean``.

    ``since``: cells are dates, and numbers are days since that public day; the bounds of dates may be given as dates.
    ``origin`` (``from`` in a study file): the column is a public :class:`Transform` of others and stands in no file; a threshold
    is boolean, and bounds that are not declared follow from those of its columns. ``missing_codes``: cells that mean missing.
    ``missing``, of numbers: what counts in place of a cell without one. ``indicator``: nothing, and how many are present is
    estimated under the same noise. ``centre``: the middle of the bounds, counted as present; in documents that do not say, too
    (:data:`DeclaredColumn`). Of levels, missing is one more level.
    ``other``, of levels: cells that hold none of them are one more level; else they count as missing. ``finer``: texts that count
    as a level each, as those below it in a public hierarchy do.
    ``guess``: what is publicly expected, for planning only: mean and standard deviation, or the part of each level.
    How statistics that count records in bins cut a column of numbers: ``scale``, of equal width ("linear"), by equal factors
    ("log") or, for probabilities, by equal log odds ("log-odds"); ``whole``, all its values are whole numbers, and others count
    as the nearest one; ``edges``, exactly these, rising, within the bounds.
    Raises :class:`InputError` unless exactly one of the three is declared, low < high are finite, and levels are distinct.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True)

    name: str
    # Without a meaning where the column has levels.
    low: float = 0.0
    high: float = 0.0
    missing: str = INDICATOR
    levels: tuple[str, ...] = ()
    other: bool = False
    finer: Annotated[tuple[tuple[str, tuple[str, ...]], ...], BeforeValidator(_pairs)] = ()
    boolean: bool = False
    since: str = ""
    origin: str = Field(default="", alias="from")
    missing_codes: tuple[str, ...] = ()
    guess: tuple[float, ...] = ()
    scale: str = LINEAR
    whole: bool = False
    edges: tuple[float, ...] = ()

    @model_validator(mode="before")
    @classmethod
    def _of_dates_and_transforms(cls, raw: Any) -> Any:
        """Dates as days, and a threshold as boolean."""
        if not isinstance(raw, Mapping):
            return raw
        origin = raw.get("from", raw.get("origin", ""))
        if isinstance(origin, str) and origin and Transform(origin).compares:
            raw = {**raw, "boolean": True}
        return in_days(dict(raw))

    @model_validator(mode="after")
    def _check(self) -> Self:
        _require_rule(self.missing)
        # What is known of a column besides its values has a key that begins so.
        if "\0" in self.name:
            raise InputError(f"column {self.name!r} has a character 0 in its name. Rename it, in the data too.")
        bounded = {"low", "high"} & self.model_fields_set
        declared = bool(bounded) + bool(self.levels) + self.boolean
        if declared > 1 or not (declared or self.origin):
            raise InputError(
                f"column {self.name!r} must have either bounds, levels or boolean. Give {_BOUNDS}, {_LEVELS} or {_BOOLEAN}."
            )
        if len(bounded) == 1:
            (lacking,) = {"low", "high"} - bounded
            raise InputError(f"column {self.name!r} has no {lacking}. Give both bounds, low and high.")
        if bounded and self.since and self.low >= self.high:
            raise InputError(
                f"the first day of column {self.name!r} is not before the last. Give "
                f"{named('dates', 'FIRST', 'LAST', file='low and high')}."
            )
        if bounded and not (math.isfinite(self.low) and math.isfinite(self.high) and self.low < self.high):
            raise InputError(
                f"bounds {self.low:g} {self.high:g} of column {self.name!r} are not two finite numbers in rising order. "
                f"Give {_BOUNDS}."
            )
        if max(abs(self.low), abs(self.high)) > LARGEST_BOUND:
            raise InputError(
                f"bounds {self.low:g} {self.high:g} are of a size that no study has. Give {_BOUNDS} of up to "
                f"{LARGEST_BOUND:g}, in a larger unit perhaps."
            )
        self._check_kinds(bool(bounded))
        self._check_bins()
        if self.levels:
            self._check_levels()
        if self.guess:
            self._check_guess()
        return self

    @model_validator(mode="wrap")
    @classmethod
    def _said(cls, raw: Any, handler: ModelWrapValidatorHandler[Self]) -> Self:
        """Around both others: their errors name what the front end has."""
        with declared_in_python():
            return handler(raw)

    def _check_kinds(self, bounded: bool) -> None:
        """Raises :class:`InputError` for declarations that exclude each other."""
        if self.since and not (bounded and not self.origin):
            raise InputError(f"column {self.name!r} of dates needs bounds and no transform. Give its first and its last day.")
        if (self.other or self.finer) and not self.levels:
            raise InputError(
                f"column {self.name!r} has no levels, so no text is another one. Leave {'other' if self.other else 'finer'} out."
            )
        if self.origin and self.boolean and not Transform(self.origin).compares:
            raise InputError(f"column {self.name!r} is yes or no, but its formula compares nothing. Write for example bmi >= 30.")
        if self.origin and (self.levels or self.missing_codes):
            setting = "levels" if self.levels else "missing codes"
            raise InputError(
                f"column {self.name!r} is a transform and has no {setting}. Declare them for the columns it is made of."
            )

    def _check_bins(self) -> None:
        """Raises :class:`InputError` for bins that are impossible."""
        require_known("scale", self.scale, SCALES)
        stated = [
            name for name, value in (("scale", self.scale != LINEAR), ("whole", self.whole), ("edges", self.edges)) if value
        ]
        if stated and not self.numeric:
            raise InputError(f"column {self.name!r} has levels and no bins. Leave {stated[0]} out.")
        if len(stated) > 1:
            raise InputError(f"column {self.name!r} has {' and '.join(stated)}. Keep the one that says how it is to be cut.")
        if self.edges and (len(self.edges) < 2 or not all(a < b for a, b in pairwise(self.edges))):
            raise InputError(f"the edges of column {self.name!r} are not two or more rising numbers. Sort them.")
        if self.width:
            _require_bins_within(self)

    def _check_guess(self) -> None:
        """Raises :class:`InputError` for a guess that is impossible within the bounds or the levels."""
        guess = self.guess
        if self.numeric:
            largest_sd = self.width / 2
            if len(guess) != 2 or not (self.low <= guess[0] <= self.high and 0 < guess[1] <= largest_sd):
                raise InputError(
                    f"the guess for column {self.name!r} must be its mean, between the bounds, and its standard deviation, at "
                    f"most {largest_sd:g}. Write guess = [mean, sd]."
                )
        elif len(guess) != len(self.categories) or min(guess) < 0 or abs(math.fsum(guess) - 1) > 1e-6:
            raise InputError(
                f"the guess for column {self.name!r} does not fit its levels. Give a part for each of them, 1 together."
            )

    def _check_levels(self) -> None:
        if self.other and OTHER in self.levels:
            raise InputError(f"column {self.name!r} has a level {OTHER!r} and counts other texts so. Leave one of them out.")
        below = [text for _, texts in self.finer for text in texts]
        for level in (level for level, _ in self.finer if level not in self.levels):
            raise InputError(f"column {self.name!r} has texts that count as {level!r}, which is not a level{self._near(level)}.")
        for text in sorted({text for text in below if below.count(text) > 1 or text in (*self.levels, *self.missing_codes)}):
            raise InputError(f"column {self.name!r} has {text!r} twice among its levels and what counts as one. Name it once.")
        if len(self.categories) < 2 or len(set(self.levels)) < len(self.levels):
            raise InputError(f"column {self.name!r} needs two or more different levels. Name each value it can have once.")
        if MISSING in self.levels:
            raise InputError(
                f"column {self.name!r} declares the level {MISSING!r}, which empty cells have already. Leave it out."
            )

    def _near(self, level: str) -> str:
        return nearest(level, self.levels) or f". Choose one of {', '.join(self.levels)}"

    @property
    def numeric(self) -> bool:
        """Has it bounds?"""
        return not (self.levels or self.boolean)

    def require_boolean(self, role: str) -> Self:
        """Require a column that is yes or no, for what ``role`` says that it does or is."""
        if self.boolean:
            return self
        compared = f", or compare it: event = {self.name} >= 1" if self.numeric else ""
        raise InputError(f"column {self.name!r} {role}. Write {self.name} in yes/no{compared}.")

    @property
    def fills_in(self) -> bool:
        """Do missing cells of numbers count as the middle of the bounds?"""
        return self.numeric and self.missing == CENTRE

    @property
    def categories(self) -> tuple[str, ...]:
        """The levels of the column without ``missing``; none of a column of numbers."""
        return (NO, YES) if self.boolean else (*self.levels, OTHER) if self.other else self.levels

    @property
    def may_be_any(self) -> bool:
        """Is nothing known of where its numbers lie?"""
        return (self.low, self.high) == (-ANY_NUMBER, ANY_NUMBER)

    @property
    def described_levels(self) -> tuple[str, ...]:
        """The levels, each with what counts as it, and whether any other text does."""
        finer = {level: f" with {', '.join(texts)}" for level, texts in self.finer}
        return (*(f"{level}{finer.get(level, '')}" for level in self.levels), *(("any other text",) if self.other else ()))

    @property
    def width(self) -> float:
        return self.high - self.low

    @property
    def centre(self) -> float:
        return self.low + self.width / 2

    def describe(self) -> dict[str, Any]:
        """Plain JSON data, as in a study file."""
        more: dict[str, Any] = {"from": self.origin} if self.origin else {}
        more |= {"missing_codes": list(self.missing_codes)} if self.missing_codes else {}
        more |= {"guess": list(self.guess)} if self.guess else {}
        more |= {} if self.scale == LINEAR else {"scale": self.scale}
        more |= {"whole": True} if self.whole else {}
        more |= {"edges": list(self.edges)} if self.edges else {}
        more |= {"other": True} if self.other else {}
        more |= {"finer": {level: list(texts) for level, texts in self.finer}} if self.finer else {}
        if self.numeric:
            # Documents without a rule mean centre, for ever: their digests and encodings stay the same.
            rule = {} if self.missing == CENTRE else {"missing": self.missing}
            since = {"since": self.since} if self.since else {}
            bounds = {"low": self.low, "high": self.high} if {"low", "high"} <= self.model_fields_set else {}
            return {"name": self.name, **bounds, **since, **rule, **more}
        return {"name": self.name, **({"boolean": True} if self.boolean else {"levels": list(self.levels)}), **more}


def _as_documents_say(raw: Any) -> Any:
    return {"missing": CENTRE, **raw} if isinstance(raw, Mapping) else raw


# A column from a study or policy file, where no rule for missing cells means centre: what was agreed on, and sealed, before there
# was another rule keeps its meaning. A column that is made in Python, or by a command, has the rule of :class:`Column`.
DeclaredColumn = Annotated[Column, BeforeValidator(_as_documents_say)]


def _require_bins_within(column: Column) -> None:
    """Raises :class:`InputError` for bins that do not go with the bounds; those of a transform may follow from its columns."""
    name, low, high = column.name, column.low, column.high
    if column.edges and not (low <= column.edges[0] and column.edges[-1] <= high):
        raise InputError(
            f"the edges of column {name!r} go from {column.edges[0]:g} to {column.edges[-1]:g}, beyond its bounds {low:g} to "
            f"{high:g}. Stay between them."
        )
    if column.scale == LOG and high <= 0:
        raise InputError(f"column {name!r} has no numbers above 0, which scale log needs. Leave scale out.")
    if column.scale == LOG_ODDS and not (low >= 0 and high <= 1):
        raise InputError(f"column {name!r} has bounds beyond 0 and 1, but scale log-odds is for probabilities. Leave it out.")
    if column.whole and math.floor(high) - math.ceil(low) < 1:
        raise InputError(f"column {name!r} has fewer than two whole numbers between its bounds. Leave whole out.")


def _require_rule(text: str) -> None:
    """Raises :class:`InputError` for a text that is no rule for missing values."""
    if text in ("drop", "refuse"):
        raise InputError(
            f"missing {text!r} would publish how many records are incomplete, or whether one is. Choose centre, or indicator for "
            "the mean of the values that are present."
        )
    require_known("missing", text, RULES)


def _all_bounded(declared: tuple[Column, ...]) -> tuple[Column, ...]:
    by_name: dict[str, Column] = {}
    for column in declared:
        by_name[column.name] = _bounded(column, by_name)
    if not by_name:
        raise InputError("no column is named. Declare at least one.")
    if len(by_name) != len(declared):
        raise InputError(f"a column is named twice in {', '.join(column.name for column in declared)}. Name each once.")
    return tuple(by_name.values())


class Columns:
    """The declared columns in their order, and by name, and the ``unit`` that the study protects.

    Transforms have the bounds that follow from their columns. Raises :class:`InputError` if there are none or two of one name,
    and for a transform of a column that is not declared before it.
    """

    def __init__(self, columns: Iterable[Column], unit: PrivacyUnit = PrivacyUnit.RECORD) -> None:
        declared = tuple(columns)
        with declared_in_python():
            self._all = _all_bounded(declared)
        self._by_name = {column.name: column for column in self._all}
        self.unit = unit

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self._by_name)

    def __iter__(self) -> Iterator[Column]:
        return iter(self._all)

    def __len__(self) -> int:
        return len(self._all)

    def __getitem__(self, name: str) -> Column:
        """The column of a name. Raises :class:`InputError` for a column that is not declared, with the nearest one that is."""
        return self._of(name, EITHER)

    def _of(self, name: str, lacks: str) -> Column:
        if name not in self._by_name:
            with declared_in_python():
                raise UndeclaredColumn(name, self.names, lacks)
        return self._by_name[name]

    def number(self, name: str) -> Column:
        """A column with bounds. Raises :class:`InputError` for any other."""
        column = self._of(name, "bounds")
        if not column.numeric:
            raise InputError(f"column {name!r} has levels and no bounds. Choose a column of numbers, or proportion({name}).")
        return column

    def category(self, name: str) -> Column:
        """A column with levels, or a boolean one. Raises :class:`InputError` for any other."""
        column = self._of(name, "levels")
        if column.numeric:
            raise InputError(f"column {name!r} has bounds and no levels. Choose one declared with levels or boolean.")
        return column

    def boolean(self, name: str, role: str) -> Column:
        """A boolean column, for what ``role`` says that it does or is. Raises :class:`InputError` for any other."""
        return self._of(name, "domain").require_boolean(role)


def _bounded(column: Column, before: Mapping[str, Column]) -> Column:
    """A transform with the bounds that follow from its columns, where none are declared; any other column as it is."""
    if not column.origin:
        return column
    transform = Transform(column.origin)
    for name in transform.sources:
        if name not in before:
            where = f"beside {', '.join(before)}" if before else "before it"
            raise InputError(
                f"column {column.name!r} is made of {name!r}, which is not declared{nearest(name, before)}. Declare it {where}."
            )
        if before[name].levels:
            raise InputError(
                f"column {column.name!r} is made of {name!r}, which has levels. Choose columns of numbers or boolean ones."
            )
    days = {before[name].since for name in transform.sources} - {""}
    if len(days) > 1:
        raise InputError(f"column {column.name!r} is made of dates since different days. Give all of them the same day since.")
    if column.boolean or column.width:
        return column
    ranges = {name: (before[name].low, before[name].high) if before[name].numeric else (0.0, 1.0) for name in transform.sources}
    low, high = transform.range(ranges)
    bounded = column.model_copy(update={"low": low, "high": high})
    _require_bins_within(bounded)
    return bounded
