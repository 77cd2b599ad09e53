"""The slices of one owner on one Slurm cluster: each is the allocation of one batch job."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from hashlib import sha256

from msgspec.structs import replace

from iris_cli.capacity.provider import ProviderError
from iris_cli.capacity.slurm import commands
from iris_cli.capacity.slurm.commands import Run, SlurmJob, convert_error, printable, run_here
from iris_cli.core import ScaleGroup, SliceHost, group_pairs
from iris_cli.core.messages.cloud import LABEL_PREFIX, CloudSlice, CloudState, Refusal
from iris_cli.core.model.slice import NodeAccess, Slice, SliceState
from iris_cli.core.model.worker import DEFAULT_REMOTE_DIR

_HOLD = "while :; do sleep 3600; done"


class SlurmProvider:
    """A provider whose slices are jobs of this user. The comment of a job names the owner.

    `known`: the slices in the log. The provider lists an ended job until its slice is deleted, and does not query the
    resources of known jobs again. `run` runs Slurm's commands, on this machine or on a login host. `holder` returns the
    lines of the batch script of an allocation that iris reaches by `srun`. Its argument is the directory of iris on the
    nodes.
    """

    def __init__(
        self,
        owner: str,
        known: Mapping[str, Slice] | None = None,
        run: Run = run_here,
        holder: Callable[[str], str] | None = None,
    ) -> None:
        self._owner = owner
        self._known = known or {}
        self._run = run
        self._make_holder = holder

    def list(self) -> tuple[CloudSlice, ...]:
        """Return all slices. If several jobs have the same name, cancel all except the oldest."""
        jobs = sorted(filter(self._is_ours, self._jobs()), key=lambda each: each.order)
        jobs_by_name = group_pairs((job.name, job) for job in jobs)
        surplus = [job for group in jobs_by_name.values() for job in _live_jobs(group)[1:]]
        self._cancel(surplus)
        shown = {
            name: job
            for name, group in jobs_by_name.items()
            if (job := self._job_to_list(name, group)) is not None
        }
        shown |= self._jobs_in_accounting(shown)
        troubles = self._troubles(shown.values())
        has_cgroups = any(job.processes_may_be_gone for job in shown.values()) and commands.tracks_by_cgroup(
            self._run_unchecked(["scontrol", "show", "config"])
        )
        return tuple(self._slice(name, job, troubles, has_cgroups) for name, job in sorted(shown.items()))

    def create(self, name: str, group: ScaleGroup) -> None:
        """Submit the job of a slice, unless the owner's job with that name is pending or running."""
        live = _live_jobs(self._jobs_named(name))
        if any(self._is_ours(job) for job in live):
            return
        if live:
            raise ProviderError(Refusal.INVALID, f"a job {name} ({live[0].id}) of another owner exists")
        if group.template.slurm.transport is not NodeAccess.SRUN:
            self._run_checked(sbatch(name, self._owner, group))
        else:
            directory = group.connection.remote_dir
            if directory == DEFAULT_REMOTE_DIR:
                directory = default_directory(self._run_checked(["id", "-u"]).strip(), name)
            if self._make_holder is None:
                raise ProviderError(Refusal.INVALID, "transport srun is not available")
            self._run_checked(sbatch(name, self._owner, group, self._make_holder(directory)))

    def delete(self, name: str) -> None:
        """Cancel every job of a slice."""
        self._cancel([job for job in _live_jobs(self._jobs_named(name)) if self._is_ours(job)])

    def _is_ours(self, job: SlurmJob) -> bool:
        return find_group(job.comment, job.name, self._owner) is not None

    def _jobs_named(self, name: str) -> Sequence[SlurmJob]:
        """Return the jobs of this user with that name. Filter Slurm's answer again: `delete` cancels these jobs."""
        return [job for job in self._jobs(f"--name={name}") if job.name == name]

    def _jobs(self, *options: str) -> Sequence[SlurmJob]:
        """Return the jobs of this user, including the ended jobs that slurmctld remembers."""
        command = ["squeue", "--me", "--states=all", "--noheader", f"--format={commands.SQUEUE_FORMAT}"]
        return commands.parse_squeue(self._run_checked([*command, *options]))

    def _jobs_in_accounting(self, shown: Mapping[str, SlurmJob]) -> dict[str, SlurmJob]:
        """Return ended jobs of known slices that slurmctld has forgotten, from Slurm's accounting if there is one."""
        found = {}
        for each in self._known.values():
            if each.name in shown or not each.allocation or each.state is SliceState.DELETING:
                continue
            options = ("--allocations", "--noheader", "--parsable2", f"--format={commands.SACCT_FORMAT}")
            text = self._run_unchecked(["sacct", *options, f"--jobs={each.allocation}"])
            job = commands.parse_sacct(text, each.allocation)
            if job is not None and job.incarnation == each.incarnation and job.has_ended:
                found[each.name] = job
        return found

    def _troubles(self, jobs: Iterable[SlurmJob]) -> dict[str, str]:
        """Return the troubles of the nodes of these jobs, by node (see node_troubles). Unknown nodes are missing."""
        nodes = ",".join(sorted({job.nodes for job in jobs if job.nodes}))
        if not nodes:
            return {}
        command = ["sinfo", "--noheader", "--Node", f"--nodes={nodes}", f"--format={commands.SINFO_FORMAT}"]
        return commands.node_troubles(self._run_unchecked(command))

    def _run_unchecked(self, command: Sequence[str]) -> str:
        """Return the output of a command; "" if it fails."""
        try:
            result = self._run(command)
        except ProviderError:
            return ""
        return result.stdout if result.status == 0 else ""

    def _hostnames(self, nodes: str) -> Sequence[str]:
        return self._run_checked(["scontrol", "show", "hostnames", nodes]).split()

    def _cancel(self, jobs: Sequence[SlurmJob]) -> None:
        if jobs:
            self._run_checked(["scancel", *(str(job.id) for job in jobs)])

    def _run_checked(self, command: Sequence[str]) -> str:
        result = self._run(command)
        if result.status != 0:
            raise convert_error(command[0], result)
        return result.stdout

    def _job_to_list(self, name: str, jobs: Sequence[SlurmJob]) -> SlurmJob | None:
        """Return a slice's oldest live job, otherwise the ended job of a slice in the log, or None."""
        live = _live_jobs(jobs)
        if live:
            return live[0]
        known = self._known.get(name)
        if known is None:
            return None
        ended = [job for job in jobs if known.incarnation in ("", job.incarnation)]
        return ended[-1] if ended else None

    def _slice(self, name: str, job: SlurmJob, troubles: Mapping[str, str], has_cgroups: bool) -> CloudSlice:
        known, state = self._known.get(name), job.cloud_state
        hosts: tuple[SliceHost, ...] = ()
        names: Sequence[str] = ()
        if state is CloudState.READY:
            if known is not None and known.hosts and known.incarnation == job.incarnation:
                hosts = known.hosts
            else:
                hosts = self._hosts_of(job)
        processes_may_be_gone = has_cgroups and job.processes_may_be_gone
        if job.nodes and (processes_may_be_gone or any(troubles.values())):
            names = self._hostnames(job.nodes)
        node_words = [f"{node} is {troubles[node]}" for node in names if troubles.get(node)]
        job_words = "" if state is CloudState.READY and job.state == "RUNNING" else job.describe()
        remark = printable("; ".join(filter(None, (job_words, *node_words))))
        return CloudSlice(
            name=name,
            state=state,
            group=find_group(job.comment, name, self._owner) or (known.group if known is not None else ""),
            hosts=hosts,
            incarnation=job.incarnation,
            detail=remark,
            remark=remark,
            ends_at=float(job.ends_at) if job.ends_at is not None and state is CloudState.READY else None,
            processes_gone=processes_may_be_gone
            and bool(names)
            and all(troubles.get(node) == "" for node in names),
        )

    def _hosts_of(self, job: SlurmJob) -> tuple[SliceHost, ...]:
        """Return the nodes of a running job in the order of Slurm's list, with the granted resources."""
        text = self._run_checked(["scontrol", "--details", "--oneliner", "show", "job", str(job.id)])
        grants = {
            node: grant for grant in commands.parse_grants(text) for node in self._hostnames(grant.host)
        }
        directory = default_directory(job.uid, job.name)
        return tuple(
            replace(grants.get(node) or SliceHost(host=node), host=node, remote_dir=directory)
            for node in self._hostnames(job.nodes)
        )


def _live_jobs(jobs: Iterable[SlurmJob]) -> list[SlurmJob]:
    return [job for job in sorted(jobs, key=lambda each: each.order) if not job.has_ended]


def default_directory(uid: str, name: str) -> str:
    """Return the default directory of iris on the nodes of an allocation. Unlike homes, /tmp is not shared by nodes."""
    return f"/tmp/iris-{uid}/{name}"  # noqa: S108 - the shell library checks its owner and makes it 0700


def build_comment(name: str, owner: str, group: str) -> str:
    """Return the comment of a slice's job: owner, scale group, and a hash that also depends on the slice's name."""
    token = sha256(f"{owner} {group} {name}".encode()).hexdigest()[:16]
    return f"{LABEL_PREFIX}{owner}:{group}:{token}"


def find_group(comment: str, name: str, owner: str) -> str | None:
    """Return the scale group in a comment; None if the job with this comment is not the owner's slice `name`."""
    group = comment.split(":")[1] if comment.count(":") == 2 else ""
    return group if comment == build_comment(name, owner, group) else None


def sbatch(name: str, owner: str, group: ScaleGroup, hold: str = _HOLD) -> list[str]:
    """Return the command that submits the allocation of one slice. `hold`: shell lines that keep the job running.

    Names are not unique in Slurm. With the dependency `singleton`, only one job with a name runs at a time.
    """
    options = group.template.slurm
    wanted = {
        "job-name": name,
        "comment": build_comment(name, owner, group.name),
        "dependency": "singleton",
        "nodes": str(options.nodes),
        "ntasks-per-node": "1",
        "chdir": "/",
        "output": "/dev/null",
        "partition": options.partition,
        "account": options.account,
        "qos": options.qos,
        "time": _time_limit(options.time) if options.time else "",
        "gres": options.gres,
        "constraint": options.constraint,
    }
    return [
        "sbatch",
        "--parsable",
        "--no-requeue",
        *(f"--{key}={value}" for key, value in wanted.items() if value),
        *options.directives,
        f"--wrap=umask 077\n{hold}",
    ]


def _time_limit(seconds: float) -> str:
    """Return a time limit as Slurm writes it: `1-02:03:04`."""
    minutes, second = divmod(round(seconds), 60)
    hours, minute = divmod(minutes, 60)
    day, hour = divmod(hours, 24)
    return f"{day}-{hour:02}:{minute:02}:{second:02}"
