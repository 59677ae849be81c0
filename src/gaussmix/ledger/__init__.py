"""One privacy budget for all releases of one set of rows. Nothing in this package sees data."""

from gaussmix.ledger.budget import Budget
from gaussmix.ledger.composition import BudgetCap, Entry, RemainingBudget
from gaussmix.ledger.ledger import Ledger

__all__ = ["Budget", "BudgetCap", "Entry", "Ledger", "RemainingBudget"]
