"""Who talks to whom and when: schedules, static topologies, churn, mixing matrices. All from public seeds."""

from quietmean.graphs.churn import History, churn
from quietmean.graphs.mixing import mixing_matrix
from quietmean.graphs.schedule import SCHEDULES, Schedule, complete_pairs, make_schedule

__all__ = ["SCHEDULES", "History", "Schedule", "churn", "complete_pairs", "make_schedule", "mixing_matrix"]
