"""Flags and tests of answers, and what all answers have in common: their level, and the name of a single term."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

from quietmean.core.readable import outcome_text, percent_text, some_of

# The only term of a statistic that is one number.
WHOLE = ""
LEVEL = 0.95
# The two-sided quantile of the normal distribution at that level.
Z = 1.959963984540054
# The most subjects of a flag that are named.
_MOST_NAMED = 3
# Codes of flags: not all records of an answer count alike; nothing that was released tells a term, whatever the noise.
IN_PART, NOT_TOLD = "in-part", "not-told"


@dataclass(frozen=True)
class Flag:
    """A warning about some result: a short ``code`` for programs and a ``message`` in words.

    ``terms``: those of the answer that it is about; all of them where there are none. ``upper``: where noise hides a count, the
    number that the count is below. ``about``: what stands before a colon in the message of a flag that others may share.
    """

    code: str
    message: str
    terms: tuple[str, ...] = ()
    upper: float | None = None
    about: str = ""

    @classmethod
    def shared(cls, code: str, about: str, text: str, terms: tuple[str, ...] = ()) -> Self:
        """One that may be raised for many terms, levels or groups: :func:`merged` makes one of them."""
        return cls(code, f"{about}: {text}", terms, about=about)

    @property
    def text(self) -> str:
        """The message without what it is about."""
        return self.message.removeprefix(f"{self.about}: ") if self.about else self.message

    def to_json(self) -> dict[str, Any]:
        return {"code": self.code, "message": self.message, "terms": list(self.terms), "upper": self.upper}


def merged(flags: Iterable[Flag]) -> tuple[Flag, ...]:
    """One flag for each code and text, about all that they are about, and of all their terms, in the place of the first.

    Flags with an upper end of their own stay apart.
    """
    alike: dict[tuple[str, str, int], list[Flag]] = {}
    for index, flag in enumerate(flags):
        apart = index if flag.upper is not None or not flag.about else -1
        alike.setdefault((flag.code, flag.text, apart), []).append(flag)
    return tuple(_one(group) for group in alike.values())


def _one(flags: list[Flag]) -> Flag:
    if len(flags) == 1:
        return flags[0]
    names = list(dict.fromkeys(flag.about for flag in flags))
    about = some_of(names, _MOST_NAMED)
    # A flag without terms is about all of them.
    terms = [term for flag in flags for term in flag.terms] if all(flag.terms for flag in flags) else []
    return Flag.shared(flags[0].code, about, flags[0].text, tuple(dict.fromkeys(terms)))


def in_part(parts: Collection[float], parties: int) -> Flag:
    """A flag of an answer in which some of the ``parties`` count in part; ``parts``: how far each of these counts, in 0..1."""
    lowest, highest = (percent_text(part) for part in (min(parts), max(parts)))
    by = highest if lowest == highest else f"{lowest.removesuffix(' %')} to {highest}"
    counted_parties = f"{len(parts)} of {parties} parties" + (" counts" if len(parts) == 1 else " count")
    text = (
        f"not all records count alike, as a party left in mid-run: {counted_parties} by {by}; no interval says how far that is "
        "from whole records: where it matters, ask once more"
    )
    return Flag(IN_PART, text)


@dataclass(frozen=True)
class HypothesisTest:
    """The test of a hypothesis: its ``statistic``, degrees of freedom, and p-value, with the noise counted in.

    ``method``: its name in the literature, such as "Welch's t test"; ``symbol``: what its statistic is called, such as t;
    ``about``: the column or term that it is of, where an answer has several.
    """

    statistic: float
    degrees: tuple[float, ...]
    p_value: float
    method: str = ""
    symbol: str = ""
    about: str = ""

    def sentence(self, name: str) -> str:
        """The test in one line: "age: Welch's t test: t = 0.22, df 4,112, p = 0.830"; ``name``: of the test in its answer."""
        shown = outcome_text(self.method or name, self.symbol, self.statistic, self.degrees, self.p_value)
        return f"{self.about}: {shown}" if self.about else shown

    @classmethod
    def of_json(cls, raw: Mapping[str, Any]) -> Self:
        """Read what :meth:`to_json` gives, and a receipt holds."""
        return cls(
            number_of(raw["statistic"]),
            tuple(number_of(degree) for degree in raw["df"]),
            number_of(raw["p_value"]),
            *(str(raw[name]) for name in ("method", "symbol", "about")),
        )

    def to_json(self) -> dict[str, Any]:
        return {
            "method": self.method,
            "symbol": self.symbol,
            "about": self.about,
            "statistic": known(self.statistic),
            "df": [known(degree) for degree in self.degrees],
            "p_value": known(self.p_value),
        }


def known(value: float | Sequence[float]) -> Any:
    """A number for JSON, or null for NaN; of a pair, null if an end is NaN."""
    if isinstance(value, int | float):
        return None if math.isnan(value) else float(value)
    return None if any(math.isnan(number) for number in value) else [float(number) for number in value]


def number_of(raw: Any) -> float:
    """A number from JSON: NaN for null, infinite for "inf"."""
    return math.nan if raw is None else float(raw)
