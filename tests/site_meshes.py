"""What sites do in processes of their own; imports little, since each process pays for it."""

from __future__ import annotations

import sys
import time

from gaussmix.errors import GaussmixError
from gaussmix.mechanism.mpc import LARGEST_INPUT, Keys, Mesh, Peer

RELEASE = "ab" * 16


def values_of(site, count):
    return [(-1) ** j * (site * 10**40 + j) for j in range(count)]


class NoPickle:
    """In place of the module: whoever unpickles what another site sends runs its code."""

    def __getattr__(self, name):
        raise AssertionError("pickle is used")


def honest(mesh, site):
    sys.modules["mpyc.runtime"].pickle = NoPickle()
    messages = mesh.exchange(b"%d" % site, "greeting")
    assert mesh.bytes_sent > 0
    return messages, mesh.sum(values_of(site, 50), "adding"), mesh.sum([LARGEST_INPUT - 1, -site], "adding again")


def fewer_values(mesh, site):
    return mesh.exchange(b"%d" % site, "greeting"), mesh.sum(values_of(site, 40), "adding")


def garbage(mesh, site):
    mesh.exchange(b"%d" % site, "greeting")
    for link in mesh._links.values():
        mesh._loop.call_soon_threadsafe(link.transport.write, bytes(range(12)) * 1000)
    return mesh.exchange(b"", "waiting")


def hangs(mesh, site):
    mesh.exchange(b"%d" % site, "greeting")
    time.sleep(30)
    return "woke up"


def leaves(mesh, site):
    mesh.exchange(b"%d" % site, "greeting")
    raise SystemExit(0)


def one_site(site, ports, folder, act, results, timeout):
    try:
        peers = [Peer(f"S{i}", "127.0.0.1", port) for i, port in enumerate(ports, 1)]
        keys = Keys.read(folder, site, number=len(ports), release=RELEASE)
        with Mesh(peers, keys, timeout=timeout) as mesh:
            results.put((site, act(mesh, site)))
    except GaussmixError as error:
        results.put((site, str(error)))
    except SystemExit:
        results.put((site, "left"))


def run_study(file, rows, site, ledger, results):
    """Take part in a study through Python, in a process of its own."""
    import gaussmix as gm

    private = gm.sites.run(file, rows, site=site, ledger=ledger)
    results.put((site, private.to_bytes()))
