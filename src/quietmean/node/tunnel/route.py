"""Parties behind a relay: calling one there, and being called. Nobody has to dial into this machine for either."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections import Counter
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Final, Literal, TypeAlias

from quietmean.core.errors import PeerError
from quietmean.core.party import PartyId
from quietmean.core.readable import printable
from quietmean.core.readable_days import by_this_clock
from quietmean.node.net import (
    Address,
    ByteStream,
    DirectRoute,
    Group,
    Identity,
    Listener,
    RelayAddress,
    Roster,
    Route,
    format_address,
    numbers_to_dial,
    open_socket,
    public_key_bytes,
)
from quietmean.node.tasks import Fail, Tasks, report_defect
from quietmean.node.tunnel.stream import Attending, Call, Joined, Nonce, RelayStream, Role, Turned, prove
from quietmean.node.tunnel.websocket import connect_through, is_loopback, proxy_for

_HANDSHAKE_SECONDS: Final = 10.0
_SHUTDOWN_SECONDS: Final = 1.0
_CLOSING_SECONDS: Final = 1.0
_FIRST_BACKOFF, _LAST_BACKOFF = 0.05, 1.0
# Where another process of the same party took its place.
_REPLACED_SECONDS: Final = 15.0
# What OpenSSL calls a certificate that is not valid yet, and one that is not any more.
_BY_THE_CLOCK: Final = (9, 10)
# Calls of one party that are answered at a time.
_ANSWERS_OF_CALLER: Final = 3


class RelayError(ConnectionError):
    """The way to or through a relay is not there now: silence of the party behind it, whatever the relay says."""


class RelayAccess:
    """One relay, as one party of one session uses it. ``session``: digest (hexadecimal) of the sealed study, or of the roster."""

    def __init__(self, address: Address, identity: Identity, session: str) -> None:
        # An ordinary one from here on: what a proxy is asked for, and a certificate is for.
        self._address: Address = (address[0], address[1])
        self.name = format_address(self._address)
        self._identity = identity
        self.group = Group.of_session(session)
        self._tls = None if is_loopback(address[0]) else ssl.create_default_context()
        self._streams: set[RelayStream] = set()

    async def open(self, role: Role, *, peer: bytes = b"", ticket: bytes = b"") -> RelayStream:
        """A connection on which this party has said what it wants. Raises :class:`RelayError`."""
        try:
            async with asyncio.timeout(_HANDSHAKE_SECONDS):
                stream = await self._connected()
                try:
                    nonce = await stream.message()
                    if not isinstance(nonce, Nonce):
                        raise PeerError("it did not begin as a relay does")
                    stream.say(prove(self._identity, role, self.group, self.name, nonce.nonce, peer=peer, ticket=ticket))
                except BaseException:
                    stream.abort()
                    raise
        except TimeoutError:
            raise RelayError(f"the relay {self.name} does not answer") from None
        except (OSError, EOFError, PeerError) as error:
            raise RelayError(self._trouble(error)) from None
        return stream

    async def join(self, stream: RelayStream) -> socket.socket:
        """The socket at which the other party is, as soon as it is there. Raises :class:`RelayError`."""
        try:
            answer = await stream.message()
            if isinstance(answer, Joined):
                return await stream.begin()
        except (OSError, EOFError, PeerError) as error:
            stream.abort()
            raise RelayError(self._trouble(error)) from None
        except BaseException:
            stream.abort()
            raise
        stream.finish()
        if isinstance(answer, Turned) and answer.absent:
            raise RelayError(f"it is not at the relay {self.name}")
        raise RelayError(self.said(answer))

    def said(self, answer: object) -> str:
        """What a relay answered instead of what was due, in a sentence."""
        if isinstance(answer, Turned):
            return f"the relay {self.name} refused: {printable(answer.reason)}"
        return f"{self.name} does not answer as a relay of quietmean does. Check its address"

    async def close(self) -> None:
        """Let what waits go out, for at most a second."""
        for stream in self._streams:
            stream.finish()
        try:
            if self._streams:
                await asyncio.wait([stream.closed for stream in self._streams], timeout=_CLOSING_SECONDS)
        finally:
            for stream in list(self._streams):
                stream.abort()

    async def _connected(self) -> RelayStream:
        loop, tls = asyncio.get_running_loop(), self._tls
        proxy = proxy_for(self._address)
        host, port = self._address
        name, seconds = (None, None) if tls is None else (host, _SHUTDOWN_SECONDS)
        stream = RelayStream(self.name)
        if proxy is None:
            last = OSError(f"{host} has no address")
            for number in await numbers_to_dial(self._address):
                try:
                    await loop.create_connection(
                        lambda: stream, number, port, ssl=tls, server_hostname=name, ssl_shutdown_timeout=seconds
                    )
                except OSError as error:
                    last = error
                else:
                    break
            else:
                raise last
        else:
            connected = await connect_through(proxy, self._address)
            await loop.create_connection(
                lambda: stream, sock=connected, ssl=tls, server_hostname=name, ssl_shutdown_timeout=seconds
            )
        self._streams.add(stream)
        stream.closed.add_done_callback(lambda closed: self._streams.discard(stream))
        return stream

    def _trouble(self, error: Exception) -> str:
        match error:
            case RelayError():
                return str(error)
            case ConnectionRefusedError() if not error.args or isinstance(error.args[0], int):
                return f"nobody listens at the relay {self.name}"
            case ssl.SSLCertVerificationError() if error.verify_code in _BY_THE_CLOCK:
                return (
                    f"the certificate at the relay {self.name} is not good today ({error.verify_message}): "
                    f"{by_this_clock(datetime.now(UTC))}; else its operator has to renew it"
                )
            case ssl.SSLCertVerificationError():
                return (
                    f"the certificate at the relay {self.name} is not trusted here ({error.verify_message}): its operator has to "
                    "renew it, or name a file with the certificate to be trusted in SSL_CERT_FILE"
                )
            case PermissionError() if error.errno is None:
                return f"no connection to the relay {self.name} is made: {error}"
            case socket.gaierror():
                return f"the host of the relay {self.name} is not known here"
            case PeerError():
                return f"the relay {self.name}: {error}"
            case ConnectionError() if error.errno is None and str(error):
                return str(error)
            case _:
                closed = f"the relay {self.name} closed the connection, or cannot be reached"
                # As one does that waits for TLS.
                return (
                    closed
                    if self._tls
                    else f"{closed}. At a loopback address parties speak no TLS. Start the relay without --certificate"
                )


class RelayRoute:
    """A route to one party through the relay of its address. ``key``: 32 bytes."""

    direct = False

    def __init__(self, access: RelayAccess, key: bytes) -> None:
        self._access = access
        self._key = key
        self._name = access.group.server_name(key)

    async def dial(self, context: ssl.SSLContext) -> ByteStream:
        """Connect to the party through its relay. Raises :class:`RelayError`, or what the TLS between the parties raises."""
        joined = await self._access.join(await self._access.open("call", peer=self._key))
        stream = ByteStream()
        try:
            await asyncio.get_running_loop().create_connection(
                lambda: stream,
                sock=joined,
                ssl=context,
                server_hostname=self._name,
                ssl_handshake_timeout=_HANDSHAKE_SECONDS,
                ssl_shutdown_timeout=_SHUTDOWN_SECONDS,
            )
        except BaseException:
            # Where a transport has it already, it is closed twice, which does no harm.
            joined.close()
            raise
        return stream


class _WasThereError(Exception):
    """The connection to the relay was lost after it had worked."""


class _ReplacedError(Exception):
    """Another process of the same party is at the relay."""


class Attendance:
    """This party at its relay: it can be called there. ``callers``: keys (32 bytes) and names of those who may.

    ``admit`` is given the socket of each call, and what to call it; ``trouble`` a sentence whenever the relay does not do its
    part. ``role``: "visit" where another process of this party goes first. ``fail`` gets an error in the background.
    """

    def __init__(
        self,
        access: RelayAccess,
        callers: Mapping[bytes, str],
        admit: Callable[[socket.socket, str, str], None],
        trouble: Callable[[str, str], None],
        role: Literal["attend", "visit"] = "attend",
        fail: Fail = report_defect,
    ) -> None:
        self._access = access
        self._callers = callers
        self._admit = admit
        self._trouble = trouble
        self._role: Role = role
        self._tasks = Tasks(fail)
        self._answers: Counter[bytes] = Counter()
        self._reported = ""

    def start(self) -> None:
        self._tasks.spawn(self._run())

    async def close(self) -> None:
        await self._tasks.stop()

    async def _run(self) -> None:
        backoff = _FIRST_BACKOFF
        while True:
            try:
                stream = await self._access.open(self._role)
                try:
                    await self._attend(stream)
                finally:
                    stream.finish()
            except RelayError as error:
                self._tell(str(error))
            except _WasThereError:
                backoff = _FIRST_BACKOFF
            except _ReplacedError as replaced:
                self._tell(str(replaced))
                await asyncio.sleep(_REPLACED_SECONDS)
            await asyncio.sleep(backoff)
            backoff = min(2 * backoff, _LAST_BACKOFF)

    async def _attend(self, stream: RelayStream) -> None:
        """Attend at the relay until the connection ends.

        Raises :class:`RelayError`, :class:`_WasThereError` or :class:`_ReplacedError` at the end of it.
        """
        there = False
        while True:
            try:
                message = await stream.message()
            except (OSError, EOFError, PeerError):
                if there:
                    raise _WasThereError from None
                raise RelayError(f"the relay {self._access.name} closed the connection") from None
            if isinstance(message, Attending):
                there, self._reported = True, ""
            elif isinstance(message, Call) and there:
                self._answer(message)
            elif there:
                raise _ReplacedError(self._access.said(message))
            else:
                raise RelayError(self._access.said(message))

    def _tell(self, text: str) -> None:
        if text != self._reported:
            self._reported = text
            self._trouble(f"relay {self._access.name}", text)

    def _answer(self, call: Call) -> None:
        # Anyone who calls has to prove its key to this party in any case. This keeps the relay's strangers from costing anything.
        if call.caller not in self._callers or self._answers[call.caller] >= _ANSWERS_OF_CALLER:
            return
        self._answers[call.caller] += 1
        self._tasks.spawn(self._dial_back(call))

    async def _dial_back(self, call: Call) -> None:
        try:
            async with asyncio.timeout(_HANDSHAKE_SECONDS):
                joined = await self._access.join(await self._access.open("answer", ticket=call.ticket))
        except (RelayError, TimeoutError):
            # The caller calls again.
            return
        finally:
            self._answers[call.caller] -= 1
        caller = self._callers[call.caller]
        self._admit(joined, f"a call in the name of {caller} by the relay {self._access.name}", f"relay {caller}")


# Whether the party takes all calls from now on, or only where no other process of it does.
Presence: TypeAlias = Literal["attend", "visit"]


class Dialer:
    """The party of the roster with this identity. Nothing is dialled before it is asked for."""

    def __init__(self, identity: Identity, roster: Roster) -> None:
        self._identity = identity
        self._roster = roster
        self._accesses: dict[RelayAddress, RelayAccess] = {}
        self._attendance: Attendance | None = None

    def route(self, party: PartyId) -> Route:
        """The way to a party, whatever kind of address it has."""
        entry = self._roster.entries[party]
        if isinstance(entry.address, RelayAddress):
            return RelayRoute(self._access(entry.address), public_key_bytes(entry.public_key))
        return DirectRoute.to(self._roster, party)

    def open_socket(self, listen: Address | None = None) -> socket.socket | None:
        """Listen at an address, by default the party's own; None for a party that is reached at its relay only.

        Raises :class:`InputError` if that is not possible.
        """
        address = listen or self._own
        return None if isinstance(address, RelayAddress) else open_socket(address)

    def attend(self, listener: Listener, trouble: Callable[[str, str], None], role: Presence = "attend") -> None:
        """Let ``listener`` take calls at this party's relay from now on, if its address is at one.

        ``trouble``: called with the relay's name and a sentence, whenever it does not do its part.
        """
        if isinstance(self._own, RelayAddress):
            own = self._identity.public_key
            callers = {public_key_bytes(each.public_key): each.name for each in self._roster.entries if each.public_key != own}
            self._attendance = Attendance(self._access(self._own), callers, listener.take, trouble, role, listener.fail)
            self._attendance.start()

    async def leave(self) -> None:
        """Take no more calls."""
        if self._attendance is not None:
            await self._attendance.close()

    async def close(self) -> None:
        """Let what waits go out, for at most a second."""
        await asyncio.gather(*(access.close() for access in self._accesses.values()))

    @property
    def _own(self) -> Address:
        return self._roster.entries[self._roster.find(self._identity)].address

    def _access(self, address: RelayAddress) -> RelayAccess:
        if address not in self._accesses:
            self._accesses[address] = RelayAccess(address, self._identity, self._roster.digest)
        return self._accesses[address]
