"""The desk behind a proxy with a log-in: three accounts of one machine, real sockets, and what attackers try."""

from __future__ import annotations

import http.client
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import msgspec
import pytest

from quietmean.cli.main import main
from quietmean.desk import ProxyAccess
from quietmean.node import Identity
from quietmean.node.monitor import NodeView, PeerView, write_status
from quietmean.node.net import open_account_socket
from quietmean.studies.agreement.sealed import Sealed
from support.desks import ticked
from support.meeting import AGES, meet

ORIGIN, HEADER = "https://desk.hospital.example", "X-Remote-User"
# The desk's account, the proxy's and a stranger's.
DESK, PROXY, STRANGER = 65534, 2, 3
SETPRIV = shutil.which("setpriv")
needs_accounts = pytest.mark.skipif(
    sys.platform != "linux" or os.geteuid() != 0 or SETPRIV is None, reason="needs Linux, root and setpriv, to be other users"
)


def started_as(user: int, *arguments: str | Path, **more: Any) -> subprocess.Popen[str]:
    """Python as another user, that may read where this Python is installed."""
    rights = ["--inh-caps", "+dac_read_search", "--ambient-caps", "+dac_read_search"]
    become = [SETPRIV or "", "--reuid", str(user), "--regid", str(user), "--clear-groups", *rights]
    return subprocess.Popen([*become, sys.executable, *map(str, arguments)], text=True, **more)


@dataclass
class Pages:
    folder: Path
    place: Path
    port: int
    desk: subprocess.Popen[str]
    # Of the site's node.
    party: Identity

    def ask(
        self, path: str, body: dict[str, str] | None = None, login: str | None = "alice", **headers: str
    ) -> tuple[int, str, dict[str, str]]:
        """Through the proxy, as a browser does, but for ``headers``."""
        given = {"Host": ORIGIN.removeprefix("https://"), "Sec-Fetch-Site": "same-origin"}
        if login is not None:
            given["Cookie"] = f"login={login}"
        if body is not None:
            given |= {"Origin": ORIGIN, "Content-Type": "application/x-www-form-urlencoded"}
        given |= {name.replace("_", "-"): value for name, value in headers.items()}
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        try:
            connection.request("GET" if body is None else "POST", path, None if body is None else urlencode(body), given)
            answer = connection.getresponse()
            return answer.status, answer.read().decode(), {name.lower(): text for name, text in answer.getheaders()}
        finally:
            connection.close()

    def token(self, login: str) -> str:
        found = re.search(r'name="form" value="([^"]+)"', self.ask("/study/ages.sealed", login=login)[1])
        assert found is not None
        return found.group(1)


@pytest.fixture
def pages(tmp_path: Path) -> Iterator[Pages]:
    folder, run = tmp_path / "studies", tmp_path / "run"
    for each in (folder, run):
        each.mkdir()
    meeting = meet(folder, tables={**AGES, "study": {**AGES["study"], "name": "ages", "records": 3000}})
    (folder / "ages.sealed").write_bytes(meeting.seal().signed.to_file())
    Identity.generate().save(folder / "owner.key", b"open sesame")
    os.chown(folder / "owner.key", DESK, DESK)
    for each in (tmp_path, folder, run):
        os.chown(each, DESK, DESK)
    place = run / "desk.sock"
    options: list[str | Path] = [
        "--behind-proxy",
        ORIGIN,
        "--socket",
        place,
        "--proxy-user",
        str(PROXY),
        "--users",
        "alice",
        "bob",
        "--viewers",
        "carol",
    ]
    owner: list[str | Path] = ["--party", "south", "--owner-key", folder / "owner.key"]
    with started_as(DESK, "-m", "quietmean", "site", "desk", folder, *owner, *options, stderr=subprocess.PIPE) as desk:
        assert desk.stderr is not None
        assert desk.stderr.readline() == f"behind {ORIGIN}, at {place}\n"
        proxy_file = Path(__file__).parents[1] / "support" / "reverse_proxy.py"
        with started_as(PROXY, proxy_file, place, HEADER, stdout=subprocess.PIPE) as proxy:
            assert proxy.stdout is not None
            yield Pages(folder, place, int(proxy.stdout.readline()), desk, meeting.identities["south"])
            proxy.kill()
        desk.send_signal(signal.SIGINT)


@needs_accounts
def test_who_is_logged_in_signs_and_the_desk_says_who(pages: Pages) -> None:
    status, page, headers = pages.ask("/")
    assert status == 200
    assert "ages.sealed" in page
    assert 'class="visitor">alice<' in page
    assert "/leave" not in page
    assert "frame-ancestors 'none'" in headers["content-security-policy"]
    assert "set-cookie" not in headers
    signing = {"form": pages.token("bob"), "do": "sign", "account": "wards", "until": "2999-01-01", "passphrase": "open sesame"}
    signing |= ticked(Sealed.load(pages.folder / "ages.sealed"))
    # A form is its user's.
    assert pages.ask("/study/ages.sealed/accept", signing, login="alice")[0] == 403
    assert pages.ask("/study/ages.sealed/accept", signing, login="bob")[0] == 200
    assert (pages.folder / "ages-south.approval").exists()
    assert pages.desk.stderr is not None
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\+00:00 bob signed ages\.sealed\n", pages.desk.stderr.readline())
    assert pages.ask("/leave", {"form": pages.token("bob")}, login="bob")[0] == 404
    assert pages.ask("/login")[0] == 404


def peer(name: str, late: int) -> PeerView:
    return PeerView(name, None, "mixing", 1, True, late == 0, late)


@pytest.mark.slow
@needs_accounts
def test_the_board_shows_what_runs_and_nothing_of_the_site(pages: Pages) -> None:
    for path in ("/", "/study/ages.sealed", "/ledger", "/audit", "/audit/file", "/node/x", "/report/x"):
        assert pages.ask(path, login="carol")[0] == 403
    assert pages.ask("/study/ages.sealed/refuse", {"form": "x"}, login="carol")[0] == 403
    assert "Nothing runs here now" in pages.ask("/board", login="carol")[1]
    time = "2030-01-01T00:00:00+00:00"
    view = NodeView(
        party="south",
        state="running",
        reason="a path of this site",
        phase="mixing",
        round=1,
        of=4,
        started=time,
        since=time,
        updated=time,
        waiting_for=("west",),
        until=time,
        messages_sent=3,
        messages_received=2,
        bytes_sent=1000,
        bytes_received=2000,
        seconds=(0.1,),
        late=(),
        refusals=1,
        refused=("a line of this site",),
        last_event=None,
        peers=(peer("north", 0), peer("west", 3)),
    )
    status = {**msgspec.to_builtins(view), "study": "ages <b>"}
    write_status(pages.folder / "secret-name.store.status.json", status)
    for path in ("/board", "/board/part"):
        code, page, headers = pages.ask(path, login="carol")
        assert code == 200
        assert all(told in page for told in ("ages &lt;b&gt;", "north", "west", "is waited for", "round 1"))
        for private in ("secret-name", "of this site", str(pages.folder), "<form", "wards", "ages.sealed"):
            assert private not in page
        assert "'unsafe" not in headers["content-security-policy"]
    assert "What runs" in pages.ask("/", login="alice")[1]


@pytest.mark.sampled(1)
@needs_accounts
def test_what_attackers_try(pages: Pages) -> None:
    assert pages.ask("/", login=None)[0] == 302
    # Logged in, but not of those who may; and a header of the browser's own counts for nothing.
    assert pages.ask("/", login="mallory")[0] == 403
    assert pages.ask("/", login="mallory", X_Remote_User="alice")[0] == 403
    assert pages.ask("/", Host="evil.example")[0] == 403
    assert pages.ask("/", Sec_Fetch_Site="cross-site")[0] == 403
    form = {"form": pages.token("alice")}
    refuse = "/study/ages.sealed/refuse"
    for wrong in ({"Origin": "https://evil.example"}, {"Origin": "null"}, {"Sec_Fetch_Site": "cross-site"}):
        assert pages.ask(refuse, form, **wrong)[0] == 403
    assert pages.ask(refuse, {"form": "x"})[0] == 403
    assert pages.ask(refuse, {})[0] == 403
    assert not (pages.folder / "ages-south.refused").exists()
    # Another account of the machine at the socket, with the header: not even an answer.
    code = (
        "import socket, sys; s = socket.socket(socket.AF_UNIX); s.settimeout(20); s.connect(sys.argv[1]); "
        "s.sendall(b'GET / HTTP/1.1\\r\\nHost: desk.hospital.example\\r\\n' "
        "b'X-Remote-User: alice\\r\\nConnection: close\\r\\n\\r\\n'); "
        "print(len(s.recv(65536)))"
    )
    for user, answered in ((STRANGER, False), (PROXY, True)):
        told, errors = started_as(user, "-c", code, pages.place, stdout=subprocess.PIPE, stderr=subprocess.PIPE).communicate()
        assert (told.strip().isdigit() and int(told) > 0) is answered, errors
    assert pages.ask(refuse, form)[0] == 200
    assert (pages.folder / "ages-south.refused").exists()


@pytest.mark.slow
@needs_accounts
def test_a_node_does_not_sign_for_its_owner(pages: Pages) -> None:
    """The pages were started with the node's own key."""
    (pages.folder / "owner.key").unlink()
    identity = pages.party
    identity.save(pages.folder / "owner.key", b"open sesame")
    os.chown(pages.folder / "owner.key", DESK, DESK)
    signing = {"form": pages.token("bob"), "do": "sign", "account": "wards", "until": "2999-01-01", "passphrase": "open sesame"}
    signing |= ticked(Sealed.load(pages.folder / "ages.sealed"))
    code, page, _ = pages.ask("/study/ages.sealed/accept", signing, login="bob")
    assert code == 400
    assert "the key of a party" in page
    assert not (pages.folder / "ages-south.approval").exists()


@pytest.mark.slow
@needs_accounts
def test_it_does_not_run_as_the_node(pages: Pages) -> None:
    """As root, or where this account reads a key of the node."""
    other = str(pages.place.with_name("2"))
    options = ["--behind-proxy", ORIGIN, "--socket", other, "--proxy-user", "2", "--users", "alice"]
    with pytest.raises(SystemExit) as ended:
        main(["site", "desk", str(pages.folder), *options])
    assert ended.value.code == 2
    Identity.generate().save(pages.folder / "north.key")
    os.chown(pages.folder / "north.key", DESK, DESK)
    desk = started_as(DESK, "-m", "quietmean", "site", "desk", pages.folder, *options, stderr=subprocess.PIPE)
    try:
        _, errors = desk.communicate(timeout=60)
    finally:
        desk.kill()
    assert desk.returncode == 2
    assert "Start them as another account than the node's" in errors.replace("\n", " ")


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        (["--behind-proxy", ORIGIN], "Give --socket PATH and --proxy-user ACCOUNT"),
        (["--socket", "x"], "Give --behind-proxy https://HOST too"),
        (["--behind-proxy", ORIGIN, "--socket", "x", "--proxy-user", "0"], "Name those who may with --users"),
        (["--behind-proxy", f"{ORIGIN}/", "--socket", "x", "--proxy-user", "0", "--users", "a"], "nothing after it"),
        (["--behind-proxy", "http://h", "--socket", "x", "--proxy-user", "0", "--users", "a"], "nothing after it"),
        (["--behind-proxy", ORIGIN, "--socket", "x", "--proxy-user", "0", "--users", "a", "--port", "1"], "Leave them out"),
        (
            ["--behind-proxy", ORIGIN, "--socket", "x", "--proxy-user", "0", "--users", "a", "--user-header", "X:"],
            "name of a header",
        ),
    ],
)
def test_what_does_not_go_together(given: list[str], sentence: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["site", "desk", *given])
    assert ended.value.code == 2
    assert sentence in capsys.readouterr().err.replace("\n", " ")


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells whose process comes")
def test_sockets_of_others_and_of_the_past(tmp_path: Path) -> None:
    from quietmean.core.errors import InputError

    place = tmp_path / "desk.sock"
    for _ in range(2):
        # The second time what the first one left is in its place.
        with open_account_socket(place, str(os.getuid())) as listening:
            listening.settimeout(10)
            with socket.socket(socket.AF_UNIX) as client:
                client.connect(str(place))
                listening.accept()[0].close()
    with pytest.raises(InputError, match="does not exist on this machine"):
        open_account_socket(place, "nobody-has-this-name")
    place.unlink()
    place.write_text("")
    with pytest.raises(InputError, match="cannot be made"):
        open_account_socket(place, "0")
    tmp_path.chmod(0o777)
    with pytest.raises(InputError, match="written by everybody"):
        open_account_socket(tmp_path / "other.sock", "0")


def test_the_secret_is_not_shown() -> None:
    access = ProxyAccess(ORIGIN, HEADER, frozenset({"alice"}))
    assert access.secret not in repr(access)
