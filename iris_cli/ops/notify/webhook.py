"""Post a notice to the operator's URL: for a bounded time, and to nobody else."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from msgspec import Struct

from iris_cli import __version__
from iris_cli.clock import Clock
from iris_cli.core.units import format_duration

if TYPE_CHECKING:
    from threading import Event

_GLANCE = 0.1  # seconds


class Webhook(Struct, frozen=True, kw_only=True):
    """A URL. No message of ours repeats it: who knows it may post there."""

    url: str
    clock: Clock
    timeout: float

    def __repr__(self) -> str:
        return f"Webhook(timeout={self.timeout})"

    def post(self, body: bytes, cut: Event) -> str:
        """What went wrong, in words; "" if it was taken.

        A call that hangs, be it in the resolver or as the answer drips, is left to itself when its time is over.
        """
        said: list[str] = []
        call = threading.Thread(target=lambda: said.append(self._call(body)), daemon=True)
        due = self.clock.monotonic() + self.timeout
        call.start()
        while call.is_alive() and self.clock.monotonic() < due and not cut.is_set():
            call.join(_GLANCE)
        return said[0] if said else f"the webhook did not answer within {format_duration(self.timeout)}"

    def _call(self, body: bytes) -> str:
        from urllib.error import HTTPError, URLError
        from urllib.request import HTTPRedirectHandler, Request, build_opener

        class Stay(HTTPRedirectHandler):
            """Follows nobody: what is told here is not meant for others."""

            def redirect_request(self, *_: object) -> None:
                return None

        headers = {"Content-Type": "application/json", "User-Agent": f"iris/{__version__}"}
        try:
            request = Request(self.url, data=body, headers=headers)  # noqa: S310 - http or https, as checked on reading
            with build_opener(Stay).open(request, timeout=self.timeout):
                return ""
        except HTTPError as error:
            error.close()
            elsewhere = " (a redirect, which is not followed)" if 300 <= error.code < 400 else ""
            return f"the webhook answered {error.code}{elsewhere}"
        except TimeoutError:
            return f"the webhook did not answer within {format_duration(self.timeout)}"
        except URLError as error:
            return f"the webhook can't be reached: {_words(error.reason)}"
        except Exception as error:  # whatever the peer makes the library stumble over
            return f"the webhook can't be reached: {_words(error)}"


def _words(error: object) -> str:
    """What the system says. The text of other errors may hold the URL."""
    return (isinstance(error, OSError) and error.strerror) or type(error).__name__
