"""A member of a committee takes part: it waits for the end of contributions, takes what came, and opens one sum with others."""

from __future__ import annotations

import asyncio
import base64
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path

import msgspec

from quietmean.core.codec import decode_json, digest
from quietmean.core.domain import PrivacyUnit
from quietmean.core.errors import InputError, NotYet, ProtocolFailure, named
from quietmean.core.folders import configuration_folder
from quietmean.core.outage import THE_STUDY_GOES_ON
from quietmean.core.party import NoiseSource
from quietmean.core.readable_days import by_this_clock
from quietmean.core.site_options import SiteOptions
from quietmean.node import NodeResult, NodeSettings, Observers, PlannedMachine, Roster, StartTerms, run_party
from quietmean.node.committee import IdentitySigner, MailboxOpener, MailboxSealer
from quietmean.planning import Plan
from quietmean.planning.automatic import Choice
from quietmean.protocols import Target
from quietmean.protocols.committee.member import CommitteeMachine
from quietmean.protocols.committee.opening import CommitteeOpening, QuorumMachine
from quietmean.protocols.committee.result import CheckedResult, check_result, read_result, sign_end
from quietmean.protocols.committee.session import CommitteeSession
from quietmean.protocols.committee.voting import CommitteeState
from quietmean.studies.agreement.contribution import RESULT_PAGE, DropLog, session_of
from quietmean.studies.agreement.deadlines import CommitteeTerms, in_words
from quietmean.studies.agreement.sealed import Sealed
from quietmean.studies.agreement.study_keys import StudyKeys, write_private
from quietmean.studies.party.executions import Register, execution_id
from quietmean.studies.party.files import PartyContext
from quietmean.studies.party.member_holdings import MemberHoldings, contributions_in, delete_held, survey

# Members need not be there at the same moment: so long they wait for enough of them (s).
_START_TIMEOUT = 3600.0
_TICK = 60.0
# Of the time until the first deadline of a study through a folder, in which all are waited for.
_PART_OF_THE_WAIT = 0.2


class _LeftOut(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a member knows of contributions that do not count: (name or file, why)."""

    left_out: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class MemberFiles:
    """The files of one member of a sealed study. ``plan``: for all who may contribute.

    ``page``: makes the page of a result for contributors, the same at all members; nothing where it cannot be shown.
    """

    files: PartyContext
    plan: Plan
    options: SiteOptions
    page: Callable[[CheckedResult], bytes] = lambda checked: b""

    @property
    def sealed(self) -> Sealed:
        if self.files.sealed is None:
            raise InputError("a study with a committee has to be sealed. Use study invite, accept and study seal.")
        return self.files.sealed

    @property
    def terms(self) -> CommitteeTerms:
        terms = self.sealed.study.committee
        if terms is None:
            raise InputError(f"this study has no committee. Leave {named('contributions')} out.")
        return terms

    @cached_property
    def session(self) -> CommitteeSession:
        return session_of(self.sealed, self.plan)

    @property
    def store(self) -> Path:
        return self.files.store(self.options.store)

    def beside(self, ending: str) -> Path:
        """A file of this member beside its store."""
        return self.store.with_name(f"{self.store.name.removesuffix('.store')}{ending}")

    @property
    def published(self) -> tuple[Path, ...]:
        """Those files that are there for everybody: with them anyone reads the result, and what became of a contribution."""
        return tuple(path for path in (self.sums, *map(self.beside, (".dropped", RESULT_PAGE))) if path.exists())

    @property
    def sums(self) -> Path:
        """What this member published: the choice, the sums that it knows."""
        return self.beside(".sums")

    @property
    def held(self) -> Path:
        return self.beside(".held")

    @property
    def with_all(self) -> Plan:
        """What the members agree on before they begin, where all of them are there."""
        return _plan(self, self.terms.members)

    def require_same_store(self, usual_folder: str | None) -> bool:
        """Whether it has begun here. Nothing is made. Raises :class:`InputError` where :func:`open_with_others` would."""
        register = Register(configuration_folder() / "member")
        if not self.store.exists():
            if register.get(self.register_key) is not None:
                raise self.other_store()
            return False
        settings = _settings(self, Observers(lambda event: None), usual_folder)
        if settings.store_exists() and register.get(self.register_key) not in (None, bytes.fromhex(execution_id(settings))):
            raise self.other_store()
        return True

    def other_store(self) -> InputError:
        """The error for a store that is not the one with which this member began."""
        return InputError(
            f"{self.files.name} began this study with another store than {self.store}, which is new, restored or "
            "copied. It takes no part any more, the others go on without it. Leave it out."
        )

    @property
    def register_key(self) -> str:
        identity = self.files.identity.public_key
        return digest({"format": "quietmean-member-1", "session": self.sealed.digest, "identity": identity})


@dataclass(frozen=True)
class OpenedAtMember:
    """What a member has at the end: the result of its node, the opened sum, and (name, why) of contributions left out."""

    result: NodeResult
    checked: CheckedResult
    left_out: tuple[tuple[str, str], ...]


async def until_listed(terms: CommitteeTerms, arrived: Callable[[], str], say: Callable[[str], None], *, once: bool) -> None:
    """Wait until the time for contributions is over, by this machine's clock, and say now and then what ``arrived``.

    Raises :class:`NotYet` with ``once``.
    """
    due = terms.words_due(time.time())
    taken = f"members take them at {in_words(datetime.fromtimestamp(terms.lists_at, UTC))}"
    while (seconds := terms.lists_at - time.time()) > 0:
        if once:
            raise NotYet(f"{arrived()}; {taken}. Start this member again then.")
        if due and time.time() >= due[0]:
            due.pop(0)
            say(f"waiting: {arrived()}; {taken} ({by_this_clock(datetime.now(UTC))})")
        await asyncio.sleep(min(seconds, _TICK, max(0.0, due[0] - time.time()) if due else _TICK))


async def open_with_others(
    own: MemberFiles, folder: Path, observers: Observers, usual_folder: str | None, say: Callable[[str], None] = lambda text: None
) -> OpenedAtMember:
    """Take what came into ``folder``, and open one sum with the other members; continued where it stopped.

    Whatever the end, shares and mailbox key are deleted. Raises :class:`InputError` before anything is sent to others, and
    :class:`ProtocolFailure` without a result.
    """
    over = own.sums.exists()
    if not over:
        # A wrong path is said at once, not after hours.
        contributions_in(folder)
        await until_listed(own.terms, lambda: arrived_in(own, folder), say, once=own.options.once)
        held = _hold(own, folder)
        if held.count < (least := own.session.parameters.minimum):
            say(own.terms.arrived(held.count, least, datetime.now(UTC)))
    settings = _settings(own, observers, usual_folder, say)
    _register(own, settings)
    try:
        result = await run_party(settings)
    except ProtocolFailure:
        _forget(own)
        raise
    opened = _opened(own, result)
    _forget(own)
    return opened


def _register(own: MemberFiles, settings: NodeSettings) -> None:
    """A member has one store in a session: another one would deal other noise, and could vote again.

    Raises :class:`InputError` for a store that is not the one with which this member began.
    """
    register, began_with = Register(configuration_folder() / "member"), bytes.fromhex(execution_id(settings))
    with register.alone():
        before = register.get(own.register_key)
        if before not in (None, began_with):
            raise own.other_store()
        register.put(own.register_key, began_with, own.files.name)


def arrived_in(own: MemberFiles, folder: Path) -> str:
    """How many contributions are in a folder, of how many that a result takes. Raises :class:`InputError` as :func:`survey`."""
    there = survey(own.session, own.files.party, folder, own.terms.lists_at)
    return own.terms.arrived(there.contributors, own.session.parameters.minimum, datetime.now(UTC))


def _hold(own: MemberFiles, folder: Path) -> MemberHoldings:
    there = MemberHoldings.load(own.held, own.session)
    return there or MemberHoldings.take(own.held, own.session, own.files.party, _opener(own), folder, own.terms.lists_at)


def _opener(own: MemberFiles) -> MailboxOpener:
    keys = own.files.keys
    if keys is None or keys.mailbox is None:
        raise InputError(f"the study has ended for {own.files.name}, and its keys are deleted. Start nothing again.")
    return MailboxOpener(keys.mailbox)


def _settings(
    own: MemberFiles, observers: Observers, usual_folder: str | None, say: Callable[[str], None] = lambda text: None
) -> NodeSettings:
    """The settings of this member's node, which starts with as many as are sure to be there."""
    files, study, committee = own.files, own.sealed.study, own.terms.committee
    least = committee.members - committee.gone
    plans = {size: _plan(own, size) for size in range(least, committee.members + 1)}
    files.require_transport(own.options, usual_folder)
    start_timeout, wait = max(study.start_timeout, _START_TIMEOUT), study.round_timeout
    if study.deadlines is not None:
        start_timeout = study.deadlines.first.timestamp() - own.terms.lists_at
        wait = _PART_OF_THE_WAIT * start_timeout

    def brought(plan: Plan) -> PlannedMachine:
        return PlannedMachine(plan, lambda roster, noise: _machine(own, roster, noise, say))

    settings = files.settings(Choice(plans.pop(committee.members), smaller=plans), brought, own.options, usual_folder)
    parts = {size: brought(plan) for size, plan in plans.items()}
    return replace(
        settings,
        waits=replace(settings.waits, start=start_timeout),
        observers=replace(observers, status=settings.observers.status),
        start=StartTerms(least, own.terms.lists_at + wait, parts),
    )


def _plan(own: MemberFiles, members: int) -> Plan:
    """What so many members agree on before they begin."""
    opening, target = CommitteeOpening.of_session(own.session.parameters), own.plan.target
    target_of_members = Target(
        members, target.epsilon, target.delta, target.dimension, 1.0, own.terms.colluding, unit=PrivacyUnit.PARTY
    )
    return Plan(target_of_members, opening, context={**own.sealed.study.context(), "plan": own.plan.digest})


def _machine(own: MemberFiles, roster: Roster, noise: NoiseSource, say: Callable[[str], None]) -> QuorumMachine:
    holdings = MemberHoldings.load(own.held, own.session)
    if holdings is None:
        raise InputError(
            f"file {own.held} with what this member took of the contributions is gone. Restore it. "
            "Without it this member takes no part any more."
        )
    machine = CommitteeMachine(
        own.session,
        own.files.party,
        IdentitySigner(own.files.identity),
        MailboxSealer(),
        _opener(own),
        holdings,
        noise,
    )
    places = [own.session.member(entry.public_key) for entry in roster.entries]
    return QuorumMachine(machine, places, lambda state: _keep(own, holdings, state, say))


def _keep(own: MemberFiles, holdings: MemberHoldings, state: CommitteeState, say: Callable[[str], None]) -> None:
    """Keep the result and what is known of who is not in it, before the state that has it, and once."""
    if own.sums.exists():
        return
    names = {entry.identity: entry.name for entry in own.sealed.entries}
    left_out = {names.get(key, file): why for key, file, why in holdings.left_out}
    left_out |= {names.get(key, key): why for key, why in state.left_out}
    checked = check_result(own.session, read_result(own.session, state.result.content))
    counted = {names.get(key, key) for _, key, _ in checked.counted}
    uncounted = tuple((name, why) for name, why in left_out.items() if name not in counted)
    if holdings.dropped:
        why = {key: why for key, _, why in holdings.left_out} | dict(state.left_out)
        uncounted_keys = {key: text for key, text in why.items() if key and names.get(key, key) not in counted}
        if page := own.page(checked):
            write_private(own.beside(RESULT_PAGE), page, THE_STUDY_GOES_ON)
        log = DropLog.sign(own.files.identity, own.session, holdings.dropped, uncounted_keys, page)
        write_private(own.beside(".dropped"), log.to_file(), THE_STUDY_GOES_ON)
    write_private(own.beside(".left-out.json"), msgspec.json.encode(_LeftOut(uncounted)), THE_STUDY_GOES_ON)
    write_private(own.sums, state.result.content, THE_STUDY_GOES_ON)
    say(f"the result is known: quietmean result shows it from {own.sums}; this member stays a while for those who lack it")


def _opened(own: MemberFiles, result: NodeResult) -> OpenedAtMember:
    checked = check_result(own.session, read_result(own.session, own.sums.read_bytes()))
    path = own.beside(".left-out.json")
    kept = decode_json(
        path.read_bytes(), _LeftOut, lambda reason: InputError(f"{path} is not as it was written ({reason}). Restore it.")
    )
    return OpenedAtMember(result, checked, kept.left_out)


def _forget(own: MemberFiles) -> None:
    """Delete shares and the mailbox key, and say so, signed."""
    delete_held(own.held)
    if own.files.keys is not None:
        StudyKeys.load(own.files.keys.path).without_opening()
    signed = sign_end(own.session, IdentitySigner(own.files.identity))
    write_private(own.beside(".end"), base64.b64encode(signed) + b"\n")
