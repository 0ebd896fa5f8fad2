"""The budget ledger: what was charged to a party's data over all studies, and what is left."""

from quietmean.ledger.account import RESERVED, SPENT, Account, Budget, Freeze, LedgerEntry, Refund
from quietmean.ledger.ledger import Ledger

__all__ = ["RESERVED", "SPENT", "Account", "Budget", "Freeze", "Ledger", "LedgerEntry", "Refund"]
