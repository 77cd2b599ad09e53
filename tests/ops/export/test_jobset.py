"""What a job becomes as a JobSet."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from iris_cli.errors import UsageError
from iris_cli.ops.export.counterparts import Engine
from iris_cli.ops.export.export import export
from iris_cli.ops.export.gke_tpu import gke_types
from iris_cli.ops.export.jobset import job_set
from iris_cli.ops.export.pod_script import MAX_LENGTH, dns_label
from tests.ops.export.exporting import (
    child,
    container,
    document,
    expanded,
    lost,
    source,
    to_jobset,
    validator,
)


def test_a_gang_on_each_of_the_349_tpu_types_is_valid_and_asks_for_its_nodes(tmp_path: Path) -> None:
    """As values: the text of one says the same. To write and read all of them as YAML takes long."""
    for tpu in gke_types().values():
        job = source(tmp_path, tpu=tpu.name, slices=2, max_retries_failure=3)
        found, _ = job_set(job, "tpus")
        validator().validate(found)
        pod = child(found)["template"]["spec"]
        assert found["metadata"]["labels"] == {"kueue.x-k8s.io/queue-name": "tpus"}
        topology = found["metadata"]["annotations"]["alpha.jobset.sigs.k8s.io/exclusive-topology"]
        assert topology == "cloud.google.com/gke-nodepool"
        assert found["spec"]["failurePolicy"]["maxRestarts"] == 3
        assert found["spec"]["replicatedJobs"][0]["replicas"] == 2
        shape = (child(found)["parallelism"], child(found)["completions"], child(found)["backoffLimit"])
        assert shape == (tpu.vms, tpu.vms, 0)
        assert pod["nodeSelector"] == {
            "cloud.google.com/gke-tpu-accelerator": tpu.accelerator,
            "cloud.google.com/gke-tpu-topology": tpu.topology,
        }
        assert container(found)["resources"]["limits"] == {"google.com/tpu": tpu.chips_per_vm}
    assert document(export(job, Engine.JOBSET, queue="tpus")) == found


def test_a_type_of_another_shape_on_gke_is_told(tmp_path: Path) -> None:
    exported = to_jobset(tmp_path, tpu="v5e-8")
    assert child(document(exported))["completions"] == 2
    [note] = exported.notes
    assert note.text == (
        "v5litepod-8 (8 chips, 1 VM) is 2 pods with 4 chips each on GKE: IRIS_NUM_TASKS is 2, not 1"
    )
    with pytest.raises(UsageError, match="its tasks are independent, but each needs a slice of 2 VMs"):
        to_jobset(tmp_path, tpu="v6e-8", replicas=3)


def test_a_job_without_a_type_that_gke_has_is_refused(tmp_path: Path) -> None:
    for tpu, message in (("v3-32", "GKE has no TPU type v3-32"), ("auto", "a JobSet needs a TPU type")):
        with pytest.raises(UsageError, match=message):
            to_jobset(tmp_path, tpu=tpu)


def test_everything_that_has_a_counterpart_is_there(tmp_path: Path) -> None:
    exported = to_jobset(
        tmp_path,
        replicas=4,
        coscheduling={"group_by": "zone"},
        timeout="90.5s",
        grace="2m",
        cpu=1.5,
        memory="2GiB",
        gpu="auto:4",
        tolerate=["slow"],
        labels={"team": "a", "odd label": "x y"},
        secrets=["TOKEN"],
        constraints=["region in us-west4,us-east1", "zone!=us-west4-b", "preemptible=true"],
    )
    found = document(exported)
    pod = child(found)["template"]["spec"]
    assert lost(exported) == ["coscheduling"]
    assert child(found)["activeDeadlineSeconds"] == 91
    assert pod["terminationGracePeriodSeconds"] == 120
    assert pod["tolerations"] == [{"key": "slow", "operator": "Exists"}]
    assert container(found)["resources"] == {
        "requests": {"cpu": "1500m", "memory": "2147483648", "nvidia.com/gpu": 4},
        "limits": {"nvidia.com/gpu": 4},
    }
    assert found["metadata"]["labels"] == {"team": "a"}
    assert found["metadata"]["annotations"]["iris/labels"] == '{"team": "a", "odd label": "x y"}'
    secret = {"name": "train-secrets", "key": "TOKEN"}
    assert {"name": "TOKEN", "valueFrom": {"secretKeyRef": secret}} in container(found)["env"]
    affinity = pod["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    assert affinity["nodeSelectorTerms"][0]["matchExpressions"] == [
        {"key": "topology.kubernetes.io/region", "operator": "In", "values": ["us-west4", "us-east1"]},
        {"key": "topology.kubernetes.io/zone", "operator": "NotIn", "values": ["us-west4-b"]},
        {"key": "cloud.google.com/gke-spot", "operator": "In", "values": ["true"]},
    ]
    rules = {rule["action"]: rule["onJobFailureReasons"] for rule in found["spec"]["failurePolicy"]["rules"]}
    assert rules == {
        "FailJobSet": ["DeadlineExceeded"],
        "RestartJobSetAndIgnoreMaxRestarts": ["PodFailurePolicy"],
    }


def test_tasks_on_their_own_are_one_child_job_whose_pods_are_retried_one_by_one(tmp_path: Path) -> None:
    exported = to_jobset(tmp_path, array="0-9%4", max_retries_failure=2, timeout="1h")
    found = document(exported)
    spec = child(found)
    assert (spec["completions"], spec["parallelism"], spec["backoffLimitPerIndex"]) == (10, 4, 2)
    assert "backoffLimit" not in spec
    assert "maxFailedIndexes" not in spec
    assert spec["podFailurePolicy"]["rules"][0]["action"] == "Ignore"
    assert spec["template"]["spec"]["activeDeadlineSeconds"] == 3600
    assert lost(exported) == ["timeout"]
    failing = document(to_jobset(tmp_path, replicas=3, max_task_failures=1))
    assert child(failing)["maxFailedIndexes"] == 1


def test_an_export_without_an_image_can_not_start_by_mistake(tmp_path: Path) -> None:
    exported = to_jobset(tmp_path, image=None)
    assert container(document(exported))["image"] == "IMAGE"
    assert lost(exported) == ["image"]


_NAMES = st.text(st.sampled_from("abAB01._-/"), min_size=1, max_size=70)


@given(st.lists(_NAMES, min_size=2, max_size=6, unique=True))
def test_any_names_of_jobs_become_as_many_dns_labels(names: list[str]) -> None:
    labels = [dns_label(name) for name in names]
    assert len(set(labels)) == len(names)
    for label in labels:
        assert len(label) <= MAX_LENGTH
        assert label[0] in "abcdefghijklmnopqrstuvwxyz"
        assert label[-1] != "-"
        assert not label.strip("abcdefghijklmnopqrstuvwxyz0123456789-")


def test_a_name_that_looks_like_a_changed_one_is_changed_too() -> None:
    changed = dns_label("Train")
    assert changed.startswith("train-")
    assert len({"train", dns_label("train"), changed, dns_label(changed)}) == 3


@pytest.mark.parametrize(
    "name", ["Train_1", "0", "a" * 63, "a" * 40 + "." * 23, "no", "1e3", "Z..-_Q", "x-0"]
)
def test_hostile_names_stay_valid(name: str, tmp_path: Path) -> None:
    found = document(to_jobset(tmp_path, name=name, tpu="v4-1024", slices=3))
    label = found["metadata"]["name"]
    assert label == found["spec"]["network"]["subdomain"] == dns_label(name)
    assert found["metadata"]["annotations"]["iris/job"] == name
    assert len(f"{label}-{found['spec']['replicatedJobs'][0]['name']}-9999-9999-abcde") <= 63


_HOSTILE = (
    *(
        "",
        "no",
        "017",
        "1e3",
        "0x1f",
        "~",
        "12:30:45",
        "=",
        "<<",
        "y",
        "null",
        "- a",
        "a: b",
        "#x",
        "{}",
        "*x",
    ),
    *(
        "on\n# lost: a\n",
        " a\n b",
        "\u2028x\u0085",
        "\x1b[31m\r\n\t",
        "é\n\U0001f600",
        "a\\\n",
        "%YAML",
        "---",
        "...",
    ),
    *("$", "$$", "$$$", "$(X)", "$$(X)", "$$$(X)", "$(X", "$X ${X} $((1))", "x" * 300 + " y" * 300),
)


def test_hostile_text_arrives_as_it_is_and_never_as_yaml(tmp_path: Path) -> None:
    job = source(tmp_path, setup="true")
    told = {f"V{number}": text for number, text in enumerate(_HOSTILE)}
    hostile = structs.replace(job.job, command=("true", *_HOSTILE), env=told, setup="\n".join(_HOSTILE))
    exported = export(structs.replace(job, job=hostile), Engine.JOBSET, image="img")
    assert exported.text.isascii()
    assert all(letter.isprintable() or letter == "\n" for letter in exported.text)
    found = container(document(exported))
    env = {each["name"]: expanded(each["value"], {"X": "wrong"}) for each in found["env"] if "value" in each}
    assert {name: env[name] for name in told} == told
    arguments = [expanded(word, {"X": "wrong"}) for word in found["args"]]
    assert arguments == ["\n".join(_HOSTILE), "true", *_HOSTILE]


def test_a_queue_or_an_image_that_can_not_exist_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="is not the name of a LocalQueue"):
        to_jobset(tmp_path, queue="Q\nx")
    with pytest.raises(UsageError, match="can't be the name of an image"):
        to_jobset(tmp_path, image="a b")
