"""What a first look proposed, as bounds of the columns of the study that comes after it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from pydantic import BaseModel, ConfigDict

from quietmean.core.codec import digest
from quietmean.core.errors import InputError
from quietmean.core.file_kinds import FileKind, read_json
from quietmean.core.readable import chained, count_of, delta_shown, epsilon_shown, fixed, phrase
from quietmean.privacy.charge import Charge
from quietmean.privacy.composition import compose_mu, epsilon_within, mu_of_budget
from quietmean.statistics.columns import INDICATOR, Column
from quietmean.statistics.kinds.first_look import CUT, HIGH, LOW, FirstLook
from quietmean.statistics.questions import named_in, read_questions
from quietmean.statistics.registry import read_text

# A look takes this part of mu^2 of the budget that it shares with the study after it, and epsilon of both where nobody says it.
_PART, _TOGETHER = 0.1, 1.0
# Steps of an epsilon that is derived, which people read and type.
_STEPS = 100


def epsilon_of_look(delta: float, together: float = _TOGETHER) -> float:
    """The epsilon of a look that leaves nine tenths of the budget to the study after it; rounded down to two decimals.

    ``together``: epsilon of both, at the same ``delta``.
    """
    return _typed(math.sqrt(_PART) * mu_of_budget(together, delta), delta)


def _typed(mu: float, delta: float) -> float:
    epsilon = epsilon_within(mu, delta)
    return math.floor(epsilon * _STEPS + 1e-9) / _STEPS or epsilon


def only_looks(statistics: Sequence[Mapping[str, Any]]) -> bool:
    """Whether a study asks for bounds alone."""
    return bool(statistics) and all(statistic.get("kind") == FirstLook.name for statistic in statistics)


def asks_for_bounds(ask: Sequence[str | Mapping[str, Any]]) -> bool:
    """Whether questions, as texts or as entries of a study file, ask for bounds alone; not where one cannot be read."""
    with suppress(InputError):
        return only_looks(read_questions(ask)[1])
    return False


@dataclass(frozen=True)
class LookBudget:
    """What a look used of a budget, (``epsilon``, ``delta``), and what it leaves to the study after it.

    ``times``: how many times the mu^2 of Gaussian noise.
    """

    epsilon: float
    delta: float
    times: float = 1.0

    @classmethod
    def of_result(cls, result: Mapping[str, Any]) -> Self | None:
        """Read that of a result; None where nothing bounds it."""
        epsilon, delta = result.get("epsilon_a_priori") or math.inf, float(result.get("delta", 0.0))
        if not (math.isfinite(epsilon) and epsilon > 0 and 0 < delta < 1):
            return None
        return cls(float(epsilon), delta, float(result.get("over_gaussian") or 1.0))

    @property
    def _mu(self) -> float:
        return math.sqrt(self.times) * mu_of_budget(self.epsilon, self.delta)

    @property
    def after(self) -> float:
        """The epsilon of a study with which the look is a tenth of mu^2 of both; rounded down to two decimals."""
        return _typed(math.sqrt(1 / _PART - 1) * self._mu, self.delta)

    def together(self, after: float) -> float:
        """The epsilon of the look and of a study of epsilon ``after``, at the look's delta."""
        return Charge(compose_mu((self._mu, mu_of_budget(after, self.delta)))).epsilon(self.delta)

    @property
    def left(self) -> str:
        """What a look's screen says."""
        after = self.after
        both, used = epsilon_shown(self.together(after)), epsilon_shown(self.epsilon)
        return f"This look used epsilon {used}. It suits a study of epsilon {epsilon_shown(after)}. Both together cost {both}."

    def beside(self, after: float) -> str:
        """What the screen of a study of epsilon ``after`` says."""
        part = 100 * (self._mu / compose_mu((self._mu, mu_of_budget(after, self.delta)))) ** 2
        both = f"epsilon {epsilon_shown(self.together(after))} (delta {delta_shown(self.delta)})"
        return f"{both} with the look, {fixed(part, 0)} % of the budget"


class LookedAt(BaseModel):
    """Where the bounds of a study come from: the ``digest`` of what a first look proposed, and the columns that were ``edited``.

    The coordinator declares edited bounds, as all others of a study without a look. ``cut``: columns beyond whose bounds values
    may lie that move a mean, as the look said.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    digest: str
    edited: tuple[str, ...] = ()
    cut: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """What parties read of it."""
        proposed = phrase("proposed by a first look ({digest})", digest=self.digest[:8])
        by_hand = phrase("edited by hand: {columns}", columns=", ".join(self.edited)) if self.edited else ""
        cut = phrase("may cut values: {columns}", columns=", ".join(self.cut)) if self.cut else ""
        return chained((proposed, by_hand, cut))


@dataclass(frozen=True)
class ProposedBounds:
    """The bounds that a first look proposes, as columns of a study by name, and the columns of which it could tell none.

    ``budget``: what the look used, where that is bounded. ``cut``: columns beyond whose bounds values may lie that move a mean.
    """

    columns: Mapping[str, Mapping[str, Any]]
    not_known: tuple[str, ...]
    budget: LookBudget | None = None
    cut: tuple[str, ...] = ()

    @classmethod
    def load(cls, receipt: Path) -> Self:
        """Read a receipt's. Raises :class:`InputError` for a receipt of another study."""
        found = cls.of_result(read_json(receipt, FileKind.RECEIPT).get("result") or {})
        if not (found.columns or found.not_known):
            raise InputError(f'{receipt} has no first look. Ask for one: quietmean study new "first-look(age)".')
        return found

    @classmethod
    def of_result(cls, result: Mapping[str, Any]) -> Self:
        """Read those of a result in plain data, which may have none."""
        described = {str(column.get("name")): column for column in result.get("columns", []) if isinstance(column, Mapping)}
        columns: dict[str, Mapping[str, Any]] = {}
        not_known, cut = [], []
        for answer in result.get("statistics", []):
            if answer.get("kind") != FirstLook.name:
                continue
            name = str(read_text(answer["name"])["column"])
            low, high = (answer["estimate"].get(end) for end in (LOW, HIGH))
            if low is None or high is None or not low < high:
                not_known.append(name)
                continue
            since = {key: value for key, value in described.get(name, {}).items() if key in ("since", "whole", "missing_codes")}
            columns[name] = {"name": name, "low": low, "high": high, "missing": INDICATOR, **since}
            cut += [name] * (CUT in answer.get("flags", ()))
        return cls(columns, tuple(not_known), LookBudget.of_result(result), tuple(cut))

    @property
    def digest(self) -> str:
        """The digest of all that is proposed, hexadecimal."""
        columns = {name: dict(each) for name, each in self.columns.items()}
        return digest({"format": "quietmean-first-look-1", "columns": columns, "cut": list(self.cut)})

    def fields(self, stated: Mapping[str, Any], ask: Sequence[str]) -> dict[str, Any]:
        """The fields of the study after it that asks this, beside what is ``stated``: its columns, and what the look leaves.

        Raises :class:`InputError` where a question needs a column of which nothing is known.
        """
        columns, looked = self.chosen(ask, named_in(ask))
        fields = {"column": [*stated.get("column", ()), *columns], "first_look": looked.model_dump()}
        if self.budget is None or {"epsilon", "nats"} & stated.keys():
            return fields
        return {"delta": self.budget.delta, **stated, **fields, "epsilon": self.budget.after}

    def chosen(self, ask: Sequence[str], names: set[str]) -> tuple[list[Mapping[str, Any]], LookedAt]:
        """The proposed columns that questions name and do not declare themselves, and what the study says of it.

        Raises :class:`InputError` where a question needs a column of which nothing is known.
        """
        asked = [name for name in self.not_known if name in names]
        declared = _declared(ask)
        if unknown := [name for name in asked if name not in declared]:
            columns = count_of(len(unknown), "column")
            raise InputError(
                f"the first look could not tell bounds of {columns}: {', '.join(unknown)}. Write {unknown[0]} in LOW..HIGH, or "
                "leave it out."
            )
        used = [column for name, column in self.columns.items() if name in names and name not in declared]
        edited = tuple(name for name in self.columns if name in names and name in declared)
        # Who edits bounds has to widen them.
        cut = tuple(name for name in self.cut if name in names and not _is_wider(declared.get(name), self.columns[name]))
        return used, LookedAt(digest=self.digest, edited=edited, cut=cut)


def _declared(ask: Sequence[str]) -> dict[str, Mapping[str, Any]]:
    """The columns that questions declare themselves, by name."""
    # Beside a column that is declared, one that nothing is said of is not missed yet.
    nobodys = {"name": "", "boolean": True}
    return {str(column["name"]): column for column in read_questions(ask, [nobodys])[0] if column["name"]}


def _is_wider(declared: Mapping[str, Any] | None, proposed: Mapping[str, Any]) -> bool:
    """Whether a column is declared with all that was proposed and more, or is none of numbers."""
    if declared is None:
        return False
    own, bounds = Column.model_validate(declared), Column.model_validate(proposed)
    if not own.numeric or own.since != bounds.since:
        return not own.numeric
    return own.low <= bounds.low and bounds.high <= own.high and own.width > bounds.width
