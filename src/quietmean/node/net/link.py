"""The link to one peer: one connection at a time, dialled by either, and another one after every loss.

Both parties may dial. If both do at once, the connection dialled by the party with the smaller key stays, and each side comes to
that by itself: the other one waits for a connection of the first that is about to begin, and gives way to it at any time. The
first keeps its own connection only once against one of the other that begins after it: a second one tells that the first did not
get there, or broke. A connection of another process of the peer replaces what there is at once.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import Callable, Iterator
from typing import TypeAlias

from quietmean.core.domain import Links
from quietmean.core.errors import PeerError
from quietmean.core.party import PartyId
from quietmean.core.readable import printable
from quietmean.node.net.duplex import Duplex, Handler, OnAnswer
from quietmean.node.net.identity import public_key_bytes
from quietmean.node.net.key_exchange import KeyOffering
from quietmean.node.net.terms import difference
from quietmean.node.net.tls import OTHER_LEAF, study_of
from quietmean.node.net.transport import HANDSHAKE_SECONDS, Connection, DirectRoute, Endpoint, Route
from quietmean.node.net.wire import (
    VERSION,
    AnswerFrame,
    AnyFrame,
    AnyRequest,
    Begin,
    Differs,
    Ending,
    Hello,
    Limits,
    Payload,
    Refused,
    Welcome,
)
from quietmean.node.phase import Position
from quietmean.node.tasks import Tasks, stop_all

# Decides, once there is a connection, that a request must not be sent after all.
Unless: TypeAlias = Callable[[], bool]

_FIRST_BACKOFF, _LAST_BACKOFF = 0.05, 1.0
# The party with the larger key lets the other one dial first; for the first connection of many, that has as many others to dial.
_HEAD_START, _HEAD_START_OF_EACH = 0.2, 0.02
# A connection that lives shorter was lost at once (s).
_SHORT_LIFE = 1.0
# Longest wait for a connection that the peer dialled and has not begun.
_DECIDING_SECONDS = 2.0


# What answers, and is none of the study.
NOT_A_PARTY = "a program answers at its address, but not this study's party. Check the address and whether that party has started"


class WithheldError(Exception):
    """A request was not sent, since the peer is where it must not have it any more."""


class Link:
    """The connection to one peer: dialled when first needed, and again after every loss; or taken from the listener.

    ``handle`` answers the peer's requests on connections that this party dialled; ``position``: where this party is.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        peer: PartyId,
        route: Route | None = None,
        handle: Handler | None = None,
        position: Callable[[], Position] = lambda: (0, 0),
    ) -> None:
        self._endpoint = endpoint
        self._peer = peer
        self._route = route or DirectRoute.to(endpoint.roster, peer)
        self._handle = handle
        self._position = position
        keys = [public_key_bytes(endpoint.roster.entries[party].public_key) for party in (endpoint.party, peer)]
        self._goes_first = keys[0] < keys[1]
        self._current: Duplex | None = None
        self._connected = asyncio.Event()
        self._undecided = 0
        self._decided = asyncio.Event()
        self._decided.set()
        self._dialling = Tasks(endpoint.fail)
        self._reading = Tasks(endpoint.fail)
        self._backoff = _FIRST_BACKOFF
        # When the current connection came, and how many before it, one after the other, were lost at once.
        self._since = 0.0
        self._short_lived = 0
        self._closing = False
        self.trouble = "no answer yet"
        self.unreachable = False
        # What the peer's process said when it ended.
        self._farewell = ""

    async def ask(
        self,
        request: AnyRequest,
        payload: Payload = b"",
        on_answer: OnAnswer = lambda answer: None,
        unless: Unless = lambda: False,
    ) -> AnswerFrame:
        """The peer's answer; the request is repeated after every loss of the connection, until the caller cancels.

        ``on_answer`` is called as the answer is read: an answer that came in before the caller cancelled is never lost.
        ``unless`` is asked before each time that the request is sent, when the peer's position is known: if it holds,
        :class:`WithheldError` is raised instead.
        """

        def answered(answer: AnswerFrame) -> None:
            on_answer(answer)
            self._endpoint.answered(self._peer, request, answer)

        while True:
            duplex = await self._connection()
            if unless():
                raise WithheldError
            try:
                return await duplex.ask(request, payload, answered)
            except (OSError, EOFError):
                duplex.abort()
                self.lost(duplex)

    async def _connection(self) -> Duplex:
        while self._current is None:
            self._dial_if_needed()
            # The caller may cancel, the handshake goes on: an aborted one would look like an attack to the other party.
            await self._connected.wait()
        return self._current

    # --- which connection --------------------------------------------------------------------------------------------

    def take(self, duplex: Duplex, position: Position) -> bool:
        """Use a connection that the peer dialled and has begun, if it is the one; ``position``: what it said where it is."""
        current = self._current
        if self._closing:
            return False
        if current is not None:
            same_process = current.process == duplex.process
            if current.dialled and same_process and self._goes_first and not current.kept_once:
                # Both dialled at once: the peer learns of this one, which stays. Or it is broken: then the peer dials again.
                current.kept_once = True
                return False
            current.abort()
        self._endpoint.heard(self._peer, position)
        self._use(duplex)
        return True

    def lost(self, duplex: Duplex) -> None:
        """The connection has ended; another one is dialled at once, since the peer may not be able to."""
        if self._current is duplex:
            self._current = None
            if duplex.farewell is not None:
                self.trouble = self._farewell = duplex.farewell.in_words
            self._connected.clear()
            lived = asyncio.get_running_loop().time() - self._since
            self._short_lived = self._short_lived + 1 if lived < _SHORT_LIFE else 0
            self._dial_if_needed()

    def disconnect(self) -> None:
        """Drop the connection: nothing that is on its way is read."""
        if self._current is not None:
            self._current.abort()

    @contextlib.contextmanager
    def deciding(self) -> Iterator[None]:
        """While the peer has a welcome of this party and has not begun."""
        self._undecided += 1
        self._decided.clear()
        try:
            yield
        finally:
            self._undecided -= 1
            if not self._undecided:
                self._decided.set()

    def _use(self, duplex: Duplex) -> None:
        self._current = duplex
        self._since = asyncio.get_running_loop().time()
        self._backoff, self.unreachable, self.trouble = _FIRST_BACKOFF, False, "it does not answer"
        self._farewell = ""
        self._connected.set()

    # --- dialling ----------------------------------------------------------------------------------------------------

    def _dial_if_needed(self) -> None:
        if not self._closing and not self._dialling:
            self._dialling.spawn(self._dial_until_connected())

    async def _dial_until_connected(self) -> None:
        if not self._goes_first:
            await self._pause(_HEAD_START if self._since else max(_HEAD_START, _HEAD_START_OF_EACH * len(self._endpoint.roster)))
        if self._short_lived > 1:
            # A peer that lets this party in and hangs up, again and again, is not asked as fast as that is possible.
            await self._pause(min(_FIRST_BACKOFF * 2.0 ** min(self._short_lived, 10), _LAST_BACKOFF))
        while self._current is None:
            try:
                async with self._endpoint.pace.turn():
                    # It may have come while this party waited for its turn.
                    if self._current is None:
                        await self._dial()
            except (OSError, EOFError, PeerError) as error:
                if self._current is None:
                    self._note_failure(error)
                    await self._pause(self._backoff)
                    self._backoff = min(2 * self._backoff, _LAST_BACKOFF)

    async def _pause(self, seconds: float) -> None:
        """Pause between attempts, no longer than until there is a connection."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._connected.wait()

    async def _dial(self) -> None:
        credentials = self._endpoint.credentials
        async with asyncio.timeout(HANDSHAKE_SECONDS):
            try:
                stream = await self._route.dial(credentials.client(self._peer))
            except ssl.SSLCertVerificationError:
                raise
            except (EOFError, ConnectionResetError, ssl.SSLError):
                # A key that is refused shows after the handshake only.
                raise ConnectionError(NOT_A_PARTY) from None
        connection = Connection(stream, self._endpoint.traffic)
        try:
            async with asyncio.timeout(HANDSHAKE_SECONDS):
                await self._greet(connection)
            if not self._goes_first:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(_DECIDING_SECONDS):
                        await self._decided.wait()
        except BaseException:
            connection.abort()
            raise
        if self._current is not None:
            # The peer's own came first, and is begun.
            await connection.close()
            return
        duplex = Duplex(connection, self._endpoint, self._peer, self._handle, dialled=True)
        # From here on a cut-off finds it, so the position cannot be an old one.
        duplex.begin(Begin(*self._position()))
        self._use(duplex)
        self._reading.spawn(self._read(connection, duplex))

    async def _greet(self, connection: Connection) -> None:
        keys = KeyOffering(self._endpoint, connection, self._peer) if self._endpoint.links == Links.HYBRID else None
        await connection.send(Hello(VERSION, self._endpoint.party, self._endpoint.study))
        if keys is not None:
            await keys.send()
        frame = await self._consent(connection, Limits.before_reply())
        if study_of(connection.certificate) != self._endpoint.study:
            raise PeerError(OTHER_LEAF)
        if keys is not None:
            await keys.finish(frame)
            frame = await self._consent(connection, Limits.before_welcome())
        if not isinstance(frame, Welcome):
            raise PeerError("it sent something else than an answer to the greeting")
        self._endpoint.heard(self._peer, (frame.phase, frame.round))

    async def _consent(self, connection: Connection, limits: Limits) -> AnyFrame:
        """The next frame of the listening side. Raises :class:`PeerError` for a refusal."""
        frame, _ = await connection.receive(limits)
        if isinstance(frame, Refused):
            raise PeerError(f"peer refused: {printable(frame.reason)}")
        if isinstance(frame, Differs):
            named = difference(self._endpoint.fields, frame.fields) or "compare study file and roster, all parties need the same"
            raise PeerError(f"peer refused: {printable(f'{frame.reason}: {named}')}")
        return frame

    async def _read(self, connection: Connection, duplex: Duplex) -> None:
        try:
            await duplex.run()
        except (OSError, EOFError):
            pass
        except PeerError as error:
            self._report_refusal(str(error))
        finally:
            connection.abort()
            self.lost(duplex)

    def _note_failure(self, error: Exception) -> None:
        self.unreachable = self._route.direct and isinstance(error, ConnectionRefusedError)
        if isinstance(error, PeerError):
            self._report_refusal(str(error))
        elif self._farewell and not isinstance(error, ssl.SSLCertVerificationError):
            self.trouble = self._farewell
        elif isinstance(error, ConnectionRefusedError):
            self.trouble = "nobody listens at its address"
        elif isinstance(error, ssl.SSLCertVerificationError):
            self._report_refusal("another key than the roster's answers at its address")
        elif isinstance(error, EOFError | ConnectionResetError | ssl.SSLError):
            self.trouble = "it closed the connection: is this key in its roster?"
        else:
            self.trouble = str(error) or "it does not answer"

    def _report_refusal(self, reason: str) -> None:
        # Dialling goes on, since the other node may be repaired and started again; the same reason is reported once.
        if reason != self.trouble:
            self.trouble = reason
            self._endpoint.refusal(self._endpoint.roster.name(self._peer), reason)

    # --- the end -----------------------------------------------------------------------------------------------------

    def stop(self) -> None:
        """Make and take no connection any more."""
        self._closing = True
        self._dialling.cancel()

    async def close(self, why: Ending | None = None) -> None:
        """Send what waits, for at most a second, with ``why`` this process ends, and end."""
        self.stop()
        try:
            if self._current is not None:
                await self._current.close(why)
        finally:
            await stop_all(self._dialling, self._reading)
