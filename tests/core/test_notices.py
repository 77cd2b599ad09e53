"""What is news follows from the state alone, and is told until it got through or was tried often enough."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from msgspec.structs import replace

from iris_cli.core.ids import JobId
from iris_cli.core.messages.notices import (
    MAX_PAUSE,
    MAX_QUEUED,
    MAX_TRIES,
    Channel,
    ClusterObservation,
    Notice,
    NoticeState,
    initial_notice_state,
    observe,
)
from iris_cli.core.model.cluster import Cluster
from iris_cli.core.model.limits import Limits
from tests.support.lab import START, Lab

NOW = START + 10_000.0
LIMITS = Limits()


def look(
    cluster: Cluster, now: float = NOW, *, why: str = "no room", stopped: str = "", log: str = "a"
) -> ClusterObservation:
    return ClusterObservation(
        cluster=cluster,
        cluster_id=log,
        now=now,
        limits=LIMITS,
        cause=lambda job: f"because of {job.id}",
        waiting=lambda job: why if cluster.job_state(job.id) == "PENDING" else "",
        stopped=stopped,
    )


def news(books: NoticeState, seen: ClusterObservation) -> tuple[NoticeState, list[str]]:
    """The books after a look, with an empty queue, and what the look put there."""
    after = observe(books, seen, ["command"])
    told = [f"{each.event} {each.job} {each.state}".strip() for each in after.channels["command"].waiting]
    return replace(after, channels={"command": Channel()}), told


def test_what_was_over_at_the_first_look_is_not_news_and_what_ends_later_is() -> None:
    lab = Lab().worker("w0").job("old").job("new").job("newer")
    lab.cancel("old")
    books = initial_notice_state(look(lab.cluster), ["command"])
    assert news(books, look(lab.cluster))[1] == []
    lab.cancel("new")
    books, told = news(books, look(lab.cluster))
    assert told == ["job_ended new KILLED"]
    assert news(books, look(lab.cluster))[1] == []


def test_a_job_that_came_and_went_between_two_looks_is_news() -> None:
    lab = Lab().worker("w0").job("old")
    books = initial_notice_state(look(lab.cluster), ["command"])
    lab.job("short").job("open")
    lab.cancel("short")
    books, told = news(books, look(lab.cluster))
    assert told == ["job_ended short KILLED"]
    assert set(books.open) == {"old", "open"}


def test_a_new_log_starts_a_new_notice_state_and_keeps_pending_notices() -> None:
    lab = Lab().worker("w0").job("one")
    books = initial_notice_state(look(lab.cluster), ["command"])
    books = replace(books, channels={"command": Channel(waiting=(Notice(event="job_ended", job="x"),))})
    lab.cancel("one")
    after = observe(books, look(lab.cluster, log="b"), ["command"])
    assert [each.job for each in after.channels["command"].waiting] == ["x"]


def gang() -> Lab:
    return Lab().worker("w0").job("gang", replicas=2, group_by="rack")


@pytest.mark.parametrize(
    ("after", "why", "told"),
    [
        (LIMITS.gang_reserve_after - 1.0, "no room", []),
        (LIMITS.gang_reserve_after, "no room", ["gang_waits gang PENDING"]),
        (LIMITS.gang_reserve_after, "", []),  # nobody has looked why, or it fits now
    ],
)
def test_a_gang_that_waits_longer_than_gang_reserve_after_is_news(
    after: float, why: str, told: list[str]
) -> None:
    lab = gang()
    submitted = lab.cluster.jobs[JobId("gang")].submitted_at
    books = initial_notice_state(look(lab.cluster, submitted), ["command"])
    books, found = news(books, look(lab.cluster, submitted + after, why=why))
    assert found == told
    assert news(books, look(lab.cluster, submitted + after, why=why))[1] == []  # once


def test_a_pending_gang_is_reported_once_even_if_its_reason_is_unknown_for_a_while() -> None:
    lab = gang()
    books, told = news(initial_notice_state(look(lab.cluster), ["command"]), look(lab.cluster))
    assert told == ["gang_waits gang PENDING"]
    books, told = news(books, look(lab.cluster, why=""))
    assert told == []
    assert news(books, look(lab.cluster))[1] == []


def test_quiet_tasks_are_news_once_until_all_of_them_write_again() -> None:
    lab = Lab().worker("w0", cpu=4).job("train", replicas=2).schedule().reports("train/* running")
    books = initial_notice_state(look(lab.cluster), ["command"])
    lab.reports("train/task-1 running quiet-1h")
    books, told = news(books, look(lab.cluster))
    assert told == ["tasks_quiet train RUNNING"]
    lab.reports("train/task-0 running quiet-1h", "train/task-1 running quiet-1s")
    books, told = news(books, look(lab.cluster))
    assert told == []
    books, told = news(books, look(lab.reports("train/task-0 running quiet-1s").cluster))
    assert told == []
    lab.reports("train/task-0 running quiet-1h")
    assert news(books, look(lab.cluster))[1] == ["tasks_quiet train RUNNING"]


def test_cycles_that_stopped_are_news_if_a_job_was_open() -> None:
    lab = Lab().worker("w0").job("one")
    open_ = initial_notice_state(look(lab.cluster), ["command"])
    assert news(open_, look(lab.cluster, stopped="no cycle for an hour"))[1] == ["scheduler_stopped"]
    lab.cancel("one")
    idle = initial_notice_state(look(lab.cluster), ["command"])
    assert news(idle, look(lab.cluster, stopped="no cycle for an hour"))[1] == []


def names(channel: Channel) -> Sequence[str]:
    return [each.job for each in channel.waiting]


def channel(*jobs: str) -> Channel:
    return Channel().with_notices(Notice(event="job_ended", job=job) for job in jobs)


def test_a_failure_pauses_the_channel_for_longer_each_time_and_lets_the_others_go_first() -> None:
    failed = channel("a", "b").with_failure("exit 1", NOW, LIMITS)
    assert names(failed) == ["b", "a"]
    assert not failed.is_due(NOW)
    assert failed.is_due(NOW + LIMITS.backoff_first)
    again = failed.with_failure("exit 1", NOW, LIMITS)
    assert again.retry_at - NOW == 2 * LIMITS.backoff_first
    for _ in range(50):
        again = replace(again, waiting=channel("a").waiting).with_failure("exit 1", NOW, LIMITS)
    assert again.retry_at - NOW == MAX_PAUSE
    healthy = replace(again, waiting=channel("a", "b").waiting).with_delivery(NOW)
    assert (healthy.failures, healthy.retry_at, healthy.trouble, names(healthy)) == (0, 0.0, "", ["b"])


def test_a_pause_longer_than_any_is_over_for_the_clock_was_set_back() -> None:
    failed = channel("a").with_failure("exit 1", NOW + 1e7, LIMITS)
    assert failed.is_due(NOW)


def test_a_notice_is_given_up_after_many_tries_and_of_very_many_the_oldest_are() -> None:
    failed = channel("poison")
    for _ in range(MAX_TRIES):
        assert failed.waiting
        failed = failed.with_failure("exit 1", NOW, LIMITS)
    assert (names(failed), failed.given_up) == ([], 1)
    many = channel("first").with_notices(Notice(event="job_ended", job="x") for _ in range(MAX_QUEUED))
    assert (len(many.waiting), many.given_up, many.waiting[0].job) == (MAX_QUEUED, 1, "x")
