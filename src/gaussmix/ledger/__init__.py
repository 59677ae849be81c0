"""One budget for all releases of one set of rows: values, exact arithmetic, a file. Nothing in this room sees data."""

from gaussmix.ledger.ledger import Ledger
from gaussmix.ledger.values import Entry, Reservation, Room

__all__ = ["Entry", "Ledger", "Reservation", "Room"]
