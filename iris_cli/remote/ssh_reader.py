"""One thread that reads many sockets."""

from __future__ import annotations

import selectors
import socket
import threading
from contextlib import suppress
from typing import Protocol


class Source(Protocol):
    """Who is told, in the reader's thread. Neither may wait for anything: all the others would wait, too."""

    def ready(self, *, to_read: bool, to_write: bool) -> bool:
        """Take what has come, send what there is room for; False if the reader is to let go of the socket."""
        ...

    def released(self) -> None:
        """The reader has let go of the socket."""
        ...


class Reader:
    """Its thread lives while there is something to read. Safe to use from several threads.

    Nobody else may close a socket that it watches: the number would be another's at once. Shut it down instead.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._selector: selectors.BaseSelector | None = None
        self._thread: threading.Thread | None = None

    def watch(self, sock: socket.socket, source: Source) -> None:
        """Tell `source` whenever something has come."""
        with self._lock:
            if self._selector is None:
                self._begin(sock, source)
            else:
                self._selector.register(sock, selectors.EVENT_READ, source)

    def await_room(self, sock: socket.socket, source: Source, *, wanted: bool) -> None:
        """Whether to tell `source` also when there is room to write."""
        events = selectors.EVENT_READ | (selectors.EVENT_WRITE if wanted else 0)
        with self._lock, suppress(KeyError, ValueError):  # it may have been let go of just now
            if self._selector is not None:
                self._selector.modify(sock, events, source)

    def is_current(self) -> bool:
        """Whether this is the thread that reads."""
        return threading.current_thread() is self._thread

    def _begin(self, sock: socket.socket, source: Source) -> None:
        selector = selectors.DefaultSelector()
        try:
            selector.register(sock, selectors.EVENT_READ, source)
            self._thread = threading.Thread(
                target=self._run, args=(selector,), name="iris-ssh-reader", daemon=True
            )
            self._thread.start()
        except BaseException:  # there can't be more threads: the next one tries anew
            selector.close()
            raise
        self._selector = selector

    def _run(self, selector: selectors.BaseSelector) -> None:
        while True:
            for key, events in selector.select():
                source: Source = key.data
                to_read, to_write = bool(events & selectors.EVENT_READ), bool(events & selectors.EVENT_WRITE)
                is_kept = False
                with suppress(BaseException):  # its own affair: the others are to be read
                    is_kept = source.ready(to_read=to_read, to_write=to_write)
                if not is_kept:
                    with self._lock:
                        selector.unregister(key.fileobj)
                    with suppress(BaseException):
                        source.released()
            with self._lock:
                if not selector.get_map():
                    selector.close()
                    self._selector = None
                    return
