"""``quietmean schema``: the JSON Schemas of what other programs read."""

from __future__ import annotations

from typing import Literal

from quietmean.cli.common import Out
from quietmean.cli.console import output, print_json
from quietmean.core.output import has_fields


def schema_command(
    document: Literal["result", "receipt"],
    *,
    save: Out = None,
) -> None:
    """Print a JSON Schema (draft 2020-12), for programs that read results.

    Parameters
    ----------
    document
        result: what run and join print with --json. receipt: the file that certify reads.
    save
        Write it to this file instead.
    """
    from quietmean.studies.outcome.json_schema import receipt_schema, result_schema

    schema = {"result": result_schema, "receipt": receipt_schema}[document]()
    if save is None:
        print_json(schema)
    else:
        output(save, "the schema", kind=has_fields("$schema")).write_json(schema)
