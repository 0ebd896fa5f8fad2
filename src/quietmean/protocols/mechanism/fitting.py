"""Parameters: from what users and files say to a complete value, and how open ones are chosen for a target."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, ClassVar, Self

from quietmean.core import late
from quietmean.core.errors import InputError
from quietmean.core.input_domain import InputDomain
from quietmean.core.schema import OPEN, Configured, Parameter, nearest, parameters_of
from quietmean.protocols.mechanism.claim import PrivacyClaim
from quietmean.protocols.target import Target


class HasOptions(Configured):
    """Parameters, of which users choose the options and calibration finds the rest.

    ``aliases``: other names, each with the options it stands for.
    """

    name: ClassVar[str]
    aliases: ClassVar[Mapping[str, Mapping[str, Any]]] = {}

    @classmethod
    def parse(cls, raw: Mapping[str, Any], parties: int) -> Self:
        """The complete value that an execution file describes. Raises :class:`InputError`."""
        return cls.read(raw).resolved(parties)

    @classmethod
    def options(cls) -> dict[str, Parameter]:
        """The parameters that a user may choose when planning, by their names in files."""
        return {option.key: option for option in parameters_of(cls).values() if option.option}

    @classmethod
    def from_options(cls, options: Mapping[str, Any]) -> Self:
        """From options by name; all other fields are open. Raises :class:`InputError` for an unknown name."""
        cls.refuse_unknown(options)
        return cls.read(options)

    @classmethod
    def refuse_unknown(cls, options: Iterable[str]) -> None:
        """Raises :class:`InputError` for a name that is no option, with the nearest one that is."""
        options_by_name = cls.options()
        for name in options:
            if name not in options_by_name:
                listed = ", ".join(sorted(options_by_name)) or "none"
                raise InputError(f"protocol {cls.name} has no option {name!r}{nearest(name, options_by_name)}: it has {listed}")

    def refuse_levels(self) -> None:
        """Raises :class:`InputError` if a field is given that calibration computes."""
        for name, parameter in parameters_of(type(self)).items():
            value = getattr(self, name)
            if not parameter.option and value is not OPEN and value != parameter.default:
                raise InputError(f"{parameter.key} is given, but calibration chooses it: leave it out")

    def require_enough(self, parties: int) -> None:
        """Raises :class:`InputError` where an option asks for more others than there are.

        Asked of what is planned; documents of before may have more, which means all.
        """

    def resolved(self, parties: int) -> Self:
        """Complete, for this number of parties, with defaults for what files may leave out.

        Raises :class:`InputError` for a missing field, and for parameters that do not fit the number of parties.
        """
        self.require_complete()
        self.check_parties(parties)
        return self

    def check_parties(self, parties: int) -> None:
        """Raises :class:`InputError` for parameters that do not fit the number of parties."""
        return


class FitsTarget(HasOptions, PrivacyClaim):
    """Fills in what is open for a target; noise levels are found by calibration, on simulated executions or by a formula."""

    def template(self, target: Target) -> Self:
        """Complete, for calibration: noise levels of 1, and for open fields the best values for the target."""
        return self.filled(**self.defaults(target)).with_noise(1.0, 1.0).resolved(target.parties)

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
