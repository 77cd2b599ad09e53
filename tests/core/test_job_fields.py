"""The table of job fields against what is typed by hand: requests, jobs and the client's keywords."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from iris_cli.client.fields import JobFields
from iris_cli.core.lifecycle.submit import accept
from iris_cli.core.model.cluster import Cluster
from iris_cli.core.model.job import Job, JobRequest
from iris_cli.core.model.job_fields import JOB_FIELDS, JobField, Kind
from iris_cli.errors import ExitCode, UsageError

MADE_BY_US = frozenset({"lines", "memory_default", "max_task_failures_default"})
"""Made of `each_line`, and of the defaults of a configuration: nobody can say them."""
ELSEWHERE = {
    "name": "id",
    "tpu": "resources",
    "gpu": "resources",
    "cpu": "resources",
    "memory": "resources",
    "workdir": "workspace",
    "job_script": "workspace",
    "tolerate": "tolerations",
    "group_by": "coscheduling",
}
"""Fields of a request, and the fields of a job that they become part of."""
NOT_KEPT = frozenset({"failed", "force", "inherit_constraints"})
"""Fields that only decide whether a job is accepted, with which constraints and which tasks of an array."""
IN_A_REQUEST: Mapping[Kind, str] = {
    Kind.COMMAND: "tuple[str, ...] | None",
    Kind.CORES: "float | None",
    Kind.SIZE: "int | None",
    Kind.POSITIVE: "int | None",
    Kind.COUNT: "int | None",
    Kind.FLAG: "bool | None",
    Kind.DURATION: "float | None",
    Kind.CONSTRAINTS: "tuple[Constraint, ...] | None",
    **dict.fromkeys((Kind.TAINTS, Kind.JOBS, Kind.PORTS, Kind.SECRETS, Kind.LINES), "tuple[str, ...] | None"),
    **dict.fromkeys((Kind.VARIABLES, Kind.LABELS), "Mapping[str, str] | None"),
    Kind.WORKSPACE: "Workspace | None",
}
"""How the value of a field is typed; of the other kinds it is text, of a choice its enumeration."""
OF_THE_CLIENT: Mapping[Kind, str] = {
    Kind.GPU: "str | int | None",
    Kind.CORES: "float | None",
    Kind.SIZE: "int | str | None",
    Kind.POSITIVE: "int | None",
    Kind.COUNT: "int | None",
    Kind.FLAG: "bool | None",
    Kind.DURATION: "float | str | None",
    Kind.CONSTRAINTS: "Constraints | None",
    **dict.fromkeys((Kind.TAINTS, Kind.JOBS, Kind.PORTS, Kind.SECRETS, Kind.LINES), "Sequence[str] | None"),
    **dict.fromkeys((Kind.VARIABLES, Kind.LABELS), "Mapping[str, str] | None"),
    Kind.DIRECTORY: "str | os.PathLike[str] | None",
}
"""The same for the client, where a choice is its word."""


def own_fields() -> list[JobField]:
    return [row for row in JOB_FIELDS if not row.into]


def test_each_field_of_a_request_is_a_row_of_its_type() -> None:
    typed = {
        row.name: f"{row.choices.__name__} | None"
        if row.choices is not None
        else IN_A_REQUEST.get(row.kind, "str | None")
        for row in own_fields()
    }
    assert {
        name: hint for name, hint in JobRequest.__annotations__.items() if name not in MADE_BY_US
    } == typed


def test_each_row_ends_in_a_field_of_a_job() -> None:
    ends = {ELSEWHERE.get(row.name, row.name) for row in own_fields() if row.name not in NOT_KEPT}
    assert ends - Job.__annotations__.keys() == set()
    assert {row.into for row in JOB_FIELDS if row.into} <= {row.name for row in own_fields()}


def test_the_keywords_of_the_client_are_the_rows_that_say_so() -> None:
    typed = {row.name: OF_THE_CLIENT.get(row.kind, "str | None") for row in JOB_FIELDS if row.client}
    hints = JobFields.__annotations__
    assert {name: hint.__forward_arg__ for name, hint in hints.items()} == typed


def test_a_row_is_complete() -> None:
    names = [row.name for row in JOB_FIELDS]
    assert len(set(names)) == len(names)
    flags = [flag for row in JOB_FIELDS for flag in row.flags]
    assert len(set(flags)) == len(flags)
    for row in JOB_FIELDS:
        assert (row.choices is not None) == (row.kind is Kind.CHOICE), row.name
        assert bool(row.metavar) == (bool(row.option) and row.kind is not Kind.FLAG), row.name
        assert row.help.endswith("."), row.name


@pytest.mark.parametrize(
    "image", ["", "-v/:/host", "a b", "a\nb", "a\x1b[31m", "a;id", "$(id)", "x" * 513, "ä"]
)
def test_an_image_that_could_be_an_option_or_mislead_a_terminal_is_refused(image: str) -> None:
    with pytest.raises(UsageError, match="can't be the name of an image") as refused:
        accept(Cluster(), JobRequest(command=("true",), image=image), [])
    assert refused.value.exit_code is ExitCode.USAGE
    assert str(refused.value).isprintable()


@pytest.mark.parametrize(
    "image",
    [
        "python",
        "ghcr.io/lab/train:3",
        "localhost:5000/a/b@sha256:" + "0" * 64,
        "[::1]:5000/a",
        "oci-archive:/a/b.tar",
    ],
)
def test_an_image_is_kept_as_it_is_written(image: str) -> None:
    assert accept(Cluster(), JobRequest(command=("true",), image=image), []).image == image
    assert accept(Cluster(), JobRequest(command=("true",)), []).image == ""


def test_a_secret_that_the_client_of_a_container_would_read_is_refused() -> None:
    request = JobRequest(command=("true",), secrets=("DOCKER_HOST", "TOKEN"), image="python")
    with pytest.raises(UsageError, match="secret DOCKER_HOST can't be given to a container"):
        accept(Cluster(), request, [])
    assert accept(Cluster(), JobRequest(command=("true",), secrets=("DOCKER_HOST",)), []).secrets
