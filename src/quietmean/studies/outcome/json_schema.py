"""JSON Schemas of what a study writes: the result of ``run`` and ``join --json``, and the receipt.

They are made from the same declarations as the files: protocols of other packages are in them as soon as they are installed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Any

from quietmean.core.domain import Neighbouring
from quietmean.core.schema import Configured, Parameter, parameters_of
from quietmean.protocols import registry
from quietmean.protocols.committee.mechanism import CommitteeSharing
from quietmean.protocols.target import ALL_AFTER_FIRST
from quietmean.statistics.tails import LEVEL

DIALECT = "https://json-schema.org/draft/2020-12/schema"

Schema = dict[str, Any]

NUMBER: Schema = {"type": "number"}
COUNT: Schema = {"type": "integer", "minimum": 0}
TEXT: Schema = {"type": "string"}
TRUTH: Schema = {"type": "boolean"}
# JSON has no infinity: the text "inf" means it, such as for the error of what the noise hides.
SIZE_OR_INF: Schema = {"anyOf": [{"type": "number", "minimum": 0}, {"const": "inf"}]}

_TYPES = {int: "integer", float: "number", str: "string", bool: "boolean"}


def array(items: Schema, *, least: int | None = None, most: int | None = None) -> Schema:
    limits = {"minItems": least, "maxItems": most}
    return {"type": "array", "items": items, **{name: limit for name, limit in limits.items() if limit is not None}}


def nullable(schema: Schema) -> Schema:
    return {"anyOf": [schema, {"type": "null"}]}


def by_name(schema: Schema) -> Schema:
    """An object with any names, and values of one form."""
    return {"type": "object", "additionalProperties": schema}


def record(fields: Mapping[str, Schema], optional: Iterable[str] = ()) -> Schema:
    """An object with these fields and no others; all are required but the ``optional`` ones."""
    left_out = set(optional)
    return {
        "type": "object",
        "properties": dict(fields),
        "required": [name for name in fields if name not in left_out],
        "additionalProperties": False,
    }


def described(schema: Schema, text: str) -> Schema:
    return {"description": text, **schema}


def declared_fields(kind: type[Configured]) -> dict[str, Schema]:
    """The schemas of all declared fields of a type, by their names in JSON."""
    return {parameter.key: described(_of(parameter), parameter.help) for parameter in parameters_of(kind).values()}


def _of(parameter: Parameter) -> Schema:
    if parameter.read is not None or parameter.write is not None:
        # Its own form in JSON, which only its reader knows.
        return {}
    limits = {
        "minimum": parameter.at_least,
        "exclusiveMinimum": parameter.above,
        "maximum": parameter.at_most,
        "exclusiveMaximum": parameter.below,
    }
    numeric = {name: limit for name, limit in limits.items() if limit is not None}
    forms: list[Schema] = []
    for kind in parameter.kinds:
        if parameter.choices:
            forms.append({"enum": list(parameter.choices)})
        elif isinstance(kind, type) and issubclass(kind, StrEnum):
            forms.append({"enum": [str(choice) for choice in kind]})
        elif kind in _TYPES:
            forms.append({"type": _TYPES[kind], **(numeric if kind in (int, float) else {})})
        else:
            return {}
    forms += [{"const": "auto"}] * parameter.auto + [{"type": "null"}] * parameter.optional
    return forms[0] if len(forms) == 1 else {"anyOf": forms}


# Who reads messages besides: the chance of each, or which.
READ: Schema = {"anyOf": [NUMBER, {"const": ALL_AFTER_FIRST}]}
# An estimate is a number, or numbers by term, and these by group; null where the noise does not allow one.
_END: Schema = {"anyOf": [NUMBER, {"enum": ["inf", "-inf"]}, {"type": "null"}]}
_INTERVAL = nullable(array(_END, least=2, most=2))


def result_schema() -> Schema:
    """Return the schema of the one JSON document that ``run --json``, ``join --json`` and ``study combine --json`` print."""
    local = {"true_mean", "killed"}
    node = {"refusals", "silent", "unresolved", "counted_twice", "counted_twice_part", "notes", "ledger", "not_in_at_start"}
    node |= {"impossible_releases", "equivocating"}
    files = {"headline", "contributions", "left_out", "twice"}
    fields = _result() | {
        "true_mean": described(_by_term(NUMBER), "run only: of the records that count, without noise"),
        "killed": described(array(COUNT), "run only: the parties whose process was killed"),
        "messages": described(COUNT, "messages sent"),
        "bytes": described(COUNT, "bytes sent"),
        "seconds": described(NUMBER, "from the start to the result"),
        "receipt": described(TEXT, "the file that quietmean verify receipt reads"),
        "report": described(nullable(TEXT), "the page for who reads the result; null without the extra for pages"),
        "privacy_page": described(nullable(TEXT), "the privacy page; null without pages"),
        "protocol": TEXT,
        "why": described(TEXT, "why this protocol was taken"),
        "not_counted": described(array(TEXT), "the parties whose values are not in the result"),
        "expected": described(array({"type": "object"}), "what widths were expected before the start"),
        "refusals": described(array(TEXT), "join only: what came from others and was refused"),
        "silent": described(array(COUNT), "join only: parties whose final log did not come"),
        "unresolved": array(array(COUNT, least=3, most=3)),
        "counted_twice": array(array(COUNT, least=3, most=3)),
        "counted_twice_part": NUMBER,
        "impossible_releases": described(array(array({"anyOf": [COUNT, TEXT]}, least=2, most=2)), "join only: party, digest"),
        "equivocating": described(
            array(array({"anyOf": [COUNT, TEXT]}, least=4, most=4)),
            "join only: party and digest of what it released here, another party and that of what that one received, as it says",
        ),
        "notes": described(array(TEXT), "join only: what could not be settled, in words"),
        "not_in_at_start": described(array(TEXT), "join only: of a study with start_by, the parties without whom it started"),
        "ledger": described({"type": "object"}, "join only: what is left of the budget"),
        "headline": described(TEXT, "study combine only: how many parties are in the result, and who is not"),
        "contributions": described(by_name(TEXT), "study combine only: the digests of the contributions that went in, by party"),
        "left_out": described(
            array(record({"file": TEXT, "reason": TEXT})), "study combine only: files that did not go in, and why"
        ),
        "twice": described(array(TEXT), "study combine only: files that hold the same as another one"),
    }
    return {
        "$schema": DIALECT,
        "title": "Result of a quietmean study",
        **record(fields, optional=local | node | files | {"delta_below", "gate", "nats", "over_gaussian", "why"}),
    }


def receipt_schema() -> Schema:
    """Return the schema of a receipt: the execution, by its protocol, how to certify it, and the public result."""
    common = {
        "parties": described({"type": "integer", "minimum": 1}, "how many took part"),
        "rounds": described(COUNT, "rounds of the schedule"),
        "online": described(array(array(TRUTH)), "for rounds 0 to T, which parties were online"),
        "sensitivity": described(NUMBER, "L2 distance that one unit can move the vector by"),
        "neighbouring": described({"const": str(Neighbouring.ADD_REMOVE)}, "how neighbouring data differ, if not by replacement"),
        "neighbours": described({}, "for each round and party, whom it sends to"),
        "pairs": described({}, "pairs of parties that share noise or masks, or all of them"),
        "lost": described(array(_message()), "messages that did not arrive: round, sender, receiver"),
        "seen": described(array(_message()), "messages that were handed over and not used"),
        "settled": described(
            array(array(COUNT, least=4, most=4)), "whose arrival the sender learnt of in a later round, or never"
        ),
        "weights": described(array(NUMBER), "public weights of the parties"),
        "left_out": described(array(COUNT), "parties whose release counts as seen and is not in the result"),
        "eavesdropping": described(READ, "the adversary reads messages between honest parties: the chance of each, or which"),
        "intercepted": described(
            array(array(COUNT, least=2, most=2)),
            "what was drawn to be read: party, and after which round it held what it then sent",
        ),
        "certify": record(
            {"colluding": COUNT, "delta": NUMBER, "epsilon": NUMBER, "nats": NUMBER, "eavesdropping": READ},
            optional=["epsilon", "nats", "eavesdropping"],
        ),
        "result": record(_result(), optional=["delta_below", "gate", "nats", "over_gaussian"]),
        "origin": {"type": "object"},
        "gate": described({"type": "object"}, "what happened at the gate before the release"),
        "no_result": described(
            record({"reason": TEXT, "charged": TEXT}), "instead of a result: why there is none, and what it costs"
        ),
    }
    required = ["protocol", "parties", "rounds", "online", "sensitivity", "certify"]
    kinds = []
    receipts: dict[str, type[Configured]] = {**registry(), CommitteeSharing.name: CommitteeSharing}
    for name, kind in sorted(receipts.items()):
        fields = {**common, **declared_fields(kind), "protocol": {"const": name}}
        kinds.append({"type": "object", "properties": fields, "required": required, "additionalProperties": False})
    paid = {name: common[name] for name in ("certify", "origin", "no_result")}
    kinds.append({"type": "object", "properties": paid, "required": ["certify", "no_result"], "additionalProperties": False})
    return {"$schema": DIALECT, "title": "Receipt of a quietmean study", "oneOf": kinds}


def _message() -> Schema:
    """Round, sender, receiver; null means all."""
    return array(nullable(COUNT), least=3, most=3)


def _by_term(leaf: Schema) -> Schema:
    number = nullable(leaf)
    return {"anyOf": [number, by_name({"anyOf": [number, by_name(number)]})]}


def _result() -> dict[str, Schema]:
    return {
        "columns": array(TEXT),
        "estimate": described(_by_term(NUMBER), "means of columns"),
        "standard_error": described(_by_term(SIZE_OR_INF), "of the privacy noise"),
        "epsilon_a_priori": described(SIZE_OR_INF, "promised before the start for any history; an upper bound"),
        "enforced_by": described(TEXT, "what holds the promise"),
        "epsilon": described(SIZE_OR_INF, "of the execution that happened, an upper bound"),
        "delta": NUMBER,
        "delta_below": described(NUMBER, "what delta is below, where epsilon is pure"),
        "over_gaussian": described(NUMBER, "how many times what Gaussian noise takes of a shared budget; an upper bound"),
        "certificate": described({"type": "object"}, "what the figures mean and take for granted"),
        "parties_counted": COUNT,
        "without": described(array(COUNT), "the parties whose values are not in it, by their places"),
        "over_curator": described(nullable(NUMBER), "standard deviation of the noise over that of a trusted curator"),
        "statistics": array(answer_schema()),
        "warnings": array(TEXT),
        "gate": {"type": "object"},
        "nats": described(
            record(
                {
                    "target": NUMBER,
                    "most": SIZE_OR_INF,
                    "revealed_variance": NUMBER,
                    "prior_sd": NUMBER,
                    "coordinates": COUNT,
                    "a_priori": NUMBER,
                },
                optional=["coordinates", "a_priori"],
            ),
            "of a target in nats: what a coalition learnt at most of a coordinate of another's value, and how many it has; "
            "a_priori: in any history",
        ),
    }


def answer_schema() -> Schema:
    """Return the schema of one entry of ``statistics``."""
    test = record(
        {
            "method": described(TEXT, "what the test is called"),
            "symbol": described(TEXT, "what its statistic is called: t, z, F, chi-squared"),
            "about": described(TEXT, "the column or term that it is of, where an answer has several tests"),
            "statistic": nullable(NUMBER),
            "df": array(nullable(SIZE_OR_INF)),
            "p_value": nullable(NUMBER),
        },
        optional=["method", "symbol", "about"],
    )
    fields = {
        "name": described(TEXT, "as it was asked for"),
        "kind": TEXT,
        "terms": described(array(TEXT), "the terms of all that is by term, in their order; with its group, where it has one"),
        "groups": described(array(TEXT), "the group of each term, where what is by term is by group first"),
        "estimate": _by_term(NUMBER),
        "standard_error": described(_by_term(SIZE_OR_INF), "of the privacy noise"),
        "noise_law": described(
            record({"kind": {"const": "laplace"}, "quantile": NUMBER}),
            "of noise that is not normal, and how many standard errors hold 95 % of it in one number",
        ),
        "standard_error_population": _by_term(SIZE_OR_INF),
        "interval_noise": described(_by_term(_INTERVAL), "for what the same records give without noise"),
        "interval_population": described(_by_term(_INTERVAL), "for the population of which they are a random sample"),
        "interval_level": {"const": LEVEL},
        "population": described({"const": "these records"}, "the interval to quote is that of the noise, about these records"),
        "resolution": described(
            _by_term(_INTERVAL), "how far below and above the estimate bins leave it open, in both intervals"
        ),
        "p_value": _by_term(NUMBER),
        "test_statistic": described(_by_term(NUMBER), "what the p-value of a term is of"),
        "since": described(_by_term(TEXT), "the day that estimates and intervals count days from, where they are dates"),
        "flags": array(TEXT),
        "messages": described(array(TEXT), "the flags in words"),
        "flagged": described(
            array(record({"code": TEXT, "message": TEXT, "terms": array(TEXT), "upper": nullable(NUMBER)})),
            "the flags with their terms, of which no terms mean the whole answer, and what a hidden count is below",
        ),
        "method": TEXT,
        "coverage_ignoring_noise": described(_by_term(NUMBER), "what an interval without the noise would cover"),
        "completeness": described(
            nullable(
                record(
                    {
                        "present": nullable(NUMBER),
                        "missing": nullable(NUMBER),
                        "standard_error_present": nullable(NUMBER),
                        "standard_error_missing": nullable(NUMBER),
                        "outside": nullable(NUMBER),
                        "standard_error_outside": nullable(NUMBER),
                    },
                    optional=["outside", "standard_error_outside"],
                )
            ),
            "how many records have a value in all columns that it needs, and how many have not. Where it has a "
            "condition, also how many are outside it. It is null where nothing that was released shows it",
        ),
        "n": described(_by_term(NUMBER), "how many records each term is of"),
        "n_standard_error": described(_by_term(NUMBER), "of the privacy noise in that"),
        "tests": by_name(test),
        "summary": described({"type": "object"}, "by kind; compared: by term, who is compared with whom"),
        "reason": described(TEXT, "why nothing is said of the population"),
        "share": NUMBER,
        "budget_part": described(NUMBER, "of the study's budget, 0 to 1"),
        "records": described(
            nullable(NUMBER), "so many are in it; an estimate where counts are private, null where nothing tells"
        ),
        "by_rounds": described(TEXT, "where the noise hides a slope: the question of a model by rounds, as it is typed"),
        "true_value": described(_by_term(NUMBER), "run only: what the records that count give without noise"),
    }
    optional = ["groups", "noise_law", "population", "resolution", "since", "tests", "summary", "reason"]
    return record(fields, optional=[*optional, "by_rounds", "true_value"])
