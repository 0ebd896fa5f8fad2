"""The durable state of a party: it is on disk before anything that depends on it is sent.

The order of durability, from the first connection to the end; a process that dies between two lines goes on from the first.

1. Store: study, seed, nonce and the keyed digest of the input, in one transaction, before any connection (:meth:`Store.open`).
2. Start: each change of the progress, and what was encapsulated, before it is announced. The ledger knows the attempt before the
   store says that this party is bound to it; before that nothing of the data leaves (``StartPhase``).
3. Series: the last mean beside the store, then that a round is begun, then the empty store of the round, then its seed, and only
   then anything of the round is sent (``SeriesParty.begin``, ``Series.mean``).
4. Rounds: how the last one ended, the new state and what it sends, in one transaction, long vectors first, before the first byte
   leaves. A transfer is on disk at its receiver before it is answered (``PhaseRunner``, ``Inbox``).
5. Gate: the own log before the others hear it as final, the vote with its history before anybody hears of it, the decision before
   the release is published (``Gate``).
6. End: a log of another party before it is acknowledged; the result, with which the secrets are deleted, before this party leaves
   (``exchange_logs``, ``keep_result``). Then the journal is emptied.
7. Folder: a message is in the outbox before it is put, and what answers it before it counts (``FolderTransport``). What waits
   there is put also by a process that finds the result in its store, before the next round takes its place (``put_what_waits``).

A party that hands in one file keeps ledger, register and keys instead: :mod:`quietmean.studies.party.by_file` has their order. A
member of a committee has what it took in a file before it lists it, and the opened sum in another before the state that has it.
"""

from quietmean.node.storage.database import COMMITTED, IN_DOUBT, PENDING, ClosedRound, Lasting, Outgoing, input_digest
from quietmean.node.storage.housekeeping import (
    LAST,
    ROUND,
    empty,
    find_stores,
    in_use,
    outbox_path,
    remove_store,
    require_store,
    size_of,
)
from quietmean.node.storage.store import Store

__all__ = [
    "COMMITTED",
    "IN_DOUBT",
    "LAST",
    "PENDING",
    "ROUND",
    "ClosedRound",
    "Lasting",
    "Outgoing",
    "Store",
    "empty",
    "find_stores",
    "in_use",
    "input_digest",
    "outbox_path",
    "remove_store",
    "require_store",
    "size_of",
]
