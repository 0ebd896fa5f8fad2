"""What lies in the folder of a site: sealed studies, running nodes, results. Each is found by its name in the list alone."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

from quietmean.core.codec import convert
from quietmean.core.errors import InputError
from quietmean.core.json_file import read_json
from quietmean.core.output import Output
from quietmean.node.monitor import NodeView, read_status, status_path
from quietmean.studies.agreement.distrust import Distrusted
from quietmean.studies.agreement.sealed import Sealed
from quietmean.studies.agreement.signed import is_signed_document
from quietmean.studies.party import Agreement, Contract, OwnerApproval, Policy, file_name
from quietmean.studies.party.audit import LogHead, heads_in
from quietmean.studies.party.fingerprint import Fingerprint, fingerprint
from quietmean.studies.party.session_contract import SessionContract, contract_for

_STATUS = status_path(Path(".store")).name
_RECEIPT = ".receipt.json"
_REFUSED = "refused on"


@dataclass(frozen=True)
class SiteFolder:
    """``folder``: of the studies; ``party``: the name of this site in them, where it is always the same."""

    folder: Path
    party: str | None = None

    def studies(self) -> dict[str, Path]:
        return {path.name: path for path in self._files() if path.suffix == ".sealed" and is_signed_document(path)}

    def nodes(self) -> dict[str, Path]:
        """The status files of nodes that run here or have run."""
        return {path.name.removesuffix(_STATUS): path for path in self._files() if path.name.endswith(_STATUS)}

    def results(self) -> dict[str, Path]:
        """The receipts."""
        return {path.name.removesuffix(_RECEIPT): path for path in self._files() if path.name.endswith(_RECEIPT)}

    def result_of(self, sealed: Sealed) -> str:
        """The name of the receipt of this site's part in a study, whatever its file is called; "" where there is none."""
        for name, path in self.results().items():
            seals, party = _belongs(path, *_state(path))
            if sealed.digest in seals and party in ("", self.party):
                return name
        return ""

    def node_of(self, sealed: Sealed, usual: str) -> str:
        """The name of the node of this site's part; "" where there is none. ``usual``: where nobody chose another store."""
        if usual in self.nodes():
            return usual
        with suppress(InputError):
            for name in self.nodes():
                view, status = self.node(name)
                if (status.get("study"), view.party) == (sealed.terms.name, self.party):
                    return name
        return ""

    def pages(self) -> dict[str, Path]:
        """Reports, and privacy pages."""
        return {path.name: path for path in self._files() if path.name.endswith((".report.html", ".privacy.html"))}

    def sealed(self, name: str) -> Sealed:
        """Raises :class:`InputError` for a file that is not as its convener signed it, or names a key that is not trusted."""
        study = Sealed.load(self.studies()[name])
        Distrusted().refuse(study.holders())
        return study

    def sign(self, name: str, approval: OwnerApproval) -> Path:
        """Writes what was signed for a study, and returns where it is."""
        path = self.approval(name)
        Output(path, "the approval", own=approval.takes_the_place_of).write(approval.signed.to_file())
        self._refusal(name).unlink(missing_ok=True)
        return path

    def refuse(self, name: str) -> str:
        """Notes that a study is refused, and takes away what was signed for it: the name of that file, or nothing."""
        path = self.approval(name)
        taken = path.name if path.exists() else ""
        note = f"{_REFUSED} {datetime.now(UTC).date().isoformat()}\n".encode()
        Output(self._refusal(name), "the refusal", own=lambda content: content.startswith(_REFUSED.encode())).write(note)
        path.unlink(missing_ok=True)
        return taken

    def answer(self, name: str) -> str:
        """The answer to a study by the data owner, or nothing."""
        if self._refusal(name).exists():
            return "refused"
        return "signed" if self.approval(name).exists() else ""

    def approval(self, name: str) -> Path:
        """Where what is signed for a study is."""
        return self.folder / f"{Path(name).stem}-{file_name(self.party or '')}.approval"

    def _refusal(self, name: str) -> Path:
        return self.approval(name).with_suffix(".refused")

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
        """Raises :class:`InputError` for a status that cannot be read."""
        status = read_status(self.nodes()[name])
        wrong = InputError(f"the status of {name} is not as it should be: was it edited?")
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
            raise InputError(f"folder {self.folder} cannot be read ({error.strerror}): name another") from None


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
        seals = frozenset({str(origin.get("session")), str(origin.get("approval", {}).get("contract"))})
        party = receipt.get("party") if "party" in receipt else origin.get("party", "")
        return seals, origin["names"][party] if isinstance(party, int) else str(party)
    except (InputError, LookupError, TypeError, AttributeError):
        return frozenset(), ""


@cache
def words_of(digest: str) -> Fingerprint:
    """Half a second of scrypt."""
    return fingerprint(digest)


# The plan of a contract takes seconds; a party is named by the digest of its seal and its name.
_CONTRACTS: dict[tuple[str, str | None], Contract | SessionContract] = {}
