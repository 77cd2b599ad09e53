"""What `cluster.yaml` means: slices become workers, settings are inherited, the rest has defaults."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from iris_cli.config.load import load_cluster_config
from iris_cli.config.schema import ClusterConfig, HostConfig, Mode, Notify
from iris_cli.core.attributes import AttributeValue
from iris_cli.core.model.job import JobRequest, Priority, ReplaceLost
from iris_cli.core.model.limits import Limits
from iris_cli.core.model.slice import Addresses, GcpOptions, Provider, SliceTemplate
from iris_cli.core.model.worker import Connection
from iris_cli.core.resources import Device
from iris_cli.errors import ConfigError

VALID = Path(__file__).parent / "valid" / "cluster"
EXAMPLE = Path(__file__).parents[2] / "cluster.example.yaml"

Load = Callable[[str], ClusterConfig]


@pytest.fixture
def load(tmp_path: Path) -> Load:
    def write_and_load(text: str) -> ClusterConfig:
        (tmp_path / "cluster.yaml").write_text(text)
        return load_cluster_config(tmp_path / "cluster.yaml")

    return write_and_load


def host(config: ClusterConfig, worker: str) -> HostConfig:
    return next(each for each in config.hosts if each.worker == worker)


def raw(config: ClusterConfig, worker: str) -> dict[str, Any]:
    return {key: value.value for key, value in host(config, worker).attributes.items()}


def test_the_example_shows_every_host_and_states_the_defaults() -> None:
    config = load_cluster_config(EXAMPLE)
    assert [each.worker for each in config.hosts] == [
        *(f"v4a-{n}" for n in range(4)),
        *(f"v5e-spot-{n}" for n in range(4)),
        "cpu-0",
        "gpu-0",
        "v6e-solo",
    ]
    assert config.limits == Limits()
    assert config.replace_lost is ReplaceLost.PREEMPTIBLE
    assert (config.loop, config.autoscale) == (Mode.AUTO, Mode.OFF)
    script = 'notify-send iris "$IRIS_JOB_ID $IRIS_STATE $IRIS_REASON"'
    assert config.notify == Notify(command=("sh", "-c", script), webhook="https://hooks.example.org/iris")


def test_the_example_names_every_limit() -> None:
    limits = EXAMPLE.read_text().partition("\nlimits:\n")[2].partition("\n\n")[0]
    named = {line.split(":")[0].strip() for line in limits.splitlines()}
    assert {*named, "silent_after"} == set(Limits.__struct_fields__)  # it has a key of its own
    assert load_cluster_config(EXAMPLE).limits.silent_after == Limits().silent_after


def test_a_member_of_a_slice_declares_its_slice_its_index_and_its_type() -> None:
    config = load_cluster_config(EXAMPLE)
    assert raw(config, "v5e-spot-2") == {
        "tpu-name": "v5e-spot",
        "tpu-worker-id": 2,
        "tpu-topology": "v5litepod-16",
        "tpu-vm-count": 4,
        "device-type": "tpu",
        "device-variant": "v5litepod-16",
        "zone": "us-west4-a",
        "region": "us-west4",
        "preemptible": "true",
        "taint:experimental": "true",
    }
    member = host(config, "v5e-spot-2")
    assert (member.slice, member.device) == ("v5e-spot", Device("tpu", "v5litepod-16"))
    assert member.connection.host == "v5e-spot-w-2"
    assert member.connection.user == "ubuntu"
    assert member.replace_lost is ReplaceLost.ALWAYS


def test_a_tpu_of_one_vm_is_a_slice_of_its_own() -> None:
    config = load_cluster_config(EXAMPLE)
    solo = host(config, "v6e-solo")
    assert solo.slice == "v6e-solo"
    assert raw(config, "v6e-solo")["tpu-worker-id"] == 0


def test_omitted_settings_are_left_to_the_probe(load: Load) -> None:
    only = load("workers: [{id: w, host: h}]").hosts[0]
    assert only == HostConfig(worker=only.worker, connection=Connection(host="h"))
    assert only.attributes == {}
    assert (only.cpu, only.memory, only.device, only.slice) == (None, None, None, None)


def test_what_is_written_is_declared() -> None:
    config = load_cluster_config(EXAMPLE)
    assert (host(config, "cpu-0").cpu, host(config, "cpu-0").memory) == (16.0, 64 * 10**9)
    assert host(config, "gpu-0").device == Device("gpu", "h100", 8)
    assert raw(config, "gpu-0") == {"device-type": "gpu", "device-variant": "h100", "rack": 7}
    assert host(config, "gpu-0").connection.remote_dir == "/scratch/iris"


def test_gpus_of_any_model_leave_the_model_to_the_probe(load: Load) -> None:
    config = load("workers: [{id: w, host: h, gpu: 4}]")
    assert config.hosts[0].device == Device("gpu", "auto", 4)
    assert raw(config, "w") == {"device-type": "gpu"}


def test_settings_are_inherited_from_the_cluster_to_the_slice_to_the_worker() -> None:
    config = load_cluster_config(VALID / "everything-inherits.yaml")
    plain, flat, block = config.hosts
    assert plain.connection == Connection(
        host="a", user="top", port=2200, known_hosts="accept-new", remote_dir="/scratch/iris"
    )
    assert (flat.connection.user, flat.connection.port) == ("slice", 22)
    assert (block.connection.user, block.connection.proxy_jump) == ("flat-wins", "me@bastion:22,other")
    assert (block.connection.port, block.connection.remote_dir) == (2200, "~/elsewhere")
    assert [each.replace_lost for each in config.hosts] == [
        ReplaceLost.NEVER,
        ReplaceLost.ALWAYS,
        ReplaceLost.NEVER,
    ]
    assert plain.env == {"LEVEL": "defaults", "BENEATH": "1"}
    assert flat.env == {"LEVEL": "slice", "BENEATH": "1"}


def test_keys_are_found_at_home_or_beside_the_file(
    load: Load, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", "/home/me")
    config = load(
        "ssh: {key: ~/.ssh/id}\nworkers:\n  - {id: a, host: a}\n  - {id: b, host: b, key: keys/id}\n"
    )
    assert [each.connection.key for each in config.hosts] == ["/home/me/.ssh/id", str(tmp_path / "keys/id")]


@pytest.mark.parametrize(
    ("hosts", "names"),
    [
        ("h-[0-3]", ["h-0", "h-1", "h-2", "h-3"]),
        ("h-[08-11].lab", ["h-08.lab", "h-09.lab", "h-10.lab", "h-11.lab"]),
        ("r[1-2]-[0-1]", ["r1-0", "r1-1", "r2-0", "r2-1"]),
        ("['x', 'h-[1-2]', 'y']", ["x", "h-1", "h-2", "y"]),
        ("\n      - h-[0-1]\n      - 10.0.0.[2-3]", ["h-0", "h-1", "10.0.0.2", "10.0.0.3"]),
    ],
)
def test_ranges_of_hosts_are_expanded_in_order(load: Load, hosts: str, names: list[str]) -> None:
    config = load(f"slices:\n  - name: s\n    type: v5e-16\n    hosts: {hosts}\n")
    assert [each.connection.host for each in config.hosts] == names
    assert [each.worker for each in config.hosts] == ["s-0", "s-1", "s-2", "s-3"]


def test_words_that_only_look_like_other_types_stay_text() -> None:
    config = load_cluster_config(VALID / "text-that-looks-like-something-else.yaml")
    assert (config.hosts[0].worker, config.hosts[0].connection.host) == ("no", "on")
    words = ["no", "on", "017", "12:30:45", "2026-11-20", "0x10", "1_000", "off", "y", ".inf", ".nan"]
    assert raw(config, "no") == dict(zip("abcdefghijk", words, strict=True))
    assert config.hosts[0].env == {
        "NO": "no",
        "VERSION": "1.10",
        "OCTAL": "017",
        "FLAG": "true",
        "NUMBER": "8",
    }


def test_the_type_of_an_attribute_is_the_one_that_is_written(load: Load) -> None:
    config = load("workers: [{id: w, host: h, attributes: {a: 1, b: '1', c: 1.0, d: true, e: -2}}]")
    assert raw(config, "w") == {"a": 1, "b": "1", "c": 1.0, "d": "true", "e": -2}
    assert [type(value) for value in raw(config, "w").values()] == [int, str, float, str, int]


def test_the_region_follows_the_zone_and_preemptible_only_what_is_said(load: Load) -> None:
    config = load(
        "workers:\n"
        "  - {id: zoned, host: a, zone: us-west4-a}\n"
        "  - {id: rack, host: b, zone: basement}\n"
        "  - {id: own, host: c, region: lab, attributes: {preemptible: true}}\n"
    )
    assert raw(config, "zoned") == {"zone": "us-west4-a", "region": "us-west4"}
    assert raw(config, "rack") == {"zone": "basement"}
    assert raw(config, "own") == {"region": "lab", "preemptible": "true"}


def test_an_unknown_type_is_taken_as_it_is_with_a_warning(load: Load) -> None:
    config = load("slices: [{name: s, type: v9x-64, hosts: 'h-[0-7]'}]")
    assert raw(config, "s-7")["tpu-vm-count"] == 8
    assert len(config.warnings) == 1
    assert "slices[0].hosts: TPU type v9x-64 is unknown" in config.warnings[0]
    assert load("slices: [{name: s, type: v9x-64, hosts: [h]}]").warnings[0].endswith("assuming 1 VM")


def test_a_near_miss_among_regions_is_a_warning(load: Load) -> None:
    config = load("workers: [{id: a, host: a, region: us-west4}, {id: b, host: b, region: US-West4}]")
    assert len(config.warnings) == 1
    assert "'US-West4' differs from 'us-west4' only in case" in config.warnings[0]


def test_a_cluster_without_workers_is_a_warning(load: Load) -> None:
    assert "no hosts yet" in load("cluster: {name: lab}").warnings[0]


def test_durations_of_limits_take_any_form(load: Load) -> None:
    limits = load("limits: {worker_lost_after: 20m, settle_seconds: 90, gang_reserve_after: 0}").limits
    assert limits == Limits(worker_lost_after=1200.0, settle_seconds=90.0, gang_reserve_after=0.0)


def test_the_loop_and_the_autoscaler_are_switched_on_and_off(load: Load) -> None:
    assert (load("loop: off").loop, load("loop: auto").loop, load("{}").loop) == (
        Mode.OFF,
        Mode.AUTO,
        Mode.AUTO,
    )
    groups = "scale_groups: [{name: g, max_slices: 1, slice_template: {provider: manual, type: v4-32}}]"
    assert [load(f"{text}\n{groups}").scales for text in ("autoscale: auto", "autoscale: off", "")] == [
        True,
        False,
        False,
    ]
    assert not load("autoscale: auto").scales


def test_output_is_kept_for_two_weeks_or_as_long_as_is_said(load: Load) -> None:
    assert load("limits: {}").limits.reap_after == 14 * 86400
    assert [load(f"limits: {{reap_after: {text}}}").limits.reap_after for text in ("2d", "0")] == [172800, 0]


def test_defaults_of_jobs_and_of_their_environment(load: Load) -> None:
    defaults = load("defaults: {cpu: 2, memory: 4GiB, grace: 1m, priority: high, env: {A: x}}").defaults
    assert defaults.job == JobRequest(cpu=2.0, memory_default=4 << 30, grace=60.0, priority=Priority.HIGH)
    assert defaults.env == {"A": "x"}


def test_a_default_of_tolerated_failures_is_kept_apart_from_that_of_a_job(load: Load) -> None:
    assert load("defaults: {max_task_failures: 2}").defaults.job == JobRequest(max_task_failures_default=2)


def test_a_scale_group_says_what_its_workers_will_be() -> None:
    group = load_cluster_config(EXAMPLE).scale_groups[0]
    assert (group.name, group.min_slices, group.max_slices, group.priority) == ("v5e-west", 0, 4, 10)
    assert group.idle_timeout == 600
    assert group.template == SliceTemplate(
        provider=Provider.GCP,
        type="v5litepod-16",
        project="my-project",
        zone="us-west4-a",
        runtime="v2-alpha-tpuv5-lite",
        preemptible=True,
    )
    assert {key: value.value for key, value in group.attributes.items()} == {
        "scale-group": "v5e-west",
        "region": "us-west4",
        "zone": "us-west4-a",
        "preemptible": "true",
        "device-type": "tpu",
        "device-variant": "v5litepod-16",
        "tpu-topology": "v5litepod-16",
        "tpu-vm-count": 4,
    }
    assert group.env == {"PYTHONUNBUFFERED": "1", "BUCKET": "gs://west"}


def test_a_scale_group_fills_in_region_and_preemptible_from_its_template(load: Load) -> None:
    template = "slice_template: {provider: manual, type: v5e-16, zone: us-west4-a}"
    group = load(f"scale_groups: [{{name: g, {template}}}]").scale_groups[0]
    assert group.attributes["region"] == AttributeValue("us-west4")
    assert group.attributes["preemptible"] == AttributeValue("false")


def test_a_group_of_googles_says_how_its_slices_are_asked_for() -> None:
    spot, reserved = [
        group.template for group in load_cluster_config(VALID / "gcp-templates.yaml").scale_groups
    ]
    assert (spot.preemptible, spot.gcp) == (True, GcpOptions(spot=True, queued=True))
    assert (reserved.type, reserved.preemptible) == ("v5p-32", False)
    assert reserved.gcp == GcpOptions(
        topology="2x2x4",
        reserved=True,
        reservation="projects/lab/locations/us-east5-a/reservations/ours",
        queued=True,
        addresses=Addresses.INTERNAL,
        network="projects/lab/global/networks/lab",
        subnetwork="tpus",
        service_account="runner@lab.iam.gserviceaccount.com",
        tags=("ssh",),
        labels={"team": "vision", "cost-centre": "7"},
    )


def test_the_fingerprint_changes_with_what_lies_over_the_probe_and_with_nothing_else(load: Load) -> None:
    def fingerprint(more: str) -> str:
        return load(f"workers: [{{id: w, host: h{more}}}]").hosts[0].fingerprint

    plain = fingerprint("")
    assert fingerprint(", env: {A: x}, replace_lost: always") == plain
    changes = [
        ", cpu: 4",
        ", memory: 4GB",
        ", gpu: 1",
        ", attributes: {a: 1}",
        ", attributes: {a: '1'}",
        ", port: 23",
    ]
    assert len({plain, *map(fingerprint, changes)}) == len(changes) + 1
    assert fingerprint(", attributes: {a: 1, b: 2}") == fingerprint(", attributes: {b: 2, a: 1}")


def test_hosts_of_a_slice_may_have_ports_and_ssh_keys_of_their_own(load: Load) -> None:
    config = load(
        "slices:\n"
        "  - name: a\n"
        "    type: v4-32\n"
        "    port: 2200\n"
        "    hosts: ['10.0.0.[1-2]:2201', {host: '10.0.0.3', user: eve}, 'fd00::4']\n"
    )
    ways = [(each.connection.host, each.connection.port, each.connection.user) for each in config.hosts]
    assert ways == [
        ("10.0.0.1", 2201, ""),
        ("10.0.0.2", 2201, ""),
        ("10.0.0.3", 2200, "eve"),
        ("fd00::4", 2200, ""),
    ]


def test_a_single_worker_may_have_a_port_too(load: Load) -> None:
    config = load("workers:\n  - {id: a, host: '10.0.0.1:2201'}\n")
    assert (config.hosts[0].connection.host, config.hosts[0].connection.port) == ("10.0.0.1", 2201)


def test_a_port_that_cannot_be_is_a_problem(load: Load) -> None:
    with pytest.raises(ConfigError) as caught:
        load("slices:\n  - {name: a, type: v4-8, hosts: ['10.0.0.1:70000']}\n")
    assert "port 70000" in caught.value.problems[0]


def test_attributes_win_over_labels_that_an_import_wrote(load: Load) -> None:
    said = "labels: {pool: theirs, team: 7}, attributes: {pool: ours}"
    config = load(
        f"slices: [{{name: a, type: v4-8, hosts: h, {said}}}]\nworkers: [{{id: w, host: i, {said}}}]\n"
    )
    for worker in ("a-0", "w"):
        assert {key: raw(config, worker)[key] for key in ("pool", "team")} == {"pool": "ours", "team": 7}
