"""The linear description of an execution: (I - L) m = B x + A e, and which party knows which part of it."""

from quietmean.transcript.tracing import LockstepResult, run_lockstep, trace_machines
from quietmean.transcript.transcript import Transcript, TranscriptBuilder

__all__ = ["LockstepResult", "Transcript", "TranscriptBuilder", "run_lockstep", "trace_machines"]
