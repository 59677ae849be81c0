"""One budget for all releases of one set of rows: values, exact arithmetic, a file. Nothing in this room sees data."""

from gaussmix.ledger.budget import Budget, Charged
from gaussmix.ledger.composition import BudgetCap, Entry, RemainingBudget
from gaussmix.ledger.ledger import Ledger

__all__ = ["Budget", "BudgetCap", "Charged", "Entry", "Ledger", "RemainingBudget"]
