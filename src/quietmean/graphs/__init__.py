"""Which party sends to which in each round: schedules, static topologies, churn, flows. All from public seeds."""

from quietmean.graphs.execution_trace import ExecutionTrace, churn
from quietmean.graphs.schedule import SCHEDULES, Flow, Schedule, arrivals, complete_pairs, everybody, make_schedule, share_flow

__all__ = [
    "SCHEDULES",
    "ExecutionTrace",
    "Flow",
    "Schedule",
    "arrivals",
    "churn",
    "complete_pairs",
    "everybody",
    "make_schedule",
    "share_flow",
]
