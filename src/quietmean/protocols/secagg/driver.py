"""One run of the real machines in this process, for use as a library: the sum, or the reason why there is none."""

from __future__ import annotations

from quietmean.core.errors import InputError, ProtocolFailure
from quietmean.core.party import PopulationNoise, Release, Vector
from quietmean.protocols.execution import Execution
from quietmean.protocols.secagg.party import AggregatorState
from quietmean.protocols.secagg.spec import SecAggParameters


def aggregate(execution: Execution, values: Vector, noise: PopulationNoise) -> Release:
    """The aggregator's release for values (n, d): the decoded sum (d,) over the counted parties, and their total weight.

    Raises :class:`InputError` for an execution of another protocol, and :class:`ProtocolFailure` with the
    aggregator's reason if the run ends without a result.
    """
    protocol = execution.protocol
    if not isinstance(protocol, SecAggParameters):
        raise InputError(f"protocol {protocol.name} does not aggregate securely. Use secagg or secagg-plus.")
    result = execution.run(values, noise)
    state = result.states[protocol.aggregator]
    if protocol.aggregator not in result.releases:
        reason = state.failure if isinstance(state, AggregatorState) else ""
        raise ProtocolFailure(f"secure aggregation gave no result: {reason}")
    return result.releases[protocol.aggregator]
