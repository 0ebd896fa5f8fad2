"""From what is written, in files and by users, to a value whose parameters are complete."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, ClassVar, Self

from quietmean.core.errors import InputError
from quietmean.core.schema import OPEN, Configured, Parameter, nearest, parameters_of


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
