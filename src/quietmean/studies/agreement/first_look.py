"""What a first look proposed, as bounds of the columns of the study that comes after it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from pydantic import BaseModel, ConfigDict

from quietmean.core.codec import digest
from quietmean.core.errors import InputError
from quietmean.core.file_kinds import FileKind, read_json
from quietmean.core.readable import chained, count_of, phrase
from quietmean.statistics.columns import INDICATOR
from quietmean.statistics.kinds.first_look import HIGH, LOW, FirstLook
from quietmean.statistics.questions import read_questions
from quietmean.statistics.registry import read_text


class LookedAt(BaseModel):
    """Where the bounds of a study come from: the ``digest`` of what a first look proposed, and the columns that were ``edited``.

    The coordinator declares edited bounds, as all others of a study without a look.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    digest: str
    edited: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """What parties read of it."""
        proposed = phrase("proposed by a first look ({digest})", digest=self.digest[:8])
        by_hand = phrase("edited by hand: {columns}", columns=", ".join(self.edited)) if self.edited else ""
        return chained((proposed, by_hand))


@dataclass(frozen=True)
class ProposedBounds:
    """The bounds that a first look proposes, as columns of a study by name, and the columns of which it could tell none."""

    columns: Mapping[str, Mapping[str, Any]]
    not_known: tuple[str, ...]

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
        not_known = []
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
        return cls(columns, tuple(not_known))

    @property
    def digest(self) -> str:
        """The digest of all that is proposed, hexadecimal."""
        return digest({"format": "quietmean-first-look-1", "columns": {name: dict(each) for name, each in self.columns.items()}})

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
        return used, LookedAt(digest=self.digest, edited=edited)


def _declared(ask: Sequence[str]) -> set[str]:
    """The columns that questions declare themselves."""
    # Beside a column that is declared, one that nothing is said of is not missed yet.
    nobodys = {"name": "", "boolean": True}
    return {str(column["name"]) for column in read_questions(ask, [nobodys])[0]} - {""}
