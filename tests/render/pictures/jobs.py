"""Jobs: what is said when they are launched, waited for, cancelled."""

from __future__ import annotations

from iris_cli.core.messages.observations import RemoteState
from tests.render.pictures.picture import Picture
from tests.render.stage import Stage
from tests.support.fake_runner import Entry


def _succeeds(stage: Stage) -> None:
    """Whatever is started has ended well before anybody looks again."""
    _ends(stage, 0)


def _fails(stage: Stage) -> None:
    _ends(stage, 3)


def _ends(stage: Stage, code: int) -> None:
    def start(entry: Entry) -> None:
        entry.state, entry.exit_code, entry.ended_at = RemoteState.EXITED, code, stage.clock.now()

    for host in stage.hosts.hosts.values():
        vars(host)["start"] = start


def _job_file(stage: Stage) -> None:
    lines = ("name: Train_1", "command: python3 train.py", "tpu: v5e-16", "lease: 1h", "workdir: .")
    (stage.directory / "job.yaml").write_text("\n".join(lines) + "\n")


PICTURES = {
    "launch": Picture(
        line="iris launch --dry-run --name llama --tpu v5litepod-16 -- python3 train.py",
        then=(
            "iris launch --no-schedule --name cleanup -- true",
            "iris launch --name score --cpu 1 -- python3 eval.py",
            "iris launch --name sims --array 0-9%2 --keep-going -- simulate",
            "iris launch --name llama --tpu v5litepod-16 -- python3 train.py",
            "iris launch --name index -- true",
            "iris launch --force --tpu v5litepod-256 --name bert -- true",
        ),
    ),
    "run": Picture(line="iris run --cpu 1 -- bash", then=("iris run --force -- python3",)),
    "launch-spread": Picture(
        line="iris launch --dry-run --name train --tpu v5litepod-16 --slices 2 -- python3 train.py",
        then=(
            "iris launch --dry-run --spread --name train --tpu v5litepod-16 --slices 2 -- python3 train.py",
            "iris launch --no-schedule --name train --tpu v5litepod-16 --slices 2 -- python3 train.py",
            "iris why train",
        ),
        scene="two_regions",
    ),
    "launch-wait": Picture(
        line="iris launch --wait --name score -- true",
        then=("iris launch --follow --name plots -- true",),
        prepare=_succeeds,
    ),
    "launch-wait-fails": Picture(
        line="iris launch --wait --name score -- sh -c 'exit 3'",
        then=("iris launch --name plots -- sh -c 'exit 3'",),
        prepare=_fails,
    ),
    "rejected": Picture(
        line="iris lunch",
        then=(
            "iris launch --replica 3 -- true",
            "iris launch --cpu 1",
            "iris launch --no-inherit-constraints -- true",
            "iris launch --tpu v5lite-pod-16 -- true",
            "iris launch --tpu v5litepod-256 -- true",
            "iris status trian",
            "iris status --state runing",
            "iris why cpu-9",
            "iris cancel trian",
            "iris logs trian",
            "iris logs train --rank 9",
            "iris logs --diff --follow train",
            "iris worker drain cpu0",
            "iris register-endpoint http 8080",
            "iris register-endpoint http --remove",
        ),
        as_json=False,
    ),
    "pending": Picture(
        line="iris logs big",
        then=("iris exec big -- df -h", "iris stacks eval", "iris ssh --print big", "iris pull big"),
    ),
    "cancel": Picture(
        line="iris cancel prep --reason 'wrong data'",
        then=("iris cancel train big", "iris cancel --prefix e b", "iris cancel train"),
    ),
    "retry": Picture(
        line="iris retry train",
        then=("iris retry train", "iris retry eval", "iris retry trian", "iris retry train/task-9"),
    ),
    "metrics": Picture(line="iris metrics", then=("iris metrics --textfile iris.prom",)),
    "export": Picture(
        line="iris export train --to sbatch --queue main",
        then=(
            "iris export job.yaml --to jobset --image img:1 --queue tpus --out jobset.yaml",
            "iris export job.yaml --to jobset --strict",
            "iris export job.yaml --to k8s",
            "iris export trian --to sbatch",
        ),
        prepare=_job_file,
    ),
    "hold": Picture(
        line="iris hold train eval",
        then=(
            "iris hold eval",
            "iris status eval",
            "iris why eval",
            "iris set eval --priority low",
            "iris release eval",
        ),
    ),
    "release": Picture(line="iris release eval"),
    "set": Picture(line="iris set eval --priority high --scheduling-timeout 6h"),
    "again": Picture(
        line="iris launch --again train-2 --no-schedule --label try=4",
        then=(
            "iris launch --again sweep --failed --no-schedule",
            "iris status sweep-2",
            "iris launch --again sweep --dry-run --failed --cpu 2",
            "iris launch --again train --failed",
            "iris launch --again sweep-2 --failed",
            "iris launch --again chip",
            "iris launch --again trian",
            "iris launch --failed -- true",
            "iris launch job.yaml --again train",
            "iris retry train",
        ),
        scene="tried_again",
        as_json=False,
    ),
    "cancel-waits": Picture(line="iris cancel --wait train prep"),
    "wait-too-long": Picture(line="iris wait --timeout 1s train eval"),
    "schedule-silent": Picture(line="iris schedule --once"),
    "watch-once": Picture(line="iris watch --once --schedule --until-idle", scene="empty", as_json=False),
}
