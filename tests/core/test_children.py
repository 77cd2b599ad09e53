"""Child jobs: what they take over, that each request counts once, and what a task may see and touch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from iris_cli.core.events.events import JobAdopted, JobSubmitted
from iris_cli.core.ids import JobId, RequestId
from iris_cli.core.model.cluster import MAX_ENDPOINT_CHANGES
from iris_cli.core.model.job import JobState, Priority, Workspace
from iris_cli.errors import IrisError, NotFoundError, UsageError
from tests.support.inside import Inside
from tests.support.lab import Lab

SPACE = Workspace(hash="0" * 64, size=1)


def parent(**asked: Any) -> Lab:
    """`train`, running on a host of its own."""
    return Lab().worker("w", cpu=64).job("train", **asked).schedule().reports("train/* running")


# What a child is


def test_a_child_is_named_below_its_parent_and_says_who_submitted_it() -> None:
    lab = parent()
    assert Inside(lab).submit(name="eval", request="r1") == ("train/eval", True)
    job = lab.the_job("train/eval")
    assert job.origin is not None
    assert (str(job.origin.attempt), job.origin.request) == ("train/task-0/attempt-0", "r1")
    assert [child.id for child in lab.cluster.children_of(JobId("train"))] == ["train/eval"]
    assert job.resources.cpu == 0.5, "what is set for all jobs holds for child jobs, too"


def test_a_child_without_a_name_is_named_after_its_command() -> None:
    inside = Inside(parent())
    assert [inside.submit()[0] for _ in range(3)] == ["train/eval-1", "train/eval-2", "train/eval-3"]
    assert inside.submit(command=("/bin/sh", "-c", "x"))[0] == "train/sh-1"


def test_children_have_children() -> None:
    lab = parent()
    Inside(lab).submit(name="b")
    lab.schedule().reports("train/b/* running")
    assert Inside(lab, "train/b/task-0").submit(name="c") == ("train/b/c", True)
    lab.cancel("train")
    assert [lab.state_of(name) for name in ("train/b", "train/b/c")] == [JobState.KILLED, JobState.KILLED]


def test_env_setup_and_workspace_are_the_parents_unless_the_child_names_its_own() -> None:
    lab = parent(env={"A": "1", "B": "1"}, setup="uv sync", workspace=SPACE, priority=None)
    inside = Inside(lab)
    inside.submit(name="same")
    inside.submit(name="own", env={"B": "2", "C": "2"}, setup="make")
    inside.submit(name="none", setup="")
    same, own, none = (lab.the_job(f"train/{name}") for name in ("same", "own", "none"))
    assert (dict(same.env), same.setup, same.workspace) == ({"A": "1", "B": "1"}, "uv sync", SPACE)
    assert (dict(own.env), own.setup, own.workspace) == ({"A": "1", "B": "2", "C": "2"}, "make", SPACE)
    assert (none.setup, dict(none.env)) == ("", {"A": "1", "B": "1"})


def test_a_child_has_the_priority_of_its_parent_unless_it_names_its_own() -> None:
    lab = parent(priority=Priority.HIGH)
    inside = Inside(lab)
    inside.submit(name="same")
    inside.submit(name="own", priority=Priority.LOW)
    lab.job("train/by-hand")
    found = [lab.the_job(f"train/{name}").priority for name in ("same", "own", "by-hand")]
    assert found == [Priority.HIGH, Priority.LOW, Priority.HIGH]


def test_nothing_else_is_taken_over() -> None:
    lab = parent(
        max_retries_failure=3,
        timeout=60.0,
        labels={"a": "b"},
        secrets=("TOKEN",),
        grace=1.0,
        tolerate=("spot",),
    )
    Inside(lab).submit(name="eval")
    job = lab.the_job("train/eval")
    assert (job.max_retries_failure, job.timeout, job.labels, job.secrets) == (0, 0.0, {}, ())
    assert (job.grace, job.tolerations) == (30.0, ())


# Once, for ever


def test_the_same_request_is_one_job_however_often_it_is_read() -> None:
    lab = parent()
    inside = Inside(lab)
    first = inside.submit(request="r1")
    assert [inside.submit(request="r1") for _ in range(3)] == [first] * 3
    assert inside.submit(request="r1", command=("other",)) == first, (
        "the id counts, not what is in the file by now"
    )
    inside.cancel("train/eval-1")
    assert inside.submit(request="r1") == first, "also when it is over"
    assert len(lab.cluster.jobs) == 2


def retried(lab: Lab) -> Lab:
    return lab.reports("train/* exited 1").schedule().reports("train/* running")


@pytest.mark.parametrize("name", ["eval", None])
def test_a_later_attempt_that_submits_the_same_gets_the_job_that_is_there(name: str | None) -> None:
    lab = parent(max_retries_failure=1)
    first, _ = Inside(lab).submit(name=name, request="r1")
    inside = Inside(retried(lab))
    assert inside.submit(name=name, request="r9") == (first, False)
    assert inside.submit(name=name, request="r9") == (first, False), "and again, if it asks again"
    assert len(lab.cluster.jobs) == 2


def test_a_later_attempt_finds_as_many_equal_jobs_as_there_were_and_makes_more_only_then() -> None:
    lab = parent(max_retries_failure=2)
    inside = Inside(lab)
    assert [inside.submit() for _ in range(2)] == [("train/eval-1", True), ("train/eval-2", True)]
    inside = Inside(retried(lab))
    again = [inside.submit(request=f"second.{number}") for number in range(3)]
    assert again == [("train/eval-1", False), ("train/eval-2", False), ("train/eval-3", True)]
    inside = Inside(retried(lab))
    again = [inside.submit(request=f"third.{number}") for number in range(3)]
    assert again == [("train/eval-1", False), ("train/eval-2", False), ("train/eval-3", False)]


def test_a_submission_without_a_name_never_finds_the_equal_job_that_was_given_one() -> None:
    lab = parent(max_retries_failure=1)
    inside = Inside(lab)
    both = [inside.submit(name=name)[0] for name in ("shared", None)]
    assert both == ["train/shared", "train/eval-1"]
    inside = Inside(retried(lab))
    assert [inside.submit(name=name)[0] for name in (None, "shared")] == both[::-1]
    assert len(lab.cluster.jobs) == 3


def test_another_job_under_the_same_name_is_refused() -> None:
    lab = parent(max_retries_failure=1)
    Inside(lab).submit(name="eval")
    for inside in (Inside(lab), Inside(retried(lab))):
        with pytest.raises(UsageError, match="another job train/eval already"):
            inside.submit(name="eval", command=("other",), request="r2")
    lab.job("train/mine")
    with pytest.raises(UsageError, match="another job train/mine already"):
        Inside(lab).submit(name="mine", request="r3")


def test_an_attempt_that_is_no_longer_the_present_one_is_refused() -> None:
    lab = parent(max_retries_failure=1)
    old = Inside(lab).attempt
    retried(lab)
    with pytest.raises(IrisError, match="train/task-0/attempt-0 is not the current attempt"):
        Inside(lab).submit(attempt=old)
    assert list(lab.cluster.jobs) == ["train"]


@pytest.mark.parametrize("meanwhile", ["cancel", "ends"])
def test_a_parent_that_is_over_gets_no_child(meanwhile: str) -> None:
    lab = parent()
    _ = lab.cancel("train") if meanwhile == "cancel" else lab.reports("train/* exited 0")
    with pytest.raises(IrisError, match=r"is being stopped|is not the current attempt"):
        Inside(lab).submit()


def test_requests_of_a_stopping_attempt_are_refused_while_its_gang_is_retried() -> None:
    lab = (
        Lab()
        .slice("a")
        .job("train", tpu="v4-16", max_retries_failure=1)
        .schedule()
        .reports("train/* running")
    )
    lab.reports("train/task-1 exited 1")
    with pytest.raises(IrisError, match="being stopped"):
        Inside(lab).submit()


def test_a_job_that_is_not_there_is_compared_with_the_names_below_the_parent() -> None:
    inside = Inside(parent())
    inside.submit(name="eval")
    for absent, hint in (
        ("evla", "did you mean 'train/eval'?"),
        ("train/evaal", "did you mean 'train/eval'?"),
        ("other", "a task sees its own job and its child jobs"),
    ):
        with pytest.raises(NotFoundError) as refused:
            inside.cancel(absent)
        assert refused.value.hint == hint


# Limits, and what is hostile


def test_children_and_depth_are_limited() -> None:
    lab = parent()
    inside = Inside(lab, max_children=2)
    inside.submit()
    inside.submit()
    with pytest.raises(IrisError, match="train already has 2 child jobs"):
        inside.submit()
    assert inside.submit(request="0001") == ("train/eval-1", True), "what is there is there"
    with pytest.raises(IrisError, match="train is 0 jobs deep, the maximum"):
        Inside(lab, max_job_depth=1).submit(request="r")
    lab.schedule().reports("train/eval-1/* running")
    with pytest.raises(IrisError, match="1 jobs deep, the maximum"):
        Inside(lab, "train/eval-1/task-0", max_job_depth=2).submit()


REFUSED: dict[str, tuple[Callable[[Inside], object], type[IrisError], str]] = {
    "a name with a slash": (lambda it: it.submit(name="a/b"), UsageError, "must not contain"),
    "a name of another's child": (lambda it: it.submit(name="../other/x"), UsageError, "must not contain"),
    "a name like a task": (lambda it: it.submit(name="task-0"), UsageError, "mistaken"),
    "no command": (lambda it: it.submit(command=None), UsageError, "no command"),
    "an option for a command": (lambda it: it.submit(command=("-x",)), UsageError, "is not a program name"),
    "the operator's secret": (
        lambda it: it.submit(secrets=("AWS_SECRET",)),
        UsageError,
        "is not a secret of train",
    ),
    "after another's job": (
        lambda it: it.submit(after=("other",)),
        NotFoundError,
        "train has no child job other",
    ),
    "after no job": (
        lambda it: it.submit(after=("train/x",)),
        NotFoundError,
        "train has no child job train/x",
    ),
    "after its parent": (lambda it: it.submit(after=("train",)), UsageError, "child jobs end with train"),
    "our own variables": (lambda it: it.submit(env={"IRIS_JOB_ID": "other"}), UsageError, "set by iris"),
    "a gang that tolerates": (
        lambda it: it.submit(group_by="rack", replicas=2, max_task_failures=1),
        UsageError,
        "can't tolerate",
    ),
    "too many replicas": (lambda it: it.submit(replicas=10_001), UsageError, "more than 10000"),
    "cancel another's": (lambda it: it.cancel("other"), NotFoundError, "train has no child job other"),
    "cancel what there isn't": (
        lambda it: it.cancel("train/x"),
        NotFoundError,
        "train has no child job train/x",
    ),
    "cancel a namesake": (lambda it: it.cancel("train2"), NotFoundError, "train has no child job train2"),
    "cancel another's child": (
        lambda it: it.cancel("other/x"),
        NotFoundError,
        "train has no child job other/x",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_a_task_may_not_do_is_refused_and_nothing_happens(name: str) -> None:
    act, kind, words = REFUSED[name]
    lab = parent().job("other").job("other/x").job("train2")
    before = lab.cluster.jobs.copy()
    with pytest.raises(kind, match=words):
        act(Inside(lab))
    assert lab.cluster.jobs == before


def test_secrets_of_the_parent_may_be_named_and_come_from_where_it_has_them() -> None:
    lab = parent(secrets=("TOKEN", "KEY=@/home/me/key"))
    Inside(lab).submit(name="eval", secrets=("TOKEN", "KEY"))
    job = lab.the_job("train/eval")
    assert (job.secrets, job.secret_files) == (("TOKEN", "KEY"), {"KEY": "/home/me/key"})
    with pytest.raises(UsageError, match="is not a secret of train"):
        Inside(lab).submit(name="spy", secrets=("TOKEN=@/etc/shadow",), request="r2")


def test_a_child_may_come_after_another() -> None:
    lab = parent()
    inside = Inside(lab)
    inside.submit(name="prep")
    inside.submit(name="eval", after=("train/prep",))
    assert lab.the_job("train/eval").after == ("train/prep",)


def test_a_task_may_cancel_what_descends_from_its_job_and_the_log_says_who_did() -> None:
    lab = parent()
    Inside(lab).submit(name="b")
    lab.schedule().reports("train/b/* running")
    Inside(lab, "train/b/task-0").submit(name="c")
    assert Inside(lab).cancel("train/b/c", "enough")
    end = lab.the_job("train/b/c").end
    assert end is not None
    assert end.error == "requested by train/task-0/attempt-0: enough"
    assert Inside(lab).cancel("train/b/c"), "it is, whoever asks again"
    assert lab.state_of("train/b") is JobState.RUNNING


# Endpoints


def test_endpoints_belong_to_a_task_and_go_with_its_attempt() -> None:
    lab = parent(replicas=2, max_retries_failure=1)
    Inside(lab).register("http", 8080)
    Inside(lab, "train/task-1").register("http", 8081, path="/")
    assert Inside(lab).endpoints() == ["train/task-0 http:8080", "train/task-1 http:8081"]
    lab.reports("train/task-0 exited 1")
    assert Inside(lab).endpoints() == ["train/task-1 http:8081"], "the other keeps its own"
    lab.schedule().reports("train/task-0 running")
    assert Inside(lab).endpoints() == ["train/task-1 http:8081"], "and the next attempt begins without"
    lab.reports("train/task-1 exited 0")
    assert lab.cluster.endpoints == {}


def test_a_name_is_overwritten_and_taken_back() -> None:
    inside = Inside(parent())
    inside.register("http", 1)
    inside.register("debug", 2)
    inside.register("http", 3)
    assert inside.endpoints() == ["train/task-0 debug:2", "train/task-0 http:3"]
    assert inside.remove("debug")
    assert not inside.remove("debug")
    assert inside.endpoints() == ["train/task-0 http:3"]


def test_each_request_about_an_endpoint_counts_once() -> None:
    inside = Inside(parent())
    inside.register("http", 1, request="r1")
    assert inside.remove("http", request="r2")
    inside.register("http", 1, request="r1")
    assert inside.endpoints() == [], "what was asked for before it was taken back doesn't come back"
    assert inside.remove("http", request="r2"), "and is answered as it was"


def test_endpoints_and_their_changes_are_limited() -> None:
    lab = parent()
    inside = Inside(lab, max_endpoints=2)
    inside.register("a")
    inside.register("b")
    inside.register("a", 81)
    with pytest.raises(IrisError, match="already has 2 endpoints"):
        inside.register("c")
    known = lab.cluster.endpoints[inside.attempt]
    many = replace(known, requests=tuple(RequestId(f"x{number}") for number in range(MAX_ENDPOINT_CHANGES)))
    lab.cluster.endpoints[inside.attempt] = many
    for change in (lambda: inside.register("a"), lambda: inside.remove("a")):
        with pytest.raises(IrisError, match="changed its endpoints 1000 times"):
            change()


def test_what_is_being_stopped_registers_nothing() -> None:
    lab = parent().cancel("train")
    with pytest.raises(IrisError, match="being stopped"):
        Inside(lab).register("http")


# The log


def test_submissions_are_written_with_their_origin_and_read_back() -> None:
    lab = parent(max_retries_failure=1)
    Inside(lab).submit(request="r1")
    assert [type(event) for event in lab.last] == [JobSubmitted]
    Inside(lab).register("http")
    Inside(retried(lab)).submit(request="r2")
    assert [type(event) for event in lab.last] == [JobAdopted]
    assert lab.replayed() == lab.cluster
