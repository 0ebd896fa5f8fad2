"""A bounded record of refusals: each cause is reported once per peer and counted after that."""

from __future__ import annotations

import re

from quietmean.node.net.transport import printable

# Limits of causes per peer and of peers; what exceeds them is only counted.
_CAUSES_PER_PEER = 16
_PEERS = 256
_LONGEST = 300
_PORT = re.compile(r"(?<=.):\d{1,5}$")


class Refusals:
    """Use :meth:`note` for each refusal, :meth:`lines` at the end. Memory: at most about 256 * 16 lines of 300 characters."""

    def __init__(self) -> None:
        self._counts: dict[str, dict[str, int]] = {}
        self._first: dict[tuple[str, str], str] = {}
        self._further = 0

    def note(self, peer: str, reason: str) -> tuple[str, str] | None:
        """Peer and reason to be reported, safe for one line of a log; None for a repetition or beyond the limits.

        ``peer`` is a name or an address. Addresses that differ only in the port are one peer: each connection has its own port.
        """
        host, reason = _PORT.sub("", peer), _short(reason)
        causes = self._counts.get(host)
        if causes is None and len(self._counts) < _PEERS:
            causes = self._counts.setdefault(host, {})
        if causes is None or (reason not in causes and len(causes) >= _CAUSES_PER_PEER):
            self._further += 1
            # Once, so that a reader of the log knows that it is not complete.
            return ("others", "more refusals than are named one by one; they are counted") if self._further == 1 else None
        causes[reason] = causes.get(reason, 0) + 1
        if causes[reason] > 1:
            return None
        self._first[host, reason] = peer
        return peer, reason

    def lines(self) -> tuple[str, ...]:
        """One line for each reported refusal, in order, with its count if above 1; last the number beyond the limits."""
        lines = [
            f"{peer}: {reason}" + (f" ({self._counts[host][reason]} times)" if self._counts[host][reason] > 1 else "")
            for (host, reason), peer in self._first.items()
        ]
        return (*lines, f"others: {self._further} further refusals") if self._further else tuple(lines)


def _short(reason: str) -> str:
    # Parts of a reason may have been sent by an unknown peer.
    text = printable(reason)
    return text if len(text) <= _LONGEST else text[:_LONGEST] + "..."
