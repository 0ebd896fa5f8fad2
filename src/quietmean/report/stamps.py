"""What a receipt says of how a study came about: the same on every page of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Self

from quietmean.core.domain import Links
from quietmean.core.origin import study_and_party
from quietmean.core.query_statement import QueryStatement
from quietmean.report import words

_DIGESTS = ("plan", "roster", "session")


@dataclass(frozen=True)
class Stamps:
    """``finished``: when, as text; ``version``: of the software; ``digests``: of what, and SHA-256; what is not stated is empty.

    ``keys``: what protects what the parties sent each other. ``query``: what the owner of the data declared of the one over them.
    ``absent``: parties without whom the study began, who are none of its parties. ``whose``: of which party of which study a
    page is, see :func:`study_and_party`.
    """

    finished: str = ""
    version: str = ""
    digests: tuple[tuple[str, str], ...] = ()
    absent: tuple[str, ...] = ()
    whose: str = ""
    keys: str = ""
    query: QueryStatement = field(default_factory=QueryStatement)

    @classmethod
    def of_origin(cls, origin: Mapping[str, Any]) -> Self:
        """From the origin of a receipt. Entries of another form count as not stated."""
        sealed, start = (origin.get(name) for name in ("sealed", "start"))
        digests = {name: origin.get(name) for name in _DIGESTS}
        if isinstance(sealed, Mapping):
            digests = {"sealed study": sealed.get("digest"), **digests}
        absent = start.get("not_in_at_start") if isinstance(start, Mapping) else None
        return cls(
            finished=str(origin.get("finished") or ""),
            version=str(origin.get("quietmean") or ""),
            digests=tuple((name, digest) for name, digest in digests.items() if isinstance(digest, str) and digest),
            absent=tuple(map(str, absent)) if isinstance(absent, list) else (),
            whose=study_and_party(origin),
            query=QueryStatement.of_json(origin.get("query")),
            keys=next((links.text for links in Links if links == origin.get("links")), ""),
        )

    @property
    def software(self) -> str:
        return f"quietmean {self.version}" if self.version else ""

    @property
    def rows(self) -> list[tuple[str, str]]:
        """What is stated, for a table: when, by which software, of what."""
        stamps = [
            ("Finished", words.moment(self.finished) if self.finished else ""),
            ("Software", self.software),
            ("Keys", self.keys),
        ]
        return [(name, text) for name, text in stamps if text] + [
            (f"Digest of the {name}", digest) for name, digest in self.digests
        ]
