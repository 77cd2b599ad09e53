"""What is implied is made explicit; what can't be meant is refused, with what to type instead."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from iris_cli.core import (
    AttributeValue,
    Cluster,
    Constraint,
    ConstraintOp,
    Device,
    Job,
    JobId,
    build_worker_attributes,
)
from iris_cli.core.constraint_syntax import parse_constraint
from iris_cli.core.evolve import Draft
from iris_cli.core.lifecycle.request_fields import merge_requests
from iris_cli.core.lifecycle.submit import accept, submit
from iris_cli.core.model.job import JobRequest
from iris_cli.core.model.limits import Limits
from iris_cli.core.model.variables import MAX_STRING
from iris_cli.errors import IrisError, NotFoundError, UnschedulableError, UsageError
from tests.support.lab import Lab

Fleet = list[Mapping[str, AttributeValue]]


def vm(tpu: str, **more: object) -> Mapping[str, AttributeValue]:
    return build_worker_attributes(
        {"accelerator-type": tpu, "agent-worker-number": 0, "instance-id": "s", **more}
    )


FLEET: Fleet = [vm("v4-32"), vm("v5litepod-16"), vm("v6e-8"), build_worker_attributes({})]


def asked(fleet: Fleet = FLEET, cluster: Cluster | None = None, **request: Any) -> Job:
    request.setdefault("command", ("python", "train.py"))
    return accept(cluster or Cluster(), JobRequest(**request), fleet)


def refusal(fleet: Fleet = FLEET, cluster: Cluster | None = None, **request: Any) -> IrisError:
    with pytest.raises(IrisError) as refused:
        asked(fleet, cluster, **request)
    assert "\n" not in refused.value.message
    return refused.value


def test_a_default_of_tolerated_failures_is_not_for_gangs_nor_for_jobs_with_their_own() -> None:
    assert asked(max_task_failures_default=2).max_task_failures == 2
    assert asked(max_task_failures_default=2, max_task_failures=0).max_task_failures == 0
    assert asked(max_task_failures_default=2, tpu="v4-32").max_task_failures == 0
    assert "gang" in refusal(max_task_failures_default=2, max_task_failures=1, tpu="v4-32").message


# Shapes: replicas, groups, and what makes a gang


@pytest.mark.parametrize(
    ("request_", "replicas", "slices", "group_by"),
    [
        ({}, 1, 1, None),
        ({"replicas": 3}, 3, 1, None),
        ({"tpu": "v4-32"}, 4, 1, "tpu-name"),
        ({"tpu": "v4-32", "slices": 3}, 12, 3, "tpu-name"),
        ({"tpu": "v4-32", "replicas": 4}, 4, 1, "tpu-name"),
        ({"tpu": "v4-32", "replicas": 8}, 8, 2, "tpu-name"),
        ({"tpu": "v4-32", "replicas": 8, "slices": 2}, 8, 2, "tpu-name"),
        ({"tpu": "V5E-16"}, 4, 1, "tpu-name"),
        ({"tpu": "v6e-8"}, 1, 1, None),
        ({"tpu": "v6e-8", "replicas": 5}, 5, 1, None),
        ({"tpu": "v6e-8", "slices": 3}, 3, 3, "tpu-name"),
        ({"tpu": "v6e-8", "replicas": 2, "group_by": "tpu-name"}, 2, 2, "tpu-name"),
        ({"tpu": "auto"}, 1, 1, None),
        ({"tpu": "auto", "replicas": 4}, 4, 1, "tpu-name"),
        ({"tpu": "auto", "replicas": 4, "slices": 2}, 4, 2, "tpu-name"),
        ({"replicas": 4, "group_by": "rack"}, 4, 1, "rack"),
        ({"replicas": 4, "group_by": "rack", "slices": 2}, 4, 2, "rack"),
        ({"group_by": "rack", "slices": 2}, 2, 2, "rack"),
        ({"gpu": "A100:8", "replicas": 2, "force": True}, 2, 1, None),
    ],
)
def test_the_device_of_a_job_implies_its_replicas_slices_and_grouping(
    request_: dict[str, Any], replicas: int, slices: int, group_by: str | None
) -> None:
    job = asked(**request_)
    assert (job.replicas, job.slices) == (replicas, slices)
    assert (job.coscheduling.group_by if job.coscheduling else None) == group_by


def test_what_a_slice_really_has_wins_over_the_table() -> None:
    odd = vm("v4-32", **{"worker-network-endpoints": "a,b,c"})
    assert asked([odd], tpu="v4-32").replicas == 3


def test_a_type_that_nobody_knows_is_accepted_where_a_worker_has_it() -> None:
    assert asked([vm("v9-64")], tpu="v9-64", replicas=4).replicas == 4
    assert asked([], tpu="v9-64", slices=2, force=True).replicas == 2


@pytest.mark.parametrize(
    ("request_", "message", "hint"),
    [
        ({"tpu": "v4-32", "replicas": 3}, "v4-32 (16 chips, 4 VMs): it takes a multiple of 4", "--slices 1"),
        ({"tpu": "v4-32", "replicas": 7}, "it takes a multiple of 4", "--slices 2"),
        (
            {"tpu": "v4-32", "replicas": 4, "slices": 2},
            "2 × v4-32 (16 chips, 4 VMs): it takes 8",
            "--slices 1",
        ),
        ({"tpu": "v6e-8", "replicas": 2, "slices": 3}, "3 × v6e-8 (8 chips, 1 VM): it takes 3", "--slices 2"),
        (
            {"tpu": "auto", "replicas": 3, "slices": 2},
            "3 replicas can't be spread over 2 slices",
            "a multiple",
        ),
        (
            {"group_by": "rack", "replicas": 3, "slices": 2},
            "3 replicas can't be spread over 2",
            "a multiple",
        ),
        ({"slices": 2}, "--slices needs a gang", "--group-by"),
        ({"group_by": " "}, "coscheduling.group_by is empty", "--group-by rack"),
        ({"replicas": 0}, "replicas must be at least 1, not 0", ""),
        ({"tpu": "v4-32", "replicas": -4}, "replicas must be at least 1, not -4", ""),
        ({"slices": 0, "tpu": "v4-32"}, "slices must be at least 1, not 0", ""),
        ({"replicas": 10_001}, "10001 replicas are more than 10000", "split"),
        (
            {"tpu": "v4-32", "max_task_failures": 1},
            "a gang can't tolerate failed tasks",
            "--max-retries-failure",
        ),
        ({"tpu": "v4-32", "gpu": "A100"}, "a TPU or a GPU", "--tpu or --gpu"),
        ({"tpu": ""}, "'' is not a TPU type", "v4-32"),
        ({"tpu": "v4_32"}, "'v4_32' is not a TPU type", ""),
        ({"gpu": ""}, "'' is not a GPU request", "MODEL:N"),
        ({"gpu": "A100:0"}, "'A100:0' is not a GPU request", "MODEL:N"),
        ({"gpu": "A100:x"}, "'A100:x' is not a GPU request", "MODEL:N"),
        ({"gpu": "A100:²"}, "is not a GPU request", "MODEL:N"),
        ({"command": ()}, "there is no command to run", "iris launch"),
        ({"command": (), "client": "1-2"}, "there is no command to run", "iris run"),
        ({"cpu": 0.0}, "cpu is a number of cores", ""),
        ({"cpu": float("nan")}, "cpu is a number of cores", ""),
        ({"memory": 0}, "memory is a positive number of bytes", ""),
        ({"max_retries_failure": -1}, "max_retries_failure must be at least 0, not -1", ""),
        ({"max_retries_preemption": -1}, "max_retries_preemption must be at least 0", ""),
        ({"max_task_failures": -1}, "max_task_failures must be at least 0", ""),
        ({"timeout": -1.0}, "timeout must be between 0 and one year", ""),
        ({"grace": float("nan")}, "grace must be between 0 and one year", ""),
        ({"scheduling_timeout": 1e9}, "between 0 and one year, not 1000000000 seconds", ""),
        ({"setup_timeout": float("inf")}, "setup_timeout must be between 0 and one year", ""),
        ({"tolerate": ("a b",)}, "'a b' is not the name of a taint", ""),
        ({"labels": {"": "x"}}, "'' is not the name of a label", "NAME=VALUE"),
        ({"labels": {"a=b": "x"}}, "'a=b' is not the name of a label", "NAME=VALUE"),
        ({"name": "task-1"}, "would be mistaken for a task", "another name"),
        ({"name": "a b"}, "'a b' is not a job name", "1 to 63"),
        ({"name": "no/child"}, "no/child needs a running parent job no", "without '/'"),
        ({"after": ("a b",)}, "'a b' is not a job name", ""),
    ],
)
def test_what_can_not_be_meant_is_refused(request_: dict[str, Any], message: str, hint: str) -> None:
    refused = refusal(**request_)
    assert isinstance(refused, UsageError)
    assert message in refused.message
    assert hint in refused.hint


@pytest.mark.parametrize(
    ("constraints", "message"),
    [
        (["tpu-name=a", "tpu-name=b"], "'tpu-name' contradict each other"),
        (["pool", "!pool"], "'pool' contradict each other"),
        (["region=us-west4", "region=eu-west4"], "region"),
        (["preemptible=true", "preemptible=false"], "both true and false"),
        (["region!=us-west4"], "takes only = and in"),
    ],
)
def test_constraints_that_nobody_can_satisfy_are_refused(constraints: list[str], message: str) -> None:
    assert message in refusal(constraints=tuple(map(parse_constraint, constraints))).message


def test_a_device_that_nobody_could_offer_is_refused_unless_forced() -> None:
    refused = refusal(tpu="v4-64")
    assert isinstance(refused, UnschedulableError)
    assert refused.message == "no worker or scale group has v4-64: not submitted"
    assert refused.hint == "did you mean 'v4-32'? --force submits the job anyway"
    assert "no such accelerators" in refusal([], gpu="auto").hint
    assert asked(tpu="v4-64", force=True).replicas == 8


def test_a_host_that_was_never_probed_may_turn_out_to_be_anything_but_a_slice_of_several() -> None:
    assert asked([*FLEET, {}], tpu="v5litepod-8").replicas == 1
    assert asked([*FLEET, {}], gpu="H100").replicas == 1
    assert isinstance(refusal([*FLEET, {}], tpu="v4-64"), UnschedulableError)


def test_a_device_is_kept_in_one_spelling() -> None:
    assert asked(tpu="V5LITE-16").resources.device == Device("tpu", "v5litepod-16")
    assert asked(gpu="A100:2", force=True).resources.device == Device("gpu", "A100", 2)
    assert asked(gpu="2", force=True).resources.device == Device("gpu", "auto", 2)
    assert asked().resources.device is None


# Names


@pytest.mark.parametrize(
    ("command", "name"),
    [
        (("python", "train.py", "--lr", "1"), "train-1"),
        (("/opt/my app/run.sh",), "run-1"),
        (("echo", "hi"), "echo-1"),
        (("./task-3",), "job-1"),
        (("task",), "job-1"),
        (("é€",), "job-1"),
        (("é", "-x"), "job-1"),
        (("x" * 300,), "x" * 50 + "-1"),
    ],
)
def test_a_job_without_a_name_gets_one_from_its_command(command: tuple[str, ...], name: str) -> None:
    assert asked(command=command).id == name


def test_names_are_taken_once() -> None:
    lab = Lab().job("train").job(None)
    cluster = lab.cluster
    refused = refusal(cluster=cluster, name="train")
    assert refused.message == "job train already exists (PENDING)"
    assert refused.hint == "choose another --name, such as train-1"
    assert asked(cluster=cluster, command=("true",)).id == "true-2"


def test_a_child_needs_a_parent_that_is_not_over() -> None:
    lab = Lab().job("a").job("a/b")
    assert asked(cluster=lab.cluster, name="a/b/c").id == "a/b/c"
    assert "needs a running parent job a" in refusal(cluster=lab.cancel("a").cluster, name="a/c").message


def test_dependencies_must_exist() -> None:
    lab = Lab().job("train")
    assert asked(cluster=lab.cluster, after=("train",)).after == ("train",)
    refused = refusal(cluster=lab.cluster, after=("trian",))
    assert isinstance(refused, NotFoundError)
    assert (refused.message, refused.hint) == ("--after trian: no such job", "did you mean 'train'?")


def test_a_job_cannot_come_after_an_ancestor_which_ends_it() -> None:
    lab = Lab().job("a").job("a/b").job("ab")
    for ancestor in ("a", "a/b"):
        refused = refusal(cluster=lab.cluster, name="a/b/c", after=(ancestor,))
        assert refused.message == f"child jobs end with {ancestor}: they can't run --after it"
    assert asked(cluster=lab.cluster, name="a/c", after=("a/b", "ab")).after == ("a/b", "ab")


# What travels to the worker


@pytest.mark.parametrize("text", ["a\0b", "\ud800", "x" * (MAX_STRING + 1)], ids=["nul", "surrogate", "long"])
@pytest.mark.parametrize(
    ("field", "wrap"),
    [
        ("command", lambda text: ("echo", text)),
        ("env", lambda text: {"A": text}),
        ("setup", lambda text: text),
        ("labels", lambda text: {"a": text}),
        ("group_by", lambda text: text),
    ],
)
def test_text_that_can_not_arrive_as_it_is_is_refused(field: str, wrap: Any, text: str) -> None:
    refused = refusal(**{field: wrap(text)})
    assert isinstance(refused, UsageError)
    assert len(refused.message) < 200


@pytest.mark.parametrize(("key", "value"), [("pool", "a\0b"), ("pool", "\ud800"), ("po\0ol", "x")])
def test_text_in_constraints_is_no_exception(key: str, value: str) -> None:
    assert isinstance(refusal(constraints=(Constraint.of(key, ConstraintOp.EQ, value),)), UsageError)


def test_the_longest_argument_that_a_kernel_takes_is_accepted() -> None:
    assert asked(command=("x" * MAX_STRING,)).command


def test_everything_together_has_a_limit_too() -> None:
    assert "more than 1048576" in refusal(command=("x" * 100_000,) * 11).message


@pytest.mark.parametrize("field", ["env", "secrets"])
@pytest.mark.parametrize("name", ["", "1A", "A-B", "A B", "A=B", "A\n", "é", "A;id"])
def test_odd_names_of_variables_are_refused(field: str, name: str) -> None:
    variables: Any = {name: "x"} if field == "env" else (name.replace("=", "\0"),)
    refused = refusal(**{field: variables})
    assert "is not the name of an environment variable" in refused.message


@pytest.mark.parametrize("field", ["env", "secrets"])
def test_variables_of_iris_itself_can_not_be_overwritten(field: str) -> None:
    variables: Any = {"IRIS_JOB_ID": "x"} if field == "env" else ("IRIS_JOB_ID",)
    refused = refusal(**{field: variables})
    assert refused.message == "IRIS_JOB_ID is set by iris"


@given(st.text(), st.dictionaries(st.text(max_size=5), st.text(), max_size=3), st.text())
def test_any_text_is_accepted_as_it_is_or_refused(argument: str, env: dict[str, str], name: str) -> None:
    draft = Draft(Cluster(), at=1.0)
    try:
        job = submit(draft, JobRequest(command=(argument,), env=env, name=name), FLEET)
    except IrisError as refused:
        one_line = "\n" not in refused.message
        assert (draft.events, one_line) == ([], True)
    else:
        assert draft.cluster.jobs[job].command == (argument,)
        assert draft.cluster.jobs[job].env == env


# Layers of what was said


def test_the_upper_request_wins_and_mappings_are_merged() -> None:
    beneath = JobRequest(cpu=4.0, env={"A": "1", "B": "1"}, replicas=2)
    merged = merge_requests(JobRequest(cpu=1.0, env={"B": "2"}, max_retries_failure=0), beneath)
    assert merged == JobRequest(cpu=1.0, env={"A": "1", "B": "2"}, replicas=2, max_retries_failure=0)


def test_what_was_not_said_keeps_the_default_of_the_job() -> None:
    job = asked(name="train")
    assert job == Job(id=JobId("train"), command=("python", "train.py"))


def test_how_often_workers_may_refuse_is_a_limit_of_the_cluster() -> None:
    job = accept(Cluster(), JobRequest(command=("true",)), [], Limits(max_dispatch_failures=2))
    assert job.max_dispatch_failures == 2
    assert accept(Cluster(), JobRequest(command=("true",)), []).max_dispatch_failures == 10


def test_a_hint_does_not_suggest_the_number_of_slices_that_was_given() -> None:
    with pytest.raises(UsageError) as raised:
        asked([], tpu="v4-32", slices=2, replicas=7)
    assert raised.value.hint == "drop --replicas"
