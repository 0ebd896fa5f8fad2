"""One party's files of a session, and which kind of study a file is of."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from pathlib import Path

import numpy as np

from quietmean.core.errors import InputError, named
from quietmean.core.site_options import SiteOptions
from quietmean.node import Identity, LinkKeys, NodeSettings, Observers, PlannedValue, Roster, Waits
from quietmean.node.monitor import status_path
from quietmean.node.net import Seal
from quietmean.sessions.agreed import SessionContract
from quietmean.studies.agreement.any_study import AnyStudy, load_any, require_session
from quietmean.studies.agreement.sealed import Sealed
from quietmean.studies.agreement.session_study import SessionStudy
from quietmean.studies.agreement.signed import is_signed_document
from quietmean.studies.party import Contract, Files, PartyFiles, agreed_files


class SessionFiles(PartyFiles):
    """Session, roster and key of one party."""

    @classmethod
    def _require(cls, terms: AnyStudy) -> None:
        require_session(terms)

    @cached_property
    def contract(self) -> SessionContract:
        """What this party says yes to."""
        return SessionContract.for_party(self.name, self.sealed or (self.terms, self.roster))

    def settings(self, options: SiteOptions, records: int | None, usual_folder: str | None = None) -> NodeSettings:
        """Of this party's node in every round, without a value; ``records``: how many it has, where records are protected;
        ``usual_folder``: the policy's, for a session whose messages are files.

        Raises :class:`InputError` where they are not, and without any where they are.
        """
        contract, study, store = self.contract, self.contract.study, self.store(options.store)
        if study.unit.within_party:
            if records is None or records < 0:
                raise InputError("this session protects records: give records, how many this party has in every round")
        elif records is not None:
            raise InputError("this session protects whole parties, whose vectors count alike: leave records out")
        # With the digest of all that was agreed on in every label.
        seal = Seal(contract.digest, tuple(range(len(self.roster))))
        start_wait, round_wait = study.waits
        # One zero that is repeated: no round takes it, and a vector may be large.
        zeros, weight = np.broadcast_to(0.0, (study.dimension,)), 1.0 if records is None else float(records)
        smaller = {plan.target.parties: PlannedValue(plan, plan.admit(zeros, weight)) for plan in contract.plans[1:]}
        return NodeSettings(
            identity=self.identity,
            roster=self.roster if self.sealed is not None else Roster(self.roster.entries, seal),
            brought=PlannedValue(contract.plan, contract.plan.admit(zeros, weight)),
            store=store,
            # A party whose process has ended comes back in a later round.
            waits=Waits(round_wait, start_wait, gone=round_wait / 10),
            transport=self.transport(options, contract.plans, usual_folder),
            observers=Observers(status=status_path(store)),
            start=self.start_terms(smaller, store),
            keys=LinkKeys(study.keyed_by, self.pair_keys()),
        )


def is_session(path: Path) -> bool:
    """Whether a file holds a session, sealed or not; not where it cannot be read."""
    try:
        terms = Sealed.load(path).terms if is_signed_document(path) else load_any(path)
    except InputError:
        return False
    return isinstance(terms, SessionStudy)


def load_files(
    study: Path, roster: Path | None, key: Path, unlock: Callable[[Path], Identity], store: Path | None = None
) -> Files | SessionFiles:
    """Those of a study or of a session, whichever the file holds. Raises :class:`InputError` as :meth:`PartyFiles.load`."""
    terms, _, _ = agreed_files(study, roster)
    kind = SessionFiles if isinstance(terms, SessionStudy) else Files
    return kind.load(study, roster, key, unlock, store)


def contract_of(files: Files | SessionFiles, plan: Path | None, no_privacy: bool) -> Contract | SessionContract:
    """What the party with these files says yes to. Raises :class:`InputError` for ``plan``, a file, where it cannot be used."""
    if isinstance(files, Files):
        return Contract.of(files, files.plan(plan, no_privacy))
    if plan is not None:
        raise InputError(f"the rounds of a session have the plan that every party makes: leave {named('plan')} out")
    contract = files.contract
    contract.plan  # noqa: B018 - computed once, here
    return contract
