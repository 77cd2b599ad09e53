"""What a task finds in its environment, and who has the last word about each variable."""

from __future__ import annotations

import json
from typing import Any

import pytest

from iris_cli.core.constraints import Constraint, ConstraintOp, constraints_to_json
from iris_cli.core.ids import parse_attempt_id
from iris_cli.core.model.job import EnvPreset
from iris_cli.errors import UsageError
from iris_cli.ops.cycle.environment import coordinator_port, environment, needs_coordinator_port, placement_of
from tests.support.lab import Lab

CONTRACT = [
    "IRIS_JOB_ID",
    "IRIS_TASK_ID",
    "IRIS_TASK_INDEX",
    "IRIS_NUM_TASKS",
    "IRIS_ATTEMPT",
    "IRIS_WORKER_ID",
    "IRIS_WORKER_ATTRIBUTES",
    "IRIS_SCALE_GROUP",
    "IRIS_JOB_CONSTRAINTS",
    "IRIS_TASK_DEFAULT_ENV_JSON",
    "IRIS_HOSTS",
    "IRIS_COORDINATOR_ADDRESS",
    "IRIS_SLICE",
    "IRIS_NUM_SLICES",
    "IRIS_SLICE_INDEX",
]
GUARDS = {
    "JAX_PLATFORMS": "cpu",
    "PJRT_DEVICE": "CPU",
    "TPU_SKIP_MDS_QUERY": "1",
    "TPU_VISIBLE_CHIPS": "",
    "CUDA_VISIBLE_DEVICES": "",
}


def env_of(
    lab: Lab, task: str, default: dict[str, str] | None = None, secrets: dict[str, str] | None = None
) -> dict[str, str]:
    place = placement_of(lab.cluster, parse_attempt_id(f"{task}/attempt-0"))
    return environment(place, default or {}, secrets or {})


def gang_of(lab: Lab, **asked: Any) -> list[dict[str, str]]:
    lab.job("g", **asked).schedule()
    return [env_of(lab, f"g/task-{index}") for index in range(lab.cluster.jobs["g"].replicas)]  # type: ignore[index]  # a JobId is a string


def chosen(env: dict[str, str], *prefixes: str) -> dict[str, str]:
    return {name: value for name, value in env.items() if name.startswith(prefixes)}


SITES: dict[str, tuple[Lab, dict[str, Any]]] = {
    "a single task": (Lab().worker("w"), {}),
    "many single tasks": (Lab().worker("w"), {"replicas": 3}),
    "a task on a slice": (Lab().slice("s", "v4-16"), {}),
    "a gang on a slice": (Lab().slice("s", "v4-16"), {"tpu": "v4-16"}),
    "a gang on two slices": (Lab().slice("s").slice("t"), {"tpu": "v4-16", "slices": 2}),
    "a gang on a rack": (
        Lab().worker("a", rack="r").worker("b", rack="r"),
        {"replicas": 2, "group_by": "rack"},
    ),
}


@pytest.mark.parametrize("site", SITES)
def test_every_variable_of_the_contract_is_always_there(site: str) -> None:
    lab, asked = SITES[site]
    for env in gang_of(lab, **asked):
        assert set(CONTRACT) <= set(env)


def test_a_single_task_is_told_all_about_itself() -> None:
    only_r = Constraint.of("rack", ConstraintOp.EQ, "r")
    lab = Lab().worker("w", rack="r", scale_group="spot").job("one", constraints=(only_r,)).schedule()
    env = env_of(lab, "one/task-0", {"HF_HOME": "/ssd"})
    port = env["IRIS_COORDINATOR_ADDRESS"].rpartition(":")[2]
    assert 20_000 <= int(port) < 30_000
    assert json.loads(env.pop("IRIS_WORKER_ATTRIBUTES")) == {
        "device-type": "cpu",
        "preemptible": "false",
        "rack": "r",
        "scale-group": "spot",
    }
    assert env == {
        "HF_HOME": "/ssd",
        "IRIS_JOB_ID": "one",
        "IRIS_TASK_ID": "one/task-0",
        "IRIS_TASK_INDEX": "0",
        "IRIS_NUM_TASKS": "1",
        "IRIS_ATTEMPT": "0",
        "IRIS_WORKER_ID": "w",
        "IRIS_SCALE_GROUP": "spot",
        "IRIS_JOB_CONSTRAINTS": constraints_to_json((only_r,)),
        "IRIS_TASK_DEFAULT_ENV_JSON": '{"HF_HOME": "/ssd"}',
        "IRIS_HOSTS": "w",
        "IRIS_COORDINATOR_ADDRESS": f"w:{port}",
        "IRIS_SLICE": "",
        "IRIS_NUM_SLICES": "1",
        "IRIS_SLICE_INDEX": "0",
    }


def test_tasks_that_are_no_gang_are_each_a_group_of_one() -> None:
    first, second = gang_of(Lab().worker("w"), replicas=2)
    assert (first["IRIS_HOSTS"], second["IRIS_HOSTS"]) == ("w", "w")
    assert first["IRIS_COORDINATOR_ADDRESS"] != second["IRIS_COORDINATOR_ADDRESS"]
    assert (second["IRIS_TASK_INDEX"], second["IRIS_NUM_TASKS"], second["IRIS_SLICE_INDEX"]) == (
        "1",
        "2",
        "0",
    )


def test_a_later_word_wins_and_nobody_overwrites_what_iris_says() -> None:
    lab = (
        Lab()
        .slice("s")
        .job("cpu", env={"A": "job", "B": "job", "JAX_PLATFORMS": "tpu", "CUDA_VISIBLE_DEVICES": "0"})
    )
    defaults = {"A": "default", "C": "default", "S": "default", "IRIS_JOB_ID": "x", "TPU_VISIBLE_CHIPS": "0"}
    env = env_of(lab.schedule(), "cpu/task-0", defaults, {"S": "secret", "PJRT_DEVICE": "TPU"})
    assert [env[name] for name in "ABCS"] == ["job", "job", "default", "secret"]
    assert env["IRIS_JOB_ID"] == "cpu"
    assert {name: env[name] for name in GUARDS} == GUARDS


@pytest.mark.parametrize(
    ("asked", "devices"),
    [
        ({}, GUARDS),
        ({"gpu": "A100:2"}, {"CUDA_VISIBLE_DEVICES": "0,1"}),
        ({"gpu": "A100", "env": {"CUDA_VISIBLE_DEVICES": "7"}}, {"CUDA_VISIBLE_DEVICES": "0"}),
    ],
    ids=["cpu", "two", "one"],
)
def test_a_task_on_a_host_with_gpus_gets_its_own_and_no_others(
    asked: dict[str, Any], devices: dict[str, str]
) -> None:
    (env,) = gang_of(Lab().worker("w", gpus=4), **asked)
    assert chosen(env, *GUARDS) == devices


def test_a_task_on_a_host_with_one_gpu_gets_this_gpu() -> None:
    (env,) = gang_of(Lab().worker("w", gpus=1), gpu="auto")
    assert env["CUDA_VISIBLE_DEVICES"] == "0"


def test_a_task_gets_the_gpus_that_slurm_granted_by_their_numbers_on_the_node() -> None:
    granted: dict[str, Any] = {"gpu-indexes": "1,3"}
    (env,) = gang_of(Lab().worker("w", gpus=2, **granted), gpu="auto:2")
    assert env["CUDA_VISIBLE_DEVICES"] == "1,3"


@pytest.mark.parametrize(
    ("device", "asked", "guards"),
    [("tpu", {}, GUARDS), ("tpu", {"tpu": "v4-8"}, {}), ("none", {}, {})],
    ids=["cpu on tpu", "tpu on tpu", "cpu on cpu"],
)
def test_a_cpu_task_keeps_its_hands_off_the_chips(
    device: str, asked: dict[str, Any], guards: dict[str, str]
) -> None:
    lab = Lab().slice("s", "v4-8") if device == "tpu" else Lab().worker("w")
    (env,) = gang_of(lab, **asked)
    assert chosen(env, *GUARDS) == guards
    assert not chosen(env, "JAX_COORDINATOR", "MEGASCALE")


def test_a_gang_on_one_slice_is_left_to_the_metadata_server_but_for_its_port() -> None:
    ranks = gang_of(Lab().slice("s"), tpu="v4-16", env={"JAX_COORDINATOR_PORT": "1"})
    for index, env in enumerate(ranks):
        assert chosen(env, "JAX", "TPU", "SLURM", "MEGASCALE", "PJRT") == {"JAX_COORDINATOR_PORT": "8476"}
        assert (env["IRIS_HOSTS"], env["IRIS_COORDINATOR_ADDRESS"]) == ("s-0,s-1", "s-0:8476")
        assert (env["IRIS_SLICE"], env["IRIS_SLICE_INDEX"], env["IRIS_TASK_INDEX"]) == ("s", "0", str(index))


def test_a_gang_on_several_slices_gets_all_that_joins_them() -> None:
    ranks = gang_of(Lab().slice("s").slice("t"), tpu="v4-16", slices=2)
    assert [env["IRIS_SLICE"] for env in ranks] == ["s", "s", "t", "t"]
    for index, env in enumerate(ranks):
        assert env["IRIS_HOSTS"] == "s-0,s-1,t-0,t-1"
        assert env["IRIS_NUM_SLICES"] == "2"
        assert env["IRIS_SLICE_INDEX"] == str(index // 2)
        assert chosen(env, "JAX", "MEGASCALE") == {
            "JAX_COORDINATOR_PORT": "8476",
            "MEGASCALE_COORDINATOR_ADDRESS": "s-0:8081",
            "MEGASCALE_PORT": "8081",
            "MEGASCALE_NUM_SLICES": "2",
            "MEGASCALE_SLICE_ID": str(index // 2),
        }


def test_a_cpu_gang_on_the_hosts_of_a_slice_is_no_tpu_gang() -> None:
    for env in gang_of(Lab().slice("s"), replicas=2, group_by="tpu-name"):
        assert chosen(env, "JAX", "MEGASCALE") == {"JAX_PLATFORMS": "cpu"}
        assert not env["IRIS_COORDINATOR_ADDRESS"].endswith(":8476")


PRESETS = {
    EnvPreset.JAX: "SLURM_JOB_ID=PORT SLURM_STEP_NODELIST=a,b SLURM_STEP_NUM_NODES=2 SLURM_NTASKS=2"
    " SLURM_PROCID=1 SLURM_LOCALID=0 JAX_COORDINATOR_ADDRESS=a:PORT",
    EnvPreset.SLURM: "SLURM_JOB_ID=PORT SLURM_STEP_NODELIST=a,b SLURM_STEP_NUM_NODES=2 SLURM_NTASKS=2"
    " SLURM_PROCID=1 SLURM_LOCALID=0 SLURM_JOB_NODELIST=a,b SLURM_NODELIST=a,b SLURM_JOB_NUM_NODES=2"
    " SLURM_NNODES=2 SLURM_JOB_NAME=g SLURM_NODEID=1 SLURM_NTASKS_PER_NODE=1",
    EnvPreset.TORCHRUN: "MASTER_ADDR=a MASTER_PORT=PORT RANK=1 GROUP_RANK=1 ROLE_RANK=1 WORLD_SIZE=2"
    " GROUP_WORLD_SIZE=2 ROLE_WORLD_SIZE=2 LOCAL_RANK=0 LOCAL_WORLD_SIZE=1",
}


@pytest.mark.parametrize("preset", PRESETS)
def test_a_preset_tells_programs_in_their_own_words_where_they_stand(preset: EnvPreset) -> None:
    lab = Lab().worker("a", rack="r").worker("b", rack="r")
    _, env = gang_of(lab, replicas=2, group_by="rack", env_preset=preset)
    port = env["IRIS_COORDINATOR_ADDRESS"].rpartition(":")[2]
    said = {name: value for name, value in env.items() if not name.startswith("IRIS_")}
    pairs = PRESETS[preset].replace("=PORT", "=" + port).replace(":PORT", ":" + port).split()
    assert said == dict(pair.split("=") for pair in pairs)


def test_what_a_job_says_itself_wins_over_a_preset() -> None:
    (env,) = gang_of(Lab().worker("w"), env_preset=EnvPreset.TORCHRUN, env={"MASTER_PORT": "29500"})
    assert chosen(env, "MASTER", "RANK", "WORLD") == {
        "MASTER_ADDR": "w",
        "MASTER_PORT": "29500",
        "RANK": "0",
        "WORLD_SIZE": "1",
    }


def test_a_preset_for_tasks_that_are_each_on_their_own_is_refused() -> None:
    with pytest.raises(UsageError, match="are independent"):
        Lab().worker("w").job("g", replicas=2, env_preset=EnvPreset.JAX)


def test_the_port_is_another_one_in_each_round_and_is_looked_at_where_somebody_will_listen() -> None:
    lab = Lab().worker("a", rack="r").worker("b", rack="r")
    lab.job("g", replicas=2, group_by="rack", max_retries_failure=1).schedule()
    first, second = (placement_of(lab.cluster, parse_attempt_id(f"g/task-{i}/attempt-0")) for i in (0, 1))
    assert (needs_coordinator_port(first), needs_coordinator_port(second)) == (True, False)
    lab.reports("g/* running").reports("g/task-0 exited 1").reports("g/task-1 stopped").schedule()
    again = placement_of(lab.cluster, parse_attempt_id("g/task-0/attempt-1"))
    assert coordinator_port(again) != coordinator_port(first)


def test_an_address_with_colons_stands_in_brackets_before_its_port() -> None:
    lab = Lab().worker("w")
    lab.hosts[next(iter(lab.hosts))].facts = _at(lab, "fd00::1")
    (env,) = gang_of(lab.configure().probe("w"), env_preset=EnvPreset.JAX)
    assert env["IRIS_HOSTS"] == "fd00::1"
    assert env["IRIS_COORDINATOR_ADDRESS"].startswith("[fd00::1]:")
    assert env["JAX_COORDINATOR_ADDRESS"] == env["IRIS_COORDINATOR_ADDRESS"]


def _at(lab: Lab, host: str) -> Any:
    from msgspec.structs import replace

    facts = next(iter(lab.hosts.values())).facts
    return replace(facts, connection=replace(facts.connection, host=host))
