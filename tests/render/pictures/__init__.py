"""Everything that iris prints: command lines and the scenes on which they are typed."""

from tests.render.pictures import books, hostile, jobs, logs, loop, setup, views, workers

PICTURES = {
    **views.PICTURES,
    **jobs.PICTURES,
    **workers.PICTURES,
    **logs.PICTURES,
    **setup.PICTURES,
    **loop.PICTURES,
    **books.PICTURES,
    **hostile.PICTURES,
}

COLOURED = {
    "hostile-status": ("hostile", "iris status"),
    "hostile-job": ("hostile", f"iris status {hostile.JOB}"),
    "hostile-worker": ("hostile", "iris worker show cpu-1"),
    "status-all": ("failed-gang", "iris status --all train"),
    "status-groups": ("autoscale-groups", "iris status"),
    "status-damaged": ("log-damaged", "iris status"),
    "why-task": ("busy", "iris why prep/task-2"),
    "worker-show-silent": ("busy", "iris worker show v5b-2"),
    "history-all": ("log-compacted", "iris history --limit 3 --all"),
    "report": ("retried-gang", "iris report --since 10m"),
    "launch-dry-run": ("launch", "iris launch --dry-run --name new --tpu v5litepod-16 -- python3 train.py"),
}
"""Command lines also recorded with their colours: the picture that prepares the scene, and the line."""
