"""From nothing to a cluster, and what keeps it going."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from iris_cli.core.autoscaling.routing import RoutingDecision
from iris_cli.core.autoscaling.scaling import ScalingPlan
from iris_cli.core.events.events import SlicesAdopted
from iris_cli.core.lifecycle.slices import OwnerConflict
from iris_cli.journal.state_dir import StateDir
from iris_cli.ops.autoscale import Autoscaled
from iris_cli.ops.checks.findings import failure
from iris_cli.ops.views.scaling_rows import NO_SCALING
from iris_cli.ops.views.view import CycleAge
from iris_cli.render import cycles, slices
from iris_cli.render.console import Output
from tests.render.pictures.picture import Picture, Show
from tests.render.stage import Stage

_SAMPLES = Path(__file__).parents[2] / "cli" / "cluster_import" / "samples"
_GROUPS = """cluster: {name: lab}
scale_groups:
  - name: west
    max_slices: 2
    slice_template: {provider: local, zone: us-west4-a, type: v5litepod-16, preemptible: true}
  - name: east
    slice_template: {provider: manual, zone: us-central2-b, type: v4-32}
"""


def _nothing(stage: Stage) -> None:
    """A directory in which nobody has begun."""
    (stage.directory / "cluster.yaml").unlink()
    shutil.rmtree(stage.directory / "state")


def _list_of_google(stage: Stage) -> None:
    shutil.copy(_SAMPLES / "two_zones.json", stage.directory / "tpus.json")


def _odd_states(stage: Stage) -> None:
    _nothing(stage)
    shutil.copy(_SAMPLES / "states.json", stage.directory / "tpus.json")


def _first_list(stage: Stage) -> None:
    _nothing(stage)
    shutil.copy(_SAMPLES / "one_slice.json", stage.directory / "tpus.json")


def _recreated(stage: Stage) -> None:
    """A slice was imported, then made anew: the same name, another machine."""
    shutil.copy(_SAMPLES / "one_slice.json", stage.directory / "tpus.json")
    stage.typed("cluster import --from tpus.json --yes")
    stage.typed("schedule --once")
    (node,) = json.loads((stage.directory / "tpus.json").read_text())
    anew = {**node, "id": "77", "createTime": "2027-01-15T08:28:00Z"}
    (stage.directory / "tpus.json").write_text(json.dumps([anew]))


def _gone(stage: Stage) -> None:
    """A slice was imported, and is not listed any more."""
    shutil.copy(_SAMPLES / "one_slice.json", stage.directory / "tpus.json")
    stage.typed("cluster import --from tpus.json --yes")
    (stage.directory / "tpus.json").write_text("[]")


def _by_hand(stage: Stage) -> None:
    """A group whose slices somebody makes, and a gang for it."""
    _nothing(stage)
    (stage.directory / "cluster.yaml").write_text(
        "cluster: {name: lab}\nscale_groups:\n  - name: east\n"
        "    slice_template: {provider: manual, zone: us-central2-b, type: v4-32}\n"
    )
    stage.typed("launch --no-schedule --name bert --tpu v4-32 -- true")


def _wrong(stage: Stage) -> None:
    (stage.directory / "cluster.yaml").write_text(
        "cluster: {name: lab}\nslice: []\nslices:\n  - {name: v5a, type: v5litepod-17, hosts: [a, b]}\n"
    )


def _groups(stage: Stage) -> None:
    """Two groups, and gangs that only they could have room for."""
    _nothing(stage)
    (stage.directory / "cluster.yaml").write_text(_GROUPS)
    for line in (
        "launch --no-schedule --name train --tpu v5e-16 --slices 3 -- true",
        "launch --no-schedule --name bert --tpu v4-32 -- true",
        "launch --no-schedule --force --name llama --tpu v5e-16 -c region=eu-west4 -- true",
    ):
        stage.typed(line)


def _moved(stage: Stage) -> None:
    """A copy of the state directory of somebody who has slices made."""
    _groups(stage)
    state = StateDir(stage.directory / "state", now=stage.clock.now, actor="me@laptop")
    with state.locked("iris autoscale") as writer:
        writer.append([SlicesAdopted(place=":1", where="desk:/home/me/cluster/state")], at=stage.clock.now())


_UNHEARD_OF = OwnerConflict(unknown=("west-c0ff-7", "west-c0ff-8"))
_BOTH = OwnerConflict(elsewhere="desk:/home/me/cluster/state", unknown=("west-c0ff-7",))


def _an_old_copy(output: Output) -> None:
    nothing = RoutingDecision(launch={}, routed={}, unmet=())
    plan = ScalingPlan(states=(), demand=(), routing=nothing, create=(), delete=(), by_hand={}, later={})
    slices.show_pass(output, Autoscaled(plan=plan, conflict=_UNHEARD_OF), NO_SCALING)


def _adopts(objection: OwnerConflict) -> Show:
    """What is asked, and what comes of it."""

    def show(output: Output) -> None:
        if not output.as_json:
            output.message(slices.adopt_question(objection))
        slices.show_adopted(output, objection, done=True)

    return show


def _key(stage: Stage, mode: int = 0o600) -> None:
    """The engineer's own key."""
    private = Ed25519PrivateKey.generate()
    file = stage.directory / ".ssh" / "id_ed25519"
    file.parent.mkdir(mode=0o700)
    file.write_bytes(private.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption()))
    file.chmod(mode)


def _neglected(stage: Stage) -> None:
    """A key that all can read, a clock that is wrong, and no cycle for two hours."""
    _key(stage, 0o644)
    stage.hosts.hosts["cpu-0"].now = lambda: stage.lab.now - 95.0
    stage.nobody_runs_cycles(7200.0)


_LINE = "* * * * * cd /home/me/my-cluster && iris --lock-timeout 0 schedule --once >> state/cron.log 2>&1  # iris lab"


def _cron_runs(output: Output) -> None:
    cycles.show_cron(
        output, {"crontab": _LINE, "systemd": ""}, CycleAge(at=0.0, age=38.0, stale=False), Path("/nowhere")
    )


def _cron_is_late(output: Output) -> None:
    cycles.show_cron(
        output, {"crontab": _LINE, "systemd": ""}, CycleAge(at=0.0, age=7200.0, stale=True), Path("/nowhere")
    )


PICTURES = {
    "init": Picture(line="iris init --name lab --host 10.0.0.1", prepare=_nothing),
    "init-empty": Picture(line="iris status", then=("iris init --name lab",), prepare=_nothing),
    "init-there": Picture(
        line="iris init", then=("iris init --force --slice v4a=v4-32:10.0.0.[1-4]", "iris config validate")
    ),
    "config-validate-wrong": Picture(line="iris config validate", prepare=_wrong),
    "import-first": Picture(line="iris cluster import --from tpus.json", prepare=_first_list, answers=("y",)),
    "import-dry-run": Picture(line="iris cluster import --from tpus.json --dry-run", prepare=_list_of_google),
    "import-declined": Picture(line="iris cluster import 'cpu-[2-3]'", answers=("n",)),
    "import-not-confirmed": Picture(
        line="iris cluster import 'cpu-[2-3]'", then=("iris cluster import --from tpus.json",)
    ),
    "import-states": Picture(line="iris cluster import --from tpus.json --dry-run", prepare=_odd_states),
    "import-recreated": Picture(line="iris cluster import --from tpus.json --yes", prepare=_recreated),
    "import-gone": Picture(
        line="iris cluster import --from tpus.json --yes",
        then=("iris cluster import --from tpus.json --yes --prune",),
        prepare=_gone,
    ),
    "doctor-content": Picture(line="iris doctor", scene="retried_gang", prepare=_key),
    "doctor-offline": Picture(line="iris doctor --offline"),
    "doctor-finds": Picture(line="iris doctor", prepare=_neglected),
    "cron-runs": Picture(line="iris cron show", show=_cron_runs),
    "cron-is-late": Picture(line="iris cron show", show=_cron_is_late),
    "cron-install": Picture(
        line="iris cron install",
        show=lambda output: cycles.show_installed(
            output,
            _LINE,
            changed=True,
            keys=[
                failure(
                    "keys",
                    "the key /home/me/.ssh/id_ed25519 has a passphrase and no ssh-agent holds it",
                    "ssh-add /home/me/.ssh/id_ed25519",
                )
            ],
            missing=[],
        ),
    ),
    "cron-install-timer": Picture(
        line="iris cron install --systemd --autoscale",
        show=lambda output: cycles.show_installed(
            output, "iris-lab.timer", changed=False, keys=[], missing=[]
        ),
    ),
    "cron-remove": Picture(
        line="iris cron remove", show=lambda output: cycles.show_removed(output, ["the line in the crontab"])
    ),
    "cron-remove-nothing": Picture(
        line="iris cron remove", show=lambda output: cycles.show_removed(output, [])
    ),
    "autoscale": Picture(
        line="iris autoscale --once",
        then=("iris schedule --autoscale", "iris autoscale --adopt --yes"),
        prepare=_by_hand,
    ),
    "autoscale-groups": Picture(
        line="iris status", then=("iris config validate", "iris autoscale --dry-run"), prepare=_groups
    ),
    "autoscale-moved": Picture(
        line="iris status",
        then=(
            "iris autoscale --dry-run",
            "iris autoscale",
            "iris schedule --once --autoscale",
            "iris autoscale --adopt",
        ),
        prepare=_moved,
    ),
    "autoscale-adopt": Picture(
        line="iris autoscale --adopt",
        then=("iris autoscale --adopt",),
        prepare=_moved,
        answers=("n", "y"),
    ),
    "schedule-old-copy": Picture(line="iris schedule --autoscale", show=_an_old_copy, as_json=False),
    "adopt-unheard-of": Picture(line="iris autoscale --adopt", show=_adopts(_UNHEARD_OF)),
    "adopt-moved-and-unheard-of": Picture(line="iris autoscale --adopt", show=_adopts(_BOTH)),
}
