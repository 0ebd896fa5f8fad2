"""What a party of a study between machines added up, and the execution that says what is in it."""

from __future__ import annotations

from quietmean.node import NodeResult
from quietmean.node.series import what_arrived
from quietmean.planning.plan import Plan
from quietmean.planning.possible import ReleasedSum
from quietmean.protocols.execution import Execution


def opened_of(result: NodeResult, plan: Plan) -> tuple[Execution, ReleasedSum]:
    """The execution without what did not arrive here, and the sum of what did.

    Where shares are passed on, and some are in doubt or count twice, or a party said nothing at the end, it does not say exactly
    what is in the sum.
    """
    missing, execution = what_arrived(result, plan)
    doubtful = result.unresolved or result.counted_twice or result.silent or missing
    settled = not (plan.protocol.traits.transfers_mass and doubtful)
    return execution, ReleasedSum(result.total_vector, result.total_weight, settled)
