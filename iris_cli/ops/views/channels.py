"""Health of the notification channels."""

from __future__ import annotations

from collections.abc import Iterator

from iris_cli.core.messages.notices import MOST_TRIES, Channel
from iris_cli.core.units import count, format_duration
from iris_cli.ops.session import Session

FIX = "correct notify in cluster.yaml"


def troubles(session: Session, *, coming: bool) -> Iterator[str]:
    """Yield a sentence for each failing channel. `coming`: a next cycle is expected."""
    books = session.state.notices.read() if session.config.notify.channels else None
    for name in session.config.notify.channels if books is not None else ():
        channel = books.channels.get(name, Channel()) if books is not None else Channel()
        if channel.failures:
            yield _words(channel, session.clock.now(), coming=coming)


def told(session: Session) -> str:
    """Return the time of the last notice, and the number of dropped ones."""
    books = session.state.notices.read()
    channels = books.channels if books is not None else {}
    ages = [session.clock.now() - each.told_at for each in channels.values() if each.told_at]
    last = f"last sent {format_duration(max(0.0, min(ages)))} ago" if ages else "nothing sent yet"
    lost = sum(channel.given_up for channel in channels.values())
    return f"{last}; {count(lost, 'notice')} dropped" if lost else last


def _words(channel: Channel, now: float, *, coming: bool) -> str:
    tries = f" ({channel.failures} times in a row)" if channel.failures > 1 else ""
    wait = channel.retry_at - now
    again = f"retried in {format_duration(wait) if wait > 0 else 'the next cycle'}"
    then = again if coming else "no cycles are running"
    waiting = f"{count(len(channel.waiting), 'notice')} to send, {then}" if channel.waiting else ""
    lost = f"{count(channel.given_up, 'notice')} dropped after {MOST_TRIES} tries" if channel.given_up else ""
    return "; ".join(filter(None, (f"notify: {channel.trouble}{tries}", waiting, lost)))
