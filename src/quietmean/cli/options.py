"""Options of several commands: of an agreement, of a study to plan, and of protocols, from the fields that these declare."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from quietmean.core.errors import InputError, as_sentence
from quietmean.core.schema import OPEN, nearest, options_of
from quietmean.core.schema import Parameter as Declaration
from quietmean.protocols import get_protocol, registry

# Of several types the narrowest that a text can be is taken.
_NUMBERS = (int, float)


@dataclass
class _Option:
    """One option: the key that it has in JSON, and what it may be in any protocol."""

    key: str
    kinds: set[type] = field(default_factory=set)


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
                    f"protocol {name!r} calls its option {key!r} --{parameter.flag}, a flag of {option.key!r}. Rename it."
                )
            option.kinds |= {kind if kind in (int, float, bool) else str for kind in parameter.kinds} | (
                {str} if parameter.auto else set()
            )
    return dict(sorted(options.items()))


# What --with says of a committee, whose shape is no option of a protocol.
OF_COMMITTEE = {
    "committee-colluding": (int, "how many members may collude, with all other contributors; default 1"),
    "committee-gone": (int, "how many members may be gone for good at any moment; default as many as may collude"),
    "committee-size": (str, "gone: members that lie can prevent a result. lying: their sums are corrected, for twice the bytes"),
    "verified": (bool, "members check that each number of a contribution is within its bounds, without learning it"),
    "products": (bool, "with verified, where each contributes one record: members check squares and products, too"),
}
_TRUE, _FALSE = ("yes", "true", "1"), ("no", "false", "0")


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class ProtocolOptions:
    """What is said of one protocol.

    Parameters
    ----------
    chosen_with
        NAME=VALUE: an option of the protocol or committee, such as rounds=20. Repeat for several. quietmean help protocol NAME
        lists them.
    """

    chosen_with: Annotated[list[str] | None, Parameter(name="--with", consume_multiple=1)] = None

    def chosen(self) -> dict[str, Any]:
        """Options of protocols by their key in JSON. Raises :class:`InputError` for what cannot be one."""
        options = _collect()
        return {options[name].key: value for name, value in self._said().items() if name not in OF_COMMITTEE}

    @property
    def given(self) -> dict[str, Any]:
        """The options of protocols as they are written."""
        return {f"with {name}": value for name, value in self._said().items() if name not in OF_COMMITTEE}

    def of_committee(self) -> dict[str, Any]:
        """What is said of a committee, by the names that its shape has."""
        return {name.replace("-", "_"): value for name, value in self._said().items() if name in OF_COMMITTEE}

    def _said(self) -> dict[str, Any]:
        said: dict[str, Any] = {}
        known = {**{name: option.kinds for name, option in _collect().items()}, **{n: {k} for n, (k, _) in OF_COMMITTEE.items()}}
        for text in self.chosen_with or ():
            written, equals, value = text.partition("=")
            name = written.strip().replace("_", "-")
            name = next((flag for flag, option in _collect().items() if option.key == written.strip()), name)
            if name not in known:
                near = nearest(name, known)
                raise InputError(
                    f"{written!r} is not an option of a protocol{near}. See quietmean help protocol NAME, which lists those."
                )
            if not equals or not value.strip():
                raise InputError(f"--with {written} has no value. Write --with {name}=VALUE.")
            if name in said:
                raise InputError(f"--with {name} is given twice. Give it once.")
            said[name] = _value(name, value.strip(), known[name])
        return said


def with_option(name: str) -> str | None:
    """The name that --with has for an option of a protocol or committee, of which this is the flag or the key; else None."""
    flags = {key: flag for flag, option in _collect().items() for key in (flag, option.key)} | {
        flag: flag for flag in OF_COMMITTEE
    }
    return flags.get(name) or flags.get(name.replace("_", "-"))


def _value(name: str, text: str, kinds: set[type]) -> Any:
    """What a text means for an option of these types. Raises :class:`InputError` where it means nothing."""
    if bool in kinds and text.lower() in (*_TRUE, *_FALSE):
        return text.lower() in _TRUE
    for kind in _NUMBERS:
        if kind in kinds:
            with contextlib.suppress(ValueError):
                return kind(text)
    if str in kinds:
        return text
    wanted = "yes or no" if bool in kinds else "a number, such as 0.5" if float in kinds else "a whole number, such as 3"
    raise InputError(f"{name} is {text!r}. Give {wanted}.")


def protocol_help(name: str = "") -> str:
    """The options of a protocol with what they mean, their defaults and bounds; or of a committee.

    Raises :class:`InputError` for an unknown name.
    """
    if not name:
        return "\n".join([f"quietmean help protocol NAME, with one of: {', '.join(registry())}, committee"])
    if name == "committee":
        lines = [f"  {option}={_KINDS[kind]}\n      {as_sentence(text)}" for option, (kind, text) in OF_COMMITTEE.items()]
        return "\n".join(["committee: with --committee MEMBERS, each as --with NAME=VALUE", *lines])
    kind = get_protocol(name)
    lines = []
    for parameter in options_of(kind).values():
        if parameter.flag is None:
            continue
        values = "|".join(parameter.choices) or "|".join(dict.fromkeys(_KINDS.get(each, "TEXT") for each in parameter.kinds))
        about = "; ".join(part for part in (_limits(parameter), _default(parameter)) if part)
        lines.append(
            f"  {parameter.flag}={values}{'|auto' if parameter.auto else ''}\n      {as_sentence(parameter.help)}"
            + (f" {as_sentence(about)}" if about else "")
        )
    heading = f"{kind.name}: {'each as --with NAME=VALUE' if lines else 'it has no options'}"
    return "\n".join([heading, *lines])


_KINDS: dict[Any, str] = {int: "N", float: "NUMBER", bool: "yes|no", str: "TEXT"}


def _limits(parameter: Declaration) -> str:
    """The range of its numbers in words."""
    ends = (
        ("at least", parameter.at_least),
        ("above", parameter.above),
        ("at most", parameter.at_most),
        ("below", parameter.below),
    )
    return ", ".join(f"{words} {end:g}" for words, end in ends if end is not None)


def _default(parameter: Declaration) -> str:
    default = parameter.default
    if default is OPEN:
        return "default: found by planning"
    shown = parameter.to_json(default)
    return "" if shown is None else f"default {'yes' if shown is True else 'no' if shown is False else shown}"


NO_OPTIONS = ProtocolOptions()


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class AgreementOptions:
    """What belongs to a study or session that a command is about, and whose part in it this is.

    Parameters
    ----------
    roster
        Names, addresses and public keys of all parties. For a study that is not signed.
    key
        This party's private key, from quietmean key new.
    plan
        A plan from quietmean plan, the same for all parties. By default each party makes the same plan from the study.
    no_privacy
        Agree to a study whose protocol protects nothing. Refused otherwise.
    """

    roster: Path | None = None
    key: Path = Path("quietmean.key")
    plan: Path | None = None
    no_privacy: bool = False

    def require_key_alone(self, agreement: str, store: Path | None) -> None:
        """Raises :class:`InputError` for what says nothing of the ``agreement``, which holds all that its parties agree on."""
        options = {"roster": self.roster, "plan": self.plan, "no-privacy": self.no_privacy, "store": store}
        if names := [name for name, value in options.items() if value]:
            raise InputError(f"--{names[0]} has no effect in {agreement}. Leave it out.")


NO_AGREEMENT_OPTIONS = AgreementOptions()


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class StudyOptions:
    """A study to plan, and what is known or wanted of it.

    Parameters
    ----------
    study
        Plan this study instead of a target, with the expected width of each interval. Give a signed study, or a study file with
        --roster or --parties. Refused if the noise hides every answer.
    roster
        Names, addresses and public keys of all parties. For a study that is not signed.
    records
        With --study: how many records all parties have together, if that is public.
    width
        With --study: the width that you want, both sides together: 2 is +-1. The answer says how many records or parties, or
        which epsilon, give each statistic's first interval this width.
    power
        With --study: the power that you want, such as 0.8. The answer says what gives each test this power at the 5 % level, if
        the effects that the study states under `expect` are true.
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
                raise InputError(f"no study is given for {options}. Give --study FILE too, or leave them out.")
