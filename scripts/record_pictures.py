"""Run jobs on a cluster of local SSH hosts and keep the event log, from which docs/pictures is made.

It takes two minutes. write_docs.py makes the pictures from the log, as the current `iris` shows it.
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
"""The disk of one rank is full: /dev/full really reports that."""

STEADY = "import time\nfor step in range(300):\n    print(step, flush=True)\n    time.sleep(1)\n"

LAUNCHED = (
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
        (work / "eval.py").write_text(STEADY)
        cluster.claim()
        try:
            cluster.start(SLICES)
            record(cluster, work)
        finally:
            iris(cluster, work, "cancel", "--wait", *(name for name, *_ in LAUNCHED))
            cluster.close()


def record(cluster: LocalCluster, work: Path) -> None:
    """Run cycles until `train` has failed and most of a minute has passed; keep the log."""
    for name, *words in LAUNCHED:
        iris(cluster, work, "launch", "--name", name, *(word.format(work=work) for word in words))
    log, passed = cluster.root / "state" / "events.jsonl", 0
    while passed < 10:
        iris(cluster, work, "schedule", "--once")
        time.sleep(4)
        passed += '"type":"JobEnded","job":"train"' in log.read_text(encoding="utf-8")
    LOG.write_text("".join(unsigned(log.read_text(encoding="utf-8"), work)), encoding="utf-8")


def unsigned(log: str, work: Path) -> Iterator[str]:
    """Yield the lines of a log without its actor and directory."""
    before = "00000000"
    for line in log.replace(f"{work}/", "").splitlines():
        record = {**json.loads(line), "prev": before, "actor": "me@laptop iris"}
        del record["crc"]
        text = json.dumps(record, separators=(",", ":"))[:-1]
        before = f"{crc32(text.encode()):08x}"
        yield f'{text},"crc":"{before}"}}\n'


def iris(cluster: LocalCluster, work: Path, *words: str) -> None:
    subprocess.run(
        [sys.executable, "-m", "iris_cli", "--config", cluster.config, *words], cwd=work, check=False
    )


if __name__ == "__main__":
    main()
