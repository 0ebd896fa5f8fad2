"""The budget ledger: what was charged to a party's data over all studies, and what is left."""

from quietmean.ledger.account import RESERVED, SPENT, Account, Budget, Freeze, LedgerEntry, Refund, Rule
from quietmean.ledger.filter import SpendingRequest
from quietmean.ledger.ledger import Ledger
from quietmean.ledger.people import NO_INPUTS, Inputs

__all__ = [
    "NO_INPUTS",
    "RESERVED",
    "SPENT",
    "Account",
    "Budget",
    "Freeze",
    "Inputs",
    "Ledger",
    "LedgerEntry",
    "Refund",
    "Rule",
    "SpendingRequest",
]
