"""Each scene as its commands show it."""

from __future__ import annotations

from tests.render.pictures.picture import Picture

WIDTHS = (60, 100, 200)

PICTURES = {
    "busy": Picture(
        line="iris",
        then=(
            "iris status",
            "iris status train",
            "iris status prep",
            "iris status eval",
            "iris status --label team=vision",
            "iris status --label team=nlp",
            "iris status --state pending",
            "iris status --at 2020-01-01",
            "iris why train",
            "iris why prep",
            "iris why prep/task-2",
            "iris why eval",
            "iris why big",
            "iris why v5b-2",
            "iris workers",
            "iris worker show v5a-0",
            "iris worker show cpu-1",
            "iris worker show v5b-2",
            "iris report",
        ),
    ),
    "empty": Picture(
        line="iris",
        then=(
            "iris status",
            "iris workers",
            "iris report",
            "iris schedule --dry-run",
            "iris schedule --once",
            "iris gc",
        ),
        scene="empty",
    ),
    "about-to-start": Picture(
        line="iris status",
        then=("iris schedule --dry-run", "iris schedule --once", "iris schedule --once"),
        scene="about_to_start",
    ),
    "failed-gang": Picture(
        line="iris status",
        then=(
            "iris status --state stopping",
            "iris status train",
            "iris status --all train",
            "iris status --at 10m",
            "iris why train",
            "iris why train/task-0",
            "iris history",
            "iris report",
            "iris wait train",
            "iris logs --follow train",
            "iris cancel train",
        ),
        scene="failed_gang",
    ),
    "diagnosed-gang": Picture(line="iris", then=("iris status", "iris why train"), scene="diagnosed_gang"),
    "loopback-gang": Picture(line="iris status", then=("iris why train",), scene="loopback_gang"),
    "retried-gang": Picture(
        line="iris status",
        then=("iris status train", "iris history train/task-1", "iris report --since 10m"),
        scene="retried_gang",
    ),
    "many-tasks": Picture(
        line="iris status", then=("iris status sweep", "iris why sweep"), scene="many_tasks", as_json=False
    ),
    "displays": Picture(
        line="iris",
        then=(
            "iris status",
            "iris status --state retrying",
            "iris status --state STOPPED",
            "iris status --state stopping --state pending",
            "iris status diverged",
            "iris status eval",
            "iris status flaky",
            "iris status sweep",
            "iris why eval/task-3",
            "iris report",
            "iris cancel --state retrying",
            "iris status --state retrying",
            "iris wait --timeout 0s train sweep",
        ),
        scene="displays",
    ),
    "tried-again": Picture(
        line="iris status",
        then=(
            "iris status train",
            "iris status train-2",
            "iris status train-3",
            "iris why train-2",
            "iris status chip",
            "iris history train",
            "iris report",
        ),
        scene="tried_again",
    ),
    "widths-of-displays": Picture(
        line="iris status", then=("iris status eval",), scene="displays", widths=WIDTHS, as_json=False
    ),
    "lost-host": Picture(
        line="iris",
        then=(
            "iris status",
            "iris status train",
            "iris status bench",
            "iris why spot-0",
            "iris history spot-0",
            "iris report",
        ),
        scene="lost_host",
    ),
    "family": Picture(
        line="iris status",
        then=(
            "iris status sweep",
            "iris status sweep/fold/eval",
            "iris why sweep/fold/eval",
            "iris history sweep",
            "iris workers",
            "iris report",
        ),
        scene="family",
    ),
    "ways-to-fail": Picture(
        line="iris status tune",
        then=(
            "iris status jax-env",
            "iris status bench",
            "iris status resnet",
            "iris status plots",
            "iris why merge",
            "iris why tune/task-0",
        ),
        scene="ways_to_fail",
    ),
    "widths-of-status": Picture(line="iris status", scene="ways_to_fail", widths=WIDTHS),
    "widths-of-a-job": Picture(line="iris status train", scene="diagnosed_gang", widths=WIDTHS),
    "widths-of-workers": Picture(line="iris workers", scene="lost_host", widths=(60, 80, 100, 200)),
}
