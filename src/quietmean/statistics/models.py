"""Questions that models by rounds answer: ``glm(ill in yes/no ~ age in 30..80, family=binomial)``.

They are no statistics of one release: each is a session of its own, whose rounds share one budget.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from quietmean.core.errors import InputError
from quietmean.core.lazy import model_parameters
from quietmean.core.schema import require_known
from quietmean.statistics.columns import EITHER, UndeclaredColumn
from quietmean.statistics.names import field_of, names_of, split, unquoted


def _numbers(text: str) -> list[float]:
    return [float(number) for number in text.split()]


@dataclass(frozen=True)
class ModelKind:
    """A kind of model: its ``name``, ``other_names``, and an ``example``. Its fields are the parameters of its class."""

    name: str
    other_names: Sequence[str]
    example: str

    @cached_property
    def parameters(self) -> Mapping[str, inspect.Parameter]:
        """All that a question says, by the name of the field; one without a default is needed."""
        found: dict[str, inspect.Parameter] = model_parameters(self.name)
        return found

    @property
    def needed(self) -> list[str]:
        """The fields that every model needs."""
        return [name for name, parameter in self.parameters.items() if parameter.default is inspect.Parameter.empty]

    def read(self, name: str, text: str) -> Any:
        """A field of a text. Raises ``ValueError`` for one that it cannot have."""
        kind = str(self.parameters[name].annotation)
        return text if name == FORMULA else _READ.get(kind.removesuffix(" | None"), unquoted)(text)


# The field that is written without its name, and how others are read, by their types.
FORMULA = "formula"
_READ: Mapping[str, Callable[[str], Any]] = {"float": float, "int": int, "Sequence[float]": _numbers}
MODELS = {
    model.name: model
    for model in (
        ModelKind("generalized-linear-model", ("glm",), "ill in yes/no ~ age in 30..80, family=binomial"),
        ModelKind("proportional-hazards", (), "~ age in 30..80, time=years in 0..5, event=died in yes/no, edges=0 1 2 3 4 5"),
    )
}


@dataclass(frozen=True)
class ModelQuestion:
    """The question of a model by rounds, by its ``text``, as it is planned: nothing can be expected of it."""

    text: str
    null: float | None = 0.0
    subject: str | None = None
    expect: tuple[tuple[str, float], ...] = ()
    known_expectations: tuple[str, ...] = ()


# What stands before a bracket or an equals sign.
_NO_COLUMN = re.compile(r"(?<![`\w])\w+\s*(?=[(=])")
# What regressions of one release are by rounds.
_FAMILIES = {"linear-regression": "gaussian", "logistic-regression": "binomial"}
_NAMED = re.compile(r"\s*([\w. -]+?)\s*\(.*\)\s*", re.DOTALL)


def model_named(name: str) -> str | None:
    """The kind of model of this name or alias; None where it is that of something else."""
    spelling = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")
    return next((kind for kind, model in MODELS.items() if spelling in (kind, *model.other_names)), None)


def asks_model(texts: Iterable[str]) -> bool:
    """Is one of the questions one that a model by rounds answers?"""
    return any((found := _NAMED.fullmatch(text)) is not None and model_named(found[1]) is not None for text in texts)


def read_model(kind: str, text: str, parts: Sequence[str]) -> dict[str, Any]:
    """The fields of a model by the ``parts`` in the brackets of its ``text``.

    Raises :class:`InputError` for what cannot be read.
    """
    model, raw = MODELS[kind], dict[str, Any]()
    for part in parts:
        name = field_of(part)
        value = part if name is None else part.partition("=")[2].strip()
        name = FORMULA if name is None else require_known("field", name.replace("-", "_"), tuple(model.parameters))
        if name in raw:
            raise InputError(f"model {text!r} gives {name} twice. Give it once.")
        try:
            raw[name] = model.read(name, value)
        except ValueError:
            raise InputError(f"{name} is {value!r}. Write it as in {kind}({model.example}).") from None
    if "~" not in raw.get(FORMULA, ""):
        raise InputError(f"model {text!r} has no formula. Write {kind}({model.example}).")
    return {"kind": kind, **raw}


def require_declared(text: str, asked: Mapping[str, Any], declared: Sequence[str]) -> None:
    """Raises :class:`UndeclaredColumn`, about all of them at once, for columns of a model's question that nothing is said of."""
    # Names of functions, and of what they are given, are none of columns.
    bare = _NO_COLUMN.sub(" ", asked["formula"])
    of_fields = [asked[field] for field in ("time", "event", "exposure") if field in asked]
    outcome, _, terms = bare.partition("~")
    lacking = {name: EITHER for side in (outcome, terms) for name in sorted(names_of(side), key=side.index)}
    if asked.get("family", "binomial") == "binomial":
        lacking |= dict.fromkeys(names_of(outcome), "domain")
    lacking |= {name: "domain" if name == asked.get("event") else "bounds" for name in of_fields}
    lacking = {name: lacks for name, lacks in lacking.items() if name not in declared}
    if not lacking:
        return
    question = text.strip()
    for name, lacks in lacking.items():
        form, ways = UndeclaredColumn(name, (), lacks).form, "|".join(map(re.escape, (f"`{name}`", name)))
        before, found, after = re.split(rf"((?<![\w`])(?:{ways})(?![\w`]))", question, maxsplit=1)
        question = f"{before}{found} in {form}{after}"
    (first, lacks), *others = lacking.items()
    raise UndeclaredColumn(first, tuple(declared), lacks, question, tuple(others))


def model_text(asked: Mapping[str, Any]) -> str:
    """The question of a model, as it is typed without the domains of its columns."""

    def said(value: Any) -> str:
        return value if isinstance(value, str) else " ".join(f"{number:g}" for number in np.atleast_1d(value))

    fields = {name: asked[name] for name in MODELS[asked["kind"]].parameters if name in asked}
    formula = " ".join(str(fields.pop(FORMULA)).split())
    return f"{asked['kind']}({', '.join([formula, *(f'{name}={said(value)}' for name, value in fields.items())])})"


def asked_by_rounds(text: str) -> str:
    """The question of the model by rounds that answers what a regression of one release asks; "" where none does."""
    found = _NAMED.fullmatch(text)
    family = "" if found is None else _FAMILIES.get(found[1], "")
    formula, *more = split(text.partition("(")[2].removesuffix(")"), ",") if family else ["", "none"]
    conditions = [part.strip() for part in more if field_of(part) == "where"]
    if any(field_of(part) not in ("robust", "where") for part in more):
        return ""
    return f"glm({', '.join([formula.strip(), f'family={family}', *conditions])})"


def asked_in_one_release(asked: Mapping[str, Any]) -> str:
    """The question of the regression of one release that answers what a model by rounds asks; "" where none does."""
    kinds = [kind for kind, family in _FAMILIES.items() if family == asked.get("family")]
    if not kinds or asked.get("exposure"):
        return ""
    condition = [f"where={asked['where']}"] if asked.get("where") else []
    return f"{kinds[0]}({', '.join([asked[FORMULA], *condition])})"


def by_rounds(kind: str) -> InputError:
    """The error of a model where a statistic of one release belongs."""
    return InputError(
        f"{kind} takes several rounds, which one release has not. Ask it alone, by quietmean run or quietmean study new."
    )
