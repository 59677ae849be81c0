"""Damaged files for every reader: each input is accepted or refused, within seconds; no other error, no abort, no hang.

A reader is a function from bytes to one of its outcomes ("accepted" or "refused"), with valid files to start from. It
runs in processes of its own, which may die. Add a reader to ``READERS``.

    python tests/fuzz_readers.py --inputs 20000 --processes 2 [reader ...]
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import hashlib
import io
import itertools
import multiprocessing
import resource
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

SECONDS = 20.0  # for one input
MEMORY = 4 * 2**30  # bytes of address space beyond what the imports take
_START = "spawn"  # of the processes
REFUSALS = (ValueError, TypeError, OSError)  # errors in the library's own words


@dataclass(frozen=True)
class Reader:
    """Valid files, and a function that reads one: it returns, or raises one of ``REFUSALS``."""

    seeds: Callable[[], list[bytes]]
    read: Callable[[bytes], object]


@dataclass
class Report:
    """How often each outcome came, and the inputs that led to a fault: their numbers, from which they are remade."""

    counts: Counter[str] = field(default_factory=Counter)
    faults: dict[int, str] = field(default_factory=dict)


# -- mutations ----------------------------------------------------------------------------------------------------
def mutated(seeds: list[bytes], number: int) -> bytes:
    """Input number so-and-so: one to four changes of a valid file, always the same ones."""
    rng = np.random.default_rng([7, number])
    data = bytearray(seeds[rng.integers(len(seeds))])
    for _ in range(rng.integers(1, 5)):
        if data:
            _CHANGES[rng.integers(len(_CHANGES))](data, seeds, rng)
    return bytes(data)


def _flip_bit(data: bytearray, seeds: list[bytes], rng: np.random.Generator) -> None:
    data[rng.integers(len(data))] ^= 1 << int(rng.integers(8))


def _flip_near_end(data: bytearray, seeds: list[bytes], rng: np.random.Generator) -> None:
    data[-1 - rng.integers(min(len(data), 600))] ^= 1 << int(rng.integers(8))


def _truncate(data: bytearray, seeds: list[bytes], rng: np.random.Generator) -> None:
    del data[rng.integers(len(data)) :]


def _splice(data: bytearray, seeds: list[bytes], rng: np.random.Generator) -> None:
    other = seeds[rng.integers(len(seeds))]
    start, length = rng.integers(len(other)), int(rng.integers(1, 200))
    place = rng.integers(len(data) + 1)
    data[place : place + (length if rng.random() < 0.5 else 0)] = other[start : start + length]


def _delete(data: bytearray, seeds: list[bytes], rng: np.random.Generator) -> None:
    start = rng.integers(len(data))
    del data[start : start + int(rng.integers(1, 40))]


def _extreme(data: bytearray, seeds: list[bytes], rng: np.random.Generator) -> None:
    words = [
        b"\xff" * 8,
        b"\0" * 8,
        b"\xff\xff\xff\x7f",
        b"\0\0\0\x80",
        b'"',
        b"\n",
        b"\r",
        b",",
        b"\t",
        b"-1",
        b"9" * 400,
    ]
    word = words[rng.integers(len(words))]
    place = rng.integers(len(data) + 1)
    data[place : place + (len(word) if rng.random() < 0.7 else 0)] = word


_CHANGES = [_flip_bit, _flip_bit, _flip_near_end, _truncate, _splice, _delete, _extreme]


# -- tables -------------------------------------------------------------------------------------------------------
TABLE_SCHEMA = {
    "x": {"lower": 0, "upper": 1, "missing": "lower"},
    "s": {"levels": ["a", "b"], "unknown": "other", "missing": "level"},
    "b": {"type": "boolean", "missing": "lower"},
    "k": {"levels": [1, 2], "unknown": "other", "missing": "level"},
}


VECTOR_SCHEMA = {
    **TABLE_SCHEMA,
    "v": {"size": 3, "norm": 1.0, "missing": "drop-row"},
    "w": {"size": 2, "lower": 0, "upper": 1, "missing": "drop-row"},
}


def _table(rows: int = 300):
    """Columns that text can hold."""
    import pyarrow as pa

    rng = np.random.default_rng(0)
    return pa.table(
        {
            "x": pa.array(rng.random(rows), mask=rng.random(rows) < 0.1),
            "s": pa.array(rng.choice(["a", "b", "long text, rarely"], rows)),
            "b": pa.array(rng.random(rows) < 0.5),
            "k": pa.array(rng.integers(1, 3, rows)),
        }
    )


def _with_vectors(rows: int = 300):
    """And vectors: lists of one size, and lists of any."""
    import pyarrow as pa

    rng = np.random.default_rng(1)
    fixed = pa.FixedSizeListArray.from_arrays(pa.array(rng.random(3 * rows)), 3)
    lists = pa.array([None if i % 29 == 0 else [0.25, i / rows] for i in range(rows)], pa.list_(pa.float64()))
    return _table(rows).append_column("v", fixed).append_column("w", lists)


def _csv_seeds(separator: str) -> list[bytes]:
    frame = _table(60).to_pandas().replace({"s": {"long text, rarely": "long text"}})
    plain = frame.to_csv(index=False, sep=separator).encode()
    quoted = frame.to_csv(index=False, sep=separator, quoting=2).encode()
    return [plain, plain.replace(b"\n", b"\r\n"), b"\xef\xbb\xbf" + plain, *([quoted] if separator == "," else [])]


def _parquet_seeds() -> list[bytes]:
    import pyarrow.parquet as pq

    found = []
    table = _with_vectors()
    coded = table.set_column(1, "s", table["s"].dictionary_encode())
    for options in (
        {},
        {"use_dictionary": False, "compression": "none", "data_page_version": "2.0"},
        {"write_statistics": True, "row_group_size": 100, "compression": "zstd", "write_page_index": True},
    ):
        for rows in (table, coded):
            sink = io.BytesIO()
            pq.write_table(rows, sink, **options)
            found.append(sink.getvalue())
    return found


def _ipc_seeds() -> list[bytes]:
    import pyarrow as pa
    import pyarrow.ipc

    found = []
    table = _with_vectors()
    coded = table.set_column(1, "s", table["s"].dictionary_encode())
    views = table.set_column(1, "s", table["s"].cast(pa.string_view()))
    for rows in (table, coded, views):
        for compression in (None, "zstd"):
            sink = io.BytesIO()
            with pa.ipc.new_stream(
                sink, rows.schema, options=pa.ipc.IpcWriteOptions(compression=compression)
            ) as writer:
                writer.write_table(rows, max_chunksize=100)
            found.append(sink.getvalue())
    return found


def _through_file(suffix: str) -> Callable[[bytes], object]:
    def read(content: bytes) -> object:
        from gaussmix.data.moments import Moments
        from gaussmix.data.table import open_table

        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / f"t{suffix}"
            path.write_bytes(content)
            table = open_table(path)
            _ = table.n_rows
            with contextlib.suppress(REFUSALS):
                table.schema()
            return Moments.of(path, VECTOR_SCHEMA if suffix == ".parquet" else TABLE_SCHEMA)

    return read


def _through_stream(content: bytes) -> object:
    import pyarrow as pa
    import pyarrow.ipc

    from gaussmix.data.moments import Moments

    try:
        reader = pa.ipc.open_stream(pa.py_buffer(content))
    except (pa.ArrowException, OSError):  # the caller's own doing
        raise ValueError("no stream") from None
    return Moments.of(reader, VECTOR_SCHEMA)


def _through_moments(content: bytes) -> object:
    from gaussmix.data.moments import Moments

    return Moments.from_bytes(content)


def _moments_seeds() -> list[bytes]:
    from gaussmix.data.moments import Moments

    return [Moments.of(_with_vectors(), VECTOR_SCHEMA).to_bytes(), Moments.of(_table(), TABLE_SCHEMA).to_bytes()]


def _with_checksum(content: bytes) -> object:
    """As a forger would: the digest is made to fit, so that all that comes behind it is read."""
    magic = b"gaussmix moments\n"
    rest = content[len(magic) + 32 :]
    return _through_moments(magic + hashlib.sha256(rest).digest() + rest)


@functools.cache
def _ledgers() -> dict[bytes, object]:
    """One ledger as it is made and after each of three entries, with what it then says; its times differ every time."""
    from gaussmix.ledger import Ledger

    found = {}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rows.ledger"
        ledger = Ledger(path, epsilon=1.0, delta=1e-6, mu=0.05, delta_slack=1e-7)
        found[path.read_bytes()] = _said(path)
        for spent in (
            {"mu": 0.02, "note": "first", "file": "a.parquet"},
            {"mu": 0.01},
            {"mu": 0.02, "delta_slack": 1e-8, "note": "third"},
        ):
            ledger.spend(**spent)
            found[path.read_bytes()] = _said(path)
    return found


def _said(path: Path) -> object:
    from gaussmix.ledger import Ledger

    ledger = Ledger.open(path)
    return ledger.reservation, ledger.entries(), ledger.remaining()


def _through_ledger(content: bytes) -> object:
    """What is accepted says what was recorded: any other number is a fault."""
    from gaussmix.errors import LedgerError

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rows.ledger"
        path.write_bytes(content)
        try:
            found = _said(path)
        except LedgerError:
            raise ValueError("refused") from None
    assert found in _ledgers().values(), "accepted with other numbers"
    return found


READERS: dict[str, Reader] = {
    "csv": Reader(lambda: _csv_seeds(","), _through_file(".csv")),
    "tsv": Reader(lambda: _csv_seeds("\t"), _through_file(".tsv")),
    "parquet": Reader(_parquet_seeds, _through_file(".parquet")),
    "arrow": Reader(_ipc_seeds, _through_stream),
    "moments": Reader(_moments_seeds, _with_checksum),
    "ledger": Reader(lambda: list(_ledgers()), _through_ledger),
}


# -- running ------------------------------------------------------------------------------------------------------
def _work(name: str, numbers: range, reports) -> None:
    """Read one input after the other and say how it went, before and after each."""
    reader, seeds = READERS[name], READERS[name].seeds()
    reader.read(seeds[0])  # imports; and a reader that refuses valid files would test nothing
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + MEMORY, used + MEMORY))
    for number in numbers:
        reports.send((number, "started"))
        reports.send((number, _outcome(reader, mutated(seeds, number))))
    reports.send((numbers.stop, "done"))


def _outcome(reader: Reader, content: bytes) -> str:
    try:
        reader.read(content)
    except REFUSALS as error:
        # A refusal is worded by the library; what comes straight from Arrow or Python is a fault.
        return "refused" if not type(error).__module__.startswith("pyarrow") else traceback.format_exc()
    except BaseException:
        return traceback.format_exc()
    return "accepted"


def fuzz(name: str, inputs: int, *, processes: int = 1, first: int = 0) -> Report:
    """Read so many damaged files; processes that die or hang are replaced."""
    report, context = Report(), multiprocessing.get_context(_START)
    cuts = [first + inputs * i // processes for i in range(processes + 1)]
    waiting = [range(start, stop) for start, stop in itertools.pairwise(cuts) if start < stop]
    running = []
    while waiting or running:
        while waiting and len(running) < processes:
            running.append(_Worker(context, name, waiting.pop()))
        for worker in list(running):
            if (rest := worker.step(report)) is not None:
                running.remove(worker)
                waiting += [rest] if rest else []
    return report


class _Worker:
    """A process with its pipe, and the input that it is at."""

    def __init__(self, context, name: str, numbers: range) -> None:
        self.receiving, sending = context.Pipe(duplex=False)
        self.process = context.Process(target=_work, args=(name, numbers, sending))
        self.process.start()
        sending.close()
        self.numbers, self.at, self.since = numbers, None, time.monotonic() + 60  # a minute for imports

    def step(self, report: Report) -> range | None:
        """Take what it reports; when it has ended, what is left to do."""
        try:
            if self.receiving.poll(0.05):
                number, words = self.receiving.recv()
                if words == "done":
                    self.process.join()
                    return range(0)
                self.at, self.since = number, time.monotonic()
                if words != "started":
                    self._take(report, number, words)
                return None
        except (EOFError, ConnectionResetError):
            self.process.join()
            return self._lost(report, f"the process ended with code {self.process.exitcode}")
        if time.monotonic() - self.since > SECONDS:
            self.process.kill()
            self.process.join()
            return self._lost(report, "no answer in time")
        return None

    def _take(self, report: Report, number: int, words: str) -> None:
        fine = words in ("accepted", "refused")
        report.counts[words if fine else "fault"] += 1
        if not fine:
            report.faults[number] = words

    def _lost(self, report: Report, words: str) -> range:
        if self.at is None:
            raise RuntimeError(f"A reader failed on a valid file, or at its import: {words}.")
        self._take(report, self.at, words)
        return range(self.at + 1, self.numbers.stop)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("readers", nargs="*", default=list(READERS))
    parser.add_argument("--inputs", type=int, default=20_000)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--first", type=int, default=0, help="number of the first input")
    arguments = parser.parse_args()
    failed = False
    for name in arguments.readers or READERS:
        begin = time.monotonic()
        report = fuzz(name, arguments.inputs, processes=arguments.processes, first=arguments.first)
        print(f"{name}: {dict(report.counts)} in {time.monotonic() - begin:.0f} s", flush=True)
        for number, words in list(report.faults.items())[:10]:
            print(f"  input {number}: {words.strip()}", flush=True)
        failed |= bool(report.faults)
    sys.exit(failed)


if __name__ == "__main__":
    main()
