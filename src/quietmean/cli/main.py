"""``quietmean``: the entry point, its commands and exit codes."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from cyclopts import App, CycloptsError

from quietmean.cli import attack, certify, check, identity, join, ledger, plan, reproduce, run, simulate, status
from quietmean.cli.console import fail
from quietmean.core.errors import QuietmeanError

app = App(
    name="quietmean", help="The mean of private values, with nobody in the middle to trust.", suppress_keyboard_interrupt=False
)
for module in (run, identity, check, join, status, certify, attack, plan, simulate, reproduce, ledger):
    app.command(module.command, name=module.NAME)


def main(arguments: Sequence[str] | None = None) -> None:
    """Exit code 0 on success, 2 for a user's mistake, 3 if a protocol could not finish."""
    tokens = list(sys.argv[1:] if arguments is None else arguments)
    try:
        app(tokens, exit_on_error=False, print_error=False, result_action="return_value")
    except CycloptsError as error:
        fail(f"{error} (quietmean --help shows the commands, quietmean COMMAND --help their options)", 2)
    except QuietmeanError as error:
        fail(str(error), error.exit_code)
    except KeyboardInterrupt:
        fail("interrupted; nothing was lost: the same command continues a study that had begun", 130)


if __name__ == "__main__":
    main()
