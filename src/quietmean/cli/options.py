"""Options of several commands: of an agreement, of a study to plan, and of protocols, from the fields that these declare."""

from __future__ import annotations

from dataclasses import dataclass, field, make_dataclass
from functools import cache
from pathlib import Path
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


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class AgreementOptions:
    """What belongs to a study or session that a command is about, and whose part in it this is.

    Parameters
    ----------
    roster
        Names, addresses and public keys of all parties; for a study that is not sealed.
    key
        This party's private key, from quietmean key new.
    plan
        A plan that all parties share, from quietmean plan; by default each makes the same one from the study.
    no_privacy
        Agree to a study whose protocol protects nothing; refused otherwise.
    """

    roster: Path | None = None
    key: Path = Path("quietmean.key")
    plan: Path | None = None
    no_privacy: bool = False

    def require_key_alone(self, agreement: str, store: Path | None) -> None:
        """Raises :class:`InputError` for what says nothing of the ``agreement``, which holds all that its parties agree on."""
        options = {"roster": self.roster, "plan": self.plan, "no-privacy": self.no_privacy, "store": store}
        if names := [name for name, value in options.items() if value]:
            raise InputError(f"--{names[0]} has no effect in {agreement}: leave it out")


NO_AGREEMENT_OPTIONS = AgreementOptions()


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class StudyOptions:
    """A study to plan, and what is known or wanted of it.

    Parameters
    ----------
    study
        Plan this study instead of a target, and tell the expected widths of its intervals; refused if noise hides all. A sealed
        study, or a study file with --roster or --parties.
    roster
        Names, addresses and public keys of all parties of a study that is not sealed.
    records
        With --study: how many records all parties have together, as far as is public.
    width
        With --study: also say how many records or parties, or which epsilon, make the interval of each statistic's first answer
        no wider than this.
    power
        With --study: also say what gives each statistic's test this power at the 5 % level, such as 0.8, where the study's
        expect is true.
    """

    study: Path | None = None
    roster: Path | None = None
    records: int | None = None
    width: float | None = None
    power: float | None = None

    def require_study(self) -> None:
        """Raises :class:`InputError` for what says nothing without a study."""
        for pair in (("width", "power"), ("roster", "records")):
            if any(getattr(self, name) is not None for name in pair):
                options = " and ".join(f"--{name}" for name in pair)
                raise InputError(f"no study is given for {options}: give --study FILE too, or leave them out")
