"""Several sites as threads of one process: the whole protocol of a joint release, with sums added in the clear."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

from gaussmix.data.source import ReadOptions
from gaussmix.errors import SiteError
from gaussmix.ledger import Ledger
from gaussmix.mechanism.sites import StoredSums, Study, _drawn, _Site

ADDRESSES = [f"127.0.0.1:{7001 + number}" for number in range(50)]
SOFTWARE = {"gaussmix": "test"}


def study_of(schema, number=3, colluding=1, **options):
    addresses = {f"site {i + 1}": ADDRESSES[i] for i in range(number)}
    budget = {"epsilon": 1.0, "delta": 1e-6, "timeout": 20.0}
    return Study.new("test", schema, addresses, colluding=colluding, **{**budget, **options})


class Hub:
    """What sites in threads exchange. Keeps everything that is sent: ``messages`` and ``inputs`` by step."""

    def __init__(self, number, stop=None, shifted=None):
        self.number, self.changed, self.ended = number, threading.Condition(), False
        self.slots, self.messages, self.inputs = {}, [], []
        self.stop = stop  # (site, step): the site disappears in that step
        self.shifted = shifted  # (site, question): the site is shown another total than the others

    def transport(self, site):
        return HubTransport(self, site)

    def abort(self):
        """Close all connections. Messages that were sent arrive."""
        with self.changed:
            self.ended = True
            self.changed.notify_all()

    def swap(self, site, step, value):
        """Return the values of all sites in one step."""
        with self.changed:
            sent = self.slots.setdefault(step, {})
            sent[site] = value
            self.changed.notify_all()
            self.changed.wait_for(lambda: self.ended or len(sent) == self.number, timeout=30)
            if len(sent) < self.number:
                raise SiteError("Another site closed its connection.")
            return [sent[i] for i in range(1, self.number + 1)]


class HubTransport:
    def __init__(self, hub, site):
        self.hub, self.site, self.step = hub, site, 0

    def _next(self, kind):
        self.step += 1
        if self.hub.stop in ((self.site, self.step), (self.site, kind)):
            self.hub.abort()
            raise KeyboardInterrupt

    def exchange(self, message, doing):
        self._next(doing)
        found = self.hub.swap(self.site, self.step, message)
        if self.site == 1:
            self.hub.messages.append((doing, found))
        return found

    def sum(self, values, doing):
        self._next(f"before {doing}")
        found = self.hub.swap(self.site, self.step, list(values))
        if self.site == 1:
            self.hub.inputs.append((doing, found))
        self._next(f"after {doing}")
        totals = [sum(column) for column in zip(*found, strict=True)]
        return [total + 1 for total in totals] if self.hub.shifted == (self.site, doing) else totals


def ledger_of(folder, site, **options):
    path = folder / f"site{site}.ledger"
    return Ledger.open(path) if path.exists() else Ledger(path, **{"epsilon": 3.0, "delta": 1e-5, **options})


def run_all(study, tables, folder, *, hub=None, studies=None, sites=None, details=None, ledger=None):
    """Run every site in a thread; return releases, or the exceptions that ended them."""
    hub = Hub(len(tables)) if hub is None else hub

    def one(site):
        own = study if studies is None else studies[site - 1]
        stored = StoredSums(folder / f"sums{site}", own, site)
        joint = (sites or {}).get(site, _Site)(
            own,
            lambda: hub.transport(site),
            ledger_of(folder, site, **(ledger or {})),
            stored,
            details={**SOFTWARE, **((details or {}).get(site, {}))},
            say=lambda line: None,
        )
        try:
            return _drawn(joint, own, tables[site - 1], ReadOptions(), out=None, force=False)
        except BaseException as error:
            hub.abort()
            return error
        finally:
            stored.close()

    with ThreadPoolExecutor(len(tables)) as pool:
        return list(pool.map(one, range(1, len(tables) + 1)))
