"""Options of protocols on the command line, made from the fields that protocols declare, also those of other distributions."""

from __future__ import annotations

from dataclasses import dataclass, field, make_dataclass
from functools import cache
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Group, Parameter

from quietmean.core.errors import InputError
from quietmean.core.schema import options_of
from quietmean.protocols import registry

# Types on the command line: of several the widest is taken; a text may stand beside numbers, as "auto" does.
_NUMBERS = (int, float)


@dataclass
class _Option:
    """One flag: the key that it has in JSON, what it may be, and what it means in which protocols."""

    key: str
    kinds: set[type] = field(default_factory=set)
    help: dict[str, list[str]] = field(default_factory=dict)

    @property
    def annotation(self) -> Any:
        if bool in self.kinds:
            return bool
        number = float if float in self.kinds else int if int in self.kinds else None
        if number is None:
            return str
        return number | str if self.kinds - set(_NUMBERS) else number

    @property
    def text(self) -> str:
        text = "; ".join(f"{clause} ({', '.join(names)})" for clause, names in self.help.items())
        return f"{text[0].upper()}{text[1:]}."


@cache
def _collect() -> dict[str, _Option]:
    options: dict[str, _Option] = {}
    for name, kind in registry().items():
        for key, parameter in options_of(kind).items():
            if parameter.flag is None:
                continue
            option = options.setdefault(parameter.flag, _Option(key))
            if option.key != key:
                raise InputError(
                    f"protocol {name!r} calls its option {key!r} --{parameter.flag}, a flag of {option.key!r}: rename it"
                )
            option.kinds |= {kind if kind in (int, float, bool) else str for kind in parameter.kinds} | (
                {str} if parameter.auto else set()
            )
            clause = f"{parameter.help}: {', '.join(parameter.choices)}" if parameter.choices else parameter.help
            option.help.setdefault(clause, []).append(name)
    return dict(sorted(options.items()))


class ChosenOptions:
    """What was chosen on the command line."""

    def chosen(self) -> dict[str, Any]:
        """Options by their key in JSON."""
        keys = {flag.replace("-", "_"): option.key for flag, option in _collect().items()}
        return {keys[name]: value for name, value in vars(self).items() if value is not None}


def _protocol_options() -> type[ChosenOptions]:
    """A dataclass with a field for every option of every registered protocol; None where it is not given."""
    group = Group("Options of protocols", help="Each goes to the protocols named behind it; others do not have it.")
    fields = []
    for flag, option in _collect().items():
        # Where a protocol does something by default, it can be made not to.
        no = f"--no-{flag}" if option.annotation is bool else ""
        about = Parameter(name=f"--{flag}", help=option.text, group=group, negative_none=(), negative=no)
        fields.append((flag.replace("-", "_"), Annotated[option.annotation | None, about], field(default=None)))
    here = {"__module__": __name__}
    made = make_dataclass("ProtocolOptions", fields, bases=(ChosenOptions,), namespace=here, kw_only=True, frozen=True)
    return Parameter(name="*")(made)


if TYPE_CHECKING:
    ProtocolOptions = ChosenOptions
else:
    ProtocolOptions = _protocol_options()
NO_OPTIONS = ProtocolOptions()
