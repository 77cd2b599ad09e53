"""Failures on a host: messages about it, denied access, containers; and ends of which no message tells the cause."""

from iris_cli.core.known_causes import Rule
from iris_cli.core.model.task import EndReason

_ERRNO = "https://man7.org/linux/man-pages/man3/errno.3.html"
_SIGNALS = "https://man7.org/linux/man-pages/man7/signal.7.html"
_SHELL = "https://www.gnu.org/software/bash/manual/html_node/Exit-Status.html"
_FAULTHANDLER = "iris launch --again {job} --env PYTHONFAULTHANDLER=1"
_LAST_LINES = "iris logs {task} --tail 200"
_DMESG = "iris exec {worker} -- sh -c 'dmesg | grep -i -A1 oom'"
_IF_KILLED = (
    "dmesg on the host shows if the kernel killed the task. If so, request more memory (--memory), or reduce the "
    "memory that the program uses."
)

# The formatter would use twice as many lines for each rule.
# fmt: off
HOST = (
    Rule(name="disk-full", source=_ERRNO, next="iris exec {worker} -- df -h",
         text=("No space left on device", "Errno 28]"),
         cause="disk full or no inodes left",
         fix="Free some space, or write to another disk; `iris gc` removes files of old jobs. If df shows free "
             "space, check df -i, /tmp and /dev/shm."),
    Rule(name="disk-quota", source=_ERRNO, next="iris exec {worker} -- quota -s",
         text=("Disk quota exceeded", "Errno 122]"),
         cause="the user's quota on that file system is used up",
         fix="Delete files, or write to another file system: pip and Hugging Face keep caches in the home directory."),
    Rule(name="disk-read-only", source=_ERRNO, next="iris exec {worker} -- sh -c 'dmesg | tail -n 20'",
         text=("Read-only file system", "Errno 30]"),
         cause="the program wrote to a file system that is read-only",
         fix="Write below IRIS_OUTPUT_DIR or IRIS_WORKDIR. If the file system was writable before, the disk "
             "failed: check dmesg and drain the worker."),
    Rule(name="nfs-stale", source="https://github.com/huggingface/transformers/issues/9732",
         text=("Stale file handle", "Stale NFS file handle"),
         cause="a file on a network file system was removed or replaced by another host",
         fix="Let only one rank write and delete files there while the others wait. A retry usually succeeds; "
             "if not, mount the file system again."),
    Rule(name="fuse-gone", source="https://github.com/GoogleCloudPlatform/gcsfuse/issues/204",
         next="iris exec {worker} -- mount",
         text=("Transport endpoint is not connected",),
         cause="the process behind a FUSE mount, such as gcsfuse, has died",
         fix="Unmount the directory (fusermount -u) and mount it again. The process usually ran out of memory."),
    Rule(name="open-files", source="https://github.com/pytorch/pytorch/issues/165532",
         text=("Too many open files",),
         cause="the program reached its limit of open files",
         fix="Raise the limit first: sh -c 'ulimit -n 65536; exec ...'. Check for files that are never closed."),
    Rule(name="threads", source="https://github.com/OpenMathLib/OpenBLAS/issues/1668",
         text=("pthread_create failed", "can't start new thread", "pthread_create: Resource temporarily unavailable"),
         cause="the user reached the limit of threads",
         fix="Use fewer threads: --env OMP_NUM_THREADS=1, --env OPENBLAS_NUM_THREADS=1, fewer loader workers; or a "
             "higher ulimit -u."),
    Rule(name="memory", source=_ERRNO, next="iris exec {worker} -- free -h",
         text=("\nMemoryError", "ArrayMemoryError", "Cannot allocate memory", "std::bad_alloc"),
         cause="the host could not allocate more memory",
         fix="Request enough memory (--memory), or load less data at a time."),
    Rule(name="port-taken", source="https://github.com/pytorch/pytorch/issues/72816",
         next="iris exec {worker} -- ss -ltnp",
         text=("Address already in use", "EADDRINUSE"),
         cause="another process uses the port",
         fix="Let iris choose a free port: --ports NAME sets IRIS_PORT_NAME. If a process of an earlier run "
             "still uses it, stop that process."),
    Rule(name="name-resolution", source="https://docs.cloud.google.com/nat/docs/overview",
         next="iris exec {worker} -- cat /etc/resolv.conf",
         text=("Temporary failure in name resolution", "Name or service not known", "Could not resolve host"),
         cause="a host name could not be resolved",
         fix="Check the name, then DNS and routing of the worker: a VM without an external address needs Cloud "
             "NAT to reach the Internet."),
    Rule(name="tls-certificate", source="https://github.com/certbot/certbot/issues/3814", next="iris doctor",
         text=("CERTIFICATE_VERIFY_FAILED", "SSL certificate problem"),
         cause="a server's certificate was rejected",
         fix="The host lacks ca-certificates or your proxy's certificate (SSL_CERT_FILE), or its clock is "
             "wrong (see `iris doctor`)."),
    Rule(name="pip-managed", source="https://peps.python.org/pep-0668/",
         text=("error: externally-managed-environment",),
         cause="pip is not allowed to install into the system's Python",
         fix="Create an environment first: --setup 'python3 -m venv .venv && .venv/bin/pip install ...', or use uv."),
    Rule(name="pip-no-match", source="https://github.com/pypa/pip/issues/7633",
         next="iris exec {worker} -- sh -c 'python3 --version; uname -m'",
         text=("No matching distribution found for",),
         cause="pip found no matching package or version for the host's Python and platform",
         fix="Check name, version and supported Python versions on the package's page. If pip also"
             " prints `from versions: none`, the host may have no Internet access."),
    Rule(name="python-module", source="https://docs.python.org/3/library/exceptions.html#ModuleNotFoundError",
         text=("ModuleNotFoundError: No module named",),
         cause="a Python module is not installed where the task runs",
         fix="Install it in --setup, and run the program with the Python of that environment. Your own modules"
             " must be in --workdir."),
    Rule(name="variable-missing", source="https://docs.python.org/3/library/os.html#os.environ",
         next="iris launch --again {job} --secret {variable}",  # --env would store a secret value in the log
         text=("<frozen os>*, in __getitem__", "/os.py*, in __getitem__", ": unbound variable", ": parameter not set",
               ": parameter null or not set"),
         cause="an environment variable that the program reads is not set",
         fix="Tasks don't inherit the variables of your shell: iris launch --again JOB --env NAME copies a "
             "variable, --secret NAME reads it at each start and never stores it."),
    Rule(name="glibc", source="https://github.com/tensorflow/tensorflow/issues/1324",
         next="iris exec {worker} -- ldd --version",
         text=("version `GLIBC_*not found", "version `GLIBCXX_*not found", "version `CXXABI_*not found"),
         cause="a binary was built for a newer system than the host's",
         fix="Use a version built for the host's system, or create the VM with a newer image."),
    Rule(name="script-line-ends", source="https://www.shellscript.sh/tips/dos2unix/",
         text=("^M: bad interpreter", "\r: bad interpreter", "$'\\r': command not found"),
         cause="a script has Windows line endings",
         fix="Run dos2unix SCRIPT, and put `*.sh text eol=lf` in .gitattributes."),
    Rule(name="script-missing", source="https://pubs.opengroup.org/onlinepubs/9799919799/utilities/V3_chap02.html",
         next="iris launch --again {job} --workdir .",
         text=(": ./*: not found", "sh: ./*: No such file or directory", "line *: ./*: No such file or directory",
               "/run: line *: /*/work/*: No such file or directory",
               "can't open file '/*/work/*[Errno 2] No such file or directory"),
         cause="the script, or the interpreter in its #! line, is not on the worker",
         fix="A task starts in an empty directory: --workdir . ships the current directory, except files that git "
             "or .irisignore ignores. If the script was shipped, the host lacks the interpreter in its #! line."),
    Rule(name="program-missing", source="https://github.com/docker-library/python/issues/150",
         text=("can't open file '*[Errno 2] No such file or directory",),
         cause="the program is not on the worker",
         fix="A task starts in an empty directory: --workdir . ships the current directory. Or name the program "
             "by its absolute path on the workers."),
    Rule(name="exec-format", source=_ERRNO, next="iris exec {worker} -- uname -m",
         text=("Exec format error",),
         cause="the program was built for another kind of processor, or lacks its #! line",
         fix="Compare `file PROGRAM` with `uname -m` on the host."),
)

# Messages of SSH, git, cloud storage and other services about denied access.
ACCESS = (
    Rule(name="ssh-host-key", source="https://errornotes.dev/en/errors/ansible/fix-ansible-git-module-host-key-verification-failed-when-cloning-via-ssh",
         text=("REMOTE HOST IDENTIFICATION HAS CHANGED", "Host key verification failed"),
         cause="the host key is unknown to ssh or git, or has changed",
         fix="Add the published key to ~/.ssh/known_hosts of the worker, for example in --setup; ssh-keygen -R"
             " HOST removes an old one."),
    Rule(name="ssh-too-many-keys", source="https://www.simplified.guide/ssh/too-many-authentication-failures-fix",
         text=("Too many authentication failures",),
         cause="ssh offered too many keys, and the server gave up",
         fix="Set IdentityFile and IdentitiesOnly yes for that host in ~/.ssh/config."),
    Rule(name="ssh-refused", source="https://docs.github.com/en/authentication/troubleshooting-ssh/error-permission-denied-publickey",
         text=("Permission denied (publickey",),
         cause="the SSH server rejected every key",
         fix="Workers have none of your keys: pass the task a key with --secret, or clone over HTTPS with a token."),
    Rule(name="ssh-startups", source="https://man.openbsd.org/sshd_config#MaxStartups",
         text=("kex_exchange_identification: Connection closed by remote host",
               "ssh_exchange_identification: Connection closed by remote host", "Error reading SSH protocol banner",
               "Exceeded MaxStartups"),
         cause="the SSH server dropped the connection: too many at the same time",
         fix="sshd allows 10 unauthenticated connections (MaxStartups 10:30:100). Let one rank connect for "
             "all, or stagger the ranks; raise the limit on jump hosts."),
    Rule(name="git-password", source="https://github.com/appleboy/ssh-action/issues/136",
         text=("could not read Username for", "could not read Password for"),
         cause="git asked for a user name without a terminal",
         fix="The repository is private, or its name is wrong. Ship the code with --workdir, or pass a token: "
             "--secret GIT_TOKEN and git clone https://x-access-token:$GIT_TOKEN@..."),
    Rule(name="gcp-credentials", source="https://docs.cloud.google.com/docs/authentication/application-default-credentials",
         text=("Your default credentials were not found", "Could not automatically determine credentials"),
         cause="the task has no Google credentials",
         fix="Create the VM with a service account; on other hosts use --secret and "
             "GOOGLE_APPLICATION_CREDENTIALS."),
    Rule(name="gcs-access", source="https://github.com/googlecolab/colabtools/issues/1177",
         text=("does not have storage.*access to", "Provided scope(s) are not authorized"),
         cause="the VM's service account has no access to that bucket",
         fix="Grant roles/storage.objectUser on the bucket to the account that the message names. A VM without "
             "the storage scope must be re-created with --scopes=cloud-platform."),
    Rule(name="hf-rate", source="https://github.com/huggingface/huggingface_hub/issues/3312",
         text=("429 Client Error: Too Many Requests", "HTTP Error 429 thrown while requesting"),
         cause="the ranks together exceeded a server's rate limit",
         fix="Let only rank 0 download, to storage that all ranks can read; pass a token, which has a higher limit."),
    Rule(name="hf-gated", source="https://github.com/huggingface/huggingface_hub/issues/1119",
         text=("GatedRepoError", "Cannot access gated repo"),
         cause="the model is gated, and the task has no token with access",
         fix="Accept the conditions on the model's page, then pass --secret HF_TOKEN."),
    Rule(name="wandb-key", source="https://github.com/fraunhoferhhi/Self-Organizing-Gaussians/issues/4",
         text=("api_key not configured (no-tty)",),
         cause="wandb has no API key and no terminal to ask for it",
         fix="Pass --secret WANDB_API_KEY or --env WANDB_MODE=offline."),
    Rule(name="credentials-refused", source="https://www.rfc-editor.org/rfc/rfc9110#section-15.5.2",
         next="iris launch --again {job}",
         text=("HTTP Error 401", "401 Client Error: Unauthorized"),
         cause="a server rejected the program's key or token",
         fix="Check that the key is correct and not expired. A --secret is read at each start: correct it in this "
             "shell or its file, then launch the job again."),
)

# Messages of iris, docker and podman about a container that could not be started, or whose end is unknown.
CONTAINERS = (
    Rule(name="container-runtime", source="https://docs.docker.com/engine/install/linux-postinstall/",
         next="iris ssh {worker}",
         text=("iris: not started: no container runtime can be used",),
         cause="the user of the worker can use neither docker nor podman without a password",
         fix="On the worker, install podman, or add the user to the group docker (sudo usermod -aG docker USER)."),
    Rule(name="image-pull", source="https://docs.docker.com/reference/cli/docker/image/pull/",
         next="iris ssh {worker}",
         text=("iris: not started: docker pull *failed", "iris: not started: podman pull *failed"),
         cause="the image can't be pulled",
         fix="Check the image's name and tag. A private registry needs a login of the worker's user: run docker "
             "login on the worker, or in --setup."),
    Rule(name="image-program", source="https://docs.docker.com/engine/containers/run/#exit-status",
         text=("unable to start container process: exec: *: executable file not found",
               "unable to start container process: exec: *: no such file or directory",
               "OCI runtime attempted to invoke a command that was not found"),
         cause="the image has no such program",
         fix="iris looks the program up in the image and does not use the image's ENTRYPOINT: give the program's path "
             "inside the image, or ship the program with --workdir and write ./PROGRAM."),
    Rule(name="container-monitor", source="https://github.com/containers/podman/issues/18860",
         next="iris exec {worker} -- dmesg -T",
         text=("getting exit code of container *from DB: no such exit code",),
         cause="podman lost the process that monitors the container (conmon), and with it the exit code",
         fix="The kernel log of the worker shows if conmon was killed, for example out of memory. The exit code 127 is "
             "podman's own, not that of the program."),
)

# The exit code, the signal or iris's own error shows these causes, if the program printed no known message.
OUT_OF_MEMORY = Rule(
    name="out-of-memory", source="https://docs.kernel.org/admin-guide/cgroup-v2.html#memory-interface-files",
    next="iris exec {worker} -- free -h", reasons=(EndReason.OOM,),
    cause="the kernel killed the task: out of memory",
    fix="Request enough memory (--memory, which is also the limit), or use less: fewer loader workers, less "
        "prefetching, a streamed dataset.")

HOSTS = (
    Rule(name="host-rebooted", source="https://docs.cloud.google.com/tpu/docs/maintenance-events",
         next="iris exec {worker} -- last -x -n 5",
         text=("host * was rebooted", "the host was rebooted"),
         cause="the host was rebooted: by maintenance, by a kernel crash, or manually",
         fix="`last -x` on the host shows the time. Checkpoints and --max-retries-preemption let the work continue."),
    Rule(name="attempt-vanished", source=_SIGNALS, next=_DMESG,
         text=("the attempt vanished: no process, no exit record",),
         cause="the task and its wrapper were killed, manually or by the kernel's OOM killer",
         fix=_IF_KILLED),
    Rule(name="lease-ended", source="https://man7.org/linux/man-pages/man5/crontab.5.html", next="iris loop show",
         text=("lease expired: no poll in time", "its lease ended: nobody polled it"),
         cause="no cycle polled the task within its --lease, so its worker stopped it",
         fix="Check what runs cycles (`iris loop show`, `iris cron show`), or give the job a longer lease or none."),
    Rule(name="setup-timeout", source="https://manpages.debian.org/stable/apt/apt-get.8.en.html",
         next=_LAST_LINES, all_shown="iris launch --again {job} --setup-timeout {longer}",
         text=("iris: not started: the set-up*took longer than ",),
         cause="the set-up exceeded its --setup-timeout",
         fix="Give it more time. If a command of --setup waits for an answer, use its option for that, such as "
             "apt-get -y."),
)
"""Rules for failures of a host or of the set-up. They match the messages of iris."""

TIME_LIMIT = Rule(
    name="time-limit", source="https://docs.python.org/3/library/faulthandler.html",
    next=_LAST_LINES, all_shown="iris launch --again {job} --timeout {longer}", reasons=(EndReason.TIMEOUT,),
    cause="the task exceeded its --timeout",
    fix="If its last output is recent, raise the limit. If it is old, the task hung: start it again, and run "
        "`iris stacks` while it hangs.")

EXITS = (
    Rule(name="exit-not-found", source=_SHELL, next="iris exec {worker} -- sh -c 'echo $PATH'", exits=(127,),
         cause="the command, or a program that it runs, was not found",
         fix="Commands run without a login shell, so ~/.local/bin is not on PATH: use the full path, or install it "
             "in --setup."),
    Rule(name="exit-not-executable", source=_SHELL, exits=(126,),
         cause="the command was found, but is not executable",
         fix="Run chmod +x on the file before it is shipped, or run its interpreter: python3 train.py, sh run.sh."),
    Rule(name="exit-killed", source=_SIGNALS, next=_DMESG, signal="SIGKILL",
         cause="SIGKILL from outside iris, usually from the kernel's OOM killer",
         fix=_IF_KILLED),
    Rule(name="exit-bus-error", source=_SIGNALS, next="iris exec {worker} -- df -h /dev/shm", signal="SIGBUS",
         cause="SIGBUS: a memory-mapped file was truncated, or its disk is full",
         fix="Free space on the disk of the mapped file or in /dev/shm, and truncate no file while it is mapped."),
    Rule(name="exit-illegal-instruction", source="https://github.com/tensorflow/tensorflow/issues/17411",
         next="iris exec {worker} -- sh -c 'grep -m1 flags /proc/cpuinfo'", signal="SIGILL",
         cause="SIGILL: a binary uses instructions that this CPU lacks",
         fix="Prebuilt wheels of TensorFlow and jaxlib need AVX: use another host type, or a build for this CPU."),
    Rule(name="exit-abort", source=_SIGNALS, next=_LAST_LINES, all_shown=_FAULTHANDLER, signal="SIGABRT",
         cause="SIGABRT: a check inside a C++ library failed",
         fix="The first line with `Check failed` or `F0000` names the check; the stack follows. Without that line, "
             "--env PYTHONFAULTHANDLER=1 prints the Python stack."),
    Rule(name="exit-segfault", source="https://docs.python.org/3/library/faulthandler.html",
         next=_LAST_LINES, all_shown=_FAULTHANDLER, signal="SIGSEGV",
         cause="SIGSEGV: a crash inside native code",
         fix="--env PYTHONFAULTHANDLER=1 prints the Python stack. The usual cause is incompatible libraries."),
    Rule(name="exit-terminated", source=_SIGNALS, next="iris history {worker}", signal="SIGTERM",
         cause="SIGTERM from outside iris",
         fix="Another process sent it, or the host was shut down: `iris history` shows a preemption."),
    Rule(name="exit-crashed", source=_SHELL, next=_LAST_LINES, all_shown=_FAULTHANDLER,
         exits=(132, 134, 135, 136, 139),
         cause="a program started by the command crashed",
         fix="Its last lines name the program. The signal is the code minus 128: 11 is SIGSEGV, 6 SIGABRT. --env "
             "PYTHONFAULTHANDLER=1 prints the Python stack."),
    Rule(name="exit-above-128", source=_SHELL, next=_LAST_LINES, exits=(137, 143),
         cause="a program started by the command was killed by a signal",
         fix="Its last lines name the program. The signal is the code minus 128: 9 is SIGKILL; dmesg on the host shows "
             "if the kernel sent it (out of memory)."),
)
