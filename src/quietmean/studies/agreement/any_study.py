"""What parties can agree on: a study, one release of statistics, or a session, many means of vectors."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeAlias

from quietmean.core.codec import decode_toml
from quietmean.core.errors import InputError
from quietmean.core.file_kinds import FileKind
from quietmean.core.readable import ShortFact, chained, count_of, delta_shown, epsilon_shown, phrase
from quietmean.core.readable_days import day_text
from quietmean.core.toml_files import read_tables
from quietmean.planning.automatic import AUTO
from quietmean.statistics import Column, Columns
from quietmean.studies.agreement.session_study import TABLE, SessionStudy
from quietmean.studies.agreement.study import StudyTerms

AnyStudy: TypeAlias = StudyTerms | SessionStudy


def load_any(path: Path) -> AnyStudy:
    """Read a study file or a session file. Raises :class:`InputError` if it cannot be read or is not right."""
    raw = read_tables(path, "study file", FileKind.STUDY, FileKind.SESSION)
    return any_of_tables(raw, f"{'session' if TABLE in raw else 'study'} file {path.name}")


def any_of_tables(raw: Mapping[str, Any], source: str) -> AnyStudy:
    """Read the tables of such a file, which is at ``source``. Raises :class:`InputError` for what is not right."""
    return (SessionStudy if TABLE in raw else StudyTerms).from_tables(raw, source)


def require_study(study: AnyStudy) -> StudyTerms:
    """Raises :class:`InputError` for a session, whose vectors are in no file of data, or are those of a model."""
    if isinstance(study, SessionStudy):
        study.require_model()
        raise InputError(f"{study.name!r} is a session that fits a model. Run quietmean join FILE --data FILE.")
    return study


def columns_in(study: AnyStudy) -> Columns:
    """The columns that a study is about, or the model of a session. Raises :class:`InputError` for a session of a program."""
    return Columns(study.require_model().columns) if isinstance(study, SessionStudy) else study.workload.columns


def has_committee(study: AnyStudy) -> bool:
    """Whether a committee opens its sum, so that most parties only contribute."""
    return isinstance(study, StudyTerms) and study.committee is not None


def with_registrar(study: AnyStudy, registrar: str) -> AnyStudy:
    """The study with this registrar, if it has vouchers of nobody yet."""
    if not isinstance(study, StudyTerms) or study.committee is None or study.committee.vouchers is None:
        return study
    named = study.committee.registrar or registrar
    return study.model_copy(update={"committee": study.committee.model_copy(update={"registrar": named})})


def require_session(study: AnyStudy) -> SessionStudy:
    """Raises :class:`InputError` for a study."""
    if isinstance(study, StudyTerms):
        raise InputError(
            f"{study.name!r} is a study of statistics, not a session. Run quietmean join FILE --data FILE, or qm.join."
        )
    return study


def study_text(study: AnyStudy, *, asks: bool = False) -> str:
    """A study file or session file in TOML that :func:`load_any` reads as this one, with every default written out.

    ``asks``: with questions in place of tables of columns and statistics, where they say the same.
    """
    tables = study.tables()
    if isinstance(study, SessionStudy):
        return "\n".join(["[session]", *_lines(tables["session"])]) + "\n"
    general = dict(tables["study"])
    options = general.pop("options", {})
    texts = study.questions() if asks else []
    questions = ["ask = [", *(f"  {_value(text)}," for text in texts), "]"] if texts else []
    parts = ["[study]", *questions, *_lines(general)]
    if options:
        parts += ["", "[study.options]", *_lines(options)]
    for name in () if texts else ("column", "statistic"):
        for table in tables[name]:
            parts += ["", f"[[{name}]]", *_lines(table)]
    return "\n".join(parts) + "\n"


def is_study(content: bytes) -> bool:
    """Whether a file holds a study in TOML, whatever it asks."""
    try:
        tables = decode_toml(content, InputError)
    except InputError:
        return False
    general = tables.get("study", {})
    asks = "column" in tables or (isinstance(general, Mapping) and "ask" in general)
    return asks and not set(tables) - {"study", "column", "statistic"}


def _lines(table: Mapping[str, Any]) -> list[str]:
    return [f"{_key(name)} = {_value(value)}" for name, value in table.items() if value is not None]


def _key(name: str) -> str:
    return name if name.isascii() and name.replace("_", "").replace("-", "").isalnum() else _value(name)


def _value(value: Any) -> str:
    match value:
        case bool():
            return "true" if value else "false"
        case float() if math.isinf(value) or math.isnan(value):
            return str(value)
        case int() | float():
            return repr(value)
        case Mapping():
            return "{" + ", ".join(_lines(value)) + "}"
        case list() | tuple():
            return "[" + ", ".join(map(_value, value)) + "]"
        case _:
            # A JSON string is a valid TOML basic string; DEL is the one control character that JSON leaves as it is.
            return json.dumps(str(value), ensure_ascii=False).replace("\x7f", "\\u007f")


def facts_of(study: AnyStudy) -> list[ShortFact]:
    """What a study asks, of which columns, and for what cost, before its parties are known."""
    promise = f"epsilon {epsilon_shown(study.epsilon)} (delta {delta_shown(study.delta)})"
    if isinstance(study, StudyTerms) and study.nats is not None:
        promise = study.in_words
    how = "protocol chosen at signing" if study.protocol == AUTO else f"protocol {study.protocol}"
    cost = f"{promise} per {study.unit}; {how}"
    return [
        ShortFact("asks", asked_text(study)),
        ShortFact("uses", used_text(study)),
        *bounds_of(study),
        ShortFact("costs", cost),
    ]


def bounds_of(study: AnyStudy) -> list[ShortFact]:
    """Where bounds come from that a first look proposed; nothing of others."""
    looked = study.first_look if isinstance(study, StudyTerms) else None
    return [] if looked is None else [ShortFact("bounds", looked.text)]


def asked_text(study: AnyStudy) -> str:
    """What is asked for."""
    if not isinstance(study, SessionStudy):
        return "; ".join(statistic.text for statistic in study.workload.statistics)
    if study.model:
        return study.model
    vectors = f"vectors of {count_of(study.dimension, 'number')}, of L2 norm {study.clip:g}"
    return f"at most {count_of(study.rounds, 'mean')} of {vectors}"


def used_text(study: AnyStudy) -> str:
    """Which columns, with all that is agreed on their values."""
    if isinstance(study, SessionStudy):
        columns = chained((_column(column, imputed=False) for column in study.columns), ", ")
        return columns or phrase("vectors that a program at your site makes")
    imputed = study.workload.imputed()
    return chained((_column(column, imputed=column in imputed) for column in study.workload.columns), ", ")


def _column(column: Column, *, imputed: bool) -> str:
    return column_text(column, phrase("missing counts as {centre}", centre=_said(column, column.centre)) if imputed else "")


def _said(column: Column, value: float) -> str:
    """A number of a column, or the day that it counts to."""
    return day_text(value, column.since) if column.since else f"{value:g}"


def column_text(column: Column, missing: str) -> str:
    """Name a column with what its cells may be. ``missing``: what is said of missing cells; of yes or no they are none."""
    levels = phrase("yes or no") if column.boolean else ", ".join(column.described_levels)
    domain = (
        levels
        or (phrase("any number") if column.may_be_any else "")
        or phrase("{low} to {high}", low=_said(column, column.low), high=_said(column, column.high))
    )
    # Of yes or no none is missing.
    return phrase("{column} ({values})", column=column.name, values=chained((domain, "" if column.boolean else missing)))
