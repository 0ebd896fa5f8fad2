"""The budget ledger: what a party's data have cost over all studies, and what they may still cost."""

from quietmean.ledger.account import RESERVED, SPENT, Account, Budget, Entry
from quietmean.ledger.ledger import Ledger

__all__ = ["RESERVED", "SPENT", "Account", "Budget", "Entry", "Ledger"]
