"""Many means under one agreement and one budget: terms, what was spent, rounds, and the machines that carry them out."""

from quietmean.sessions.account import SessionAccount
from quietmean.sessions.engine import Engine, Exchange, MemoryEngine
from quietmean.sessions.session import RoundResult, Session
from quietmean.sessions.terms import SessionTerms

__all__ = ["Engine", "Exchange", "MemoryEngine", "RoundResult", "Session", "SessionAccount", "SessionTerms"]
