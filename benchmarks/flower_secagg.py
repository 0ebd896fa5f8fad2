"""One round of Flower's own, unmodified SecAgg+ in one process; run by the Python of an environment that has ``flwr``.

Prints one JSON line: processor seconds of the server and of a client (mean), bytes a client sends and receives, and the root mean
square error. Every message is turned into protobuf bytes and back, as it would be on a wire; that time is counted apart.
"""

# mypy: disable-error-code="import-not-found, misc"

from __future__ import annotations

import argparse
import json
import logging
import os
import time
import types
import uuid
from collections.abc import Callable, Iterable
from typing import Any

os.environ.setdefault("FLWR_TELEMETRY_ENABLED", "0")

import numpy as np
from flwr.app import Context, RecordDict
from flwr.app.user_config import UserConfig
from flwr.client import NumPyClient
from flwr.client.mod import secaggplus_mod
from flwr.clientapp import ClientApp
from flwr.common import ndarrays_to_parameters, parameters_to_ndarrays
from flwr.common.serde import message_from_proto, message_to_proto
from flwr.server import LegacyContext, ServerConfig
from flwr.server.strategy import FedAvg
from flwr.server.workflow import DefaultWorkflow, SecAggPlusWorkflow
from flwr.serverapp import Grid
from flwr.supercore.task_identity import TaskIdentity

# A step of 2**-21 for values in [-1, 1], as the other side of the comparison has it.
QUANTIZATION, MODULUS = 1 << 22, 1 << 32


def value(party: int, dimension: int) -> Any:
    """Public test data of one party."""
    return np.sin(np.arange(dimension) + 7.0 * party)


class OneVector(NumPyClient):
    """A client whose model is its vector."""

    def __init__(self, party: int, dimension: int) -> None:
        self._party, self._dimension = party, dimension

    def fit(self, parameters: Any, config: Any) -> Any:
        return [value(self._party, self._dimension)], 1, {}


class Captured(FedAvg):
    """The usual strategy; keeps the mean that the server ends up with."""

    mean: Any = None

    def aggregate_fit(self, server_round: int, results: Any, failures: Any) -> Any:
        parameters, metrics = super().aggregate_fit(server_round, results, failures)
        if parameters is not None:
            self.mean = parameters_to_ndarrays(parameters)[0]
        return parameters, metrics


class InProcess(Grid):
    """Hands every message to the client app in this process; ``dropped`` clients vanish before the masked vectors."""

    def __init__(self, app: ClientApp, parties: int, dropped: int) -> None:
        self._app = app
        self._gone = {1000 + party for party in range(dropped)}
        self._contexts = {1000 + party: _context(1000 + party, {"partition-id": party}) for party in range(parties)}
        self.client_seconds: dict[int, float] = dict.fromkeys(self._contexts, 0.0)
        self.codec_seconds = 0.0
        self.bytes = {"up": 0, "down": 0}

    @property
    def run(self) -> Any:
        return types.SimpleNamespace(run_id=1)

    def set_run(self, run: Any) -> None:
        pass

    def get_node_ids(self) -> Any:
        return list(self._contexts)

    def create_message(self, *arguments: Any, **named: Any) -> Any:
        raise NotImplementedError

    def push_messages(self, messages: Any) -> Any:
        raise NotImplementedError

    def pull_messages(self, message_ids: Any) -> Any:
        raise NotImplementedError

    def send_and_receive(self, messages: Iterable[Any], *, timeout: float | None = None) -> Any:
        replies = []
        for message in messages:
            node = message.metadata.dst_node_id
            stage = next((record.get("stage") for record in message.content.config_records.values() if "stage" in record), None)
            if node in self._gone and stage in ("collect_masked_vectors", "unmask"):
                continue
            _stamp(message, run=1, source=1)
            arrived = self._over_the_wire(message, "down")
            reply, seconds = _timed(lambda: self._app(arrived, self._contexts[node]))  # noqa: B023
            self.client_seconds[node] += seconds
            _stamp(reply, run=1, source=node)
            replies.append(self._over_the_wire(reply, "up"))
        return replies

    def _over_the_wire(self, message: Any, direction: str) -> Any:
        def there_and_back() -> tuple[Any, int]:
            proto = message_to_proto(message)
            raw = proto.SerializeToString()
            return message_from_proto(type(proto).FromString(raw)), len(raw)

        (arrived, size), seconds = _timed(there_and_back)
        self.codec_seconds += seconds
        self.bytes[direction] += size
        return arrived


def _stamp(message: Any, run: int, source: int) -> None:
    message.metadata.__dict__.update(_run_id=run, _src_node_id=source, _message_id=uuid.uuid4().hex)


def _timed(call: Callable[[], Any]) -> tuple[Any, float]:
    begun = time.process_time()
    result = call()
    return result, time.process_time() - begun


def _context(node: int, config: dict[str, int]) -> Context:
    return Context(run_id=1, node_id=node, node_config=UserConfig(config), state=RecordDict(), run_config=UserConfig({}))


def measure(parties: int, dimension: int, shares: int, threshold: int, dropped: int) -> dict[str, Any]:
    """One round; seconds are processor time."""

    def client(context: Context) -> Any:
        return OneVector(int(context.node_config["partition-id"]), dimension).to_client()

    grid = InProcess(ClientApp(client_fn=client, mods=[secaggplus_mod]), parties, dropped)
    strategy = Captured(
        fraction_fit=1.0,
        fraction_evaluate=0.0,
        min_fit_clients=parties,
        min_available_clients=parties,
        initial_parameters=ndarrays_to_parameters([np.zeros(1)]),
    )
    legacy = LegacyContext(context=_context(1, {}), config=ServerConfig(num_rounds=1), strategy=strategy)
    aggregation = SecAggPlusWorkflow(
        num_shares=shares,
        reconstruction_threshold=threshold,
        max_weight=1.0,
        clipping_range=1.0,
        quantization_range=QUANTIZATION,
        modulus_range=MODULUS,
        timeout=60.0,
    )
    _, total = _timed(lambda: DefaultWorkflow(fit_workflow=aggregation)(grid, legacy))
    truth = np.mean([value(party, dimension) for party in range(dropped, parties)], axis=0)
    staying = [seconds for node, seconds in grid.client_seconds.items() if node >= 1000 + dropped]
    return {
        "server_seconds": total - sum(grid.client_seconds.values()) - grid.codec_seconds,
        "client_seconds": sum(staying) / len(staying),
        "codec_seconds": grid.codec_seconds,
        "client_bytes_sent": grid.bytes["up"] // parties,
        "client_bytes_received": grid.bytes["down"] // parties,
        "error": None if strategy.mean is None else float(np.sqrt(((strategy.mean - truth) ** 2).mean())),
    }


def main() -> None:
    logging.getLogger("flwr").setLevel(logging.ERROR)
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("parties", "dimension", "shares", "threshold", "dropped"):
        parser.add_argument(f"--{name}", type=int, required=True)
    TaskIdentity.run_id = TaskIdentity.node_id = TaskIdentity.task_id = 1
    print(json.dumps(measure(**vars(parser.parse_args()))))


if __name__ == "__main__":
    main()
