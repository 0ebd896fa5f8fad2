"""Commands for programs and shells: JSON Schemas, and completion."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Literal, cast, get_args

from quietmean.cli.common import Out
from quietmean.cli.console import out, output, print_json
from quietmean.core.errors import InputError
from quietmean.core.output import has_fields
from quietmean.studies.outcome.json_schema import receipt_schema, result_schema


def schema_command(
    document: Literal["result", "receipt"],
    *,
    save: Out = None,
) -> None:
    """Print a JSON Schema (draft 2020-12), for programs that read results.

    Parameters
    ----------
    document
        result: what run and join print with --json. receipt: the file that verify receipt reads.
    save
        Write it to this file instead.
    """
    schema = {"result": result_schema, "receipt": receipt_schema}[document]()
    if save is None:
        print_json(schema)
    else:
        output(save, "the schema", kind=has_fields("$schema")).write_json(schema)


Shell = Literal["bash", "zsh", "fish"]


def completion_command(shell: Shell | None = None, *, install: bool = False) -> None:
    """Show the script with which a shell completes commands and options; or install it for this user.

    Parameters
    ----------
    shell
        Which shell. Default: the one that the environment variable SHELL names.
    install
        Install it where the shell looks for it, and print that place.
    """
    from quietmean.cli.main import make_app

    shell_name = shell or _own_shell()
    app = make_app(None)
    if install:
        try:
            path = app.install_completion(shell=shell_name)
        except OSError as error:
            raise InputError(
                f"completion for {shell_name} cannot be installed ({error.strerror}). Leave --install out. Save what is then "
                "printed where the shell looks for it."
            ) from None
        out.print(f"{path} completes commands for {shell_name} in every new shell")
    else:
        sys.stdout.write(app.generate_completion(shell=shell_name))


def _own_shell() -> Shell:
    """The name of the user's shell. Raises :class:`InputError` for one that is not known."""
    name = Path(os.environ.get("SHELL", "")).name
    if name not in get_args(Shell):
        raise InputError(f"the shell {name!r} is not known. Name one, {', '.join(get_args(Shell))}.")
    return cast("Shell", name)
