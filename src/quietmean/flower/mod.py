"""The client's mod: what the client's app trains leaves the machine only as shares sealed for other clients."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from quietmean.core.errors import InputError
from quietmean.core.party import Vector
from quietmean.flower.home import Home
from quietmean.flower.party import StarParty
from quietmean.flower.requests import ClientAnswer, write

# The record of requests and answers, and its field.
RECORD, FIELD = "quietmean", "said"
# In a SuperNode's --node-config: the client's folder. In a simulation, a run's setting: the folder of all clients' folders.
HOME, HOMES = "quietmean-home", "quietmean-homes"

ClientApp = Callable[[Any, Any], Any]


def quietmean_mod(message: Any, context: Any, call_next: ClientApp) -> Any:
    """A Flower mod. Of a round it asks the app's ``train`` once, for the model that came along, and sends the difference sealed.

    Messages of a :class:`SealedMean` are answered here; others go to the app as they are. What the app returns besides its
    arrays, and what it raises, stays on this machine.
    """
    if RECORD not in message.content:
        return call_next(message, context)
    from flwr.app import ConfigRecord, Message, RecordDict

    try:
        party = StarParty(Home(_folder(context)))
        raw = party.answer(message.content[RECORD][FIELD], lambda: _update(message, context, call_next))
    except InputError as error:
        raw = write(ClientAnswer(refused=str(error)))
    except Exception as error:  # Its text may hold values: Flower would send it to the server.
        raw = write(ClientAnswer(refused=f"the client's app failed ({type(error).__name__}): look into it on that machine"))
    return Message(RecordDict({RECORD: ConfigRecord({FIELD: raw})}), reply_to=message)


def flat(arrays: Any) -> Vector:
    """All numbers of an ArrayRecord in one vector (d,), in the order of its arrays."""
    parts = [np.asarray(array, dtype=np.float64).reshape(-1) for array in arrays.to_numpy_ndarrays()]
    vector: Vector = np.concatenate(parts) if parts else np.empty(0)
    return vector


def _update(message: Any, context: Any, call_next: ClientApp) -> Vector:
    """What training changed in the model of the message, shape (d,)."""
    from flwr.app import ArrayRecord

    model = _arrays(message.content, ArrayRecord)
    before = flat(model)
    del message.content[RECORD]
    reply = call_next(message, context)
    if not reply.has_content():
        raise InputError("the client's app answered without content: let its train return the arrays of the model")
    after = flat(_arrays(reply.content, ArrayRecord))
    if before.shape != after.shape:
        raise InputError(f"the client's app turned {before.size} numbers into {after.size}: return the arrays of the same model")
    return after - before


def _arrays(content: Any, kind: type[Any]) -> Any:
    matching = [record for record in content.values() if isinstance(record, kind)]
    if len(matching) != 1:
        raise InputError(f"a message has {len(matching)} records of arrays: send the model in one")
    return matching[0]


def _folder(context: Any) -> Path:
    own = context.node_config.get(HOME)
    if own is not None:
        return Path(str(own)).expanduser()
    homes, number = context.run_config.get(HOMES), context.node_config.get("partition-id")
    if homes is None or number is None:
        raise InputError(f"this client has no folder: start its SuperNode with --node-config '{HOME}=\"...\"'")
    return Path(str(homes)) / str(int(number))
