"""Which party sends to which in each round: schedules, static topologies, churn, flows. All from public seeds."""

from quietmean.graphs.execution_trace import ExecutionTrace, churn
from quietmean.graphs.mixing import Flow, arrivals, share_flow
from quietmean.graphs.schedule import SCHEDULES, Schedule, complete_pairs, everybody, make_schedule

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
