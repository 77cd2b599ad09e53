"""Jobs: what is said when they are launched, waited for, cancelled."""

from __future__ import annotations

from iris_cli.core.observations import RemoteState
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


PICTURES = {
    "launch-wait": Picture(line="iris launch --wait --name new -- true", prepare=_succeeds),
    "launch-wait-fails": Picture(line="iris launch --wait --name new -- false", prepare=_fails),
    "launch-follow": Picture(line="iris launch --follow --name new -- true", prepare=_succeeds),
    "launch-outside": Picture(line="iris launch --no-inherit-constraints --name new -- true"),
    "status-at": Picture(line="iris status --at 10m", scene="failed_gang"),
    "status-before": Picture(line="iris status --at 2020-01-01"),
    "status-label": Picture(line="iris status --label team=vision"),
    "status-no-such-label": Picture(line="iris status --label team=nlp"),
    "status-state": Picture(line="iris status --state pending"),
    "status-misspelt-state": Picture(line="iris status --state runing"),
    "status-all": Picture(line="iris status --all train", scene="failed_gang"),
    "status-misspelt": Picture(line="iris status trian"),
    "watch-once": Picture(line="iris watch --once --schedule --until-idle", scene="empty", as_json=False),
    "why-task": Picture(line="iris why prep/task-2"),
    "why-misspelt": Picture(line="iris why cpu-9"),
    "workers": Picture(line="iris workers", scene="family"),
    "report": Picture(line="iris report --since 10m", scene="retried_gang"),
    "misspelt": Picture(line="iris lunch"),
    "misspelt-option": Picture(line="iris launch --replica 3 -- true"),
    "launch-placed": Picture(line="iris launch --name new --cpu 1 -- python3 eval.py"),
    "launch-waits": Picture(line="iris launch --name new --tpu v5litepod-16 -- python3 train.py"),
    "launch-places-some": Picture(line="iris launch --name new --array 0-9%2 -- ./simulate"),
    "launch-submitted": Picture(line="iris launch --no-schedule --name new -- true"),
    "launch-dry-run": Picture(line="iris launch --dry-run --name new --tpu v5litepod-16 -- python3 train.py"),
    "launch-impossible": Picture(line="iris launch --tpu v5litepod-256 -- true"),
    "launch-forced": Picture(line="iris launch --force --tpu v5litepod-256 --name later -- true"),
    "launch-without-a-command": Picture(line="iris launch --cpu 1"),
    "launch-misspelt": Picture(line="iris launch --tpu v5lite-pod-16 -- true"),
    "cancel-one": Picture(line="iris cancel prep --reason 'wrong data'"),
    "cancel-gang": Picture(line="iris cancel train big"),
    "cancel-waits": Picture(line="iris cancel --wait train prep"),
    "cancel-over": Picture(line="iris cancel train", scene="failed_gang"),
    "cancel-misspelt": Picture(line="iris cancel trian"),
    "cancel-prefix": Picture(line="iris cancel --prefix e b"),
    "wait-over": Picture(line="iris wait train", scene="failed_gang"),
    "wait-too-long": Picture(line="iris wait --timeout 1s train eval"),
    "schedule-nothing": Picture(line="iris schedule --once", scene="empty"),
    "schedule-places": Picture(line="iris schedule --once", scene="about_to_start"),
    "schedule-dry-run": Picture(line="iris schedule --dry-run", scene="about_to_start"),
    "schedule-silent": Picture(line="iris schedule --once"),
}
