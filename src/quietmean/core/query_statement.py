"""What the owner of a site's data declares of the query over them: it stands in contract, receipt, pages and assumptions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from quietmean.core.assumptions import Assumption, Key


@dataclass(frozen=True)
class QueryStatement:
    """``mixes_rows``: that rows may decide about others. ``codes``: SHA-256 of each table that is public, hexadecimal.

    No name of a table or column is in it.
    """

    mixes_rows: bool = False
    codes: tuple[str, ...] = ()

    @classmethod
    def of_json(cls, raw: object) -> Self:
        """From what a receipt says; anything of another form counts as not stated."""
        said: Mapping[str, Any] = raw if isinstance(raw, Mapping) else {}
        codes = said.get("codes")
        texts = tuple(sorted(one for one in codes if isinstance(one, str))) if isinstance(codes, list) else ()
        return cls(said.get("mixes_rows") is True, texts)

    def to_json(self) -> dict[str, Any]:
        """Under the name ``query``; nothing where nothing is declared."""
        return {"query": {"mixes_rows": self.mixes_rows, "codes": list(self.codes)}} if self.mixes_rows or self.codes else {}

    @property
    def assumptions(self) -> tuple[Assumption, ...]:
        mixed = Assumption(
            Key.QUERY,
            "The owner declares that a query lets rows decide about other rows. The figures protect rows that the query returns, "
            "and not the records from which it computes them.",
        )
        public = Assumption(
            Key.CODES,
            f"Tables of codes that the query joins are public: nothing protects them. Their digests are {', '.join(self.codes)}.",
        )
        return (*([mixed] if self.mixes_rows else []), *([public] if self.codes else []))
