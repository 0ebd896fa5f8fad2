"""Whole populations in one process: vectorised over runs, event by event over the real party machines, or under attack."""

from quietmean.simulation.audit import AttackResult, attack
from quietmean.simulation.events import EventResult, NetworkModel, simulate_events
from quietmean.simulation.runs import SimulationResult, simulate

__all__ = [
    "AttackResult",
    "EventResult",
    "NetworkModel",
    "SimulationResult",
    "attack",
    "simulate",
    "simulate_events",
]
