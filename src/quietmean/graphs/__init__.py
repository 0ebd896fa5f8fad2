"""Who talks to whom and when: schedules, static topologies, churn, flows. All from public seeds."""

from quietmean.graphs.churn import History, churn
from quietmean.graphs.mixing import Flow, arrivals, share_flow
from quietmean.graphs.schedule import SCHEDULES, Schedule, complete_pairs, make_schedule

__all__ = ["SCHEDULES", "Flow", "History", "Schedule", "arrivals", "churn", "complete_pairs", "make_schedule", "share_flow"]
