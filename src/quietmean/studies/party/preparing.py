"""From the yes to the charge: one party's vector is made and paid for, and nothing has been sent."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from quietmean.core.errors import InputError
from quietmean.node import NodeSettings
from quietmean.statistics import Encoded
from quietmean.studies.data import Source
from quietmean.studies.forecast import Forecast
from quietmean.studies.party.approval import Answer, Questions, approve
from quietmean.studies.party.contract import Contract
from quietmean.studies.party.files import Files, Show
from quietmean.studies.party.payment import ChargedStudy, Payer
from quietmean.studies.party.policy import Policy


@dataclass(frozen=True)
class Prepared:
    """What :func:`take_part` needs. ``forecast``: how wide intervals will be; ``approval``: what a receipt says of the yes."""

    files: Files
    settings: NodeSettings
    forecast: Forecast
    approval: Mapping[str, Any]
    charge: ChargedStudy | None


def agree(
    files: Files,
    contract: Contract,
    policy: Policy,
    store: Path,
    answer: Answer,
    questions: Questions,
    warn: Callable[[str], None],
    account: str,
) -> Mapping[str, Any]:
    """The yes to a study in which parties connect; ``account``: what the ledger calls the data.

    Raises :class:`InputError` without one, and as :func:`approve` does.
    """
    if files.keys is not None and files.keys.given is not None:
        raise InputError(f"{files.name} contributed to this study by file: a second time would tell more than was agreed")
    begun = store.exists() and store.stat().st_size > 0
    return approve(contract, policy, answer, questions, warn, account=account, keys=files.keys, begun=begun)


def prepare(
    files: Files,
    contract: Contract,
    policy: Policy,
    approval: Mapping[str, Any],
    data: Source,
    store: Path,
    payer: Payer | None,
    tell_owner: Callable[[Encoded, Sequence[str]], None],
    *,
    show: Show | None = None,
    listen: str | None = None,
) -> Prepared:
    """Read the data, and charge the study to ``payer`` before anything leaves.

    ``tell_owner`` gets what was done to values that did not fit. Nothing of the data is kept but this party's vector. Raises
    :class:`InputError` for data that do not fit, too few records, a hopeless study, or a budget that does not allow it.
    """
    plan = contract.plan
    records = files.records(data)
    policy.refuse_records(len(records))
    forecast = files.forecast(plan, records)
    encoded = files.encode(records, plan)
    tell_owner(encoded, files.owner_notes)
    settings = files.settings(plan, encoded, store, show, listen)
    charge = None if payer is None else payer.of(records).reserve(files.study.name, settings)
    return Prepared(files, settings, forecast, approval, charge)
