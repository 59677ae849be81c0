"""BLAS's threads are what they were, however many builds ran at once."""

import threading

import numpy as np
from threadpoolctl import threadpool_info, threadpool_limits

from gaussmix.tables.accumulate import _BlockWorker, _Team
from gaussmix.tables.blas import blas_threads, one_blas_thread
from gaussmix.tables.encoder import BlockEncoder
from gaussmix.tables.moments import Moments
from gaussmix.tables.schema import Schema
from gaussmix.tables.tallies import Gram


def current():
    return max(library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas")


def test_overlapping_limits():
    """The first to come is the first to go: what it found is restored by the last one, and only by it."""
    with threadpool_limits(4, user_api="blas"):
        first, second = one_blas_thread(), one_blas_thread()
        first.__enter__()
        second.__enter__()
        assert (current(), blas_threads()) == (1, 4)
        first.__exit__(None, None, None)
        assert current() == 1
        second.__exit__(None, None, None)
        assert current() == 4


def test_overlapping_builds():
    plan = BlockEncoder.of(Schema.of({"a": [0, 1]}))
    with threadpool_limits(4, user_api="blas"):
        first, second = (_Team(lambda: _BlockWorker(plan, Gram().aggregator(2)), 2) for _ in range(2))
        assert first.start()
        assert second.start()
        assert (current(), blas_threads()) == (1, 4)
        first.__exit__()
        second.__exit__()
        assert current() == 4


def test_eight_builds_at_once(tmp_path):
    import pyarrow as pa
    import pyarrow.parquet as pq

    for i in range(8):
        pq.write_table(pa.table({"a": np.random.default_rng(i).random(30_000)}), tmp_path / f"{i}.parquet")
    with threadpool_limits(4, user_api="blas"):
        for _ in range(5):
            start = threading.Barrier(8)

            def build(i, start=start):
                start.wait()
                Moments.of(tmp_path / f"{i}.parquet", {"a": [0, 1]})

            threads = [threading.Thread(target=build, args=(i,)) for i in range(8)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            assert current() == 4


def test_a_build_that_fails_restores_too():
    with threadpool_limits(4, user_api="blas"):
        try:
            with one_blas_thread():
                raise KeyError
        except KeyError:
            pass
        assert current() == 4
