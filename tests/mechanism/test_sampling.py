"""Generators: secure ones share no stream and cannot be copied."""

import copy
import multiprocessing
import os
import pickle

import numpy as np
import pytest
from randomgen import ChaCha

from gaussmix.mechanism.noise import SEEDED, describe, generator, secure_generator
from gaussmix.releases.certificate import SECURE


def test_chacha_is_chacha20():
    """Zero key, zero nonce: test vector 1 of RFC 8439, appendix A.1 (first half of the block)."""
    known = "76b8e0ada0f13d90405d6ae55386bd28bdd219b8a08ded1aa836efcc8b770dc7"
    words = ChaCha(key=0, rounds=20).random_raw(4)
    assert words.astype("<u8").tobytes().hex() == known


def test_secure_generators_share_no_stream():
    draws = {secure_generator().bytes(16) for _ in range(100)}
    assert len(draws) == 100
    assert "ChaCha" in type(secure_generator().bit_generator).__name__
    state = secure_generator().bit_generator.state
    assert state["state"]["rounds"] == 20


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_does_not_repeat_its_parents_stream():
    rng = secure_generator()
    rng.standard_normal(3)
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(writer, rng.bytes(16))
        os._exit(0)
    os.waitpid(child, 0)
    assert os.read(reader, 16) != rng.bytes(16)
    os.close(reader)
    os.close(writer)


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_children_of_a_pool_do_not_repeat_each_other():
    context = multiprocessing.get_context("fork" if hasattr(os, "fork") else "spawn")
    with context.Pool(2) as pool:
        draws = pool.map(draw_bytes, range(8), chunksize=1)
    assert len(set(draws)) == 8


def draw_bytes(_):
    return secure_generator().bytes(16)


@pytest.mark.parametrize("copier", [pickle.dumps, copy.copy, copy.deepcopy])
def test_a_secure_generator_is_never_copied(copier):
    rng = secure_generator()
    for secret in (rng, rng.bit_generator):
        with pytest.raises(TypeError, match="cannot be pickled"):
            copier(secret)
    with pytest.raises(TypeError, match="cannot be pickled"):
        rng.spawn(1)


def test_the_description_says_what_is_private():
    for secure in (generator(None), generator(), generator(secure_generator())):
        assert describe(secure) == SECURE == "chacha20-os"
    for seeded in (0, np.int64(7), np.random.default_rng(1)):
        assert describe(generator(seeded)) == SEEDED == "seeded (not private)"
    assert generator(5).random() == generator(5).random()
    for bad in (-1, 1.5, "0", True, np.random.RandomState(0)):
        with pytest.raises(ValueError, match="random_state must be None"):
            generator(bad)


def test_the_state_of_a_secure_generator_cannot_be_set():
    rng = secure_generator()
    with pytest.raises(TypeError, match="cannot be set"):
        rng.bit_generator.state = rng.bit_generator.state
