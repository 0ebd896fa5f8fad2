"""Servers of this machine with the interfaces of S3, SFTP and WebDAV, and the settings of an account that may use them."""

from __future__ import annotations

import contextlib
import os
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from support.outside import Authority


def bucket(folder: Path, patch: pytest.MonkeyPatch) -> Iterator[str]:
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    for name, value in (("ACCESS_KEY_ID", "k"), ("SECRET_ACCESS_KEY", "s"), ("ENDPOINT_URL", f"http://{host}:{port}")):
        patch.setenv(f"AWS_{name}", value)
    import s3fs

    s3fs.S3FileSystem(skip_instance_cache=True).mkdir(f"hospitals-{port}")
    yield f"s3://hospitals-{port}/studies"
    server.stop()


def webdav(folder: Path, patch: pytest.MonkeyPatch) -> Iterator[str]:
    """Over HTTPS with a certificate of its own authority, which the account trusts; a name and a password in .netrc."""
    from cheroot import wsgi
    from cheroot.ssl.builtin import BuiltinSSLAdapter
    from wsgidav.wsgidav_app import WsgiDAVApp

    authority = Authority(folder, "authority")
    certificate, key = authority.leaf("localhost")
    (folder / "dav").mkdir()
    app = WsgiDAVApp(
        {
            "provider_mapping": {"/": str(folder / "dav")},
            "simple_dc": {"user_mapping": {"*": {"north": {"password": "secret"}}}},
            "verbose": 0,
            "logging": {"enable": False},
        }
    )
    server = wsgi.Server(("127.0.0.1", 0), app, numthreads=4)
    server.ssl_adapter = BuiltinSSLAdapter(str(certificate), str(key))
    server.prepare()
    threading.Thread(target=server.serve, daemon=True).start()
    (folder / ".netrc").write_text("machine localhost login north password secret\n")
    (folder / ".netrc").chmod(0o600)
    patch.setenv("HOME", str(folder))
    patch.setenv("SSL_CERT_FILE", str(authority.file))
    yield f"webdavs://localhost:{server.bind_addr[1]}"
    server.stop()


def sftp(folder: Path, patch: pytest.MonkeyPatch) -> Iterator[str]:
    """With a host key that is in known_hosts, for a key of the account's."""
    import paramiko

    host_key, own_key = paramiko.ECDSAKey.generate(), paramiko.ECDSAKey.generate()
    root = folder / "sftp"
    root.mkdir()
    listening = socket.create_server(("127.0.0.1", 0))
    port = listening.getsockname()[1]
    settings = folder / ".ssh"
    settings.mkdir()
    own_key.write_private_key_file(str(settings / "id_ecdsa"))
    (settings / "known_hosts").write_text(f"[localhost]:{port} {host_key.get_name()} {host_key.get_base64()}\n")
    patch.setenv("HOME", str(folder))
    patch.delenv("SSH_AUTH_SOCK", raising=False)
    files = _sftp_files(root)

    def serve() -> None:
        with contextlib.suppress(OSError):
            while True:
                connected, _ = listening.accept()
                transport = paramiko.Transport(connected)
                transport.add_server_key(host_key)
                transport.set_subsystem_handler("sftp", paramiko.SFTPServer, files)
                with contextlib.suppress(paramiko.SSHException, EOFError):
                    transport.start_server(server=_sftp_login(own_key))

    threading.Thread(target=serve, daemon=True).start()
    yield f"sftp://north@localhost:{port}/studies"
    listening.close()


def _sftp_login(own_key: Any) -> Any:
    import paramiko

    class Login(paramiko.ServerInterface):  # type: ignore[misc]
        def check_auth_publickey(self, username: str, key: Any) -> int:
            return int(paramiko.AUTH_SUCCESSFUL if (username, key) == ("north", own_key) else paramiko.AUTH_FAILED)

        def check_channel_request(self, kind: str, chanid: int) -> int:
            return int(paramiko.OPEN_SUCCEEDED)

        def get_allowed_auths(self, username: str) -> str:
            return "publickey"

    return Login()


def _sftp_files(root: Path) -> Any:
    import paramiko

    def answered(work: Callable[[], Any]) -> Any:
        try:
            found = work()
        except OSError as error:
            return paramiko.SFTPServer.convert_errno(error.errno)
        return paramiko.SFTP_OK if found is None else found

    class Files(paramiko.SFTPServerInterface):  # type: ignore[misc]
        def _path(self, path: str) -> Path:
            return root / str(self.canonicalize(path)).lstrip("/")

        def list_folder(self, path: str) -> Any:
            def listed() -> Any:
                return [
                    paramiko.SFTPAttributes.from_stat(entry.stat(), entry.name) for entry in sorted(self._path(path).iterdir())
                ]

            return answered(listed)

        def stat(self, path: str) -> Any:
            return answered(lambda: paramiko.SFTPAttributes.from_stat(self._path(path).stat()))

        lstat = stat

        def mkdir(self, path: str, attr: Any) -> Any:
            return answered(self._path(path).mkdir)

        def posix_rename(self, oldpath: str, newpath: str) -> Any:
            def renamed() -> None:
                self._path(oldpath).replace(self._path(newpath))

            return answered(renamed)

        def open(self, path: str, flags: int, attr: Any) -> Any:
            def opened() -> Any:
                file = os.fdopen(os.open(self._path(path), flags, 0o600), "wb" if flags & os.O_WRONLY else "rb")
                handle = paramiko.SFTPHandle(flags)
                handle.filename, handle.readfile, handle.writefile = str(self._path(path)), file, file
                return handle

            return answered(opened)

    return Files


# What each needs here, besides what a node needs for it.
SERVERS: dict[str, tuple[tuple[str, ...], Callable[[Path, pytest.MonkeyPatch], Iterator[str]]]] = {
    "s3": (("s3fs", "moto"), bucket),
    "sftp": (("paramiko",), sftp),
    "webdavs": (("webdav4", "wsgidav", "cheroot"), webdav),
}


@contextlib.contextmanager
def remote_place(scheme: str, folder: Path, patch: pytest.MonkeyPatch) -> Iterator[str]:
    """The URL of a folder at a server of this machine. Skips the test where something for it is not installed."""
    modules, serve = SERVERS[scheme]
    for module in ("fsspec", *modules):
        pytest.importorskip(module, reason=f"no local {scheme} server: they are run by make test-remote")
    yield from serve(folder, patch)
