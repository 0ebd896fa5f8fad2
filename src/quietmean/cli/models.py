"""Models by rounds on the command line: fitted by parties in this process, or written as a session for parties elsewhere."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from quietmean import learning
from quietmean.cli.answers import show_session
from quietmean.cli.console import progress, tell_notes, warn
from quietmean.cli.study_options import NO_TARGET_OPTIONS, TargetOptions
from quietmean.core.errors import InputError
from quietmean.core.output import Output
from quietmean.core.party import PartyId
from quietmean.core.readable import count_of
from quietmean.planning.automatic import AUTO
from quietmean.planning.plan import Plan
from quietmean.protocols import configure
from quietmean.protocols.target import budget_warnings
from quietmean.studies.agreement.any_study import study_text
from quietmean.studies.agreement.joint_terms import JointTerms
from quietmean.studies.agreement.session_study import SessionStudy
from quietmean.studies.agreement.session_terms import require_private
from quietmean.studies.data import account_name
from quietmean.studies.data.sources import parties_of_table
from quietmean.studies.outcome.local import choose_kills

if TYPE_CHECKING:
    from quietmean.learning.models.model import ModelByRounds

# What is stated of a target that a model by rounds has.
_OF_MODELS = ("epsilon", "delta", "colluding", "dropouts", "protocol")
# A study file holds no number of parties, and no model that needs one.
_ANY_NUMBER = 2


def refuse_for_models(given: Mapping[str, Any], *taken: str) -> None:
    """Raises :class:`InputError` for an option that a model by rounds does not have; ``taken``: those that it has."""
    for name, value in given.items():
        if value and name not in taken:
            raise InputError(f"--{name.replace('_', '-')} is not for models by rounds. Leave it out.")


def model_asked(ask: Sequence[str], target: TargetOptions, options: Mapping[str, Any]) -> ModelByRounds:
    """The model that questions ask for, under this target. Raises :class:`InputError` for what it does not have."""
    usual = vars(NO_TARGET_OPTIONS)
    refuse_for_models({name: value for name, value in vars(target).items() if value != usual[name]}, *_OF_MODELS)
    stated = {name: getattr(target, name) for name in _OF_MODELS if getattr(target, name) is not None}
    fields = JointTerms.model_fields
    budget = {name: fields[name].default for name in ("epsilon", "delta")} | stated
    model: ModelByRounds = learning.asked_model(ask, **budget, options=dict(options))
    return model


def run_model(
    model: ModelByRounds,
    data: str | Path,
    parties: int | None,
    party_column: str | None,
    folder: Path,
    *,
    details: bool,
    json: bool,
) -> None:
    """Fit a model by all parties in this process, and print its answer; the receipt is in the ``folder``."""
    from quietmean.sessions.receipt import receipt_of_run

    notes: list[str] = []
    names, parts = parties_of_table(data, model.columns, parties, party_column, notes.append)
    model.names_of_parties = names
    study = model.session_study(len(parts), name=account_name(data))
    terms = study.terms(len(parts))
    for text in budget_warnings(terms.whole_target, sum(map(len, parts))):
        warn(text)
    tell_notes(notes)

    def leaves(plan: Plan) -> dict[PartyId, int]:
        return {kill.party: kill.round - 1 for kill in choose_kills(plan, study.dropouts)}

    begun = time.monotonic()
    records = [np.asarray(part) for part in parts]
    with progress(f"{len(parts)} parties, {count_of(model.rounds, 'round')}"):
        session = model.fit_parts(records, leaves)
    counted = np.sum([execution.contributors() for execution in model.executions], axis=0)
    receipt = folder / "receipt.json"
    Output(receipt, "the receipt", "--out").write_json(receipt_of_run(study, names, counted.tolist(), session.begun))
    answer, exact = model.to_json(), model.without_noise(records)
    for name, estimates in (("coefficients", exact.coefficients), ("ratios", exact.ratios)):
        if name in answer:
            answer[name]["true_value"] = estimates.by_term(estimates.value)
    document = {
        "session": study.name,
        "rounds": {"agreed": study.rounds, "begun": session.begun},
        "epsilon": session.terms.spent_epsilon(session.begun),
        "delta": study.delta,
        "receipt": str(receipt),
        "model": answer,
        "seconds": round(time.monotonic() - begun, 3),
    }
    show_session(document, None, details=details, json=json)


def write_model(model: ModelByRounds, fields: Mapping[str, Any], study_file: Output) -> SessionStudy:
    """Write the session that fits a model, with further ``fields`` of a study file, for parties between machines.

    Raises :class:`InputError` for a model that has numbers for each party, where nobody says how many there are.
    """
    more = {name: value for name, value in fields.items() if name not in _OF_MODELS}
    refuse_for_models({name: value for name, value in more.items() if name not in SessionStudy.model_fields})
    if model.by_party:
        raise InputError("the baseline has a part for each party, of which nobody knows the number. Leave baseline out.")
    study = model.session_study(_ANY_NUMBER, **more)
    if study.protocol != AUTO:
        require_private(configure(study.protocol, study.options))
    study_file.write(study_text(study).encode())
    return study
