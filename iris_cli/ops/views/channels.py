"""Health of the notification channels."""

from __future__ import annotations

from collections.abc import Iterator

from iris_cli.core.messages.notices import MAX_TRIES, Channel
from iris_cli.core.units import count, format_duration
from iris_cli.ops.session import Session

FIX = "correct notify in cluster.yaml"


def channel_problems(session: Session, *, has_next_cycle: bool) -> Iterator[str]:
    """Yield a sentence for each failing channel. `has_next_cycle`: True if another cycle is expected."""
    names = session.config.notify.channels
    records = session.state.notices.read() if names else None
    if records is None:
        return
    for name in names:
        channel = records.channels.get(name)
        if channel is not None and channel.failures:
            yield _problem_words(channel, session.clock.now(), has_next_cycle=has_next_cycle)


def last_notice(session: Session) -> str:
    """Return the age of the last notice that was sent, and the number of dropped notices."""
    records = session.state.notices.read()
    channels = records.channels if records is not None else {}
    ages = [session.clock.now() - each.told_at for each in channels.values() if each.told_at]
    last = f"last sent {format_duration(max(0.0, min(ages)))} ago" if ages else "nothing sent yet"
    dropped = sum(channel.given_up for channel in channels.values())
    return f"{last}; {count(dropped, 'notice')} dropped" if dropped else last


def _problem_words(channel: Channel, now: float, *, has_next_cycle: bool) -> str:
    failures = f" ({channel.failures} times in a row)" if channel.failures > 1 else ""
    wait = channel.retry_at - now
    retry = f"retried in {format_duration(wait) if wait > 0 else 'the next cycle'}"
    next_step = retry if has_next_cycle else "no cycles are running"
    waiting = f"{count(len(channel.waiting), 'notice')} to send, {next_step}" if channel.waiting else ""
    dropped = (
        f"{count(channel.given_up, 'notice')} dropped after {MAX_TRIES} tries" if channel.given_up else ""
    )
    return "; ".join(filter(None, (f"notify: {channel.trouble}{failures}", waiting, dropped)))
