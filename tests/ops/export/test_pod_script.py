"""The script of a container, run by `sh` as a pod of a JobSet runs it: the variables are those of iris."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from iris_cli.config.job_file import load_job_file
from iris_cli.core.ids import parse_attempt_id
from iris_cli.core.model.job import EnvPreset
from iris_cli.ops.cycle.environment import environment, placement_of
from tests.ops.export.exporting import container, document, expanded, lost, to_jobset
from tests.support.lab import Lab

_FIELDS = {
    "spec.nodeName": "node-1",
    "metadata.annotations['jobset.sigs.k8s.io/job-index']": "SLICE",
    "metadata.annotations['jobset.sigs.k8s.io/restart-attempt']": "2",
    "metadata.annotations['batch.kubernetes.io/job-index-failure-count']": "1",
}
_BY_PLACE = frozenset(
    (
        *("IRIS_HOSTS", "IRIS_COORDINATOR_ADDRESS", "IRIS_WORKER_ID", "IRIS_WORKER_ATTRIBUTES", "IRIS_SLICE"),
        *("IRIS_ATTEMPT", "MASTER_ADDR", "MASTER_PORT", "MEGASCALE_COORDINATOR_ADDRESS"),
        *("JAX_COORDINATOR_ADDRESS", "SLURM_JOB_ID", "SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST"),
        "SLURM_NODELIST",
    )
)
"""Variables that say where a task is, and how often it was tried."""


def pod(found: Mapping[str, Any], directory: Path, slice_index: int, index: int) -> dict[str, str]:
    """The environment of the program in that pod. Its volume is in this directory."""
    told = container(found)
    env = {"JOB_COMPLETION_INDEX": str(index), "PATH": "/usr/bin:/bin"}
    for each in told["env"]:
        source = each.get("valueFrom", {})
        if "value" in each:
            env[each["name"]] = expanded(each["value"], env)
        elif "fieldRef" in source:
            env[each["name"]] = _FIELDS[source["fieldRef"]["fieldPath"]].replace("SLICE", str(slice_index))
        else:
            env[each["name"]] = f"secret {source['secretKeyRef']['key']}"
    words = [expanded(word, env) for word in (*told["command"], *told["args"])]
    words[2] = words[2].replace('"/iris', f'"{directory}/iris')
    ran = subprocess.run(words, env=env, cwd=directory, capture_output=True, text=True, check=True)
    assert ran.stderr == ""
    pairs = (each.partition("=") for each in ran.stdout.split("\0") if each)
    return {name: value for name, _, value in pairs}


SITES: dict[str, tuple[Callable[[], Lab], dict[str, Any]]] = {
    "one task": (lambda: Lab().worker("a"), {}),
    "a gang on two slices": (lambda: Lab().slice("s").slice("t"), {"tpu": "v4-16", "slices": 2}),
    "a gang on a rack": (
        lambda: Lab().worker("a", rack="r").worker("b", rack="r"),
        {"replicas": 2, "coscheduling": {"group_by": "rack"}},
    ),
}


@pytest.mark.parametrize(
    ("site", "preset"),
    [*((site, None) for site in SITES), *(("a gang on a rack", preset) for preset in EnvPreset)],
)
def test_each_pod_has_the_variables_that_iris_gives_its_rank(
    site: str, preset: EnvPreset | None, tmp_path: Path
) -> None:
    make, fields = SITES[site]
    chosen = {} if preset is None else {"env_preset": preset.value}
    found = document(
        to_jobset(tmp_path, command=["env", "-0"], env={"RANK": "mine", "LR": "1e3"}, **fields, **chosen)
    )
    lab = make().job("train", load_job_file(tmp_path / "job.yaml")).schedule()
    job = lab.the_job("train")
    pods = job.replicas // job.slices
    for index in range(job.replicas):
        place = placement_of(lab.cluster, parse_attempt_id(f"train/task-{index}/attempt-0"))
        expected = environment(place, {}, {})
        env = pod(found, tmp_path, index // pods, index % pods)
        assert expected.keys() <= env.keys()
        same = expected.keys() - _BY_PLACE
        assert {key: env[key] for key in same} == {key: expected[key] for key in same}
        assert env["IRIS_ATTEMPT"] == "2"


def test_the_hosts_are_named_as_jobset_names_pods(tmp_path: Path) -> None:
    found = document(to_jobset(tmp_path, command=["env", "-0"], tpu="v4-16", slices=2, ports=["http", "x"]))
    env = pod(found, tmp_path, 1, 0)
    hosts = [f"train-slice-{slice_}-{index}.train" for slice_ in (0, 1) for index in (0, 1)]
    assert env["IRIS_HOSTS"].split(",") == hosts
    assert env["IRIS_COORDINATOR_ADDRESS"] == f"{hosts[0]}:8476"
    assert env["MEGASCALE_COORDINATOR_ADDRESS"] == f"{hosts[0]}:8081"
    assert (env["IRIS_PORT_HTTP"], env["IRIS_PORT_X"]) == ("20001", "20002")
    assert env["IRIS_SLICE"] == "train-slice-1"


def test_more_hosts_than_a_variable_can_hold_are_told(tmp_path: Path) -> None:
    exported = to_jobset(tmp_path, name="a" * 40, command=["env", "-0"], tpu="v5p-16384")
    env = pod(document(exported), tmp_path, 0, 7)
    assert (env["IRIS_HOSTS"], env["IRIS_COORDINATOR_ADDRESS"]) == (
        "",
        f"{'a' * 40}-slice-0-0.{'a' * 40}:8476",
    )
    assert lost(exported) == ["name"]


def test_a_task_of_an_array_finds_its_index_and_its_line(tmp_path: Path) -> None:
    (tmp_path / "lines").write_text("zero\none\nit's $(id) $$\n")
    fields: dict[str, Any] = {
        "command": ["env", "-0"],
        "array": "0,2",
        "each_line": "lines",
        "secrets": ["TOKEN"],
    }
    found = document(to_jobset(tmp_path, **fields))
    first, second = (pod(found, tmp_path, 0, index) for index in (0, 1))
    assert (first["IRIS_ARRAY_INDEX"], first["IRIS_EACH_LINE"]) == ("0", "zero")
    assert (second["IRIS_ARRAY_INDEX"], second["IRIS_EACH_LINE"]) == ("2", "it's $(id) $$")
    assert (second["IRIS_TASK_INDEX"], second["IRIS_ATTEMPT"], second["TOKEN"]) == ("1", "1", "secret TOKEN")
    assert second["IRIS_HOSTS"] == "train-task-0-1.train"


def test_a_set_up_that_fails_is_the_end(tmp_path: Path) -> None:
    found = document(to_jobset(tmp_path, setup="""test "$A" = 'b $$' && exit 7""", env={"A": "b $$"}))
    with pytest.raises(subprocess.CalledProcessError) as failed:
        pod(found, tmp_path, 0, 0)
    assert failed.value.returncode == 7
