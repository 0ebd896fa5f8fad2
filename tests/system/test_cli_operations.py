"""Running quietmean as a service and from scripts: logs, quiet, JSON errors, SIGTERM, completion, help, stores."""

from __future__ import annotations

import json
import os
import re
import select
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import numpy as np
import pytest

import quietmean
from quietmean.cli.common import EXAMPLES
from quietmean.cli.main import COMMANDS, main, make_app
from quietmean.core.errors import StorageError
from quietmean.node import Identity
from quietmean.node.monitor import status_path, write_status
from quietmean.node.storage import Store, in_use

ENVIRONMENT = {**os.environ, "PYTHONPATH": str(Path(quietmean.__file__).parent.parent)}
QUIET = ["plan", "--parties", "4", "--protocol", "local-dp"]


def ends(arguments: list[str], capsys: pytest.CaptureFixture[str], code: int = 2) -> tuple[str, str]:
    with pytest.raises(SystemExit) as stop:
        main(arguments)
    output = capsys.readouterr()
    assert stop.value.code == code, output.err
    return output.out, output.err


def test_the_package_is_a_program() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "quietmean", "--version"], env=ENVIRONMENT, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout.strip()) == (0, quietmean.__version__)


def test_an_error_with_json_is_a_document(capsys: pytest.CaptureFixture[str]) -> None:
    for arguments in (["plan", "--parties", "1", "--json"], ["key", "new", "--json", "--colour"], ["--json", "fly"]):
        told, said = ends(arguments, capsys)
        document = json.loads(told)
        assert document["exit"] == 2
        assert said == f"quietmean: {document['error']}\n"
    # What was asked once does not stay.
    assert ends(["plan", "--parties", "1"], capsys)[0] == ""


@pytest.mark.slow
def test_the_log_has_what_happens_and_nothing_about_the_data(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log, table = tmp_path / "quietmean.log", tmp_path / "t.csv"
    table.write_text("age,clinic\nSentinel,a\n300,b\n5,c\n6,d\n")
    run = ["run", "--data", str(table), "mean(age in 0..100)", "--parties", "4", "--protocol", "local-dp"]
    main([*run, "--accept-wide", "--delta", "0.3", "--out", str(tmp_path / "out"), "--log-file", str(log)])
    shown, said = capsys.readouterr()
    assert said.count("1 cell counts as missing") == 1
    assert " ".join(shown.split()).count("1 value lies outside its bounds") == 1
    ends([*run, "--out", str(tmp_path / "out"), f"--log-file={log}"], capsys)
    lines = log.read_text().splitlines()
    assert any("delta" in line for line in lines)
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d[+-]\d{4} ERROR folder .* exists already\. .*", lines[-1])
    assert "cell" not in log.read_text()
    assert "outside" not in log.read_text()


@pytest.mark.slow
def test_quiet_says_errors_and_results_only(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "t.csv").write_text("age\nx\n300\n5\n6\n")
    run = ["run", "--data", str(tmp_path / "t.csv"), "mean(age in 0..100)", "--parties", "4"]
    main([*run, "--protocol", "local-dp", "--accept-wide", "--out", str(tmp_path / "out"), "--quiet", "--json"])
    output = capsys.readouterr()
    assert output.err == ""
    assert json.loads(output.out)["parties_counted"] == 4
    assert ends([*run, "--quiet", "--epsilon", "0"], capsys)[1].startswith("quietmean: epsilon is 0")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--log-file"], "names no file"),
        (["--log-file", "/proc/no/where.log"], "the log cannot be written to /proc/no/where.log"),
    ],
)
def test_a_log_that_cannot_be(arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert words in ends([*QUIET, *arguments], capsys)[1]


@pytest.mark.slow
def test_every_help_has_an_example_and_the_exit_codes(capsys: pytest.CaptureFixture[str]) -> None:
    for name in COMMANDS:
        main([*name.split(), "--help"])
        told = " ".join(capsys.readouterr().out.split())
        assert EXAMPLES[name] in told
        assert EXAMPLES[name].startswith(f"quietmean {name}")
        assert "Exit codes: 0 done; 1 a defect of quietmean; 2 a mistake" in told


@pytest.mark.slow
def test_examples_have_options_that_exist(capsys: pytest.CaptureFixture[str]) -> None:
    for name in COMMANDS:
        main([*name.split(), "--help"])
        known = set(re.findall(r"--[a-z-]+", capsys.readouterr().out.partition("Example:")[0]))
        assert set(re.findall(r"--[a-z-]+", EXAMPLES[name])) <= known, name


def test_examples_can_be_typed() -> None:
    for name in COMMANDS:
        tokens = shlex.split(EXAMPLES[name])[1:]
        make_app(name).parse_args(tokens, exit_on_error=False, print_error=False)


def test_a_shell_completes_commands(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["completion", "bash"])
    script = tmp_path / "completion.sh"
    script.write_text(capsys.readouterr().out)
    for name in COMMANDS:
        assert set(name.split()) <= set(re.findall(r"[a-z]+", script.read_text()))
    if bash := shutil.which("bash"):
        asked = f"source {script}; COMP_WORDS=(quietmean site cle); COMP_CWORD=2; _quietmean; echo ${{COMPREPLY[@]}}"
        done = subprocess.run([bash, "-c", asked], capture_output=True, text=True, check=False)
        assert "clean" in done.stdout.split(), done.stderr
    assert "Name one, bash, zsh, fish" in ends_with_shell("/bin/tcsh", capsys)


def ends_with_shell(shell: str, capsys: pytest.CaptureFixture[str]) -> str:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SHELL", shell)
        return ends(["completion"], capsys)[1]


def waiting_party(folder: Path) -> list[str]:
    """A party of two whose other one never comes."""
    lines = []
    for place, name in enumerate(("ada", "bob")):
        identity = Identity.generate()
        identity.save(folder / f"{name}.key")
        lines.append(f'[[party]]\nname = "{name}"\naddress = "127.0.0.1:{45211 + place}"\nkey = "{identity.public_key}"\n')
    (folder / "roster.toml").write_text("\n".join(lines))
    (folder / "study.toml").write_text('[study]\nprotocol = "local-dp"\n[[column]]\nname = "age"\nlow = 0\nhigh = 100\n')
    (folder / "data.csv").write_text("age\n1\n2\n")
    join = ["join", "study.toml", "--roster", "roster.toml", "--data", "data.csv", "--key", "ada.key", "--no-ledger"]
    return [sys.executable, "-m", "quietmean", *join]


@pytest.mark.slow
@pytest.mark.parametrize("in_background", [False, True])
def test_sigterm_is_ctrl_c(in_background: bool, tmp_path: Path) -> None:
    """Also where a shell has made the process ignore Ctrl-C."""

    def ignore() -> None:
        signal.signal(signal.SIGINT, signal.SIG_IGN)

    process = subprocess.Popen(
        waiting_party(tmp_path),
        cwd=tmp_path,
        env=ENVIRONMENT,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=ignore if in_background else None,  # noqa: PLW1509
    )
    try:
        assert process.stderr is not None
        assert select.select([process.stderr], [], [], 120)[0]
        assert "waiting for bob" in process.stderr.readline()
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 130
        assert process.stderr.read().splitlines()[-1].startswith("quietmean: interrupted; nothing was lost")
    finally:
        process.kill()
        process.wait()
        if process.stderr is not None:
            process.stderr.close()


# --- stores ----------------------------------------------------------------------------------------------------------


def make_store(path: Path, state: str) -> Path:
    Store.open(path, "ab" * 32, np.array([0.5]), 1.0).close()
    write_status(status_path(path), {"state": state, "study": "stay", "party": "ada"})
    return path


@contextmanager
def another_process_has(store: Path) -> Iterator[None]:
    code = (
        "import sys, numpy as np; from pathlib import Path; from quietmean.node.storage import Store\n"
        "store = Store.open(Path(sys.argv[1]), 'ab' * 32, np.array([0.5]), 1.0); print('open', flush=True); sys.stdin.read()"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code, str(store)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=ENVIRONMENT, text=True
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "open\n"
        yield
    finally:
        process.communicate()


def test_a_store_in_use_is_never_removed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store = make_store(tmp_path / "study-ada.store", "finished")
    before = store.read_bytes()
    with another_process_has(store):
        assert in_use(store)
        main(["site", "clean", str(tmp_path), "--json"])
        assert json.loads(capsys.readouterr().out)["stores"][0]["in_use"] is True
        for more in ([], ["--abandon"]):
            said = ends(["site", "clean", "--remove", str(store), *more], capsys)[1]
            assert "is in use. Stop the process that has it open, then remove it" in said
        assert store.exists()
    assert not in_use(store)
    assert store.read_bytes() == before
    main(["site", "clean", str(tmp_path)])
    assert "stay, ada  finished  " in capsys.readouterr().out
    main(["site", "clean", "--remove", str(store), "--json"])
    assert len(json.loads(capsys.readouterr().out)["removed"]) >= 2
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("state", ["running", "failed", "stopped"])
def test_a_study_that_has_not_ended_keeps_its_store(state: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store, other = make_store(tmp_path / "a.store", state), make_store(tmp_path / "b.store", "finished")
    said = ends(["site", "clean", "--remove", str(other), "--remove", str(store)], capsys)[1]
    assert "has not ended" in said
    assert "or give --abandon as well" in said
    # Nothing goes where one must stay.
    assert store.exists()
    assert other.exists()
    main(["site", "clean", "--remove", str(store), "--abandon"])
    assert not store.exists()
    assert other.exists()


def test_what_is_no_store_stays(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    notes = tmp_path / "notes.store"
    notes.write_text("dear diary")
    assert "is not a store of quietmean" in ends(["site", "clean", "--remove", str(notes), "--abandon"], capsys)[1]
    import sqlite3

    with closing(sqlite3.connect(tmp_path / "other.store")) as base:
        base.execute("CREATE TABLE mine (x)")
    before = (tmp_path / "other.store").read_bytes()
    said = ends(["site", "clean", "--remove", str(tmp_path / "other.store"), "--abandon"], capsys)[1]
    assert f"file {tmp_path / 'other.store'} holds a table of data, not a store." in said
    assert (tmp_path / "other.store").read_bytes() == before
    assert notes.read_text() == "dear diary"
    assert "does not exist" in ends(["site", "clean", "--remove", str(tmp_path / "none.store")], capsys)[1]
    assert "cannot be read" in ends(["site", "clean", str(tmp_path / "nowhere")], capsys)[1]
    assert "has no effect without --remove" in ends(["site", "clean", "--abandon"], capsys)[1]
    assert len(list(tmp_path.iterdir())) == 2


# --- a service -------------------------------------------------------------------------------------------------------

DEPLOY = Path(__file__).parent.parent.parent / "deploy"


def test_the_service_calls_options_that_exist(capsys: pytest.CaptureFixture[str]) -> None:
    text = (DEPLOY / "quietmean@.service").read_text()
    command = next(line for line in text.splitlines() if line.startswith("ExecStart="))
    main(["join", "--help"])
    known = re.findall(r"--[a-z-]+", capsys.readouterr().out)
    assert set(re.findall(r"--[a-z-]+", command)) <= set(known)
    for setting in ("SuccessExitStatus=130", "RestartPreventExitStatus=2 3", "NoNewPrivileges=true", "ProtectSystem=strict"):
        assert f"\n{setting}\n" in text
    if verifier := shutil.which("systemd-analyze"):
        done = subprocess.run(
            [verifier, "verify", str(DEPLOY / "quietmean@.service")], capture_output=True, text=True, check=False
        )
        assert "Unknown" not in done.stderr


HARDENED = (
    "NoNewPrivileges=true ProtectSystem=strict ProtectHome=true PrivateTmp=true PrivateDevices=true ProtectKernelTunables=true "
    "ProtectKernelModules=true ProtectKernelLogs=true ProtectControlGroups=true ProtectClock=true ProtectHostname=true "
    "ProtectProc=invisible RestrictNamespaces=true RestrictSUIDSGID=true RestrictRealtime=true LockPersonality=true "
    "RemoveIPC=true MemoryDenyWriteExecute=true SystemCallArchitectures=native SystemCallFilter=@system-service UMask=0077 "
    "LimitCORE=0 TasksMax=256 MemoryMax=50%"
)


@pytest.mark.parametrize("unit", sorted(DEPLOY.glob("*.service")), ids=lambda unit: unit.name)
def test_a_service_has_every_wall(unit: Path) -> None:
    assert set(HARDENED.split()) <= set(unit.read_text().splitlines())


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="as systemd does it")
def test_a_study_runs_where_no_memory_is_both_written_and_run(tmp_path: Path) -> None:
    """As under MemoryDenyWriteExecute, by the kernel's own call, which the process hands on to all that it starts."""
    deny = (
        "import ctypes, os, sys; ctypes.CDLL(None).prctl(65, 1, 0, 0, 0) == 0 or sys.exit(77); "
        "os.execv(sys.executable, [sys.executable, '-m', 'quietmean', *sys.argv[1:]])"
    )
    (tmp_path / "ages.csv").write_text("age\n" + "\n".join(map(str, range(20, 60))))
    run = shlex.split("run --data ages.csv 'mean(age in 0..100)' --parties 3 --epsilon 4 --out out")
    done = subprocess.run([sys.executable, "-c", deny, *run], cwd=tmp_path, capture_output=True, text=True, check=False)
    if done.returncode == 77:
        pytest.skip("this kernel has no such call: it came with Linux 6.3")
    assert done.returncode == 0, done.stderr
    assert "3 of 3 parties counted" in done.stdout


@pytest.mark.parametrize("unit", sorted(DEPLOY.glob("*.service")), ids=lambda unit: unit.name)
def test_a_service_is_started_again_after_an_outage(unit: Path) -> None:
    """75 is neither a success nor for a person."""
    settings = dict(line.split("=", 1) for line in unit.read_text().splitlines() if "=" in line and not line.startswith("#"))
    assert settings["Restart"] in ("always", "on-failure")
    outage = str(StorageError.exit_code)
    assert outage == "75"
    for setting in ("RestartPreventExitStatus", "SuccessExitStatus"):
        assert not {outage, "TEMPFAIL"} & set(settings.get(setting, "").split())


def test_the_relay_as_a_service_has_options_that_exist(capsys: pytest.CaptureFixture[str]) -> None:
    file = DEPLOY / "quietmean-relay.service"
    line = next(line for line in file.read_text().splitlines() if line.startswith("ExecStart="))
    main(["serve", "relay", "--help"])
    assert set(re.findall(r"--[a-z-]+", line)) <= set(re.findall(r"--[a-z-]+", capsys.readouterr().out))
    if verifier := shutil.which("systemd-analyze"):
        done = subprocess.run([verifier, "verify", str(file)], capture_output=True, text=True, check=False)
        assert "Unknown" not in done.stderr


def test_the_image_runs_as_an_ordinary_user() -> None:
    text = (DEPLOY / "Containerfile").read_text()
    assert "\nUSER 10001\n" in text
    assert '\nENTRYPOINT ["python", "-m", "quietmean"]\n' in text
    for copied in re.findall(r"^COPY (?!--from)(.*) \S+$", text, re.MULTILINE):
        assert all((DEPLOY.parent / name).exists() for name in copied.split())


def test_the_manual_page_has_every_command_and_option(tmp_path: Path) -> None:
    pytest.importorskip("docutils")
    made = tmp_path / "quietmean.1"
    tool = DEPLOY.parent / "tools" / "man_page.py"
    subprocess.run([sys.executable, str(tool), str(made)], env=ENVIRONMENT, check=True)
    page = re.sub(r"\\f.|\\", "", made.read_text())
    assert "system message" not in page.lower()
    for name in COMMANDS:
        assert f"\n.SS quietmean {name}\n" in page or f"\n.SS {name}\n" in page or f"\n.SH {name}\n" in page, name
        assert EXAMPLES[name] in page
    for option in ("--party-column", "--accept-wide", "--abandon", "--quiet"):
        assert option in page
