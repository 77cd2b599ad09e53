"""The card of a failed job: what is known of it here, without asking anybody."""

from __future__ import annotations

from pathlib import Path

import pytest

from iris_cli.core.ids import AttemptId, JobId, TaskId, WorkerId
from iris_cli.core.messages.observations import AttemptReport, RemoteState
from iris_cli.core.model.task import EndReason
from iris_cli.ops.session import Session
from iris_cli.ops.views.failure import FailureCard, cause_words
from iris_cli.ops.views.job_status import job_status
from iris_cli.ops.views.status import cluster_status
from iris_cli.ops.views.why import why
from tests.render.scenes import diagnosed_gang, session_of
from tests.support.inside import Inside
from tests.support.lab import Lab

DISK = "saving\nOSError: [Errno 28] No space left on device\n"


def gang() -> Lab:
    lab = Lab().slice("v5a", "v5litepod-16").job("train", tpu="v5litepod-16").schedule()
    return lab.reports("train/* running").advance("1h")


def several(tasks: int, failures: int = 0) -> Lab:
    lab = Lab().worker("w", cpu=64).job("sweep", replicas=tasks, max_task_failures=failures).schedule()
    return lab.reports("sweep/* running").advance("1h")


def ended(lab: Lab, task: str, exit_code: int, log_tail: str = "") -> Lab:
    attempt = lab.cluster.attempt(next(iter(lab.attempts_named(task))))
    report = AttemptReport(
        token=attempt.token, state=RemoteState.EXITED, exit_code=exit_code, log_tail=log_tail
    )
    return lab.answers(lab.answer_of(attempt.worker, report))


def card(session: Session, job: str) -> FailureCard:
    found = job_status(session, job).failure
    assert found is not None
    return found


def pull(session: Session, out: str, err: str, *, late: float = 0.0, whole: bool = True) -> None:
    """Somebody pulled the output of task 0, so long after the task ended."""
    attempt = AttemptId(TaskId(JobId("sweep"), 0), 0)
    for stream, text in (("out", out), ("err", err)):
        session.state.task_logs.put(attempt, stream, 0, text.encode())
    if whole:
        session.state.task_logs.finish(attempt, session.clock.now() + late)


# The last words


def test_the_card_prefers_pulled_output_to_the_tail_in_the_log(tmp_path: Path) -> None:
    session = session_of(ended(several(1), "sweep/task-0", 1, "the end\n"), tmp_path / "state")
    pull(session, "step 1\n", DISK + "much more\n" * 30 + "the end\n")
    seen = card(session, "sweep")
    assert seen.log_lines == (*["much more"] * 19, "the end")
    assert seen.known is not None
    assert seen.known.name == "disk-full"


def test_the_card_shows_stdout_before_stderr(tmp_path: Path) -> None:
    session = session_of(ended(several(1), "sweep/task-0", 1, "the end\n"), tmp_path / "state")
    pull(session, "said on out\n", "said on err\n")
    assert card(session, "sweep").log_lines == ("said on out", "said on err")


def test_partial_or_early_pulled_output_is_not_used_for_the_card(tmp_path: Path) -> None:
    lab = ended(several(1), "sweep/task-0", 1, "the end\n")
    cut_off = session_of(lab, tmp_path / "cut")
    pull(cut_off, "", "step 1\n", whole=False)
    early = session_of(lab, tmp_path / "early")
    pull(early, "", "step 1\n", late=-60.0)
    assert card(cut_off, "sweep").log_lines == card(early, "sweep").log_lines == ("the end",)


def test_pulled_output_that_is_a_symlink_is_not_followed(tmp_path: Path) -> None:
    session = session_of(ended(several(1), "sweep/task-0", 1, "the end\n"), tmp_path / "state")
    path = session.state.task_logs.path(AttemptId(TaskId(JobId("sweep"), 0), 0), "err")
    path.parent.mkdir(parents=True, mode=0o700)
    path.symlink_to("/etc/passwd")
    assert card(session, "sweep").log_lines == ("the end",)


def test_a_card_of_the_past_uses_only_the_log(tmp_path: Path) -> None:
    lab = ended(several(1), "sweep/task-0", 1, "the end\n").advance("1h")
    session = session_of(lab, tmp_path / "state")
    pull(session, "", "pulled\n")
    then = job_status(session, "sweep", at="30m").failure
    assert then is not None
    assert then.log_lines == ("the end",)


def test_a_very_long_line_is_shortened_in_the_middle(tmp_path: Path) -> None:
    session = session_of(ended(several(1), "sweep/task-0", 1, "the end\n"), tmp_path / "state")
    pull(session, "", "begins" + "x" * 30_000 + "ends\n")
    (line,) = card(session, "sweep").log_lines
    assert (line.startswith("beginsx"), line.endswith("xends"), len(line) < 700) == (True, True, True)


# The others


def test_ranks_stopped_at_lines_that_differ_only_in_numbers_are_grouped(
    tmp_path: Path,
) -> None:
    lab = ended(gang(), "train/task-2", 1, "ValueError: loss is nan\n")
    ended(lab, "train/task-0", 143, "[12:00:01] rank 0 waits for step 4200\n")
    ended(lab, "train/task-1", 143, "[12:00:02] rank 1 waits for step 4200\n")
    ended(lab, "train/task-3", 143, "loading shard 7\n")
    seen = card(session_of(lab, tmp_path / "state"), "train").others
    assert [([task.index for task in group.tasks], group.how, group.line) for group in seen] == [
        ([0, 1], "stopped", "[12:00:01] rank 0 waits for step 4200"),
        ([3], "stopped", "loading shard 7"),
    ]
    assert not any(group.same or group.failed for group in seen)


def test_a_rank_with_the_same_last_line_as_the_first_failure_is_marked_as_equal(tmp_path: Path) -> None:
    lab = ended(gang(), "train/task-2", 1, "ValueError: step 7: loss is nan\n")
    ended(lab, "train/task-0", 143, "ValueError: step 8: loss is nan\n")
    seen = card(session_of(lab, tmp_path / "state"), "train").others
    assert [group.same for group in seen if group.line] == [True]


def test_only_tasks_that_failed_by_themselves_are_listed(tmp_path: Path) -> None:
    lab = ended(several(5, failures=1), "sweep/task-1", 2, "no file\n")
    ended(lab, "sweep/task-3", 0, "done\n")
    ended(lab, "sweep/task-4", 2, "no file\n")
    seen = card(session_of(lab, tmp_path / "state"), "sweep")
    assert [(group.tasks, group.how, group.failed, group.same) for group in seen.others] == [
        ((TaskId(JobId("sweep"), 4),), "exit 2", True, True)
    ]


# The cause


def test_the_cause_is_taken_from_another_rank_if_the_first_only_reports_a_dead_peer(tmp_path: Path) -> None:
    session = session_of(diagnosed_gang(), tmp_path / "state")
    seen = card(session, "train")
    assert seen.headline == "rank 0 failed first"
    assert seen.known is not None
    assert (seen.known.name, str(seen.known.task)) == ("disk-full", "train/task-2")
    assert seen.next == "iris exec v5a-2 -- df -h"
    assert why(session, "train").failure == seen


def test_a_dead_peer_message_is_the_cause_if_no_rank_has_another(tmp_path: Path) -> None:
    died = "Terminating process because the JAX distributed service detected fatal errors\n"
    lab = ended(gang(), "train/task-2", 134, died)
    ended(lab, "train/task-0", 134, died)
    seen = card(session_of(lab, tmp_path / "state"), "train")
    assert seen.known is not None
    assert seen.known.name == "jax-peer-died"
    assert seen.next == "iris logs train --diff"


def test_the_table_of_jobs_names_a_known_cause(tmp_path: Path) -> None:
    lab = ended(several(1), "sweep/task-0", 1, DISK)
    words = "exit 1: disk full or no inodes left"
    assert cause_words(lab.cluster, lab.cluster.jobs[JobId("sweep")]) == words
    assert cluster_status(session_of(lab, tmp_path / "state")).jobs[0].why == words


def test_an_earlier_attempt_has_its_known_cause(tmp_path: Path) -> None:
    lab = Lab().worker("w").job("train", max_retries_failure=1).schedule().reports("train/* running")
    ended(lab.advance("1h"), "train/task-0", 1, DISK).advance("1m").schedule().reports("train/* running")
    seen = job_status(session_of(lab, tmp_path / "state"), "train")
    assert seen.failure is None, "it goes on"
    assert [attempt.why for attempt in seen.tasks[0].attempts] == [
        "exit 1: disk full or no inodes left",
        "",
    ]


def test_a_cause_known_only_by_exit_status_is_not_in_the_table(tmp_path: Path) -> None:
    session = session_of(ended(several(1), "sweep/task-0", 127), tmp_path / "state")
    assert cluster_status(session).jobs[0].why == "exit 127"
    seen = card(session, "sweep")
    assert (seen.reason, seen.exit_code, seen.exit, seen.log_lines) == (EndReason.USER_ERROR, 127, "127", ())
    assert seen.known is not None
    assert seen.next == "iris exec w -- sh -c 'echo $PATH'"


def test_a_job_that_was_never_placed_has_a_card_without_a_place(tmp_path: Path) -> None:
    lab = Lab().worker("w", cpu=1).job("big", cpu=8.0, scheduling_timeout=60.0).advance("2m").schedule()
    assert cause_words(lab.cluster, lab.cluster.jobs[JobId("big")])
    assert job_status(session_of(lab, tmp_path / "state"), "big").failure is None


@pytest.mark.parametrize(
    ("said", "leads_to"),
    [
        ("boom\n", "iris ssh sweep/task-1"),
        ("line\n" * 30, "iris logs sweep/task-1 --tail 200"),
        ("x" * 4096, "iris logs sweep/task-1 --tail 200"),
        ("█" * 1365, "iris logs sweep/task-1 --tail 200"),
        ("", "iris ssh sweep/task-1"),
    ],
    ids=["all is shown", "more lines", "more than is kept", "more bytes than are kept", "nothing"],
)
def test_the_next_command_of_an_unknown_failure_shows_more_output(
    tmp_path: Path, said: str, leads_to: str
) -> None:
    seen = card(session_of(ended(several(2), "sweep/task-1", 1, said), tmp_path / "state"), "sweep")
    assert (seen.known, seen.next) == (None, leads_to)


def test_why_explains_a_second_failed_task_by_its_own_output(tmp_path: Path) -> None:
    lab = ended(several(2, failures=1), "sweep/task-0", 2, "no file\n")
    session = session_of(ended(lab, "sweep/task-1", 1, DISK), tmp_path / "state")
    seen = why(session, "sweep/task-1")
    assert seen.failure is None, "it is that of the first"
    assert (seen.cause, seen.next) == (
        "exit 1: disk full or no inodes left",
        "iris logs sweep/task-1",
    )


def test_terminated_messages_of_the_shell_are_ignored_when_ranks_are_grouped(tmp_path: Path) -> None:
    lab = ended(gang(), "train/task-2", 3, "ValueError: loss is nan\n")
    ended(lab, "train/task-0", 143, "all_reduce of step 42\nTerminated\n")
    ended(lab, "train/task-1", 143, "all_reduce of step 42\n/x/run: line 3:   812 Terminated    sleep 9\n")
    ended(lab, "train/task-3", 143, "Terminated\n")
    seen = card(session_of(lab, tmp_path / "state"), "train").others
    assert [([task.index for task in group.tasks], group.line) for group in seen] == [
        ([0, 1], "all_reduce of step 42"),
        ([3], ""),
    ]


def test_one_of_64_ranks_stopped_at_another_line_is_listed_alone(tmp_path: Path) -> None:
    lab = Lab().slice("big", "v4-512").job("train", tpu="v4-512").schedule()
    lab.reports("train/* running").advance("1h")
    ended(lab, "train/task-37", 1, "ValueError: loss is nan\n")
    for rank in range(64):
        if rank != 37:
            where = "loading shard 9\n" if rank == 5 else f"rank {rank} waits in all_reduce of step 42\n"
            ended(lab, f"train/task-{rank}", 143, f"{where}Terminated\n")
    seen = card(session_of(lab, tmp_path / "state"), "train")
    assert seen.headline == "rank 37 failed first"
    assert [(len(group.tasks), group.line) for group in seen.others] == [
        (62, "rank 0 waits in all_reduce of step 42"),
        (1, "loading shard 9"),
    ]


# What is around it


def test_the_card_of_a_parent_names_its_failed_child_job(tmp_path: Path) -> None:
    lab = Lab().worker("w", cpu=8).job("tune").schedule().reports("tune/* running")
    Inside(lab, "tune/task-0").submit(name="trial")
    lab.schedule().reports("tune/trial/* running")
    ended(lab, "tune/trial/task-0", 1, DISK)
    ended(lab.advance("10s"), "tune/task-0", 9, "a trial failed\n")
    seen = card(session_of(lab, tmp_path / "state"), "tune")
    assert [(str(child.job), child.state, child.cause) for child in seen.children] == [
        ("tune/trial", "FAILED", "exit 1: disk full or no inodes left")
    ]
    assert seen.next == "iris status tune/trial"


def parent_of_failed(children: int) -> Lab:
    lab = Lab().worker("w", cpu=64).job("tune", max_retries_preemption=0).schedule().reports("tune/* running")
    inside = Inside(lab, "tune/task-0")
    for number in range(children):
        inside.submit(name=f"trial-{number}")
    return lab.schedule().reports(*(f"tune/trial-{number}/* exited 1" for number in range(children)))


def test_a_card_names_eight_failed_child_jobs_and_counts_the_rest(tmp_path: Path) -> None:
    lab = ended(parent_of_failed(11).advance("10s"), "tune/task-0", 9, "trials failed\n")
    seen = card(session_of(lab, tmp_path / "state"), "tune")
    assert (len(seen.children), seen.more_children) == (8, 3)


def test_a_lost_host_is_not_blamed_on_a_failed_child_job(tmp_path: Path) -> None:
    lab = parent_of_failed(1).advance("10s")
    lab.hosts[WorkerId("w")].reboot()
    session = session_of(lab.answers(lab.answer_of("w")), tmp_path / "state")
    assert card(session, "tune").children == ()
    words = "host w was rebooted"
    assert cluster_status(session).jobs[0].why == words, "nor are the words of iris itself said twice"


def test_the_next_command_of_a_child_cancelled_with_its_parent_is_the_status_of_the_parent(
    tmp_path: Path,
) -> None:
    lab = Lab().worker("w", cpu=8).job("tune").schedule().reports("tune/* running")
    Inside(lab, "tune/task-0").submit(name="trial")
    lab.schedule().reports("tune/trial/* running")
    ended(lab.advance("10s"), "tune/task-0", 9, "gave up\n")
    session = session_of(lab, tmp_path / "state")
    assert card(session, "tune").children == ()
    assert job_status(session, "tune/trial").next == why(session, "tune/trial").next == "iris status tune"


def test_the_reason_counts_failed_tasks_and_names_max_task_failures(tmp_path: Path) -> None:
    lab = several(6, failures=1)
    for task in (4, 2):
        ended(lab.advance("1m"), f"sweep/task-{task}", 1, "oops\n")
    assert cluster_status(session_of(lab, tmp_path / "state")).jobs[0].why == (
        "2 of 6 tasks failed (max_task_failures is 1), the first was task-4: exit 1"
    )


def test_a_time_limit_is_named_instead_of_the_signal(tmp_path: Path) -> None:
    lab = Lab().worker("w").job("train", timeout=7200.0).schedule().reports("train/* running")
    lab.advance("2h").reports("train/* timeout")
    session = session_of(lab, tmp_path / "state")
    assert card(session, "train").cause == "exceeded its time limit of 2h"
    assert cause_words(session.view(), session.view().jobs[JobId("train")]) == "exceeded its time limit of 2h"


def test_a_setup_that_failed_is_shown_with_its_command(tmp_path: Path) -> None:
    lab = Lab().worker("w").job("train", setup="pip install jx").schedule()
    lab.reports("train/* nostart setup")
    assert card(session_of(lab, tmp_path / "state"), "train").setup == "pip install jx"


def test_an_ended_job_names_the_missing_resource_or_dependency() -> None:
    lab = Lab().worker("w", cpu=1).job("first").job("second", after=(JobId("first"),))
    lab.job("big", cpu=8.0, scheduling_timeout=60.0).schedule().reports("first/* exited 1")
    lab.advance("2m").schedule()
    words = {job: cause_words(lab.cluster, lab.cluster.jobs[JobId(job)]) for job in ("second", "big")}
    assert words == {
        "second": "dependency did not succeed: first (FAILED)",
        "big": "not placed within its scheduling_timeout of 1m: "
        "no worker has 8 cores (largest: 1); will never run",
    }


# What goes again


def test_a_retried_gang_names_the_rank_that_failed(tmp_path: Path) -> None:
    lab = Lab().slice("v5a", "v5litepod-16").job("train", tpu="v5litepod-16", max_retries_failure=2)
    ended(lab.schedule().reports("train/* running").advance("1h"), "train/task-3", 1, DISK)
    lab.reports("train/task-0 stopped").reports("train/task-1 stopped").reports("train/task-2 stopped")
    words = "retry 1 of 2, after rank 3 failed: exit 1: disk full or no inodes left"
    waiting = session_of(lab, tmp_path / "waiting")
    assert (job_status(waiting, "train").job.retry, why(waiting, "train").retry) == (words, words)
    lab.schedule().reports("train/* running")
    running = session_of(lab, tmp_path / "running")
    assert cluster_status(running).jobs[0].retry == words


def test_a_retried_array_names_the_task_that_failed_last(tmp_path: Path) -> None:
    lab = Lab().worker("w", cpu=8).job("sweep", replicas=3, max_retries_failure=1).schedule()
    lab.reports("sweep/* running")
    ended(lab.advance("1m"), "sweep/task-0", 1)
    ended(lab.advance("1m"), "sweep/task-2", 2)
    session = session_of(lab.schedule(), tmp_path / "state")
    assert (
        job_status(session, "sweep").job.retry
        == "retry 1 of 1, after task-2 failed: exit 2 (and 1 more task)"
    )


def test_ended_and_new_jobs_show_no_retry(tmp_path: Path) -> None:
    lab = ended(several(1), "sweep/task-0", 1).job("fresh").schedule()
    session = session_of(lab, tmp_path / "state")
    assert [row.retry for row in cluster_status(session).jobs] == ["", ""]


def test_a_card_says_that_no_retry_is_left(tmp_path: Path) -> None:
    lab = Lab().worker("w").job("train", max_retries_failure=1)
    for _ in range(2):
        ended(lab.schedule().reports("train/* running").advance("1m"), "train/task-0", 1)
    assert card(session_of(lab, tmp_path / "state"), "train").retries == "1 of 1 retries used"


def test_a_task_on_a_silent_worker_says_so(tmp_path: Path) -> None:
    lab = gang().silent("v5a-2").advance("3m")
    tasks = job_status(session_of(lab, tmp_path / "state"), "train").tasks
    assert [task.why for task in tasks] == [
        "",
        "",
        "worker: suspect for 3m (connect: no route to host); polled again in the next cycle",
        "",
    ]
