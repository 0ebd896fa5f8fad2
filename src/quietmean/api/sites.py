"""One party between machines for whatever is fitted: the roster, its key, and what its site chooses for itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import Any, Self, Unpack

from numpy.typing import NDArray

from quietmean.api import rooms
from quietmean.api.joining import SiteKeywords, identity_at, joined
from quietmean.api.sessions import session
from quietmean.core.arrays import Array
from quietmean.core.blocking import blocking
from quietmean.core.errors import InputError
from quietmean.core.keywords import python_call, warn_caller
from quietmean.core.party import PartyId, Vector
from quietmean.core.site_options import SiteOptions
from quietmean.planning.automatic import Choice
from quietmean.planning.plan import Plan


class Site:
    """This party's part in what is fitted between machines: give it as ``site`` to an estimator or to ``ModelAveraging``.

    ``roster``: the file with all parties, or what a convener sealed of ``save_study``, with them; ``key``: that of this one.
    ``name`` is agreed on, too: fits of the same estimator with the same parameters need different ones. ``folder``: where this
    party keeps its stores, receipts and what is released after each round. ``round_timeout``, ``start_timeout``: in seconds, the
    same at all sites. Name and time-outs of a sealed fit are in its file. ``options``: those of :func:`quietmean.join` without
    ``folder`` and ``once``. Raises :class:`InputError` for a roster or a seal that cannot be read.
    """

    @python_call
    def __init__(
        self,
        roster: str | Path,
        key: str | Path = "quietmean.key",
        *,
        name: str = "",
        folder: str | Path = ".",
        round_timeout: float = 10.0,
        start_timeout: float = 60.0,
        **options: Unpack[SiteKeywords],
    ) -> None:
        self.roster, self.key, self.name, self.folder = Path(roster), Path(key), name, Path(folder).absolute()
        self._sealed = rooms.sealed.Sealed.load(self.roster) if rooms.signed.is_signed_document(self.roster) else None
        self._members = rooms.node.Roster.load(self.roster) if self._sealed is None else self._sealed.roster
        self._times = {"round_timeout": float(round_timeout), "start_timeout": float(start_timeout)}
        self._options: SiteKeywords = options

    def __repr__(self) -> str:
        named = f", name={self.name!r}" if self.name else ""
        return f"Site({str(self.roster)!r}, {str(self.key)!r}{named})"

    @property
    def members(self) -> int:
        """How many parties the roster has."""
        return len(self._members)

    def agreed(self, kind: str) -> Mapping[str, Any]:
        """Name and time-outs of a fit of this ``kind``, by the fields of a study file or a session file."""
        if self._sealed is not None:
            sealed = self._sealed.terms
            return {"name": sealed.name, "round_timeout": sealed.round_timeout, "start_timeout": sealed.start_timeout}
        return {"name": f"{kind}-{self.name}" if self.name else kind, **self._times}

    @cached_property
    def _place(self) -> PartyId:
        return self._members.find(self._unlock(self.key))

    def here(self, parties: int) -> Sequence[PartyId]:
        """The place of this party."""
        return (self._place,)

    def contract(
        self, study: rooms.study.StudyTerms | Mapping[str, Any]
    ) -> rooms.party.Contract | rooms.session_contract.SessionContract:
        """What this party says yes to with a session or a study; nothing is sent. Estimators have it by ``contract``."""
        if isinstance(study, rooms.study.StudyTerms):
            return self._files(study).study_contract()
        return self._session(study).contract

    def rounds(self, fields: Mapping[str, Any], parties: int, records: int | None = None, **more: Any) -> OneParty:
        """This party's rounds of a session by the fields of a session file; nothing is sent before they are asked for."""
        if unused := sorted(name for name, value in more.items() if value is not None):
            raise InputError(f"{unused[0]} is for parties in one process. Leave it out at a site, which has stores of its own.")
        return OneParty(self._session(fields, records), self._place, self.keeps(fields))

    def keeps(self, fields: Mapping[str, Any]) -> Path:
        """Return the path of the public file in which the session with these ``fields`` keeps a fit after each round."""
        return self._base(fields["name"], rooms.sites.KEPT)

    def release(
        self, study: rooms.study.StudyTerms, plan: Plan, parts: Sequence[Array]
    ) -> tuple[rooms.outcome.StudyOutcome, Vector, Sequence[str]]:
        """Take part in a study of one release with the records of this party, (rows, columns)."""
        (records,) = parts
        options = SiteOptions.of(self._options)
        end = blocking(
            joined(lambda: self._files(study), options, records, self._options.get("report"), lambda files: Choice(plan))
        )
        # What did not fit is said by then.
        return end.outcome, end.outcome.mean, end.notes

    def _files(self, study: rooms.study.StudyTerms) -> rooms.party.PartyContext:
        if self._sealed is None:
            files = rooms.party.PartyContext.of(study, self.roster, self.key, self._unlock)
        else:
            self._require_sealed(study)
            require = rooms.any_study.require_study
            files = rooms.party.PartyContext.load(self.roster, None, self.key, self._unlock, require=require)
        return replace(files, stem=self._base(study.name, ""))

    def _session(self, fields: Mapping[str, Any], records: int | None = None) -> session:
        subject: Any = fields
        roster: Path | None = self.roster
        if self._sealed is not None:
            self._require_sealed(rooms.session_study.SessionStudy.parse(fields))
            subject, roster = self.roster, None
        store, receipt = (self._base(fields["name"], end) for end in (".store", ".receipt.json"))
        return session(subject, roster, self.key, records=records, store=store, receipt=receipt, **self._options)

    def _unlock(self, path: Path) -> rooms.node.Identity:
        return identity_at(path, self._options.get("passphrase"))

    def _require_sealed(self, study: rooms.any_study.AnyStudy) -> None:
        """Raises :class:`InputError` unless this very fit was sealed, whichever links it has."""
        if self._sealed is None:
            return
        sealed = self._sealed.terms
        own, other = (terms.model_copy(update={"links": None}).tables() for terms in (study, sealed))
        if own != other:
            fields = {**_flat(own), **_flat(other)}
            differ = sorted(name for name in fields if _flat(own).get(name) != _flat(other).get(name))
            raise InputError(
                f"{self.roster} is signed for another fit ({', '.join(differ)}). Use its parameters and columns, or ask its "
                "coordinator."
            )

    def _base(self, name: str, end: str) -> Path:
        return self.folder / f"{rooms.party.file_name(name)}-{rooms.party.file_name(self._members.name(self._place))}{end}"


class OneParty:
    """The rounds of a session for one party, which are opened when they are first asked for."""

    def __init__(self, joining: session, party: PartyId, kept: Path) -> None:
        self._joining, self._place, self._kept = joining, party, kept
        self._rounds: rooms.joined.Rounds | None = None
        self._ended = False

    def __enter__(self) -> Self:
        self._open()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._rounds is not None and not self._ended:
            self._ended = True
            self._joining.__exit__(kind, error, trace)

    def _open(self) -> rooms.joined.Rounds:
        if self._rounds is None:
            if self._kept.exists() and not self._joining.store.exists():
                raise InputError(
                    f"{self._kept} is of another fit, because the fit here has no store. Move it away, or give a name."
                )
            self._rounds = self._joining.__enter__()
            if self._rounds.over:
                warn_caller(f"this fit had ended before: it is what it was, and a new one needs another name ({self._kept.name})")
        return self._rounds

    @property
    def terms(self) -> rooms.session_terms.SessionTerms:
        return self._joining.contract.terms

    @property
    def over(self) -> bool:
        return self._ended or self._open().over

    @property
    def begun(self) -> int:
        return self._open().begun

    @property
    def round(self) -> int:
        return self._open().round

    @property
    def epsilon(self) -> float:
        return self._open().epsilon

    def last(self) -> rooms.round_mean.RoundMean[str] | None:
        """The mean of the last round, also after a restart; None if there is none."""
        return self._open().last()

    def mean(
        self,
        vectors: Mapping[PartyId, NDArray[Any]],
        *,
        clip: float | None = None,
        leaves: Mapping[PartyId, int] | None = None,
    ) -> rooms.round_mean.RoundMean[str]:
        """One round, with the vector of this party by its place. Raises :class:`InputError` for ``leaves``, and after the end."""
        if leaves:
            raise InputError("leaves is to try what happens where all parties are in one process. Leave it out at a site.")
        if self._ended:
            raise InputError(
                "this party's part in the session has ended, and its budget is spent or was given back. Agree on a new session."
            )
        return self._open().mean(vectors[self._place], clip=clip)


def _flat(tables: Mapping[str, Any], path: str = "") -> dict[str, Any]:
    """The fields of tables, each by the names on its way."""
    flat: dict[str, Any] = {}
    for name, value in tables.items():
        at = f"{path}.{name}" if path else name
        flat |= _flat(value, at) if isinstance(value, Mapping) else {at: value}
    return flat
