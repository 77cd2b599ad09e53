"""Reasons for rejecting a host key, each with a hint."""

from __future__ import annotations

from iris_cli.core.messages.observations import SilenceKind
from iris_cli.remote.host_keys import Known, PresentedKey
from iris_cli.remote.ssh.route import Route
from iris_cli.remote.transport import NoAnswer


def changed(route: Route, depth: int, presented: PresentedKey, known: Known) -> NoAnswer:
    """Report a key that differs from the recorded one: a re-created host or a man in the middle."""
    on_record = ", ".join(f"{key.type} {key.fingerprint}" for key in known.keys)
    detail = f"{route.place(depth)} shows {presented.type} {presented.fingerprint}, on record: {on_record}"
    if route.is_worker(depth):
        hint = f"iris worker probe {route.target.worker} --accept-key  # if the host was re-created"
    else:
        hint = f"if it was re-created: ssh-keygen -R '{route.hops[depth].key_name}', then ssh to it once"
    return _refusal(SilenceKind.HOST_KEY, detail, hint)


def revoked(route: Route, depth: int, presented: PresentedKey) -> NoAnswer:
    """Report a key marked `@revoked`: only a new host key helps."""
    detail = f"{route.place(depth)} shows {presented.type} {presented.fingerprint}, which is marked @revoked"
    return _refusal(
        SilenceKind.HOST_KEY, detail, "give the host a new key, or remove the mark from known_hosts"
    )


def unknown(route: Route, depth: int, presented: PresentedKey, known: Known) -> NoAnswer:
    """Report a host without a recorded key when none may be accepted."""
    hop = route.hops[depth]
    # The same words for all workers: a new fleet then shows as one line.
    detail = "no host key on record"
    if not route.is_worker(depth):
        detail += (
            f" for {route.place(depth)} ({hop.key_name}); it shows {presented.type} {presented.fingerprint}"
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
