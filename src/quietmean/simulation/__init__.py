"""Whole populations in one process: vectorised over runs, or event by event over the real party machines."""

from quietmean.simulation.events import EventResult, NetworkModel, simulate_events
from quietmean.simulation.runs import SimulationResult, simulate

__all__ = ["EventResult", "NetworkModel", "SimulationResult", "simulate", "simulate_events"]
