"""What lies in the folder of a site: sealed studies, running nodes, results; and what became of each study, and what to do next.

Files belong to a study by what is in them, whatever they are called: each names the study's digest, and a party.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

from quietmean.core.codec import convert
from quietmean.core.errors import InputError
from quietmean.core.file_kinds import read_json, study_and_party
from quietmean.core.output import Output
from quietmean.node.monitor import NodeView, read_status, status_path
from quietmean.report.words import is_page_of
from quietmean.studies.agreement.any_study import AnyStudy
from quietmean.studies.agreement.sealed import Sealed
from quietmean.studies.agreement.signed import is_signed_document
from quietmean.studies.agreement.study_keys import Distrusted
from quietmean.studies.party import Agreement, Contract, OwnerApproval, Policy, file_name
from quietmean.studies.party.approval import Fingerprint, Terms, fingerprint
from quietmean.studies.party.audit import LogHead, heads_in
from quietmean.studies.party.session_contract import SessionContract, contract_for

_STATUS = status_path(Path(".store")).name
_RECEIPT = ".receipt.json"
_REFUSED = "refused on"


@dataclass(frozen=True)
class SiteFolder:
    """The folder with all studies of a site.

    ``folder``: of the studies; ``party``: the name of this site in them, where it is always the same.
    """

    folder: Path
    party: str | None = None

    def studies(self) -> dict[str, Path]:
        return {path.name: path for path in self._files() if path.suffix == ".sealed" and is_signed_document(path)}

    def nodes(self) -> dict[str, Path]:
        """The status files of nodes that run here or have run."""
        return {path.name.removesuffix(_STATUS): path for path in self._files() if path.name.endswith(_STATUS)}

    def results(self) -> dict[str, Path]:
        """The receipts in the folder."""
        return {path.name.removesuffix(_RECEIPT): path for path in self._files() if path.name.endswith(_RECEIPT)}

    def result_of(self, sealed: Sealed) -> str:
        """The name of the receipt of this site's part in a study; "" where there is none."""
        return next((name for name, path in self.results().items() if self._is_of(sealed, *_belongs(path, *_state(path)))), "")

    def node_of(self, sealed: Sealed) -> str:
        """The name of the node of this site's part; "" where there is none. Of several, the one that changed last."""
        nodes = sorted(self.nodes().items(), key=lambda item: _state(item[1]), reverse=True)
        return next((name for name, path in nodes if self._is_of(sealed, *_watches(path, *_state(path)))), "")

    def _is_of(self, sealed: Sealed, digests: frozenset[str], party: str) -> bool:
        return sealed.digest in digests and party in ("", self.party)

    def pages_of(self, result: str) -> list[str]:
        """Reports, and privacy pages, of the study and party of a result."""
        origin = self.receipt(result).get("origin")
        whose = study_and_party(origin) if isinstance(origin, dict) else ""
        return [name for name, path in self.pages().items() if whose and is_page_of(path, whose)]

    def pages(self) -> dict[str, Path]:
        """Reports, and privacy pages."""
        return {path.name: path for path in self._files() if path.name.endswith((".report.html", ".privacy.html"))}

    def sealed(self, name: str) -> Sealed:
        """The sealed study of a file.

        Raises :class:`InputError` for a file that is not as its convener signed it, or names a key that is not trusted.
        """
        study = Sealed.load(self.studies()[name])
        Distrusted().refuse(study.holders())
        return study

    def sign(self, name: str, approval: OwnerApproval) -> Path:
        """Writes what was signed for a study, and returns where it is."""
        path = self._usual(name, ".approval")
        Output(path, "the approval", own=approval.takes_the_place_of).write(approval.signed.to_file())
        for refusal in self._refusals(approval.terms.contract):
            refusal.unlink(missing_ok=True)
        return path

    def refuse(self, name: str, sealed: Sealed) -> str:
        """Notes that a study is refused, and takes away what was signed for it: the names of these files, or nothing."""
        usual, taken = self._usual(name, ".approval"), set(self.approvals(sealed))
        taken |= {usual} if usual.exists() else set()
        note = f"{_REFUSED} {datetime.now(UTC).date().isoformat()}: {self._refuses(sealed.digest)}\n".encode()
        own = Output(self._usual(name, ".refused"), "the refusal", own=lambda content: content.startswith(_REFUSED.encode()))
        own.write(note)
        for path in taken:
            path.unlink(missing_ok=True)
        return ", ".join(sorted(path.name for path in taken))

    def answer(self, sealed: Sealed) -> str:
        """The answer to a study by the data owner, or nothing."""
        if self._refusals(sealed.digest):
            return "refused"
        return "signed" if self.approvals(sealed) else ""

    def approvals(self, sealed: Sealed) -> dict[Path, str]:
        """What is signed for this site's part in a study: the files, and whose key each is of."""
        found = {path: _approved(path, *_state(path)) for path in self._files() if path.suffix == ".approval"}
        return {
            path: terms.approver
            for path, terms in found.items()
            if terms is not None and (terms.contract, terms.party) == (sealed.digest, self.party)
        }

    def _refusals(self, digest: str) -> list[Path]:
        refusals = [path for path in self._files() if path.suffix == ".refused"]
        return [path for path in refusals if path.read_text("utf-8", "replace").strip().endswith(f": {self._refuses(digest)}")]

    def _refuses(self, digest: str) -> str:
        return f"study {digest}, for {self.party}"

    def _usual(self, name: str, ending: str) -> Path:
        return self.folder / f"{part_name(name, self.party)}{ending}"

    def heads(self) -> dict[str, list[LogHead]]:
        """How far the receipts here say that the audit log had come."""
        heads = {}
        for name, path in self.results().items():
            # Not every receipt has a head of the log: those of run have none.
            with suppress(InputError):
                heads[path.name] = heads_in(self.receipt(name), path.name)
        return heads

    def contract(self, sealed: Sealed) -> Contract | SessionContract:
        """What this site agrees to. Raises :class:`InputError` where it is not in the study."""
        key = sealed.digest, self.party
        if key not in _CONTRACTS:
            _CONTRACTS[key] = contract_for(self.party, sealed)
        return _CONTRACTS[key]

    def verdict(self, contract: Agreement, policy: Policy) -> list[str]:
        """The rules of the site's policy that the study breaks."""
        return policy.broken(contract)

    def node(self, name: str) -> tuple[NodeView, dict[str, Any]]:
        """The status of the node of a study. Raises :class:`InputError` for a status that cannot be read."""
        status = read_status(self.nodes()[name])
        wrong = InputError(f"the status of {name} is not as it should be. Restore it if it was edited.")
        fields = {field: status.get(field) for field in NodeView.__dataclass_fields__}
        return convert(fields, NodeView, lambda reason: wrong), status

    def state(self, name: str) -> str:
        """Whether a node with this status is running, finished or stopped."""
        view, status = self.node(name)
        if view.state == "running" and status.get("alive") is not False:
            return "running"
        return "finished" if view.state == "finished" else "stopped"

    def receipt(self, name: str) -> dict[str, Any]:
        return read_json(self.results()[name])

    def _files(self) -> list[Path]:
        try:
            return sorted(path for path in self.folder.iterdir() if path.is_file() and not path.is_symlink())
        except OSError as error:
            raise InputError(f"folder {self.folder} cannot be read ({error.strerror}). Name another.") from None


def _state(path: Path) -> tuple[int, int]:
    """When a file was written, and its size: another file may stand there later."""
    try:
        found = path.stat()
    except OSError:
        return 0, 0
    return found.st_mtime_ns, found.st_size


# Receipts are large, and pages ask often.
@lru_cache(maxsize=4096)
def _belongs(path: Path, written: int, size: int) -> tuple[frozenset[str], str]:
    """The seals that a receipt names, and the party whose it is; "" where it is everybody's. None of another file."""
    try:
        receipt = read_json(path)
        origin = receipt["origin"]
        sealed, approval = (origin.get(name) or {} for name in ("sealed", "approval"))
        seals = frozenset(map(str, (origin.get("session"), sealed.get("digest"), approval.get("contract"))))
        party = receipt.get("party") if "party" in receipt else origin.get("party", "")
        return seals, origin["names"][party] if isinstance(party, int) else str(party)
    except (InputError, LookupError, TypeError, AttributeError):
        return frozenset(), ""


@lru_cache(maxsize=4096)
def _watches(path: Path, written: int, size: int) -> tuple[frozenset[str], str]:
    """The seal that the status of a node names, and its party. None of another file."""
    try:
        status = read_json(path)
        return frozenset({str(status.get("roster"))}), str(status.get("party"))
    except (InputError, AttributeError):
        return frozenset(), "?"


@lru_cache(maxsize=4096)
def _approved(path: Path, written: int, size: int) -> Terms | None:
    """What an owner signed; None for a file that nobody signed so."""
    try:
        return OwnerApproval.load(path).terms
    except InputError:
        return None


@cache
def words_of(digest: str) -> Fingerprint:
    """Half a second of scrypt."""
    return fingerprint(digest)


# The plan of a contract takes seconds; a party is named by the digest of its seal and its name.
_CONTRACTS: dict[tuple[str, str | None], Contract | SessionContract] = {}


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
    def has_begun(self) -> bool:
        """Whether a yes would come too late: the part of this site runs, or has its end."""
        return self.state in (State.RUNNING, State.DONE)

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
    """When nobody waits for this site's answer any more; None where all are waited for.

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
        return asked_of(site, name, site.sealed(name))
    except InputError as error:
        return AskedStudy(name, State.UNREADABLE, why=str(error))


def asked_of(site: SiteFolder, name: str, sealed: Sealed) -> AskedStudy:
    """A study and where this site is in it. Raises :class:`InputError` for the status of a node that cannot be read."""
    last = decide_by(sealed.terms, member=is_member(sealed, site.party))
    result, part = site.result_of(sealed), site.node_of(sealed)
    if result:
        state = State.DONE
    elif part:
        state = next(state for state, status in _WATCHED.items() if status == site.state(part))
    else:
        state = _answered(site.answer(sealed), last)
    return AskedStudy(name, state, sealed.terms.name, convener_of(sealed), last, part, result)


def _answered(answer: str, last: datetime | None) -> State:
    """Return the state of a study in which this site has not begun its part."""
    if answer == "refused":
        return State.REFUSED
    if last is not None and last < datetime.now(UTC):
        return State.LATE
    return State.SIGNED if answer else State.ASKED
