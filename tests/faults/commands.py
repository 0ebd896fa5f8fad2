"""Commands as copies of one prepared process, which has imported what they import: ``python -m faults.commands``.

It reads orders, a line of JSON each: to start a command, or a function that prints what it gives, in a folder, with an
environment of its own and files for what it prints, which a fault in that folder does not strike; or to tell which have ended.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

from quietmean.cli.main import main as command
from quietmean.core.errors import QuietmeanError
from quietmean.core.logs import hide_error_texts
from quietmean.core.outage import outage_of

_PAUSE = 0.01


def _called(name: str, *given: Any) -> Any:
    """What the function ``MODULE:NAME`` gives; of a MODULE alone it is nothing but imported."""
    module, _, function = name.partition(":")
    found = importlib.import_module(module)
    return getattr(found, function)(*given) if function else None


def _as_a_command(error: QuietmeanError) -> int:
    """Say it, and the exit code that a command would end with."""
    print(f"{type(error).__name__}: {error}", file=sys.stderr)
    return error.exit_code


def _begin(order: dict[str, Any]) -> int:
    child = os.fork()
    if child:
        return child
    os.setsid()
    for number, name in ((0, os.devnull), (1, order["out"]), (2, order["err"])):
        handle = os.open(name, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
        os.dup2(handle, number)
        os.close(handle)
    os.chdir(order["folder"])
    sys.stdin, sys.stdout, sys.stderr = (open(number, mode, closefd=False) for number, mode in ((0, "r"), (1, "w"), (2, "w")))  # noqa: SIM115
    os.environ.update(order["environment"])
    signal.signal(signal.SIGINT, signal.default_int_handler)
    code = 1
    try:
        hide_error_texts()
        if "call" in order:
            print(json.dumps(_called(order["call"], *order["given"])))
        else:
            command(order["line"])
        code = 0
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else 0 if ended.code is None else 1
    except QuietmeanError as error:
        code = _as_a_command(error)
    except BaseException as error:
        outage = outage_of(error, order["folder"]) if isinstance(error, Exception) else None
        if outage is None:
            sys.excepthook(type(error), error, error.__traceback__)
        else:
            code = _as_a_command(outage)
    finally:
        if order.get("modules"):
            Path(order["modules"]).write_text("\n".join(name for name in sys.modules if name.startswith("quietmean")))
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        os._exit(code)


def _ended(seconds: float) -> dict[int, int]:
    """Exit codes of those that have ended, by their numbers, as soon as there is one."""
    end = time.monotonic() + seconds
    codes: dict[int, int] = {}
    while not codes and time.monotonic() < end:
        try:
            while (found := os.waitpid(-1, os.WNOHANG))[0]:
                codes[found[0]] = os.waitstatus_to_exitcode(found[1])
        except ChildProcessError:
            return codes
        time.sleep(_PAUSE)
    return codes


def main() -> None:
    """Until the end of the orders."""
    for line in sys.stdin:
        order = json.loads(line)
        if "prepare" in order:
            for name in order["prepare"]:
                _called(name)
            # Copies collect no waste of it: each page that they look at is copied.
            gc.freeze()
            answer: object = None
        elif "out" in order:
            answer = _begin(order)
        else:
            answer = _ended(order["seconds"])
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
