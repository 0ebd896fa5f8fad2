"""Many means under one agreement and one budget: terms, what was spent, rounds, and the machines that carry them out.

:class:`Session` has all parties in one process; :mod:`.joined` is the part of one party between machines.
"""

from quietmean.sessions.round_mean import RoundMean
from quietmean.sessions.session import Engine, MemoryEngine, RoundRelease, Session, SessionAccount
from quietmean.studies.agreement.session_terms import SessionTerms

__all__ = ["Engine", "MemoryEngine", "RoundMean", "RoundRelease", "Session", "SessionAccount", "SessionTerms"]
