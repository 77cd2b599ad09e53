"""Probes: reported facts, created files, refusals."""

from __future__ import annotations

import stat
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from iris_cli.core.ids import WorkerId
from iris_cli.core.messages.observations import ProbeReport, RemoteState, Silence, SilenceKind
from iris_cli.remote.task_runner import TaskRunner
from iris_cli.remote.transport import Target
from iris_cli.remote.worker_script import HostPaths
from tests.remote.conftest import MakeHost
from tests.support.local_transport import REQUIRED, only_tools, tools_of
from tests.support.waiting import until
from tests.support.worker_host import WorkerHost, kill, marked


def test_a_probe_makes_a_private_directory_with_an_incarnation_and_keeps_it(host: WorkerHost) -> None:
    assert stat.S_IMODE(host.root.stat().st_mode) == 0o700
    assert stat.S_IMODE((host.root / "a").stat().st_mode) == 0o700
    assert (host.root / "incarnation").read_text() == f"{host.incarnation}\n"
    assert (host.root / "spare").stat().st_size == 0
    assert sorted(path.name for path in host.root.iterdir()) == ["a", "bin", "incarnation", "spare"]
    again = host.probe()
    assert again.incarnation == host.incarnation


def test_a_probe_reports_the_hardware(host: WorkerHost) -> None:
    report = host.probe()
    memory = Path("/proc/meminfo").read_text().split()[1]
    assert report.boot_id == Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    assert report.memory == int(memory) * 1024
    assert report.cpus >= 1
    assert report.disk_free > 0
    assert report.clock > 1_600_000_000
    assert 0 < report.uptime <= float(Path("/proc/uptime").read_text().split()[0])
    assert report.warnings == ()


def test_a_probe_lists_only_attempts_that_were_not_stopped(host: WorkerHost) -> None:
    live, ended, absent = host.running("sleep", "1000"), host.launch("true"), host.request("true").token
    stopped = host.running("sleep", "1000")
    host.stop(absent)
    host.stopped(stopped)
    (host.root / "a/notes").mkdir()
    (host.root / f"a/{'Z' * 32}").touch()
    assert set(host.probe().tokens) == {live, ended}


def test_a_survey_reports_the_same_and_creates_nothing(make_host: MakeHost) -> None:
    host = make_host(remote_dir="~/deep/below")
    home = host.transport.home

    def look() -> ProbeReport:
        answer = host.runner.probe(host.target, make=False)
        assert isinstance(answer, ProbeReport), answer
        return answer

    first = look()
    assert list(home.iterdir()) == []
    assert (first.incarnation, first.warnings, first.disk_free > 0) == ("", (), True)
    probed = host.probe()
    again = look()
    assert again.incarnation == probed.incarnation
    assert (again.cpus, again.memory, again.boot_id) == (first.cpus, first.memory, first.boot_id)


def test_a_damaged_incarnation_is_refused_not_replaced(host: WorkerHost) -> None:
    (host.root / "incarnation").write_text("half of i")
    report = host.probe()
    assert report.incarnation == ""
    assert any(text.startswith("refused: ") and "remove it" in text for text in report.warnings)
    (host.root / "incarnation").unlink()
    assert len(host.probe().incarnation) == 32


def test_a_file_system_of_the_network_is_refused_before_anything_is_made(
    make_host: MakeHost, tmp_path: Path
) -> None:
    mount_point = next(
        point
        for point in [tmp_path, *tmp_path.parents]
        if any(line.split()[1] == str(point) for line in Path("/proc/self/mounts").read_text().splitlines())
    )
    for kind in ["nfs4", "cifs", "fuse.sshfs"]:
        mounts = tmp_path / "mounts"
        mounts.write_text(f"proc /proc proc rw 0 0\nserver:/home {mount_point} {kind} rw 0 0\n")
        host = make_host(name=kind, paths=HostPaths(mounts=str(mounts)))
        report = host.probe()
        assert report.incarnation == ""
        (refusal,) = report.warnings
        assert refusal.startswith(f"refused: network file system ({kind})")
        assert "set remote_dir" in refusal
        assert list((tmp_path / kind / "home").iterdir()) == []


def test_a_directory_that_cannot_be_made_is_refused(make_host: MakeHost, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    report = make_host(remote_dir=f"{tmp_path}/file/iris").probe()
    assert report.incarnation == ""
    assert report.warnings[0].startswith("refused: can't write below")


@pytest.mark.parametrize("remote_dir", ["~", "~/a b/'c'", "relative/dir", "{tmp}/abs/$HOME", "~/x/"])
def test_remote_dir_may_be_anywhere(make_host: MakeHost, tmp_path: Path, remote_dir: str) -> None:
    host = make_host(remote_dir=remote_dir.format(tmp=tmp_path))
    host.probe()
    expected = {
        "~": "host/home",
        "~/a b/'c'": "host/home/a b/'c'",
        "relative/dir": "host/home/relative/dir",
        "{tmp}/abs/$HOME": "abs/$HOME",
        "~/x/": "host/home/x",
    }[remote_dir]
    assert (tmp_path / expected / "c1/w0/incarnation").exists()
    token = host.launch("sh", "-c", "echo here; exit 5")
    report = host.wait(token)
    assert (report.exit_code, report.log_tail) == (5, "here\n")
    assert host.stopped(host.running("sleep", "1000")).state is RemoteState.STOPPED


def test_an_invalid_directory_name_is_rejected_before_sending(dash_host: WorkerHost) -> None:
    with pytest.raises(ValueError, match="directory"):
        TaskRunner(dash_host.transport, "../c1")
    odd = Target(worker=WorkerId("a/b"), connection=dash_host.target.connection)
    with pytest.raises(ValueError, match="directory"):
        dash_host.runner.poll(odd, [])


@pytest.mark.parametrize("chips", [("accel0", "accel1"), ("vfio/0", "vfio/1", "vfio/2")])
def test_chips_are_counted_by_their_devices(
    make_host: MakeHost, tmp_path: Path, chips: tuple[str, ...]
) -> None:
    for name in ("vfio/vfio", "accelerator", *chips):
        (tmp_path / "dev" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "dev" / name).touch()
    paths = HostPaths(dev=str(tmp_path / "dev"), sys=str(tmp_path / "no-bus"))
    assert make_host(paths=paths).probe().chips == len(chips)


def bus(directory: Path, *devices: tuple[str, str]) -> None:
    for number, (vendor, device) in enumerate(devices):
        path = directory / f"bus/pci/devices/0000:00:0{number}.0"
        path.mkdir(parents=True)
        (path / "vendor").write_text(f"{vendor}\n")
        (path / "device").write_text(f"{device}\n")


def test_without_device_files_chips_are_counted_on_the_bus_without_network_cards(
    make_host: MakeHost, tmp_path: Path
) -> None:
    bus(
        tmp_path / "sys",
        ("0x1ae0", "0x0063"),
        ("0x1ae0", "0x0063"),
        ("0x1ae0", "0x0042"),
        ("0x8086", "0x0063"),
    )
    paths = HostPaths(dev=str(tmp_path / "dev"), sys=str(tmp_path / "sys"))
    assert make_host(paths=paths).probe().chips == 2


def test_devices_handed_to_virtual_machines_are_no_chips(make_host: MakeHost, tmp_path: Path) -> None:
    (tmp_path / "dev/vfio").mkdir(parents=True)
    (tmp_path / "dev/vfio/12").touch()
    bus(tmp_path / "sys", ("0x10de", "0x2330"))
    paths = HostPaths(dev=str(tmp_path / "dev"), sys=str(tmp_path / "sys"))
    assert make_host(paths=paths).probe().chips == 0


def probed(host: WorkerHost) -> ProbeReport:
    """Return the report of a probe; repeat it if the metadata server was too slow."""
    while "slow to answer" in str((report := host.probe()).warnings):
        pass
    return report


TPU: Mapping[str, str] = {
    "attributes/accelerator-type": "v5litepod-16",
    "attributes/agent-worker-number": "3",
    "attributes/instance-id": "v5e-a",
    "attributes/worker-network-endpoints": "10.0.0.1,10.0.0.2",
    "zone": "projects/1/zones/us-west4-a",
    "scheduling/preemptible": "TRUE",
}


@pytest.mark.parametrize(
    ("client", "variable"),
    [("curl", "GCE_METADATA_HOST"), ("wget", "GCE_METADATA_IP"), ("python3", "GCE_METADATA_HOST")],
)
def test_the_metadata_server_is_asked_with_whatever_the_host_has(
    make_host: MakeHost, tmp_path: Path, metadata: tuple[str, dict[str, str]], client: str, variable: str
) -> None:
    address, said = metadata
    said.update(TPU)
    tools = only_tools("dash", tmp_path / "tools", [*REQUIRED, "setsid"])
    program = (
        f"{sys.executable} -S"
        if client == "python3"
        else only_tools("dash", tmp_path / "one", [client]) / client
    )
    (tools / client).write_text(f'#!/bin/sh\nexec {program} "$@"\n')
    (tools / client).chmod(0o755)
    env = {"PATH": str(tools), variable: address, "http_proxy": "http://127.0.0.1:9"}
    host = make_host(tools=tools, env=env)
    assert dict(probed(host).metadata) == {
        "accelerator-type": "v5litepod-16",
        "agent-worker-number": "3",
        "instance-id": "v5e-a",
        "worker-network-endpoints": "10.0.0.1,10.0.0.2",
        "zone": "us-west4-a",
        "preemptible": "true",
    }


def test_a_missing_worker_id_stays_missing(make_host: MakeHost, metadata: tuple[str, dict[str, str]]) -> None:
    address, said = metadata
    said.update(TPU)
    for blank in ("", "  \n", None):
        said.pop("attributes/agent-worker-number", None)
        if blank is not None:
            said["attributes/agent-worker-number"] = blank
        found = dict(probed(make_host(env={"GCE_METADATA_HOST": address})).metadata)
        assert "agent-worker-number" not in found
        assert found["accelerator-type"] == "v5litepod-16"


def test_hostile_metadata_does_not_break_the_answer(
    make_host: MakeHost, metadata: tuple[str, dict[str, str]]
) -> None:
    address, said = metadata
    hostile = "x'\"$(touch pwned)`id`\n\x1b[31mIRIS1 " + "0" * 32 + " END 0\nP cpus 99999\n\u2028é"
    said.update(dict.fromkeys(TPU, hostile))
    said["attributes/tpu-env"] = "ZONE: 'z" + "y" * 100_000
    host = make_host(env={"GCE_METADATA_HOST": address})
    report = probed(host)
    assert report.cpus < 99999
    assert dict(report.metadata)["instance-id"] == hostile
    assert not (host.transport.home / "pwned").exists()


def test_a_host_outside_google_cloud_queries_no_metadata_server(make_host: MakeHost, tmp_path: Path) -> None:
    tools = tools_of("dash", tmp_path / "tools")
    for name in ("curl", "wget"):
        (tools / name).write_text(f"#!/bin/sh\ntouch {tmp_path}/asked\n")
        (tools / name).chmod(0o755)
    product = tmp_path / "sys/class/dmi/id/product_name"
    product.parent.mkdir(parents=True)
    product.write_text("Some Laptop\n")
    host = make_host(tools=tools, paths=HostPaths(sys=str(tmp_path / "sys")), env={"IRIS_METADATA": "x"})
    assert host.probe().metadata == ()
    assert not (tmp_path / "asked").exists()
    product.write_text("Google Compute Engine\n")
    host.probe()
    assert (tmp_path / "asked").exists()


def test_a_host_whose_grep_cannot_search_environments_is_refused(make_host: MakeHost, tmp_path: Path) -> None:
    tools = tools_of("dash", tmp_path / "tools")
    (tools / "grep").write_text("#!/bin/sh\nexit 1\n")
    (tools / "grep").chmod(0o755)
    host = make_host(tools=tools)
    assert any(text.startswith("refused: grep") for text in host.probe().warnings)
    # Its attempts do not count as ended, although no process can be found.
    token = host.running("sleep", "1000")
    for pid in [host.wrapper(token), *marked(token)]:
        kill(pid)
    until(lambda: not marked(token))
    assert host.state(token) is RemoteState.ORPHANED


def test_a_failed_shell_is_a_silence_with_a_hint(make_host: MakeHost, tmp_path: Path) -> None:
    tools = tmp_path / "tools"
    tools.mkdir()
    (tools / "sh").write_text("#!/bin/sh\necho 'This account is \033[31mnot available.' >&2\nexit 1\n")
    (tools / "sh").chmod(0o755)
    host = make_host(tools=tools)
    answer = host.runner.probe(host.target)
    assert isinstance(answer, Silence)
    assert answer.kind is SilenceKind.PROTOCOL
    assert "not available" in answer.detail
    assert "\x1b" not in answer.detail
    assert "login shell" in answer.hint


def test_an_unusual_session_environment_is_harmless(make_host: MakeHost, host_shell: str) -> None:
    odd = {"CDPATH": "/:/tmp", "IFS": "/0123456789", "SHELLOPTS": "nounset:noglob", "LC_ALL": "tr_TR.UTF-8"}
    odd |= {
        "spare": "x",
        "started": "y",
        "no_room": "z",
        "lacks": " od",
        "count": "7",
        "POSIXLY_CORRECT": "1",
        "GREP_OPTIONS": "-v",
    }
    host = make_host(host_shell, env=odd)
    host.probe()
    report = host.ended("sh", "-c", "exit 3")
    assert (report.state, report.exit_code) == (RemoteState.EXITED, 3)
    assert host.stopped(host.running("sleep", "1000")).state is RemoteState.STOPPED


LOGIND = {
    "nothing said": ({"etc/systemd/logind.conf": "[Login]\n#KillUserProcesses=yes\n"}, False),
    "said": ({"etc/systemd/logind.conf": "[Login]\nKillUserProcesses=yes\n"}, True),
    "said with blanks, at the end": ({"etc/systemd/logind.conf": "[Login]\nKillUserProcesses = true"}, True),
    "beside": ({"etc/systemd/logind.conf.d/10-kill.conf": "[Login]\nKillUserProcesses=1\n"}, True),
    "by the vendor": ({"usr/lib/systemd/logind.conf.d/a.conf": "[Login]\nKillUserProcesses=on\n"}, True),
    "taken back": (
        {
            "usr/lib/systemd/logind.conf": "[Login]\nKillUserProcesses=yes\n",
            "etc/systemd/logind.conf": "[Login]\nKillUserProcesses=no\n",
        },
        False,
    ),
    "not for us": (
        {"etc/systemd/logind.conf": "[Login]\nKillUserProcesses=yes\nKillExcludeUsers=root ann\n"},
        False,
    ),
    "for others only": (
        {"etc/systemd/logind.conf": "[Login]\nKillUserProcesses=yes\nKillOnlyUsers=bob\n"},
        False,
    ),
    "for us only": (
        {"etc/systemd/logind.conf": "[Login]\nKillUserProcesses=yes\nKillOnlyUsers=bob ann\n"},
        True,
    ),
}


def test_a_logind_that_ends_tasks_causes_a_warning_with_the_fix(
    make_host: MakeHost, tmp_path: Path, host_shell: str
) -> None:
    for name, (files, warns) in LOGIND.items():
        root = tmp_path / name
        (root / "run/systemd/sessions").mkdir(parents=True)
        for path, text in files.items():
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            (root / path).write_text(text)
        host = make_host(
            host_shell, name=f"host {name}", paths=HostPaths(root=str(root)), env={"USER": "ann"}
        )
        warnings = host.probe().warnings
        assert len(warnings) == warns, (name, warnings)
        assert all("KillExcludeUsers=root ann" in text for text in warnings)


def test_without_logind_its_configuration_is_ignored(make_host: MakeHost, tmp_path: Path) -> None:
    (tmp_path / "root/etc/systemd").mkdir(parents=True)
    (tmp_path / "root/etc/systemd/logind.conf").write_text("[Login]\nKillUserProcesses=yes\n")
    host = make_host(paths=HostPaths(root=str(tmp_path / "root")), env={"USER": "ann"})
    assert host.probe().warnings == ()


def test_an_unreadable_boot_id_is_not_replaced_by_the_boot_time(make_host: MakeHost, tmp_path: Path) -> None:
    proc = tmp_path / "proc"
    (proc / "sys/kernel/random/boot_id").mkdir(parents=True)
    (proc / "self").symlink_to("/proc/self")
    for name in ("uptime", "meminfo", "cpuinfo", "mounts"):
        (proc / name).symlink_to(f"/proc/{name}")
    (proc / "stat").write_text("btime 1700000000\n")
    host = make_host("dash", paths=HostPaths(proc=str(proc)))
    assert host.probe().boot_id == ""
