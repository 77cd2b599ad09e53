"""Open connections to workers, through jump hosts if needed, and keep them."""

from __future__ import annotations

import errno
import socket
import threading
from collections.abc import Collection, Iterator
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any
from weakref import WeakSet

from msgspec import Struct, field

from iris_cli.clock import SYSTEM_CLOCK
from iris_cli.core.messages.observations import SilenceKind
from iris_cli.randomness import SYSTEM_RANDOMNESS
from iris_cli.remote.host_keys import HostKeys, PresentedKey, RecordedKeys
from iris_cli.remote.ssh import sockets
from iris_cli.remote.ssh.call import SshCall
from iris_cli.remote.ssh.config import Hop, Routes
from iris_cli.remote.ssh.keys import KeyRing
from iris_cli.remote.ssh.link import BannerMissing, Link, LinkLost, readable_text
from iris_cli.remote.transport import NoAnswer, Script, ScriptResult, Target

MAX_PROXIES = 8
"""Maximum number of ProxyCommands that connect at once. Many use the same bastion, whose sshd drops the eleventh."""

MAX_UNUSED = 1024
"""Maximum number of unused connections that are kept. Each takes a socket and 120 KB."""
MAX_WITH_SPARES = 64
"""With more connections than this, no shell is started in advance for the next call, which costs CPU time."""

Endpoint = tuple[tuple[Hop, ...], str, bool]


class _Slot(Struct):
    """The connection to one endpoint (`Route.endpoint`), used by `users` calls. The lock is held while connecting."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    link: Link | None = None
    users: int = 0


class Dialer:
    """Opens links and keeps them for later calls. Thread-safe."""

    def __init__(
        self,
        routes: Routes,
        host_keys: HostKeys,
        user_known_hosts: tuple[Path, ...],
        max_unused: int = MAX_UNUSED,
    ) -> None:
        self._routes = routes
        self._host_keys = host_keys
        self._user_known_hosts = user_known_hosts
        self._keys = KeyRing()
        self._links: WeakSet[Link] = WeakSet()  # includes links that are still connecting
        self._proxies = threading.BoundedSemaphore(MAX_PROXIES)
        self._max_unused = max_unused
        self._slots: dict[Endpoint, _Slot] = {}
        self._unused: dict[Endpoint, _Slot] = {}  # slots of workers, least recently used first
        self._lock = threading.Lock()

    def route(self, target: Target, *, first_contact: bool = False, separate: bool = False) -> Route:
        """Resolve the route to a target. Raises NoAnswer for wrong SSH settings."""
        return Route(target, self._routes.resolve(target.connection), first_contact, separate)

    def run(self, call: SshCall[Any], route: Route, script: Script) -> ScriptResult:
        """Run a script on the worker. If a kept link is dead, open a new one. Raises NoAnswer."""
        with self._in_use(route.endpoint(route.worker_depth)):
            start_next = len(self._slots) <= MAX_WITH_SPARES and not route.separate
            while True:
                link = self._kept_link(call, route, route.worker_depth)
                try:
                    call.connected()
                    return link.execute(call, script, start_next=start_next)
                except LinkLost as lost:
                    link.abort()
                    if lost.was_new:
                        raise lost.no_answer from lost

    def connect(self, call: SshCall[Any], route: Route) -> Link:
        """Open a connection that is not kept. The caller ends it with `abort`. Raises NoAnswer."""
        return self._dial(call, route, route.worker_depth)

    def fetch_key(self, call: SshCall[Any], route: Route) -> PresentedKey:
        """Return the host key that the worker presents now, even if it is not accepted. Raises NoAnswer."""
        link, presented = self._handshake(call, route, route.worker_depth, ())
        link.abort()
        return presented

    def recorded_keys(self, route: Route, depth: int) -> RecordedKeys:
        """Return the host keys on record for one server of the route. Raises NoAnswer for wrong SSH settings."""
        hop = route.hops[depth]
        files = self._user_known_hosts if hop.known_hosts is None else hop.known_hosts
        try:
            if route.is_worker(depth):
                return self._host_keys.find_worker_keys(route.target.worker, hop.key_name, files)
            return self._host_keys.find_jump_host_keys(hop.key_name, files)
        except OSError as error:
            raise _known_hosts_error(error) from error

    def close(self) -> None:
        with self._lock:
            # BEFORE the slots are dropped, which may hold the only strong references to the links.
            links = list(self._links)
            self._slots, self._unused = {}, {}
        for link in links:
            link.abort()

    @contextmanager
    def _in_use(self, endpoint: Endpoint) -> Iterator[None]:
        """Mark the connection to a worker as used. If too many are unused, close the least recently used."""
        excess = []
        with self._lock:
            slot = self._slots.setdefault(endpoint, _Slot())
            slot.users += 1
            self._unused.pop(endpoint, None)
            while len(self._unused) >= self._max_unused:
                oldest = self._unused.pop(next(iter(self._unused)))
                excess.append(oldest.link)
                oldest.link = None  # the slot's next user waits for this lock, then opens a new link
        for link in excess:
            if link is not None:
                link.abort()
        try:
            yield
        finally:
            with self._lock:
                slot.users -= 1
                if not slot.users and endpoint in self._slots:
                    self._unused[endpoint] = slot

    def _kept_link(self, call: SshCall[Any], route: Route, depth: int) -> Link:
        """Return the kept link to a server of the route. If it is dead or old, open a new link."""
        with self._lock:
            slot = self._slots.setdefault(route.endpoint(depth), _Slot())
        with call.holding(slot.lock, route.peer(depth)):
            if slot.link is not None and slot.users == 1 and slot.link.needs_replacement():
                slot.link.abort()
            if slot.link is None or not slot.link.is_alive():
                call.connecting()
                slot.link = self._dial(call, route, depth)
            return slot.link

    def _dial(self, call: SshCall[Any], route: Route, depth: int) -> Link:
        """Open one connection, verify its host key and authenticate."""
        hop = route.hops[depth]
        known = self.recorded_keys(route, depth)
        call.enter("key", "the ssh-agent or the key files")
        with self._keys.keys_for_hop(hop) as keys:
            link, presented = self._handshake(call, route, depth, {key.type for key in known.keys})
            try:
                call.enter("host key")
                self._verify(route, depth, known, presented)
                link.authenticate(call, hop.user, keys)
            except BaseException:
                link.abort()
                raise
        call.guard(None)  # the link to a jump host is shared, so this call's deadline must not abort it
        return link

    def _handshake(
        self, call: SshCall[Any], route: Route, depth: int, key_types: Collection[str]
    ) -> tuple[Link, PresentedKey]:
        """Connect and exchange keys. If the server hangs up without a banner, retry once after a short random pause."""
        with suppress(BannerMissing):
            return self._try_handshake(call, route, depth, key_types)
        SYSTEM_CLOCK.sleep(SYSTEM_RANDOMNESS.between(0.1, 0.6))  # spread the retries of concurrent callers
        try:
            return self._try_handshake(call, route, depth, key_types)
        except BannerMissing as error:
            hint = "too many connections at once? (MaxStartups in its sshd_config)"
            detail = f"{route.peer(depth)} closed the connection: {readable_text(error)}"
            raise NoAnswer(SilenceKind.PROTOCOL, "SSH banner", detail, hint=hint, sent=False) from error

    def _try_handshake(
        self, call: SshCall[Any], route: Route, depth: int, key_types: Collection[str]
    ) -> tuple[Link, PresentedKey]:
        peer = route.peer(depth)
        with call.holding(self._proxies, peer) if route.hops[depth].proxy_command else nullcontext():
            link = self._connect(call, route, depth, key_types)
            with self._lock:
                self._links.add(link)
            try:
                return link, link.exchange_keys(call, peer)
            except BaseException:
                link.abort()
                raise

    def _connect(self, call: SshCall[Any], route: Route, depth: int, key_types: Collection[str]) -> Link:
        """Connect to one server: through the previous server of the route, a ProxyCommand, or TCP."""
        hop, peer = route.hops[depth], route.peer(depth)
        if depth == 0:
            return Link(self._socket(call, hop, peer), key_types)
        outer = self._kept_link(call, route, depth - 1)
        call.enter("connect", peer)
        return Link(outer.open_tunnel(call, hop.host, hop.port), key_types, outer.stream)

    def _socket(self, call: SshCall[Any], hop: Hop, peer: str) -> socket.socket:
        try:
            if hop.proxy_command:
                call.enter("connect", peer)
                return sockets.start_proxy(hop.proxy_command)
            call.enter("resolve", peer)
            addresses = socket.getaddrinfo(hop.host, hop.port, type=socket.SOCK_STREAM)
            call.enter("connect")
            return sockets.connect(addresses, SYSTEM_CLOCK.monotonic() + call.remaining())
        except (OSError, UnicodeError) as error:
            local = isinstance(error, OSError) and error.errno in (errno.EMFILE, errno.ENFILE)
            raise NoAnswer(
                SilenceKind.LOCAL if local else SilenceKind.UNREACHABLE,
                call.step,
                f"{peer} at {hop.host}:{hop.port}: {readable_text(error)}",
                hint="ulimit -n 8192" if local else f"ssh -v -p {hop.port} {hop.user}@{hop.host}",
                sent=False,
            ) from error

    def _verify(self, route: Route, depth: int, known: RecordedKeys, presented: PresentedKey) -> None:
        """Reject a host key that is revoked or not on record. Raises NoAnswer (HOST_KEY, UNKNOWN_HOST, LOCAL)."""
        if presented.base64 in known.revoked:
            raise revoked_key(route, depth, presented)
        if known.keys and presented not in known.keys:
            raise changed_key(route, depth, presented, known)
        accepts_first = route.first_contact and route.target.connection.known_hosts == "accept-new"
        if not known.keys and not accepts_first:
            raise unknown_host(route, depth, presented, known)
        # Record a worker's key at first contact even if the user's files contain it, because those files may change.
        if not (route.first_contact and (route.is_worker(depth) or not known.keys)):
            return
        owner = route.target.worker if route.is_worker(depth) else route.hops[depth].key_name
        try:
            is_ours = self._host_keys.add_first(owner, presented)
        except OSError as error:
            raise _known_hosts_error(error) from error
        if not is_ours:
            raise changed_key(route, depth, presented, self.recorded_keys(route, depth))


def _known_hosts_error(error: OSError) -> NoAnswer:
    return NoAnswer(SilenceKind.LOCAL, "host key", f"known_hosts: {error}", sent=False)


# Errors for rejected host keys


def changed_key(route: Route, depth: int, presented: PresentedKey, known: RecordedKeys) -> NoAnswer:
    """Return the error for a changed key: a re-created host, or a man in the middle."""
    on_record = ", ".join(f"{key.type} {key.fingerprint}" for key in known.keys)
    detail = f"{route.peer(depth)} shows {presented.type} {presented.fingerprint}, on record: {on_record}"
    if route.is_worker(depth):
        hint = f"iris worker probe {route.target.worker} --accept-key  # if the host was re-created"
    else:
        hint = f"if it was re-created: ssh-keygen -R '{route.hops[depth].key_name}', then ssh to it once"
    return _refusal(SilenceKind.HOST_KEY, detail, hint)


def revoked_key(route: Route, depth: int, presented: PresentedKey) -> NoAnswer:
    detail = f"{route.peer(depth)} shows {presented.type} {presented.fingerprint}, which is marked @revoked"
    return _refusal(
        SilenceKind.HOST_KEY, detail, "give the host a new key, or remove the mark from known_hosts"
    )


def unknown_host(route: Route, depth: int, presented: PresentedKey, known: RecordedKeys) -> NoAnswer:
    """Return the error for a host without a key on record."""
    hop = route.hops[depth]
    # The text is the same for all workers, so that a command can show them as one line.
    detail = "no host key on record"
    if not route.is_worker(depth):
        detail += (
            f" for {route.peer(depth)} ({hop.key_name}); it shows {presented.type} {presented.fingerprint}"
        )
    if known.certified:
        detail += "; its certificate authority in known_hosts is not consulted"
    if not route.is_worker(depth):
        hint = f"connect once with ssh: ssh -p {hop.port} {hop.user}@{hop.host}"
    elif route.target.connection.known_hosts == "accept-new":
        hint = "iris worker probe  # trusts first keys (known_hosts: accept-new)"
    else:
        hint = "iris worker probe --accept-key  # shows the keys of all new hosts, asks once"
    return _refusal(SilenceKind.UNKNOWN_HOST, detail, hint)


def _refusal(kind: SilenceKind, detail: str, hint: str) -> NoAnswer:
    return NoAnswer(kind, "host key", detail, hint=hint, sent=False)


# Routes


class Route(Struct, frozen=True):
    """A target and the chain of servers to it, the worker last.

    A server is identified by its depth, its index in `hops`. With `first_contact` an unknown host key may be accepted.
    A `separate` route does not share connections to the worker with other routes.
    """

    target: Target
    hops: tuple[Hop, ...]
    first_contact: bool = False
    separate: bool = False

    @property
    def worker_depth(self) -> int:
        return len(self.hops) - 1

    def is_worker(self, depth: int) -> bool:
        return depth == self.worker_depth

    def peer(self, depth: int) -> str:
        """Return the server's name for messages."""
        return (
            f"worker {self.target.worker}" if self.is_worker(depth) else f"jump host {self.hops[depth].label}"
        )

    def endpoint(self, depth: int) -> Endpoint:
        """Return the key by which connections are reused. It includes the worker, whose host key was verified."""
        return self.hops[: depth + 1], self.target.worker if self.is_worker(depth) else "", self.separate
