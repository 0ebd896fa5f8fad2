"""What was asked of this site: each study with who asks, until when it can be answered, what became of it, what to do next."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path

from quietmean.core.errors import InputError
from quietmean.desk.site_folder import SiteFolder
from quietmean.studies.agreement.any_study import AnyStudy
from quietmean.studies.agreement.sealed import Sealed
from quietmean.studies.party import file_name


class State(StrEnum):
    """What became of a study at this site."""

    ASKED = "asked"
    SIGNED = "signed"
    REFUSED = "refused"
    LATE = "late"
    RUNNING = "running"
    STOPPED = "stopped"
    DONE = "done"
    UNREADABLE = "unreadable"


# The states in which there is a node to look at, and what its status calls them.
_WATCHED = {State.RUNNING: "running", State.STOPPED: "stopped", State.DONE: "finished"}


@dataclass(frozen=True)
class AskedStudy:
    """A sealed study in the folder. ``name``: of its file; ``convener``: the party that sealed it, or its key.

    ``decide_by``: after it the study starts without this site, None where it waits for all. ``part`` and ``result``: of its node
    and of its receipt, where they are. ``why``: of one that is unreadable.
    """

    name: str
    state: State
    title: str = ""
    convener: str = ""
    decide_by: datetime | None = None
    part: str = ""
    result: str = ""
    why: str = ""

    @property
    def link(self) -> tuple[str, str]:
        """The kind of page, and the name on it."""
        if self.state == State.DONE and self.result:
            return "result", self.result
        return ("node", self.part) if self.state in _WATCHED else ("study", self.name)


def inbox(site: SiteFolder) -> list[AskedStudy]:
    """All studies of the folder: those that wait for an answer first, by their last moment; then by name."""
    studies = [_asked(site, name) for name in site.studies()]
    last = datetime.max.replace(tzinfo=UTC)
    return sorted(studies, key=lambda study: (study.state != State.ASKED, study.decide_by or last, study.name))


def convener_of(sealed: Sealed) -> str:
    """The name of the party whose key sealed the study, or that key."""
    key = sealed.invitation.convener
    return next((entry.name for entry in sealed.entries if entry.identity == key), key)


def decide_by(study: AnyStudy, *, member: bool = False) -> datetime | None:
    """After it nobody waits for this site's answer; None where all are waited for.

    Of a study with a committee contributions come until then; a ``member`` may begin later.
    """
    if (committee := getattr(study, "committee", None)) is not None and not member:
        until: datetime = committee.contribute_by
        return until
    if study.start_by is not None:
        return study.start_by
    deadlines = getattr(study, "deadlines", None)
    return None if deadlines is None else deadlines.first


def is_member(sealed: Sealed, party: str | None) -> bool:
    """Whether this site is a member of the study's committee."""
    return any(entry.name == party and entry.member for entry in sealed.entries)


def part_name(study: str, party: str | None) -> str:
    """What ``join`` calls its store and receipt beside the study of this file name."""
    return f"{Path(study).stem}-{file_name(party or '')}"


def _asked(site: SiteFolder, name: str) -> AskedStudy:
    try:
        return _known(site, name, site.sealed(name))
    except InputError as error:
        return AskedStudy(name, State.UNREADABLE, why=str(error))


def _known(site: SiteFolder, name: str, sealed: Sealed) -> AskedStudy:
    """Raises :class:`InputError` for the status of a node that cannot be read."""
    last, usual = decide_by(sealed.terms, member=is_member(sealed, site.party)), part_name(name, site.party)
    result, part = site.result_of(sealed), site.node_of(sealed, usual)
    if result:
        state = State.DONE
    elif part:
        state = next(state for state, status in _WATCHED.items() if status == site.state(part))
    else:
        state = _answered(site, name, last)
    return AskedStudy(name, state, sealed.terms.name, convener_of(sealed), last, part, result)


def _answered(site: SiteFolder, name: str, last: datetime | None) -> State:
    """Return the state of a study in which this site has not begun its part."""
    answer = site.answer(name)
    if answer == "refused":
        return State.REFUSED
    if last is not None and last < datetime.now(UTC):
        return State.LATE
    return State.SIGNED if answer else State.ASKED
