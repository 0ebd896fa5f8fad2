"""What was refused, by whom and why: told once for each cause, counted after that, and bounded whatever anybody sends."""

from __future__ import annotations

import re

from quietmean.node.net.transport import printable

# So many causes are told of one peer, and so many peers are told apart; who sends more is only counted.
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
        """Peer and reason as they are to be told, safe for one line of a log; None if the same was told before or it is too much.

        ``peer`` is a name or an address. Addresses that differ in the port only are one peer: every connection has another.
        """
        host, reason = _PORT.sub("", peer), _short(reason)
        causes = self._counts.get(host)
        if causes is None and len(self._counts) < _PEERS:
            causes = self._counts.setdefault(host, {})
        if causes is None or (reason not in causes and len(causes) >= _CAUSES_PER_PEER):
            self._further += 1
            # Once, so that a reader of the log knows that it is not complete.
            return ("others", "more refusals than are told one by one; they are counted") if self._further == 1 else None
        causes[reason] = causes.get(reason, 0) + 1
        if causes[reason] > 1:
            return None
        self._first[host, reason] = peer
        return peer, reason

    def lines(self) -> tuple[str, ...]:
        """All that was told, in order, with how often it happened if more than once; last the number of what was not told."""
        lines = [
            f"{peer}: {reason}" + (f" ({self._counts[host][reason]} times)" if self._counts[host][reason] > 1 else "")
            for (host, reason), peer in self._first.items()
        ]
        return (*lines, f"others: {self._further} further refusals") if self._further else tuple(lines)


def _short(reason: str) -> str:
    # Parts of a reason may be a stranger's own words.
    text = printable(reason)
    return text if len(text) <= _LONGEST else text[:_LONGEST] + "..."
