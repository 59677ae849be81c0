"""Secure sums between sites: MPyC over TLS connections whose certificates every site has pinned.

Each site inputs integers, which MPyC splits into Shamir shares of degree ⌊(k - 1)/2⌋ in a prime field; every site adds
the shares it holds, and only the sum is opened. Any ⌊(k - 1)/2⌋ sites together learn nothing else. Security is passive:
sites follow the protocol.

**No wrap-around.** Inputs are below 2¹⁹⁰ in absolute value, checked before anything is sent. With at most 50 sites the
sum is below 2¹⁹⁶, and the field has more than 2²⁵⁴ elements: the representative nearest to zero is the sum itself.
(Sums on a lattice of at most 100 bits over at most 2⁶² rows are below 2¹⁶², and a draw of noise is a 64-bit integer.)

**Connections.** Site i listens for the sites before it and connects to those after it, as MPyC does. Every site has a
key of its own for the study, made by :func:`make_keys`, and the certificates of all others. A connection counts only if
it is TLS 1.3 and presents exactly the certificate of the site that it claims to be. MPyC's own set-up of connections is
not used, since there the holder of any certificate can claim to be any site; nor are its functions that unpickle what
other sites send. Inputs and outputs are lists of field elements, which MPyC sends as bytes.

**Failures.** A lost connection, a time-out and a malformed message end the run with a :class:`SiteError` that names the
site. The protocol runs in a thread with an event loop of its own, so that a site answers while it reads rows, and in
notebooks.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import datetime
import functools
import logging
import os
import ssl
import sys
import threading
import warnings
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any, TypeVar

from gaussmix._files import write_whole
from gaussmix.errors import ArgumentError, MissingFileError, MissingPackageError, SiteError

__all__ = ["LARGEST_INPUT", "Keys", "Mesh", "Peer", "certificate_file", "key_file", "make_keys"]

PRIME = 2**255 - 19
LARGEST_INPUT = 2**190
MOST_BYTES = 2**28
"""Largest message that is accepted: far beyond the shares of a matrix of 2,000 columns."""

_RETRY = 0.2  # seconds between attempts to connect
_NOTICE = 0.5  # seconds until a closed connection is reported
_CLOSING = 5.0
_NO_UVLOOP = "MPYC_NOUVLOOP"
_VALID = datetime.timedelta(days=3650)

R = TypeVar("R")


# ---------------------------------------------------------------------------------------------------------------
# Keys
def key_file(folder: Path, site: int) -> Path:
    """Return the file of a site's private key."""
    return folder / f"site{site}.key"


def certificate_file(folder: Path, site: int) -> Path:
    """Return the file of a site's certificate, which all sites need."""
    return folder / f"site{site}.crt"


def make_keys(folder: Path, site: int, release: str) -> Path:
    """Write a new private key, mode 0600, and its self-signed certificate; return the file of the certificate.

    The certificate names the site and the release, so that a key of another study is refused.
    """
    x509, hashes, serialization, ec = _cryptography()
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, _subject(site, release))])
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))  # clocks differ
        .not_valid_after(now + _VALID)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    private = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    write_whole(key_file(folder, site), private, mode=0o600)
    write_whole(certificate_file(folder, site), certificate.public_bytes(pem))
    return certificate_file(folder, site)


@dataclass(frozen=True)
class Keys:
    """The private key of one site, and the certificates of all.

    Attributes
    ----------
    site : int
        This site, from 1.
    key : Path
        File of its private key.
    certificates : tuple of bytes
        DER, in the order of the sites.
    """

    site: int
    key: Path
    folder: Path
    certificates: tuple[bytes, ...]

    @classmethod
    def read(cls, folder: str | os.PathLike[str], site: int, *, number: int, release: str) -> Keys:
        """Read a folder with this site's key and the certificates of all sites, and check whose they are."""
        x509, _, serialization, _ = _cryptography()
        found, place = [], Path(folder)
        for other in range(1, number + 1):
            path = certificate_file(place, other)
            if not path.is_file():
                raise MissingFileError(
                    f"{path}, the certificate of site {other}, does not exist. Each site makes its own certificate "
                    "with 'gaussmix sites keys' and sends the .crt file, never the .key file, to all others."
                )
            try:
                certificate = x509.load_pem_x509_certificate(path.read_bytes())
                names = [part.value for part in certificate.subject.get_attributes_for_oid(x509.NameOID.COMMON_NAME)]
            except ValueError:
                raise ArgumentError(
                    f"{path} is not a certificate in PEM format. Obtain the .crt file of site {other} again."
                ) from None
            if names != [_subject(other, release)]:
                raise ArgumentError(
                    f"{path} is not the certificate of site {other} for this study. Obtain its .crt file again."
                )
            found.append(certificate.public_bytes(serialization.Encoding.DER))
        if len(set(found)) < number:
            raise ArgumentError("Two sites have the same certificate. Each site must make its own key.")
        key = key_file(place, site)
        if not key.is_file():
            raise MissingFileError(f"{key} does not exist. Make it with 'gaussmix sites keys'.")
        return cls(site, key, place, tuple(found))

    def context(self, purpose: ssl.Purpose, peers: Sequence[int]) -> ssl.SSLContext:
        """Return a TLS 1.3 context that trusts the certificates of some sites only."""
        server = purpose is ssl.Purpose.CLIENT_AUTH
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER if server else ssl.PROTOCOL_TLS_CLIENT)
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        context.check_hostname = False  # the certificate itself is compared
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_cert_chain(certificate_file(self.folder, self.site), self.key)
        for peer in peers:
            context.load_verify_locations(cadata=self.certificates[peer - 1])
        return context


def _subject(site: int, release: str) -> str:
    return f"gaussmix {release} site {site}"


def _cryptography() -> Any:
    try:
        from cryptography import x509
        from cryptography.hazmat.primitives import hashes, serialization
        from cryptography.hazmat.primitives.asymmetric import ec
    except ImportError:
        raise MissingPackageError(
            'Joint releases require the package cryptography: pip install "gaussmix[sites]".'
        ) from None
    return x509, hashes, serialization, ec


# ---------------------------------------------------------------------------------------------------------------
# Connections
@dataclass(frozen=True)
class Peer:
    """A site as others reach it."""

    name: str
    host: str
    port: int


def _load_mpyc() -> Any:
    """Import MPyC, which reads the command line and sets up logging and event loops when it is imported."""
    root, arguments, loops = logging.getLogger(), sys.argv, os.environ.get(_NO_UVLOOP)
    handlers, level = root.handlers[:], root.level
    sys.argv = ["gaussmix", "--no-log"]
    os.environ[_NO_UVLOOP] = "1"  # leave the event loops of the process as they are
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # it uses numpy.core
            from mpyc import asyncoro, finfields, runtime
    except ImportError:
        raise MissingPackageError('Joint releases require the package MPyC: pip install "gaussmix[sites]".') from None
    finally:
        sys.argv = arguments
        if loops is None:
            del os.environ[_NO_UVLOOP]
        else:
            os.environ[_NO_UVLOOP] = loops
        root.handlers[:] = handlers
        root.setLevel(level)
    return SimpleNamespace(asyncoro=asyncoro, finfields=finfields, runtime=runtime)


class Mesh:
    """Connections of one site with all others, and the two operations on them: exchange and sum.

    Parameters
    ----------
    peers : sequence of Peer
        All sites in their order, this one included.
    keys : Keys
    timeout : float
        Seconds to wait for the other sites, in every step.
    listen : (str, int), optional
        Address to listen on, if it differs from the one that others connect to.
    """

    def __init__(
        self, peers: Sequence[Peer], keys: Keys, *, timeout: float, listen: tuple[str, int] | None = None
    ) -> None:
        self._peers, self._keys, self._timeout = tuple(peers), keys, timeout
        own = self._peers[keys.site - 1]
        self._listen = (own.host, own.port) if listen is None else listen
        self._me, self._steps, self._doing = keys.site - 1, 0, "connecting"
        self._ended = threading.Event()
        self._gone: set[int] = set()  # sites whose connection is closed
        self._awaited: set[int] = set()  # sites from which messages are missing

    def __enter__(self) -> Mesh:
        ready: concurrent.futures.Future[None] = concurrent.futures.Future()
        self._thread = threading.Thread(target=self._serve, args=(ready,), name="gaussmix sites", daemon=True)
        self._thread.start()
        try:
            ready.result()
            self._call(self._connected())
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        if hasattr(self, "_loop") and self._thread.is_alive():
            with contextlib.suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._closed)
            self._thread.join(_CLOSING)

    @property
    def bytes_sent(self) -> int:
        """Bytes sent to all other sites so far, without the overhead of TLS."""
        return sum(link.nbytes_sent for link in self._links.values())

    def exchange(self, message: bytes, doing: str) -> list[bytes]:
        """Send public bytes to all sites; return the messages of all in their order, this one's included."""
        self._doing = doing
        return self._call(self._exchanged(message))

    def sum(self, values: Sequence[int], doing: str) -> list[int]:
        """Return the sums over all sites of their integers; nothing else about them is revealed."""
        if not all(-LARGEST_INPUT < value < LARGEST_INPUT for value in values):
            raise ArgumentError(  # impossible on any lattice
                "A value exceeds the range of the secure sum. This is a bug in gaussmix: please report it. These "
                "values were not sent."
            )
        self._doing = doing
        return self._call(self._summed(values))

    # What follows runs in the thread of the event loop.
    def _serve(self, ready: concurrent.futures.Future[None]) -> None:
        self._loop = asyncio.new_event_loop()
        asyncio.set_event_loop(self._loop)
        try:
            self._set_up()
        except BaseException as error:
            self._loop.close()
            ready.set_exception(error)
            return
        ready.set_result(None)
        try:
            while not self._ended.is_set():  # MPyC stops the loop where one of its coroutines fails
                self._loop.run_forever()
        finally:
            for task in asyncio.all_tasks(self._loop):
                task.cancel()
            with contextlib.suppress(Exception):
                self._loop.run_until_complete(asyncio.sleep(0))
            asyncio.set_event_loop(None)
            self._loop.close()

    def _set_up(self) -> None:
        mpyc = _load_mpyc()
        number = len(self._peers)
        options = SimpleNamespace(
            threshold=(number - 1) // 2,
            no_log=True,
            no_prss=True,
            no_async=False,
            no_barrier=False,
            mix32_64bit=False,
            ssl=True,
        )
        parties = [mpyc.runtime.Party(pid, peer.host, peer.port) for pid, peer in enumerate(self._peers)]
        self._runtime = mpyc.runtime.Runtime(self._me, parties, options)
        mpyc.asyncoro.runtime = self._runtime  # as mpyc.runtime.setup does
        self._loop.set_exception_handler(self._on_error)
        self._field = mpyc.finfields.GF(PRIME)
        self._links: dict[int, Any] = {}
        self._broken: asyncio.Future[None] = self._loop.create_future()
        self._all: asyncio.Future[None] = self._loop.create_future()
        self._server: asyncio.Server | None = None
        mesh = self

        class Link(mpyc.asyncoro.MessageExchanger):  # type: ignore[name-defined]
            """A connection with the site whose certificate it presented."""

            def connection_made(self, transport: asyncio.Transport) -> None:
                shown = transport.get_extra_info("ssl_object").getpeercert(binary_form=True)
                expected = self.peer_pid
                known = [pid for pid, own in enumerate(mesh._keys.certificates) if own == shown and pid != mesh._me]
                if not known or (expected is not None and known != [expected]) or known[0] in mesh._links:
                    self.transport, self.known = transport, None
                    transport.abort()
                    return
                self.known = known[0]
                super().connection_made(transport)
                if expected is not None:
                    mesh._linked(self.known, self)

            def data_received(self, data: bytes) -> None:
                if len(self.bytes) + len(data) > MOST_BYTES:
                    mesh._fail(f"Site {mesh._name(self.known)} sent too much data while {mesh._doing}.")
                    return
                if self.peer_pid is None and len(head := bytes(self.bytes + data)[:2]) == 2:
                    if int.from_bytes(head, "little") != self.known:
                        self.transport.abort()
                        return
                    super().data_received(data)
                    mesh._linked(self.known, self)
                    return
                super().data_received(data)

            def connection_lost(self, exc: Exception | None) -> None:
                if self.known is not None and mesh._links.get(self.known) is self:
                    mesh._lost(self.known)

        self._Link = Link
        for party in parties:
            party.protocol = None
        parties[self._me].protocol = self._loop.create_future()

    def _linked(self, pid: int, link: Any) -> None:
        self._links[pid] = link
        if len(self._links) == len(self._peers) - 1 and not self._all.done():
            self._all.set_result(None)

    def _name(self, pid: int | None) -> str:
        if pid is None:
            return "unknown"
        return f"{pid + 1} ({self._peers[pid].name})"

    def _lost(self, pid: int) -> None:
        """Note a closed connection: a failure only if something is still expected from the site."""
        self._gone.add(pid)
        if pid in self._awaited:  # sites that notice it first close their connections too: all are named
            self._loop.call_later(_NOTICE, self._fail_for_gone)

    def _fail_for_gone(self) -> None:
        names = [self._name(pid) for pid in sorted(self._gone)]
        words = f"Site {names[0]} closed its connection"
        if len(names) > 1:
            words = f"Sites {' and '.join(names)} closed their connections, after one of them stopped,"
        self._fail(f"{words} while {self._doing}.")

    def _expect(self, pids: set[int]) -> None:
        self._awaited = pids
        for pid in pids & self._gone:
            self._lost(pid)

    def _fail(self, message: str) -> None:
        if not self._broken.done():
            self._broken.set_exception(SiteError(message))
            self._broken.exception()  # retrieved: asyncio does not report it again

    def _on_error(self, _: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """Note errors of MPyC's coroutines: the message of a site did not have the form of the protocol."""
        if isinstance(context.get("exception"), OSError):  # a stranger's connection, or one that is lost
            return
        self._fail(f"Another site sent a message that does not follow the protocol while {self._doing}.")

    def _call(self, work: Coroutine[Any, Any, R]) -> R:
        """Run a coroutine in the loop, until it is done, a site is lost or the time is over."""
        return asyncio.run_coroutine_threadsafe(self._guarded(work), self._loop).result()

    async def _guarded(self, work: Coroutine[Any, Any, R]) -> R:
        task = self._loop.create_task(work)
        waited: set[asyncio.Future[Any]] = {task, self._broken}
        await asyncio.wait(waited, timeout=self._timeout, return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            task.cancel()
            if self._broken.done():
                self._broken.result()
            missing = [self._name(pid) for pid in range(len(self._peers)) if pid not in (self._me, *self._links)]
            words = f"Site {', '.join(missing)} did not connect" if missing else "The other sites did not answer"
            raise SiteError(f"{words} within {self._timeout:g} seconds while {self._doing}.")
        return task.result()

    async def _connected(self) -> None:
        """Listen for the sites before this one, and connect to those after it."""
        earlier, later = range(self._me), range(self._me + 1, len(self._peers))
        if earlier:
            context = self._keys.context(ssl.Purpose.CLIENT_AUTH, [pid + 1 for pid in earlier])
            try:
                self._server = await self._loop.create_server(
                    lambda: self._Link(self._runtime), *self._listen, ssl=context
                )
            except OSError as error:
                host, port = self._listen
                raise SiteError(f"This site cannot listen on {host}:{port}: {error.strerror or error}.") from None
        await asyncio.gather(*(self._connect(pid) for pid in later))
        await self._all
        if self._server is not None:
            self._server.close()

    async def _connect(self, pid: int) -> None:
        """Connect to a site, again and again until it is there with its certificate."""
        peer, context = self._peers[pid], self._keys.context(ssl.Purpose.SERVER_AUTH, [pid + 1])
        while pid not in self._links:
            with contextlib.suppress(OSError):
                link = functools.partial(self._Link, self._runtime, pid)
                await self._loop.create_connection(link, peer.host, peer.port, ssl=context)
                await asyncio.sleep(0)
            if pid not in self._links:
                await asyncio.sleep(_RETRY)

    async def _exchanged(self, message: bytes) -> list[bytes]:
        self._steps += 1
        label = -(2**62) - self._steps  # MPyC's own labels are hashes of its program counter
        for link in self._links.values():
            link.send(label, message)
        found = {pid: link.receive(label) for pid, link in self._links.items()} | {self._me: message}
        missing = {pid: payload for pid, payload in found.items() if isinstance(payload, asyncio.Future)}
        self._expect(set(missing))
        for pid, payload in missing.items():
            found[pid] = await payload
            self._awaited.discard(pid)
        return [found[pid] for pid in range(len(self._peers))]

    async def _summed(self, values: Sequence[int]) -> list[int]:
        field, runtime = self._field, self._runtime
        self._expect(set(self._links))
        shares = await runtime.input([field(value) for value in values])
        if any(len(shared) != len(values) for shared in shares):
            raise SiteError(
                f"Another site sent a different number of values while {self._doing}. Use the same version of gaussmix "
                "at all sites."
            )
        totals = [sum(column[1:], column[0]) for column in zip(*shares, strict=True)]
        opened = await runtime.output(totals)
        self._awaited = set()
        return [int(value) if int(value) <= PRIME // 2 else int(value) - PRIME for value in opened]

    def _closed(self) -> None:
        if self._server is not None:
            self._server.close()
        for link in self._links.values():
            link.transport.close()
        self._loop.call_later(0.05, self._loop.stop)
