"""The hand-written parts of the generated pages (write_docs.py)."""

from __future__ import annotations

from iris_cli.errors import ExitCode

QUIET = """\
With `--quiet` a command prints only its result, and nothing else on stdout:

- `launch` prints the job id, `pull` the target directories. `status`, `workers` and `worker show` print one name per
  line. `why` prints the first reason, `loop show` the first line. `logs`, `exec`, `export`, `history`, `watch`, `log
  export` and `--dry-run` print their usual output, `doctor` and `log verify` only problems.
- A successful action prints nothing and exits with 0: `schedule`, `autoscale`, `cancel`, `wait`, `gc`, `init`, `report
  --html`, `export --out`, `config validate`, `cluster import`, `log compact`, `cron install`, `cron remove`, `loop
  start`, `loop stop`, and `worker` with `probe`, `drain`, `uncordon`, `taint`, `forget` or `unwedge`.
- Progress, hints and reports are not printed. Errors go to stderr, and so do warnings: a job that failed, output that
  is missing, a log that was repaired. A question is printed together with the changes that it asks about; with
  `--yes` neither is printed.

`--quiet` does not change the output of `--json`.
""".splitlines()

EXIT_CODES = {
    ExitCode.OK: "success",
    ExitCode.FAILED: "failure, or the output could not be written; with `wait` and `--wait`: the job failed",
    ExitCode.USAGE: "invalid command line or job",
    ExitCode.CONFIG: "invalid `cluster.yaml` or job file",
    ExitCode.NOT_FOUND: "no such job, task or worker",
    ExitCode.LOCKED: "another invocation holds the lock of the state directory; the message names it",
    ExitCode.LOG_DAMAGED: "the event log is damaged; nothing was written",
    ExitCode.UNREACHABLE: "some workers did not answer; a cycle (`schedule`, `watch`, `launch`) that polls a silent "
    "worker still exits with 0",
    ExitCode.KILLED: "the job was cancelled",
    ExitCode.UNSCHEDULABLE: "no worker can run the job",
    ExitCode.NOT_WRITABLE: "the state directory or the file of an option can't be written; nothing was dispatched",
    ExitCode.INTERRUPTED: "interrupted; the log stays valid",
    ExitCode.NOT_RUN: "`iris run` failed, or its program has no exit code; other codes are those of the program",
}

JOB_FILES = """\
A job file describes a job in YAML. `iris launch job.yaml` submits the job. Command-line options override the file;
options for `env` and `labels` add to its values. Relative paths start at the directory of the file. An unknown key is
an error. iris reports all problems of a file at once, each with its line.

```yaml
name: train
command: [python3, train.py]
tpu: v5litepod-16
workdir: .
env: {LR: 0.1}
max_retries_failure: 3
timeout: 12h
```

The column `defaults:` marks the keys that `cluster.yaml` can set for every job under `defaults:`; there
`max_task_failures` does not apply to gangs. The last column shows which keys
[requests from inside a task](requests.md) accept: all except keys that would read files on the operator's machine. In a
request `each_line` is a list of lines, not a file. The [Python client](client.md) has keywords with the same names, but
`group_by` in place of `coscheduling`.

## Memory

`memory` is the memory that a task needs on its worker, and also its limit. The kernel of the worker limits all
processes of the task together, including page cache and `/dev/shm`, if the worker can create control groups with the
memory controller (usually if `iris` logs in as root). The kernel kills a task that exceeds its limit; `iris status JOB`
then shows `ran out of memory` and the limit. The limit does not apply to `setup`. If the worker can't create control
groups, `memory` only counts for placement. If a job does not set `memory`, it has no limit: `defaults.memory` of
`cluster.yaml` and the built-in default of 1 GiB only count for placement.

## Job scripts

A script can contain its own options. `iris launch train.sh` submits it, and `iris launch train.sh -- --lr 0.1` passes
arguments to it:

```sh
#!/bin/bash
#IRIS --tpu v5litepod-16 --workdir .
#IRIS --timeout 12h --max-retries-failure 3
##IRIS --priority low       (disabled by the second #)

set -e
python3 train.py "$@"
```

- The first line names the interpreter of the script, as usual on Unix: `#!/bin/bash`, `#!/usr/bin/env python3`.
- `#IRIS` lines follow, before the first line of the program; comments and blank lines are allowed between them. An
  `#IRIS` line after that is an error. Each line contains options of `iris launch` that describe the job, quoted as in a
  shell, without expansion of variables. `-e NAME` copies a variable of the shell that runs `iris launch`.
- Options on the command line override the `#IRIS` options, as they override a job file. Relative paths start at the
  directory of the script.
- iris sends the script as it was at launch and makes it executable. Without `--workdir` the task starts in a directory
  with the script only. With `--workdir` the script keeps its place in that directory, even if `.irisignore` matches it;
  a script from outside that directory is put at its top.
- `#SBATCH` lines are comments: add `#IRIS` lines next to them.
""".splitlines()

KNOWN_CAUSES = """\
iris recognizes the failures in the table below. When a job has failed, `iris status JOB` and `iris why JOB` compare the
output and the exit of the task that failed first with these rules, from the top, and show the first rule that matches.
`*` matches any text within a line. If the output only reports that another rank failed (*echo*), iris also searches the
output of the other ranks.

![iris status of a failed gang: the first failed rank, its last lines, the known cause and the fix](pictures/failed.svg)

Rules are text with `*`, not regular expressions, so no output can make the search slow. iris searches the last 64 KiB.
The rules are Python modules in `iris_cli/core/known_causes/`; a test has a real message for each rule.

If the last 4 KiB of the output don't show the cause, the cycle that records a failure reads the last 64 KiB from the
worker once and stores the matching lines below `logs/`. It does so for at most four attempts of a job in a cycle, until
the job has had eight failures. `status` and `why` never call a worker: they search these lines, the pulled output, and
the last 4 KiB in the event log.
""".splitlines()
