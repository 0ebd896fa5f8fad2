"""``join`` or ``send``, started from the pages: a process of its own, which goes on when the pages are left."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from quietmean.core.domain import PrivacyUnit
from quietmean.core.errors import InputError
from quietmean.desk.site_folder import SiteFolder, part_name
from quietmean.node import Identity
from quietmean.node.net import PASSPHRASE_FILE
from quietmean.protocols.mechanism import is_private
from quietmean.studies.agreement.any_study import AnyStudy, has_committee
from quietmean.studies.agreement.sealed import Sealed
from quietmean.studies.agreement.session_study import SessionStudy
from quietmean.studies.party import Agreement, Policy, file_name
from quietmean.studies.party.approval import DIGITS

# Of what a process has said, so much of its end is shown.
_LAST_BYTES = 4000


class _PassphraseNeededError(Exception):
    """The key has a passphrase."""


def _ask() -> bytes:
    raise _PassphraseNeededError


@dataclass(frozen=True, kw_only=True)
class Here:
    """What this site decides by and takes part with, as far as it is named.

    ``policy`` and ``ledger``; ``owner_key``: of the data owner; ``data``: its records; ``program``: makes its vectors
    in a session, of so many ``records`` where those are protected; ``key``: of the node, without which nothing is started.
    """

    policy: Path | None = None
    ledger: Path | None = None
    owner_key: Path | None = None
    data: str | Path | None = None
    program: Path | None = None
    records: int | None = None
    key: Path | None = None

    def starts(self, study: AnyStudy) -> bool:
        """Can this site's part in the study, or session, be started from the desk? It needs a key, and data or a program."""
        return self.key is not None and (self.program if isinstance(study, SessionStudy) else self.data) is not None

    def require_key(self) -> None:
        """Raises :class:`InputError` for a file without a private key; a passphrase is asked for at each start."""
        with suppress(_PassphraseNeededError):
            if self.key is not None:
                Identity.load(self.key, _ask)

    def options(self, study: AnyStudy) -> list[str]:
        """The options of a site for the command line."""
        paths: dict[str, str | int | Path | None] = {"--data": self.data}
        if isinstance(study, SessionStudy):
            records = self.records if study.unit == PrivacyUnit.RECORD else None
            paths = {"--program": self.program, "--records": records}
        paths |= {"--key": self.key, "--policy": self.policy, "--ledger": self.ledger}
        return [text for option, value in paths.items() if value is not None for text in (option, str(value))]


def consent_options(contract: Agreement, compared: Sequence[str]) -> list[str]:
    """The options of join and send for what somebody typed and ticked: what is not protected or promised, who read the words."""
    unpromised = contract.target.nats is None and any(plan.above_target is not None for plan in contract.plans)
    said = {"--no-privacy": not is_private(contract.plan.protocol), "--a-priori-above-target": unpromised}
    return [option for option, holds in said.items() if holds] + [word for one in compared for word in ("--compared", one)]


@dataclass(frozen=True)
class _Part:
    """``output``: what the process printed, in a file without a name, that is there as long as somebody reads or writes it."""

    process: subprocess.Popen[bytes]
    output: IO[bytes]


@dataclass
class Starter:
    """Starts this site's part in a study, at most one process a study, and tells how it goes."""

    site: SiteFolder
    here: Here
    _parts: dict[str, _Part] = field(default_factory=dict, repr=False)

    def start(self, name: str, more: Sequence[str], passphrase: str) -> None:
        """Begin, or go on after a stop. ``more``: options that name the account of the ledger and what was agreed to.

        ``passphrase``: of the node's key, which no file and no other process gets to see.

        Raises :class:`InputError` where it runs already.
        """
        part, sealed = part_name(name, self.site.party), self.site.sealed(name)
        node = self.site.node_of(sealed)
        if self.runs(part) or (node and self.site.state(node) == "running"):
            raise InputError(f"the part of this site in {name} runs already. Look at it under What runs.")
        if not self.here.starts(sealed.terms):
            raise InputError(f"{name} cannot be started here. Start the pages with --data, and with --program for sessions.")
        # A signature by somebody whom the policy does not name is not an answer.
        approvers = Policy.load(self.here.policy).rules.approvers
        signed = [path for path, approver in self.site.approvals(sealed).items() if approver in approvers]
        study = str(self.site.studies()[name])
        command = [sys.executable, "-m", "quietmean", *self._way(sealed, name), study, *self.here.options(sealed.terms)]
        command += [*more, "--accept", self.site.contract(sealed).accept_digest[:DIGITS]]
        command += [word for path in signed for word in ("--approval", str(path))]
        reading, writing = os.pipe()
        output = tempfile.TemporaryFile()  # noqa: SIM115 - it is read as long as these pages are there
        try:
            os.write(writing, f"{passphrase}\n".encode())
            os.close(writing)
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                pass_fds=[reading],
                env=os.environ | {PASSPHRASE_FILE: f"/dev/fd/{reading}"},
                # Who leaves the pages, or presses Ctrl-C where they were started, does not stop it.
                start_new_session=True,
            )
        finally:
            os.close(reading)
        self._parts[part] = _Part(process, output)

    def _way(self, sealed: Sealed, name: str) -> Sequence[str]:
        """The command by which this site takes part; a contribution is written beside the study.

        A member of a committee takes what is in the folder STUDY.contributions there.
        """
        own = next((entry for entry in sealed.entries if entry.name == self.site.party), None)
        if own is not None and has_committee(sealed.terms):
            if own.member:
                return ["join", "--contributions", str(self.site.folder / f"{Path(name).stem}.contributions")]
        elif own is None or own.address is not None or sealed.terms.by_folder:
            return ["join"]
        return ["send", "--out", str(self.site.folder / f"{file_name(own.name)}.contribution")]

    def started(self, part: str) -> bool:
        """Whether it was started by these pages."""
        return part in self._parts

    def runs(self, part: str) -> bool:
        """Whether a process that was started here runs."""
        return self.started(part) and self._parts[part].process.poll() is None

    def stop(self, part: str) -> bool:
        """End it if it runs, and say whether it did: the same start goes on later."""
        if not self.runs(part):
            return False
        self._parts[part].process.terminate()
        self._parts[part].process.wait()
        return True

    def failure(self, part: str) -> str:
        """The end of what a process said that was started here and failed; else nothing."""
        if not self.started(part) or not self._parts[part].process.poll():
            return ""
        output = self._parts[part].output
        output.seek(max(0, output.seek(0, os.SEEK_END) - _LAST_BYTES))
        return output.read().decode("utf-8", "replace").strip()
