"""One party of a real study from Python: what it agrees to, the file it hands in, its part; calls that block, or coroutines."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from functools import partial, wraps
from pathlib import Path
from typing import Any, ParamSpec, TypedDict, TypeVar, Unpack

from quietmean.api import rooms
from quietmean.api.progress import progress_line, what_goes_on
from quietmean.api.study import Study
from quietmean.core.blocking import blocking
from quietmean.core.errors import InputError
from quietmean.core.keywords import python_call, warn_caller
from quietmean.core.output import Output
from quietmean.core.site_options import ConsentKeywords, FolderKeywords, NodeKeywords, SiteOptions, path_of
from quietmean.planning.automatic import Choice
from quietmean.protocols.target import budget_warnings

Given = ParamSpec("Given")
Result = TypeVar("Result")


class KeyKeywords(TypedDict, total=False):
    """The passphrase of the key file."""

    passphrase: str | None


class ReportKeywords(KeyKeywords, total=False):
    """Keywords of a study that is joined, and who gets the events of a node."""

    report: Callable[[dict[str, Any]], None] | None


class SiteKeywords(NodeKeywords, ReportKeywords, total=False):
    """What a site chooses for itself."""


class JoinKeywords(FolderKeywords, ReportKeywords, total=False):
    """Keywords of a study that is joined, and of a study whose messages may be files."""


class StudyKeywords(JoinKeywords, total=False):
    """Keywords of a study that is joined, and of a study whose plan may be in a file."""

    plan: str | Path | None
    no_privacy: bool


@python_call
def contract(
    study: str | Path | Study,
    roster: str | Path | None = None,
    key: str | Path = "quietmean.key",
    *,
    store: str | Path | None = None,
    plan: str | Path | None = None,
    policy: str | Path | None = None,
    no_privacy: bool = False,
    passphrase: str | None = None,
) -> rooms.party.Contract:
    """What the party with this ``key`` agrees to, before anything leaves its machine: give it to :func:`join` as ``accept``.

    ``study``: a sealed study, or a study file or a :class:`Study` together with a ``roster``. Nothing is sent and no data are
    read. Raises :class:`InputError` for a study that this site's ``policy`` refuses, with all rules that are broken.
    """
    if not isinstance(study, Study) and roster is None and (sealed := rooms.handing_in.taken_by_file(Path(study))) is not None:
        contract = rooms.handing_in.contract_by_file(sealed, identity_at(Path(key), passphrase), Path(key), no_privacy=no_privacy)
    else:
        files = _files(study, roster, key, store, passphrase)
        contract = files.study_contract(path_of(plan), no_privacy)
    rooms.party.Policy.load(path_of(policy)).refuse(contract)
    return contract


@python_call
async def ajoin(
    study: str | Path | Study,
    roster: str | Path | None = None,
    key: str | Path = "quietmean.key",
    *,
    data: rooms.data.Source,
    store: str | Path | None = None,
    receipt: str | Path | None = None,
    **site: Unpack[StudyKeywords],
) -> rooms.result.StudyResult:
    """Take part in a study as the party with this ``key``, with ``data``, a path or a data frame; until it has ended.

    The options of the ``site`` are those of ``quietmean join``; and so are contract, policy, charge, store
    and receipt: called again after a crash or Ctrl-C, it continues where it stopped, with the same noise.
    ``accept``: what :func:`contract` returned, or its ``accept_digest``. ``approvals``: files that data owners
    signed. ``account``: what the ledger calls the data, which a data frame cannot say itself. ``passphrase``: of
    the key file. ``report`` gets each event as a dictionary, as ``--events`` writes it. Warns of what did not fit its bounds:
    for the owner of the data only. Raises :class:`InputError` before anything is sent, and :class:`ProtocolFailure` for an
    execution without a result.
    """

    options = SiteOptions.of(site, store, receipt)

    def files() -> rooms.party.PartyContext:
        return _files(study, roster, key, options.store, site.get("passphrase"))

    plan, no_privacy = path_of(site.get("plan")), site.get("no_privacy", False)
    end = await joined(files, options, data, site.get("report"), lambda prepared: prepared.plan(plan, no_privacy))
    return rooms.result.StudyResult.of(end)


async def joined(
    make_files: Callable[[], rooms.party.PartyContext],
    options: SiteOptions,
    data: rooms.data.Source,
    report: Callable[[dict[str, Any]], None] | None,
    plan_of: Callable[[rooms.party.PartyContext], Choice],
) -> rooms.outcome.StudyRun:
    """Take part with ``data``, by the plan that ``plan_of`` makes. Warns and raises as :func:`ajoin`."""

    def make_ready(passed_on: Callable[[dict[str, Any]], None]) -> rooms.party.NodeGrant:
        files = make_files()
        account = _account(data, options.account or options.new_account, options.no_ledger)
        preparation = rooms.party.Preparation(files, options, account, silent_person(passed_on))
        agreement = preparation.agree(plan_of(files), data)
        ready = preparation.prepare()
        for sentence in budget_warnings(agreement.plan.target):
            warn_caller(sentence)
        return ready

    with progress_line() as say:

        def passed_on(event: dict[str, Any]) -> None:
            if report is not None:
                report(event)
            elif (goes_on := what_goes_on(event, "")) is not None:
                say(*goes_on)

        say("planning, and asking the site's policy and budget", None)
        # A plan takes seconds of computing, in which other coroutines go on.
        return await rooms.party.take_part(await asyncio.to_thread(make_ready, passed_on))


def _blocking(function: Callable[Given, Coroutine[Any, Any, Result]]) -> Callable[Given, Result]:
    """The coroutine as a plain call, also where an event loop runs already, as in a notebook: in a thread of its own then."""

    @wraps(function)
    def call(*arguments: Given.args, **keywords: Given.kwargs) -> Result:
        return blocking(function(*arguments, **keywords))

    call.__name__ = call.__qualname__ = function.__name__.removeprefix("a")
    return call


join = _blocking(ajoin)


def _files(
    study: str | Path | Study, roster: str | Path | None, key: str | Path, store: str | Path | None, passphrase: str | None
) -> rooms.party.PartyContext:
    def unlock(path: Path) -> rooms.node.Identity:
        return identity_at(path, passphrase)

    if not isinstance(study, Study):
        return rooms.party.PartyContext.load(
            Path(study), path_of(roster), Path(key), unlock, path_of(store), rooms.any_study.require_study
        )
    if roster is None:
        raise InputError("this study does not say who takes part. Give the roster with names, addresses and keys.")
    return rooms.party.PartyContext.of(study.terms, Path(roster), Path(key), unlock)


def identity_at(path: Path, passphrase: str | None) -> rooms.node.Identity:
    """The key in a file. Raises :class:`InputError` if it has a passphrase and none is given."""

    def required() -> bytes:
        if passphrase is None:
            raise InputError(f"the key file {path} has a passphrase. Give it as passphrase.")
        return passphrase.encode()

    return rooms.node.Identity.load(path, required)


def _account(data: rooms.data.Source, account: str | None, no_ledger: bool) -> str:
    if isinstance(data, str | Path):
        return rooms.data.account_name(data)
    if account is None and not no_ledger:
        raise InputError(
            "a data frame does not say which data set it is. Give account, what the ledger calls these data in all studies, or "
            "no_ledger=True."
        )
    return account or ""


def silent_person(report: Callable[[dict[str, Any]], None] | None) -> rooms.party.Person:
    """Who is asked nothing, as every answer is an argument; ``report`` gets each event as a dictionary."""
    observers = rooms.party.Observers(lambda event: None if report is None else report(rooms.monitor.event_json(event)))
    return rooms.party.Person(rooms.party.NobodyToAsk(), warn_caller, warn_caller, _tell_owner, observers)


def _tell_owner(encoded: rooms.statistics.Encoded, notes: Sequence[str]) -> None:
    for sentence in [*(f"{note} (for you only)" for note in notes), *rooms.statistics.what_did_not_fit([encoded])]:
        warn_caller(sentence)


class ContributionKeywords(ConsentKeywords, KeyKeywords, total=False):
    """What a site chooses for itself where its party has no node."""


@python_call
def contribute(
    study: str | Path,
    key: str | Path = "quietmean.key",
    *,
    data: rooms.data.Source,
    out: str | Path,
    drop: str | None = None,
    store: str | Path | None = None,
    **site: Unpack[ContributionKeywords],
) -> rooms.handing_in.Delivered:
    """Write this party's one contribution to a sealed study, with ``data``, a path or a data frame, to the file ``out``.

    As ``quietmean send`` does, whose options those of the ``site`` are. ``drop``: https://HOST to which it is sent besides,
    whose signed receipt is then beside it. The same data give the same file again. Raises
    :class:`InputError` for other data than before, for what policy or budget refuse, and for another file that is there, and
    :class:`ProtocolFailure` where the drop does not acknowledge it.
    """
    sealed, path = rooms.sealed.Sealed.load(Path(study)), Path(out)
    rooms.study_keys.Distrusted().refuse(sealed.holders())
    if drop is not None:
        rooms.handing_in.require_drop_for(sealed, drop)
    identity = identity_at(Path(key), site.get("passphrase"))
    keys = rooms.handing_in.contributor_keys(sealed, identity, Path(key), path_of(store))
    rooms.handing_in.own_place(sealed, identity, keys, Path(key))
    Output(path, "the contribution", "out", own=partial(rooms.handing_in.is_contribution, None)).require_free()
    name = (
        site.get("account") or site.get("new_account") or (rooms.data.account_name(data) if isinstance(data, str | Path) else "")
    )
    if not name and not site.get("no_ledger"):
        raise InputError("a data frame does not say which data set it is of. Give account, or no_ledger=True.")
    handed = rooms.handing_in.hand_in(sealed, identity, keys, data, name or "data", SiteOptions.of(site), silent_person(None))
    own = partial(rooms.handing_in.is_contribution, handed.contribution.digest)
    Output(path, "the contribution", "out", own=own).write(handed.contribution.to_file())
    if drop is not None:
        rooms.handing_in.hand_over(drop, sealed, identity.public_key, handed.contribution, path)
    return handed
