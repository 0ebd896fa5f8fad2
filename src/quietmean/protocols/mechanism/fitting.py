"""How parameters that are open are chosen for a target."""

from __future__ import annotations

from typing import Any, Self

from quietmean.core import late
from quietmean.core.input_domain import InputDomain
from quietmean.protocols.mechanism.claim import PrivacyClaim
from quietmean.protocols.mechanism.options import HasOptions
from quietmean.protocols.target import Target


class FitsTarget(HasOptions, PrivacyClaim):
    """Fills in what is open for a target; noise levels are found by calibration, on simulated executions or by a formula."""

    def template(self, target: Target) -> Self:
        """Complete, for calibration: noise levels of 1, and for open fields the best values for the target."""
        return self.filled(**self.defaults(target)).with_noise(1.0, 1.0).resolved(target.parties)

    def alternatives(self, target: Target) -> list[Self]:
        """This protocol with something filled in that is open, in several ways, fewest messages first: calibration tries all.

        Empty where nothing is to be tried: then :meth:`defaults` fill in what is open.
        """
        return []

    def defaults(self, target: Target) -> dict[str, Any]:
        """The best values of open fields for a target."""
        return {}

    def with_noise(self, star: float, delta: float) -> Self:
        """The same with other noise levels: ``star`` stays in the result, ``delta`` is cancelled (unused where there is none)."""
        return self

    def finalize(self, target: Target) -> Self:
        """With the fields filled in that depend on the calibrated noise. Raises :class:`InputError` if no value is possible."""
        return self

    def calibrate(
        self, target: Target, *, calibration: str = "exact", executions: int | None = None, no_privacy: bool = False
    ) -> Any:
        """The :class:`~quietmean.planning.plan.Plan` of this protocol for a target: open fields and noise levels are chosen.

        See :func:`quietmean.planning.calibrate.calibrate`. Raises :class:`InputError` for an impossible target, and for a
        protocol without privacy unless ``no_privacy`` asks for that.
        """
        self.require_privacy(no_privacy)
        return late.calibrate(target, self, calibration=calibration, executions=executions)

    def for_domain(self, target: Target, domain: InputDomain) -> Self:
        """The same, planned for this target, with a region that holds a ``domain`` of one unit, unless another was asked for."""
        return self

    def noise_variance(self, target: Target) -> float | None:
        """The expected variance of noise in the mean, per coordinate, where parameters tell it without simulation."""
        return None
