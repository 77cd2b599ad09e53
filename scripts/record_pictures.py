"""Run jobs on a cluster of local SSH hosts, and keep the event log in docs/pictures. This takes two minutes.

write_docs.py draws the pictures from this log.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from zlib import crc32

from iris_cli.demo.cluster import SLICES, TPU, LocalCluster

LOG = Path(__file__).parent.parent / "docs" / "pictures" / "events.jsonl"

TRAIN = """
import os, time

for step in range(0, 100_000, 100):
    print(f"step {step} loss {2.31 - step / 9_000:.2f}", flush=True)
    time.sleep(10)
    if step == 900 and os.environ["IRIS_TASK_INDEX"] == "2":
        print(f"saving checkpoint {step}", flush=True)
        os.write(os.open("/dev/full", os.O_WRONLY), b"weights")
"""
"""Rank 2 writes to /dev/full, so it fails with the error of a full disk."""

EVAL = "import time\nfor step in range(300):\n    print(step, flush=True)\n    time.sleep(1)\n"

JOBS = (
    ("train", "--tpu", TPU, "--label", "team=vision", "--", "python3", "{work}/train.py"),
    ("eval", "--tpu", TPU, "--", "python3", "{work}/eval.py"),
    ("sweep", "--array", "0-11%4", "--cpu", "0.25", "--", "sh", "-c", "sleep 40"),
    ("ablate", "--tpu", TPU, "--priority", "high", "--", "python3", "{work}/train.py"),
)


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="iris-") as scratch:
        work, cluster = Path(scratch) / "work", LocalCluster(Path(scratch) / "lab")
        work.mkdir()
        (work / "train.py").write_text(TRAIN)
        (work / "eval.py").write_text(EVAL)
        cluster.claim()
        try:
            cluster.start(SLICES)
            record(cluster, work)
        finally:
            iris(cluster, work, "cancel", "--wait", *(name for name, *_ in JOBS))
            cluster.close()


def record(cluster: LocalCluster, work: Path) -> None:
    """Run cycles until `train` has failed, and ten cycles more. Keep the log."""
    for name, *words in JOBS:
        iris(cluster, work, "launch", "--name", name, *(word.format(work=work) for word in words))
    log, cycles_after = cluster.root / "state" / "events.jsonl", 0
    while cycles_after < 10:
        iris(cluster, work, "schedule", "--once")
        time.sleep(4)
        cycles_after += '"type":"JobEnded","job":"train"' in log.read_text(encoding="utf-8")
    LOG.write_text("".join(anonymize(log.read_text(encoding="utf-8"), work)), encoding="utf-8")


def anonymize(log: str, work: Path) -> Iterator[str]:
    """Yield the lines of a log with another actor and without the name of the directory `work`."""
    previous = "00000000"
    for line in log.replace(f"{work}/", "").splitlines():
        record = {**json.loads(line), "prev": previous, "actor": "me@laptop iris"}
        del record["crc"]
        text = json.dumps(record, separators=(",", ":"))[:-1]
        previous = f"{crc32(text.encode()):08x}"
        yield f'{text},"crc":"{previous}"}}\n'


def iris(cluster: LocalCluster, work: Path, *words: str) -> None:
    subprocess.run(
        [sys.executable, "-m", "iris_cli", "--config", cluster.config, *words], cwd=work, check=False
    )


if __name__ == "__main__":
    main()
