"""The model that a session says it fits, for who takes part in it on the command line."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from quietmean.core.errors import InputError
from quietmean.learning.models.glm import GeneralizedLinearModel
from quietmean.learning.models.hazards import ProportionalHazards
from quietmean.learning.models.model import VERSION, ModelByRounds
from quietmean.learning.sites import OnPaper
from quietmean.studies.agreement.session_study import SessionStudy

_KINDS: dict[str, type[GeneralizedLinearModel] | type[ProportionalHazards]] = {
    model.kind: model for model in (GeneralizedLinearModel, ProportionalHazards)
}
# Of a purpose, what says which model it is.
_NAMES = ("kind", "model", "version")


def model_of(study: SessionStudy, parties: int) -> ModelByRounds:
    """The model that such a session of so many parties fits.

    Raises :class:`InputError` for one that is not what this program makes of the same words, as of another version.
    """
    purpose: Mapping[str, Any] = study.purpose
    kind = _KINDS.get(str(purpose.get("model")))
    if kind is None:
        raise InputError(
            f"the session fits {purpose.get('model')!r}, which this version does not know: it has {', '.join(_KINDS)}"
        )
    if purpose.get("version") != VERSION:
        raise InputError(
            f"the session fits a model by version {purpose.get('version', 1)} of its rounds, and this program by version "
            f"{VERSION}: install at all sites the version that its convener has"
        )
    fields_of_model = {name: value for name, value in purpose.items() if name not in _NAMES}
    try:
        model = kind(**fields_of_model, rounds=study.rounds, epsilon=study.epsilon, delta=study.delta)
    except TypeError:
        raise InputError("the session says no whole model: its convener writes it by save_study") from None
    fields = model._asked(model._design_for(parties), OnPaper(count=parties))
    if fields["purpose"] != purpose or fields["dimension"] != study.dimension:
        raise InputError("the session and its model do not belong together: its convener writes both by save_study")
    return model
