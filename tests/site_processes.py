"""Several sites as processes on the loopback interface: ``python -m gaussmix sites run`` with keys and ledgers."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from gaussmix.ledger import Ledger
from gaussmix.mechanism.mpc import make_keys
from gaussmix.mechanism.sites import Study, common_environment

WAIT = 120  # seconds until a process that hangs is killed


def free_ports(number):
    """Ports that were free a moment ago."""
    sockets = [socket.socket() for _ in range(number)]
    for one in sockets:
        one.bind(("127.0.0.1", 0))
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


class Processes:
    """A study in a folder, with the tables, keys and ledgers of its sites."""

    def __init__(self, folder, schema, tables, *, ledger=None, **options):
        self.folder, self.number = Path(folder), len(tables)
        options = {"epsilon": 1.0, "delta": 1e-6, "colluding": 1, "timeout": 90.0, **options}
        addresses = {f"S{i}": f"127.0.0.1:{port}" for i, port in enumerate(free_ports(self.number), 1)}
        self.study = Study.new("test", schema, addresses, **options)
        self.file = self.folder / "study.toml"
        self.file.write_text(self.study.to_toml(), encoding="utf-8")
        for site, table in enumerate(tables, 1):
            pq.write_table(pa.table(table), self.folder / f"rows{site}.parquet")
            make_keys(self.folder / "study.keys", site, self.study.release)
            Ledger(self.folder / f"site{site}.ledger", **{"epsilon": 3.0, "delta": 1e-5, **(ledger or {})})

    def start(self, site, *, study=None, rows=None, environment=None):
        command = [sys.executable, "-m", "gaussmix", "sites", "run", str(study or self.file), "--site", str(site)]
        command += [str(rows or self.folder / f"rows{site}.parquet"), "--ledger", str(self.ledger(site).path)]
        command += ["--keys", str(self.folder / "study.keys"), "-o", str(self.out(site)), "--force"]
        # With the common environment already set, the process does not start again, and has the id that is known here.
        own = {**os.environ, **common_environment(), "OMP_NUM_THREADS": "1", **(environment or {})}
        return Started(command, own)

    def out(self, site):
        return self.folder / f"joint{site}.release.parquet"

    def ledger(self, site):
        return Ledger.open(self.folder / f"site{site}.ledger")

    def run(self, **options):
        """Run all sites to their end; return them."""
        started = [self.start(site, **options) for site in range(1, self.number + 1)]
        return [one.ended() for one in started]


class Started:
    """A process whose lines on standard error are read as they come."""

    def __init__(self, command, environment):
        self.process = subprocess.Popen(
            command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
        )
        self.lines, self._seen = [], threading.Condition()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        self._timer = threading.Timer(WAIT, self.process.kill)
        self._timer.daemon = True
        self._timer.start()

    def _read(self):
        for line in self.process.stderr:
            with self._seen:
                self.lines.append(line.rstrip("\n"))
                self._seen.notify_all()

    def saw(self, text):
        """Wait for a line."""
        with self._seen:
            assert self._seen.wait_for(lambda: any(text in line for line in self.lines), timeout=WAIT), self.lines

    def kill(self):
        self.process.send_signal(signal.SIGKILL)
        self.ended()

    def ended(self):
        """Wait for the end; return self, with ``code`` and ``words``."""
        self.code = self.process.wait()
        self._timer.cancel()
        self._reader.join(5)
        self.process.stderr.close()
        self.words = "\n".join(self.lines)
        return self


def until(condition, seconds=10.0):
    """Wait for a condition."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.05)
