"""Every document that a study wrote, held against the published JSON Schema by another library."""

from __future__ import annotations

from functools import cache
from typing import Any

from jsonschema import Draft202012Validator

from quietmean.studies.outcome.json_schema import Schema, answer_schema, receipt_schema, result_schema


@cache
def _validator(which: str) -> Draft202012Validator:
    schema: Schema = {"result": result_schema, "receipt": receipt_schema, "answer": answer_schema}[which]()
    Draft202012Validator.check_schema(schema)
    return Draft202012Validator(schema)


def faults(which: str, document: Any) -> list[str]:
    """Where a document is not as its schema says: of a receipt, by the schema of its protocol, or of none without a result."""
    validator = _validator(which)
    if which == "receipt":
        kinds = {one["properties"].get("protocol", {}).get("const"): one for one in validator.schema["oneOf"]}
        validator = Draft202012Validator(kinds[document.get("protocol")])
    return [f"{error.json_path}: {error.message[:300]}" for error in validator.iter_errors(document)]
