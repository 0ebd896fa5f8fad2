"""One party's files of a study, and whether they fit together."""

from __future__ import annotations

import base64
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Self

import numpy as np

from quietmean.core.domain import Links
from quietmean.core.errors import InputError, named
from quietmean.core.file_kinds import FileKind, kind_of_file, read_json, refuse_other, require_kind_of_store
from quietmean.core.party import PartyId
from quietmean.core.site_options import SiteOptions
from quietmean.node import Identity, LinkKeys, NodeSettings, Observers, PairKeys, PlannedValue, Roster, StartTerms, Waits
from quietmean.node.folder import FolderSettings, parse_folder
from quietmean.node.monitor import status_path
from quietmean.node.net import Address, Seal, parse_address
from quietmean.node.session import Brought
from quietmean.planning.automatic import Choice
from quietmean.planning.plan import Plan
from quietmean.statistics import Encoded, Workload
from quietmean.studies.agreement.any_study import AnyStudy, load_any, require_study
from quietmean.studies.agreement.sealed import Sealed
from quietmean.studies.agreement.session_study import SessionStudy
from quietmean.studies.agreement.signed import is_signed_document
from quietmean.studies.agreement.study import StudyTerms
from quietmean.studies.agreement.study_keys import Distrusted, StudyKeys, keys_path
from quietmean.studies.data import GroupedRows, Records, Source
from quietmean.studies.outcome.feasible import feasible
from quietmean.studies.outcome.forecast import Forecast
from quietmean.studies.party.accounts import records_for
from quietmean.studies.party.contract import Contract
from quietmean.studies.party.session_contract import SessionContract


def agreed_terms(study: Path, roster: Path | None) -> Sealed | tuple[AnyStudy, Roster]:
    """A sealed study or session, or the file of one with a roster; no key in them is distrusted here.

    Raises :class:`InputError` that names the file and what to do.
    """
    if is_signed_document(study):
        if roster is not None:
            refuse_other(kind_of_file(study), f"file {study}", FileKind.SEALED)
            raise InputError(f"{study} is sealed with its parties. Leave {named('roster')} out.")
        sealed = Sealed.load(study)
        Distrusted().refuse(sealed.holders())
        return sealed
    agreed = load_any(study)
    if roster is None:
        raise InputError(
            f"{study} does not say who takes part. Give {named('roster')} with names, addresses and keys, or a sealed study."
        )
    return agreed, _roster_of(agreed, roster)


def _roster_of(terms: AnyStudy, roster: Path) -> Roster:
    terms.require_sealed()
    members = Roster.load(roster)
    Distrusted().refuse((f"party {entry.name!r}", entry.public_key) for entry in members.entries)
    return members


def agreed_files(study: Path, roster: Path | None) -> tuple[AnyStudy, Roster, Sealed | None]:
    """Return what was agreed on by parties that connect. Raises :class:`InputError` also where one gave no address."""
    terms = agreed_terms(study, roster)
    return (terms.terms, terms.roster, terms) if isinstance(terms, Sealed) else (*terms, None)


# A process that is to end soon waits for the next file so long (s).
_QUIET = 3.0


@dataclass(frozen=True, kw_only=True)
class PartyContext:
    """Study or session, roster and key of one party: ``party`` is its place in the roster, ``terms`` what all agree on.

    ``sealed`` and ``keys``, of this party for this study, where study and roster came sealed. ``stem``: default path of the files
    of this party and study, without their ending.
    """

    terms: AnyStudy
    roster: Roster
    identity: Identity
    party: PartyId
    stem: Path
    sealed: Sealed | None = None
    keys: StudyKeys | None = None
    # Where its identity key is.
    home: Path = Path()
    # What the owner of the data should know about their cells, and nobody else.
    owner_notes: list[str] = field(default_factory=list, compare=False, repr=False)

    @classmethod
    def load(
        cls,
        study: Path,
        roster: Path | None,
        key: Path,
        unlock: Callable[[Path], Identity],
        store: Path | None = None,
        require: Callable[[AnyStudy], object] = lambda terms: None,
    ) -> Self:
        """Read the files of a party's study.

        ``unlock`` opens the file ``key``. ``store``: this party's state, or the folder with it and its keys for this study.

        Raises :class:`InputError` that names the file and what to do, and as ``require`` does.
        """
        agreed, members, sealed = agreed_files(study, roster)
        require(agreed)
        identity = unlock(key)
        party = members.find(identity)
        keys = None if sealed is None else own_keys(sealed, key, store)
        if keys is not None and keys.entry.identity != identity.public_key:
            raise InputError(
                f"the keys in {keys.path} were made for {keys.entry.identity}, not for the key in {key}. Accept again."
            )
        # A program may change its folder between two rounds.
        stem = study.parent.absolute() / f"{study.with_suffix('').name}-{file_name(members.name(party))}"
        home = key.parent.absolute()
        return cls(terms=agreed, roster=members, identity=identity, party=party, stem=stem, sealed=sealed, keys=keys, home=home)

    @classmethod
    def of(cls, terms: AnyStudy, roster: Path, key: Path, unlock: Callable[[Path], Identity]) -> Self:
        """Make a party context for a study that is in no file: its other files are named after it, in the folder where
        the process is.
        """
        members, identity = _roster_of(terms, roster), unlock(key)
        party = members.find(identity)
        stem = Path(f"{file_name(terms.name)}-{file_name(members.name(party))}").absolute()
        return cls(terms=terms, roster=members, identity=identity, party=party, stem=stem, home=key.parent.absolute())

    @property
    def name(self) -> str:
        return self.roster.name(self.party)

    @property
    def agreed(self) -> Sealed | tuple[AnyStudy, Roster]:
        """What it agrees on, and with whom."""
        return self.sealed or (self.terms, self.roster)

    def store(self, path: Path | None) -> Path:
        if path is not None and path.is_dir():
            return path / f"{self.stem.name}.store"
        return path or self.stem.with_name(f"{self.stem.name}.store")

    def receipt(self, path: Path | None) -> Path:
        return path or self.stem.with_name(f"{self.stem.name}.receipt.json")

    def begun(self, path: Path | None) -> bool:
        """Whether this party has a store, with which it continues."""
        store = self.store(path)
        return store.exists() and store.stat().st_size > 0

    def start_terms(self, smaller: Mapping[int, Brought], store: Path) -> StartTerms | None:
        """With whom it starts, where it does not wait for all.

        ``smaller``: plans and what this party brings, for all numbers of parties that are fewer.
        """
        if self.terms.start_by is None:
            return None
        return StartTerms(
            len(self.roster) - len(smaller), self.terms.start_by.timestamp(), smaller, asked_to_start=start_request(store).exists
        )

    def pair_keys(self) -> PairKeys | None:
        """The ML-KEM-768 keys of the entries, of a study with hybrid links."""
        if self.sealed is None or self.keys is None or self.terms.keyed_by != Links.HYBRID:
            return None
        public = {party: base64.b64decode(entry.encapsulation) for party, entry in enumerate(self.sealed.computing)}
        return PairKeys(self.keys.encapsulation, public)

    def forget_opening_keys(self) -> None:
        """Forget the keys after the result: nothing opens any more what the folder, or somebody who recorded the links,
        may keep."""
        if self.keys is None:
            return
        opens = self.keys.encapsulation is not None or (self.terms.by_folder and self.keys.mailbox is not None)
        if opens:
            StudyKeys.load(self.keys.path).without_opening()

    def require_transport(self, options: SiteOptions, usual: str | None) -> None:
        """Require a possible place to listen, and the folder of messages where there is one, perhaps the ``usual`` one.

        Raises :class:`InputError` if it is missing or impossible, or given to a study whose parties connect; and if the study,
        in which this party has no store yet, cannot begin any more.
        """
        require_kind_of_store(options.store)
        if options.listen is not None:
            parse_address(options.listen)
        if not self.terms.by_folder:
            if options.folder is not None or options.once:
                raise InputError(
                    f"the parties of this {self.terms.called} connect. Leave {named('folder')} and {named('once')} out, or seal "
                    "one with "
                    'transport = "folder".'
                )
            return
        folder = options.folder or usual
        if folder is None:
            raise InputError(
                f"the messages of this {self.terms.called} are files in a folder. Say where it is here, with "
                f"{named('folder', 'PATH')}."
            )
        parse_folder(folder)
        if not self.store(options.store).exists():
            self.terms.required_deadlines.require_ahead(datetime.now(UTC))

    def transport(self, options: SiteOptions, plans: Sequence[Plan], usual_folder: str | None) -> FolderSettings | Address | None:
        """Where messages are files, or where this party listens. Raises :class:`InputError` as :meth:`require_transport`."""
        listen = None if options.listen is None else parse_address(options.listen)
        url, sealed, keys = options.folder or usual_folder, self.sealed, self.keys
        if url is None or sealed is None or keys is None or not self.terms.by_folder:
            return listen
        mailboxes = {party: base64.b64decode(entry.mailbox) for party, entry in enumerate(sealed.computing)}
        timetable = self.terms.required_deadlines.timetable(plans)
        return FolderSettings(parse_folder(url), keys.mailbox, mailboxes, timetable, _QUIET if options.once else math.inf)

    def settings(
        self, choice: Choice, brought: Callable[[Plan], Brought], options: SiteOptions, usual_folder: str | None = None
    ) -> NodeSettings:
        """The settings of this party's node, by what is ``brought`` for each plan of the choice.

        ``usual_folder``: the policy's, where messages are files.
        """
        store, (start_wait, round_wait) = self.store(options.store), self.terms.waits
        smaller = {size: brought(plan) for size, plan in choice.smaller.items()}
        return NodeSettings(
            identity=self.identity,
            roster=self.roster,
            brought=brought(choice.plan),
            store=store,
            waits=Waits(round_wait, start_wait),
            transport=self.transport(options, choice.plans, usual_folder),
            observers=Observers(status=status_path(store), about={"study": self.terms.name, "kind": self.terms.called}),
            start=self.start_terms(smaller, store),
            keys=LinkKeys(self.terms.keyed_by, self.pair_keys()),
        )

    # --- a session ---

    @property
    def of_session(self) -> bool:
        """Whether all agree on a session."""
        return isinstance(self.terms, SessionStudy)

    @cached_property
    def session(self) -> SessionContract:
        """What this party says yes to in a session. Raises :class:`InputError` for a study."""
        return SessionContract.for_party(self.name, self.agreed)

    def without_records(self, options: SiteOptions, records: int | None, usual_folder: str | None = None) -> NodeSettings:
        """The settings of this party's node in every round, without a value; ``records``: how many it has, where they are
        protected.

        Raises :class:`InputError` where they are not, and without any where they are.
        """
        contract, study = self.session, self.session.study
        if study.unit.within_party:
            if records is None or records < 0:
                raise InputError("this session protects records. Give records, how many this party has in every round.")
        elif records is not None:
            raise InputError("this session protects whole parties, whose vectors count alike. Leave records out.")
        # One zero that is repeated: no round takes it, and a vector may be large.
        zeros, weight = np.broadcast_to(0.0, (study.dimension,)), 1.0 if records is None else float(records)
        choice = Choice(contract.plan, smaller={plan.target.parties: plan for plan in contract.plans[1:]})
        settings = self.settings(choice, lambda plan: PlannedValue(plan, plan.admit(zeros, weight)), options, usual_folder)
        # With the digest of all that was agreed on in every label.
        seal = Seal(contract.digest, tuple(range(len(self.roster))))
        roster = self.roster if self.sealed is not None else Roster(self.roster.entries, seal)
        # A party whose process has ended comes back in a later round.
        return replace(settings, roster=roster, waits=replace(settings.waits, gone=settings.waits.round / 10))

    # --- a study ---

    def contract(self, plan: Path | None = None, no_privacy: bool = False) -> Contract | SessionContract:
        """What this party says yes to. Raises :class:`InputError` for ``plan``, a file, where it cannot be used."""
        if not self.of_session:
            return self.study_contract(plan, no_privacy)
        if plan is not None:
            raise InputError(f"the rounds of a session have the plan that every party makes. Leave {named('plan')} out.")
        self.session.plan  # noqa: B018 - computed once, here
        return self.session

    def study_contract(self, plan: Path | None = None, no_privacy: bool = False) -> Contract:
        """What this party says yes to in a study. Raises :class:`InputError` for a session."""
        return Contract.for_party(self.name, self.agreed, self.plan(plan, no_privacy))

    @property
    def study(self) -> StudyTerms:
        return require_study(self.terms)

    @property
    def workload(self) -> Workload:
        return self.study.workload

    def records(self, data: Source) -> Records | GroupedRows:
        """The columns that the study uses; NaN where a cell has no number."""
        return records_for(self.study, data, self.owner_notes.append)

    def forecast(self, plan: Plan, records: Records | GroupedRows) -> Forecast:
        """What the statistics will tell; without a public number of records, as if all parties had as many as this one."""
        public = self.study.public_records(len(self.roster))
        # Of private numbers only this party sees what follows, and nothing is decided by it.
        return Forecast(self.study, plan, float(len(records) * len(self.roster)) if public is None else public)

    def encode(self, records: Records | GroupedRows, plan: Plan) -> Encoded:
        """This party's vector, on the grid of the plan."""
        return self.workload.encode(records, step=plan.value_step)

    def plan(self, path: Path | None, no_privacy: bool = False) -> Choice:
        """The plan that all parties make from the study, or the one in a file, and why its protocol was taken.

        Raises :class:`InputError` if the plan in the file is for another study or another number of parties, and as
        :func:`~quietmean.studies.outcome.feasible.feasible`.
        """
        study, parties = self.study, len(self.roster)
        if study.committee is not None:
            raise InputError(
                f"{study.name!r} has a committee. Take part with quietmean send, or as a member with quietmean join "
                "--contributions FOLDER."
            )
        if path is None:
            return feasible(study, parties, no_privacy=no_privacy)
        plan = Plan.from_json(read_json(path, FileKind.PLAN))
        agreed, planned = study.target(parties).describe(), plan.target.describe()
        for name, value in agreed.items():
            if planned[name] != value:
                raise InputError(
                    f"the plan is for {name} = {planned[name]} but the study and roster say {value}. Make a new plan."
                )
        # A plan made from a target alone does not state what the coordinates mean: take it from the study.
        if plan.context and plan.context != study.context():
            raise InputError(f"the plan {path} is for other columns, bounds, statistics or unit than the study. Make a new plan.")
        choice = Choice(study.placed(plan))
        choice = study.with_quorum(choice) if study.starts_with_quorum else choice
        return feasible(study, parties, no_privacy=no_privacy, planned=choice)

    def with_records(
        self, choice: Choice, records: Records | GroupedRows, options: SiteOptions, usual_folder: str | None = None
    ) -> tuple[NodeSettings, Encoded]:
        """The settings of this party's node with its records on the grid of each plan, and how they were encoded for all."""
        whole = self.encode(records, choice.plan)

        def brought(plan: Plan) -> PlannedValue:
            encoded = whole if plan is choice.plan else self.encode(records, plan)
            return PlannedValue(plan, plan.admit(encoded.vector, encoded.weight, wipe=True), wiped=True)

        return self.settings(choice, brought, options, usual_folder), whole


def start_request(store: Path) -> Path:
    """The file beside a store by which the convener's person asks the running node to start before its time."""
    return store.with_name(f"{store.name}.start")


def file_name(name: str) -> str:
    """A party's name as the name of a file, or a part of it: one that is in no other folder, not hidden, and no option."""
    return "".join("_" if sign in '/\\:*?"<>|' else sign for sign in name).lstrip(".-") or "_"


def own_keys(sealed: Sealed, key: Path, store: Path | None) -> StudyKeys:
    """The keys with which this party accepted. Raises :class:`InputError` unless its entry is in the seal as it signed it."""
    beside = keys_path(key, sealed.invitation.digest)
    folder = None if store is None else store if store.is_dir() else store.parent
    in_folder = keys_path(key, sealed.invitation.digest, folder)
    if not in_folder.exists() and not beside.exists():
        _require_key_of_party(sealed, key)
    keys = StudyKeys.load(in_folder if in_folder.exists() else beside)
    sealed.require_own(keys)
    keys.require_free_for(sealed.digest)
    return keys


def _require_key_of_party(sealed: Sealed, key: Path) -> None:
    """Raises :class:`InputError` for a key file that is not there, or is of nobody in the study: a typing error, no loss."""
    if not key.exists():
        raise InputError(f"key file {key} does not exist. Name the one with which you accepted, the study's keys are beside it.")
    # One with a passphrase is not opened for this.
    try:
        public = Identity.load(key).public_key
    except InputError:
        if key.is_dir() or (key.is_file() and b"PRIVATE KEY" not in key.read_bytes()):
            raise
        return
    if all(entry.identity != public for entry in sealed.entries):
        raise InputError(f"{key} is the key of nobody in this study. Name the one with which you accepted.")


def is_session(path: Path) -> bool:
    """Whether a file holds a session, sealed or not; not where it cannot be read."""
    try:
        terms = Sealed.load(path).terms if is_signed_document(path) else load_any(path)
    except InputError:
        return False
    return isinstance(terms, SessionStudy)
