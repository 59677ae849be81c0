"""The privacy budget of one release as one value: (ε, δ), or a share of a ledger. A weak budget gives a warning.

>>> Budget(epsilon=1.0, delta=1e-6).relation
'add-remove'
>>> Budget(epsilon=1.0)
Traceback (most recent call last):
    ...
gaussmix.errors.ArgumentError: A budget is required: pass epsilon and delta, or a ledger. delta is missing.
"""

from __future__ import annotations

import math
import os
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

from gaussmix import _validation as check
from gaussmix.accounting.discrete import LatticeAccount, Share, lattice_account
from gaussmix.accounting.parameters import LARGEST_EPSILON, NEIGHBOURS, Neighbours, frames_to_the_caller
from gaussmix.errors import ArgumentError, ArgumentTypeError, BudgetWarning
from gaussmix.ledger.composition import Entry
from gaussmix.ledger.ledger import Ledger

__all__ = ["LARGEST_DELTA", "LEAST_DELTA", "Budget", "Charged", "warn_if_weak"]

Charged = tuple[Ledger, Entry]
"""A ledger, and the entry of a release that was recorded in it."""


@dataclass(frozen=True)
class Budget:
    """The privacy budget of one release.

    Parameters
    ----------
    epsilon, delta : float
        The budget of the release. Omitted with a ledger, whose budget covers all of its releases together.
    neighbours : {"add-remove", "replace-one"}, optional
        Neighbouring relation. Default: add-remove, or the ledger's.
    ledger : Ledger or path, optional
        Ledger in which the release is recorded before its noise is drawn.
    share : float or str, optional
        Share of the ledger's μ² that the release takes. Default: 1 / planned number of releases.
    note : str
        Text stored in the ledger.

    Raises
    ------
    ArgumentError
        If the arguments contradict each other, or one has no effect.
    """

    epsilon: float | None = None
    delta: float | None = None
    neighbours: Neighbours | None = None
    ledger: Ledger | None = None
    share: float | str | None = None
    note: str = ""

    def __init__(
        self,
        epsilon: float | None = None,
        delta: float | None = None,
        *,
        neighbours: Neighbours | None = None,
        ledger: Ledger | str | os.PathLike[str] | None = None,
        share: float | str | None = None,
        note: str = "",
    ) -> None:
        opened = Ledger.open(ledger) if isinstance(ledger, str | os.PathLike) else ledger
        if not isinstance(opened, Ledger | None):
            raise ArgumentTypeError(f"ledger must be a Ledger or a path, got {type(ledger).__name__}.")
        given = {"epsilon": epsilon, "delta": delta, "neighbours": neighbours, "share": share, "note": note}
        for name, value in {**given, "ledger": opened}.items():
            object.__setattr__(self, name, value)
        if neighbours is not None:
            check.choice(NEIGHBOURS, neighbours=neighbours)
        check.text(note=note)
        if opened is None:
            if share is not None:
                raise ArgumentError(
                    "share requires a ledger, because it is a share of the ledger's budget. Pass the ledger, or omit "
                    "share."
                )
            if note:
                raise ArgumentError(
                    "note requires a ledger, because it is stored there. Pass the ledger, or omit note."
                )
            if epsilon is None or delta is None:
                absent = "" if epsilon is delta else f" {'delta' if delta is None else 'epsilon'} is missing."
                raise ArgumentError(f"A budget is required: pass epsilon and delta, or a ledger.{absent}")
            if check.positive(epsilon=epsilon) < math.inf:
                check.in_interval(0, 1, delta=delta)
            return
        if not (epsilon is None and delta is None):
            raise ArgumentError(
                "epsilon and delta cannot be combined with a ledger, which holds the budget. Omit them."
            )
        if neighbours not in (None, opened.reservation.neighbours):
            raise ArgumentError(
                f"neighbours must be {opened.reservation.neighbours!r}, as in the ledger, got {neighbours!r}. Omit "
                "neighbours."
            )

    @classmethod
    def of(cls, epsilon: float | None, delta: float | None, budget: Budget | None) -> Budget:
        """Return the budget of a call that takes ``budget``, or ``epsilon`` and ``delta`` as its short form."""
        if budget is None:
            return cls(epsilon, delta)
        if not isinstance(budget, Budget):
            raise ArgumentTypeError(f"budget must be a Budget, got {type(budget).__name__}.")
        if not (epsilon is None and delta is None):
            raise ArgumentError(
                "budget cannot be combined with epsilon and delta. Pass either the budget or the two numbers."
            )
        return budget

    @property
    def relation(self) -> Neighbours:
        """The neighbouring relation of the release."""
        if self.ledger is not None:
            return self.ledger.reservation.neighbours
        return self.neighbours or "add-remove"

    @property
    def is_infinite(self) -> bool:
        """Whether ε is infinite: no noise, no privacy."""
        return self.epsilon == math.inf

    def lattice_account(
        self, *, shares: Sequence[Share], coordinates: Sequence[int], release: str | None = None
    ) -> LatticeAccount:
        """Return the account with the least noise for this budget. Nothing is spent.

        ``shares`` and ``coordinates`` are those of :func:`gaussmix.accounting.discrete.lattice_account`; ``release`` is
        that of :meth:`Ledger.lattice_account`.
        """
        if self.ledger is not None:
            return self.ledger.lattice_account(
                shares=shares, coordinates=coordinates, share=self.share, release=release
            )
        epsilon, delta = cast(float, self.epsilon), cast(float, self.delta)
        return lattice_account(epsilon, delta, shares=shares, coordinates=coordinates, neighbours=self.relation)

    def charge(
        self,
        account: LatticeAccount,
        *,
        failures: float = 0.0,
        file: str | os.PathLike[str] | None = None,
        privacy_unit: str | None = None,
        release: str | None = None,
    ) -> Charged | None:
        """Record a release in the ledger, if there is one. Noise may be drawn only after this method has returned.

        A ``release`` with an identifier that the ledger holds already is not recorded again. Another cost or file than
        that of its entry is an error.
        """
        if self.ledger is None:
            return None
        if (
            release is not None
            and (known := self.ledger.recorded(account, release, failures=failures, file=file)) is not None
        ):
            return self.ledger, known
        entry = self.ledger.spend_account(
            account, failures=failures, note=self.note, file=file, privacy_unit=privacy_unit, release=release
        )
        return self.ledger, entry


LARGEST_DELTA = 1e-2
"""Smallest δ with a warning: publishing each row with probability 1 % meets this δ with ε = 0."""

LEAST_DELTA = 1e-40
"""Smallest δ without a warning: the samplers' normal draws end at about 13 standard deviations (SECURITY.md)."""


def warn_if_weak(epsilon: float, delta: float) -> None:
    """Issue one :class:`gaussmix.errors.BudgetWarning` if a budget is weak. An infinite ε voids the certificate."""
    found = []
    if LARGEST_EPSILON < epsilon < float("inf"):
        found.append(
            f"epsilon={epsilon:g} gives no meaningful worst-case guarantee: the odds of any outcome may change by a "
            f"factor of e^{epsilon:g}. Values up to about 1 are strong, values up to about 10 moderate."
        )
    if delta >= LARGEST_DELTA:
        found.append(
            f"delta={delta:g} is large: publishing one row in {round(1 / delta)} without any protection would also "
            "satisfy it. Choose delta below 1 / (number of rows)."
        )
    elif 0 < delta < LEAST_DELTA:
        found.append(
            f"delta={delta:g} is smaller than the noise samplers can guarantee. The guarantee holds for a delta of "
            f"{LEAST_DELTA:g}."
        )
    if found:
        warnings.warn(" ".join(found), BudgetWarning, stacklevel=frames_to_the_caller())
