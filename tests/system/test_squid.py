"""Three parties behind Squid, the usual proxy: they know no address outside, log in, and meet at a relay through CONNECT.

Skipped where Squid is not installed (Debian's package squid).
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from quietmean.node.net import RelayAddress
from support.outside import HOST, Authority
from support.rosters import write_roster
from support.site_policy import write_policy
from support.smallest_study import of_ages

PROGRAM = shutil.which("squid", path=f"{os.environ.get('PATH', '')}:/usr/sbin")
LOGIN = Path("/usr/lib/squid/basic_ncsa_auth")
OPENSSL = shutil.which("openssl")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(PROGRAM is None or OPENSSL is None or not LOGIN.exists(), reason="no Squid here: apt-get install squid"),
]

NAMES = ("north", "south", "east")
STUDY = of_ages(delta=None, colluding=1, protocol="packed-sharing", round_timeout=20.0, start_timeout=60.0)
SETTINGS = """
http_port 127.0.0.1:{port}
pid_filename {folder}/squid.pid
cache_log {folder}/cache.log
access_log stdio:{folder}/access.log
cache deny all
coredump_dir {folder}
# Only this machine knows where the relay is.
hosts_file {folder}/hosts
auth_param basic program {login} {folder}/users
auth_param basic realm hospital
acl known proxy_auth REQUIRED
acl relay dstdomain {host}
acl at_relay port {relay}
acl CONNECT method CONNECT
http_access deny !known
http_access allow CONNECT relay at_relay
http_access deny all
shutdown_lifetime 1 seconds
"""


@pytest.fixture
def squid(tmp_path: Path, free_ports: Callable[[int], list[int]]) -> Iterator[tuple[str, int, Path]]:
    """Its URL with name and password, the port of the relay that it lets through to, and its log."""
    folder = tmp_path / "squid"
    folder.mkdir(mode=0o777)
    for path in (tmp_path.parent.parent, tmp_path.parent, tmp_path):
        # It gives up its rights, and has to read its settings afterwards.
        path.chmod(0o755)
    port, relay = free_ports(2)
    (folder / "hosts").write_text(f"127.0.0.1 {HOST}\n")
    password = subprocess.run(
        [str(OPENSSL), "passwd", "-apr1", "-stdin"], input="secret", capture_output=True, text=True, check=True
    ).stdout.strip()
    (folder / "users").write_text(f"hospital:{password}\n")
    settings = folder / "squid.conf"
    settings.write_text(SETTINGS.format(port=port, folder=folder, login=LOGIN, host=HOST, relay=relay))
    folder.chmod(0o777)
    process = subprocess.Popen([str(PROGRAM), "-N", "-f", str(settings)], stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 30
    while True:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                break
        assert process.poll() is None, process.communicate()[1]
        assert time.monotonic() < deadline
        time.sleep(0.1)
    yield f"http://hospital:secret@127.0.0.1:{port}", relay, folder / "access.log"
    process.terminate()
    process.communicate()


def test_a_study_through_squid(squid: tuple[str, int, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    url, port, log = squid
    monkeypatch.chdir(tmp_path)
    write_policy(unattended=True)
    authority = Authority(tmp_path, "authority")
    certificate, private_key = authority.leaf(HOST)
    write_roster(tmp_path, dict.fromkeys(NAMES, RelayAddress(HOST, port)))
    for place, name in enumerate(NAMES):
        Path(f"{name}.csv").write_text("age\n" + "\n".join(map(str, range(20 + place, 60 + place))))
    Path("study.toml").write_text(STUDY)
    command = [sys.executable, "-m", "quietmean.cli.main"]
    outside = os.environ | {"SSL_CERT_FILE": str(authority.file)}
    inside = outside | {"https_proxy": url, "no_proxy": ""}
    files = ["--certificate", str(certificate), "--private-key", str(private_key), "--admit", "roster.toml"]
    relay = subprocess.Popen(
        [*command, "serve", "relay", "--listen", f"127.0.0.1:{port}", *files, "--json"],
        env=outside,
        stdout=subprocess.PIPE,
        text=True,
    )
    processes = []
    try:
        assert relay.stdout is not None
        relay.stdout.readline()
        for name in NAMES:
            own = ["--roster", "roster.toml", "--key", f"{name}.key", "--data", f"{name}.csv", "--no-ledger", "--yes", "--json"]
            processes.append(
                subprocess.Popen(
                    [*command, "join", "study.toml", *own],
                    env=inside,
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    text=True,
                )
            )
        found = []
        for process in processes:
            output, errors = process.communicate(timeout=180)
            assert process.returncode == 0, errors
            found.append(json.loads(output))
    finally:
        for process in [relay, *processes]:
            if process.poll() is None:
                process.kill()
                process.communicate()
    assert len({hashlib.sha256(json.dumps(one["estimate"]).encode()).hexdigest() for one in found}) == 1
    assert all(one["parties_counted"] == 3 for one in found)
    asked = [line.split() for line in log.read_text().splitlines()]
    # One to the relay for each party, and one for each side of each pair.
    tunnels = [line for line in asked if line[3].endswith("/200")]
    assert len(tunnels) >= 3 + 2 * 3
    assert {(line[5], line[6], line[7]) for line in tunnels} == {("CONNECT", f"{HOST}:{port}", "hospital")}


def test_a_wrong_password_is_said(squid: tuple[str, int, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    url, port, _ = squid
    monkeypatch.chdir(tmp_path)
    write_roster(tmp_path, dict.fromkeys(NAMES[:2], RelayAddress(HOST, port)))
    Path("study.toml").write_text(STUDY)
    Path("north.csv").write_text("age\n30\n")
    told = subprocess.run(
        [
            *[sys.executable, "-m", "quietmean.cli.main"],
            "check",
            "study.toml",
            "--roster",
            "roster.toml",
            "--key",
            "north.key",
            "--data",
            "north.csv",
        ],
        check=False,
        env=os.environ | {"https_proxy": url.replace("secret", "guess"), "no_proxy": "", "COLUMNS": "300"},
        capture_output=True,
        text=True,
        timeout=120,
    )
    said = told.stdout + told.stderr
    assert "407" in said or "wants another login" in said, said
    assert "guess" not in said
