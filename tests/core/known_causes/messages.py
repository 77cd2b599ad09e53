"""What the programs really said, as their users reported it: the lines by which each rule must know the failure."""

from __future__ import annotations

from tests.core.known_causes.multi_host import SEEN

MESSAGES: dict[str, tuple[str, ...]] = {
    **SEEN,
    "tpu-in-use": (
        "INFO:2024-06-25 00:34:55,142:jax._src.xla_bridge:889: Unable to initialize backend 'tpu': ABORTED: The TPU is "
        "already in use by process with pid 176028. Not attempting to load libtpu.so in this process.\n"
        "WARNING:2024-06-25 00:34:55,143:jax._src.xla_bridge:940: A Google TPU may be present on this machine, but "
        "either a TPU-enabled jaxlib or libtpu is not installed. Falling back to cpu.\n",
        "jax.errors.JaxRuntimeError: UNKNOWN: TPU initialization failed: open(/dev/vfio/0): Device or resource busy: "
        "Device or resource busy; Couldn't open iommu group /dev/vfio/0\n",
    ),
    "tpu-lockfile": (
        "RuntimeError: Unable to initialize backend 'tpu': ABORTED: Internal error when accessing libtpu multi-process "
        'lockfile. Run "$ sudo rm /tmp/libtpu_lockfile".\n',
    ),
    "tpu-device-refused": (
        "RuntimeError: Bad StatusOr access: UNKNOWN: TPU initialization failed: open(/dev/accel2): Operation not "
        "permitted: Operation not permitted; Couldn't open device: /dev/accel2; could not create driver instance\n",
    ),
    "tpu-topology": (
        "RuntimeError: Unable to initialize backend 'tpu': INTERNAL: Failed to get global TPU topology. (set "
        "JAX_PLATFORMS='' to automatically choose an available backend)\n",
    ),
    "tpu-peers-missing": (
        "/home/me/.local/lib/python3.10/site-packages/jax/_src/xla_bridge.py:146: UserWarning: TPU backend "
        "initialization is taking more than 60.0 seconds. Did you run your code on all TPU hosts? See "
        "https://jax.readthedocs.io/en/latest/multi_process.html for more information.\n  warnings.warn(\n",
    ),
    "libtpu-missing": (
        "RuntimeError: Unable to initialize backend 'tpu': INTERNAL: Failed to open /home/me/.local/lib/python3.10/"
        "site-packages/libtpu/libtpu.so: /home/me/.local/lib/python3.10/site-packages/libtpu/libtpu.so: cannot open "
        "shared object file: No such file or directory (set JAX_PLATFORMS='' to automatically choose)\n",
    ),
    "libtpu-version": (
        "F0000 00:00:1713630999.125092  494916 pjrt_computation_client.cc:158] Non-OK-status: tpu_status status: "
        "INVALID_ARGUMENT: Mismatched PJRT plugin PJRT API version (0.47) and framework PJRT API version 0.40).\n",
        "pjrt_c_api_helpers.cc:258] Unexpected error status Unexpected PJRT_Plugin_Attributes_Args size: expected 32, "
        "got 24. The plugin is likely built with a later version than the framework.\n",
    ),
    "tpu-memory-compile": (
        "jaxlib.xla_extension.XlaRuntimeError: RESOURCE_EXHAUSTED: XLA:TPU compile permanent error. Ran out of memory "
        "in memory space hbm. Used 21.95G of 15.48G hbm. Exceeded hbm capacity by 6.47G.\n\nTotal hbm usage >= 22G:\n",
        "RESOURCE_EXHAUSTED: TPU TensorCore Hbm usage: 34.82G, SparseCore Hbm usage 174.10G, exceeding available "
        "bytes: 95.74G\n",
    ),
    "tpu-memory-program": (
        "XlaRuntimeError: RESOURCE_EXHAUSTED: Error loading program 'jit_step': Attempting to reserve 29.49G at the "
        "bottom of memory. That was not possible. There are 147.64M free, 0B reserved, and 147.64M reservable.\n",
    ),
    "tpu-memory-buffer": (
        "ValueError: RESOURCE_EXHAUSTED: Error allocating device buffer: Attempting to allocate 8.00M. That was not "
        "possible. There are 6.43M free.; (0x0x1_HBM0)\n",
    ),
    "tpu-hardware": (
        "INTERNAL: Accelerator device halted prematurely, perhaps due to an on-device check-failure; observed errors "
        "are: [Hardware]\n",
    ),
    "tpu-programs-differ": (
        "Core halted unexpectedly: INTERNAL: Accelerator device halted prematurely, perhaps due to an on-device "
        "check-failure. Node 0 halted unexpectedly at tag:pc TensorCoreSequencer:1:0x1d9 (from TensorCoreSequencer:1:"
        "0x309): scheckne: An unexpected leader shows up in the launch group with a different launch id than the "
        "current group leader.\n",
    ),
    "tpu-kernel": (
        "Core halted unexpectedly: INTERNAL: Accelerator device halted prematurely, perhaps due to an on-device "
        "check-failure. Node 0 halted unexpectedly at tag:pc TensorCoreSequencer:23:0x292 (from TensorCoreSequencer:23:"
        "0xd74a): BoundsCheck 92 [deref of %s931] for %937 = dma.hbm_to_vmem\n",
    ),
    "tpu-halted": (
        "jaxlib.xla_extension.XlaRuntimeError: FAILED_PRECONDITION: The program continuator has halted unexpectedly.\n",
        "RuntimeError: INTERNAL: Core halted unexpectedly: No error message available as no compiler metadata was "
        "provided.\n",
    ),
    "xla-buffer-layout": (
        "XlaRuntimeError: INVALID_ARGUMENT: Executable(jit_step) expected parameter 2482 of size 5242880 "
        "(bf16[16,1280,40]{2,1,0:T(8,128)(2,1)}) but got buffer with incompatible size 1638400\n",
    ),
    "jax-without-tpu": (
        "WARNING:2025-04-06 19:31:14,948:jax._src.xla_bridge:971: A Google TPU may be present on this machine, but "
        "either a TPU-enabled jaxlib or libtpu is not installed. Falling back to cpu.\n",
    ),
    "jax-versions": (
        "RuntimeError: jaxlib version 0.4.14 is newer than and incompatible with jax version 0.4.6. Please update your "
        "jax and/or jaxlib packages.\n",
    ),
    "jax-initialized-late": (
        "RuntimeError: jax.distributed.initialize() must be called before any JAX calls that might initialise the XLA "
        "backend.\n",
    ),
    "jax-no-coordinator": ("ValueError: coordinator_address should be defined.\n",),
    "jax-cpu-collectives": (
        "jaxlib.xla_extension.XlaRuntimeError: INVALID_ARGUMENT: Multiprocess computations aren't implemented on the "
        "CPU backend.\n",
    ),
    "jax-peers-missing": (
        "Original error: DEADLINE_EXCEEDED: Barrier timed out. Id: [Init]Wait_for_all_tasks_to_register::0. This "
        "usually happens because a task triggered the barrier too early or too slowly.\n",
        "jaxlib.xla_extension.XlaRuntimeError: DEADLINE_EXCEEDED: Barrier timed out. Barrier_id: PjRT_Client_Connect. "
        "Timed out task names:\n/job:jax_worker/replica:0/task:1\n",
    ),
    "jax-gpu-memory": (
        "jaxlib.xla_extension.XlaRuntimeError: RESOURCE_EXHAUSTED: Out of memory while trying to allocate 17179869184 "
        "bytes.\n",
    ),
    "gpu-driver": (
        "RuntimeError: CUDA error: CUDA driver version is insufficient for CUDA runtime version\n",
        "jaxlib.xla_extension.XlaRuntimeError: FAILED_PRECONDITION: No visible GPU devices.\n",
    ),
    "jax-nan": ("FloatingPointError: invalid value (nan) encountered in jit(compiled_train_step).\n",),
    "torch-xla-versions": (
        "ImportError: /usr/local/lib/python3.10/dist-packages/_XLAC.cpython-310-x86_64-linux-gnu.so: undefined symbol: "
        "_ZN5torch4lazy13MetricFnValueEd\n",
    ),
    "torch-xla-spawn": (
        "RuntimeError: Runtime is already initialized. Do not use the XLA device before calling xmp.spawn.\n",
    ),
    "torch-xla-device": (
        "RuntimeError: tensorflow/compiler/xla/xla_client/computation_client.cc:274 : Missing XLA configuration\n",
    ),
    "cuda-memory": (
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 546.00 MiB. GPU 0 has a total capacity of 15.77 "
        "GiB of which 514.19 MiB is free.\n",
    ),
    "torch-shared-memory": (
        "RuntimeError: DataLoader worker (pid 46794) is killed by signal: Bus error. It is possible that dataloader's "
        "workers are out of shared memory. Please try to raise your shared memory limit.\n",
    ),
    "torch-loader-killed": ("RuntimeError: DataLoader worker (pid 19597) is killed by signal: Killed.\n",),
    "torch-open-files": ("RuntimeError: received 0 items of ancdata\n",),
    "torch-port-taken": (
        "torch.distributed.DistNetworkError: The server socket has failed to listen on any local network address. "
        "port: 29500, useIpv6: false, code: -98, name: EADDRINUSE, message: address already in use\n",
    ),
    "torch-rendezvous": (
        "[E socket.cpp:860] [c10d] The client socket has timed out after 60s while trying to connect to 192.0.0.1:1\n"
        "torch.distributed.elastic.rendezvous.api.RendezvousConnectionError: The connection to the C10d store has "
        "failed. See inner exception for details.\n",
    ),
    "nccl-interface": ("misc/socket.cc:437 NCCL WARN Bootstrap : no socket interface found\n",),
    "ssh-host-key": (
        "Cloning into 'repo'...\nHost key verification failed.\nfatal: Could not read from remote repository.\n",
    ),
    "ssh-too-many-keys": (
        "Received disconnect from 203.0.113.10 port 22:2: Too many authentication failures\nDisconnected from "
        "203.0.113.10 port 22\n",
    ),
    "ssh-refused": (
        "git@github.com: Permission denied (publickey).\nfatal: Could not read from remote repository.\n",
    ),
    "ssh-startups": (
        "kex_exchange_identification: Connection closed by remote host\nConnection closed by 10.1.1.212 port 3001\n",
        "paramiko.ssh_exception.SSHException: Error reading SSH protocol banner\n",
    ),
    "git-password": (
        "fatal: could not read Username for 'https://github.com': No such device or address\n",
        "fatal: could not read Username for 'https://github.com': terminal prompts disabled\n",
    ),
    "gcp-credentials": (
        "google.auth.exceptions.DefaultCredentialsError: Your default credentials were not found. To set up "
        "Application Default Credentials, see "
        "https://cloud.google.com/docs/authentication/external/set-up-adc for more information.\n",
    ),
    "gcs-access": (
        '    "message": "service-1@cloud-tpu.iam.gserviceaccount.com does not have storage.objects.create access to '
        'bucket/train/events.out.tfevents.1587750594.",\n',
    ),
    "hf-rate": (
        "HTTP Error 429 thrown while requesting HEAD https://huggingface.co/.../resolve/v2/config.json\n",
        "requests.exceptions.HTTPError: 429 Client Error: Too Many Requests for url: https://huggingface.co/x\n",
    ),
    "hf-gated": ("    raise GatedRepoError(message, response) from e\n",),
    "wandb-key": (
        "wandb.errors.UsageError: api_key not configured (no-tty). call wandb.login(key=[your_api_key])\n",
    ),
    "disk-full": (
        "OSError: [Errno 28] No space left on device\n",
        "tee: ckpt/part-0: No space left on device\n",
    ),
    "container-runtime": (
        "iris: not started: no container runtime can be used: docker: not installed; podman: not installed\n",
    ),
    "image-pull": (
        "iris: not started: docker pull ghcr.io/lab/train:3 failed:\nError response from daemon: manifest unknown\n",
        'iris: not started: podman pull train:3 failed:\nError: short-name "train:3" did not resolve to an alias\n',
    ),
    "image-program": (
        'Error: runc: runc create failed: unable to start container process: exec: "train": executable file not found'
        " in $PATH: OCI runtime attempted to invoke a command that was not found\n",
        "docker: Error response from daemon: failed to create task for container: failed to create shim task: OCI"
        ' runtime create failed: runc create failed: unable to start container process: exec: "./run.sh": stat'
        " ./run.sh: no such file or directory: unknown\n",
    ),
    "container-monitor": (
        'time="2026-11-26T12:19:46Z" level=error msg="Waiting for container b87701c2: getting exit code of container'
        ' b87701c2 from DB: no such exit code (container in state running)"\n',
    ),
    "disk-quota": ("OSError: [Errno 122] Disk quota exceeded: '/home/me/.cache/pip'\n",),
    "disk-read-only": ("OSError: [Errno 30] Read-only file system: '/mnt/data/ckpt'\n",),
    "nfs-stale": ("OSError: [Errno 116] Stale file handle\n",),
    "fuse-gone": ("OSError: [Errno 107] Transport endpoint is not connected: '/opt/logs/run'\n",),
    "open-files": ("OSError: [Errno 24] Too many open files: '/data/shard-1023'\n",),
    "threads": (
        "OpenBLAS blas_thread_init: pthread_create failed for thread 50 of 64: Resource temporarily unavailable\n",
        "RuntimeError: can't start new thread\n",
    ),
    "memory": (
        "Traceback (most recent call last):\nMemoryError\n",
        "numpy.core._exceptions._ArrayMemoryError: Unable to allocate 120. GiB for an array with shape (16, 10)\n",
        "OSError: [Errno 12] Cannot allocate memory\n",
    ),
    "port-taken": (
        "OSError: [Errno 98] Address already in use\n",
        "RuntimeError: Address already in use\n",
    ),
    "name-resolution": (
        "socket.gaierror: [Errno -3] Temporary failure in name resolution\n",
        "fatal: unable to access 'https://github.com/a/b/': Could not resolve host: github.com\n",
    ),
    "tls-certificate": (
        "ssl.SSLCertVerificationError: [SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed: unable to get local "
        "issuer certificate (_ssl.c:997)\n",
        "curl: (60) SSL certificate problem: unable to get local issuer certificate\n",
    ),
    "pip-managed": ("error: externally-managed-environment\n\n× This environment is externally managed\n",),
    "credentials-refused": (
        "urllib.error.HTTPError: HTTP Error 401: Unauthorized\n",
        "requests.exceptions.HTTPError: 401 Client Error: Unauthorized for url: https://api.example.org/v1/models\n",
    ),
    "script-missing": (
        "/home/me/.iris/1/w/a/2/run: 2: exec: ./train.sh: not found\n",
        "ash: exec: line 0: ./train.sh: not found\n",
        "bash: ./train.sh: No such file or directory\n",
        "run.sh: line 3: ./train.sh: No such file or directory\n",
        "/home/me/.iris/1/w/a/2/run: line 2: /home/me/.iris/1/w/a/2/work/train.sh: No such file or directory\n",
        "python3: can't open file '/home/me/.iris/1/w/a/2/work/train.py': [Errno 2] No such file or directory\n",
    ),
    "variable-missing": (
        "  File \"<frozen os>\", line 679, in __getitem__\nKeyError: 'DATA'\n",
        "  File \"/usr/lib/python3.8/os.py\", line 675, in __getitem__\nKeyError: 'DATA'\n",
        "sh: 1: DATA: parameter not set\n",
        "bash: line 1: DATA: unbound variable\n",
        "run.sh: line 2: DATA: parameter null or not set\n",
    ),
    "program-missing": ("python3: can't open file 'main.py': [Errno 2] No such file or directory\n",),
    "host-rebooted": ("host w was rebooted\n", "the host was rebooted\n"),
    "attempt-vanished": ("the attempt vanished: no process, no exit record\n",),
    "setup-timeout": (
        "iris: not started: the set-up took longer than 3 s (--setup-timeout)\n",
        "iris: not started: the set-up (pull of me/i:1) took longer than 1800 s (--setup-timeout)\n",
    ),
    "lease-ended": ("lease expired: no poll in time\n", "its lease ended: nobody polled it\n"),
    "pip-no-match": (
        "ERROR: Could not find a version that satisfies the requirement mxnet==1.3.1 (from versions: 0.9.5)\n"
        "ERROR: No matching distribution found for mxnet==1.3.1\n",
        "ERROR: No matching distribution found for onnx-simplifier==0.4.36\n",
    ),
    "python-module": ("ModuleNotFoundError: No module named 'jax'\n",),
    "glibc": (
        "ImportError: /lib/x86_64-linux-gnu/libm.so.6: version `GLIBC_2.29' not found (required by /home/mfp/x.so)\n",
    ),
    "script-line-ends": (
        "bash: ./run.sh: /bin/bash^M: bad interpreter: No such file or directory\n",
        "./run.sh: line 2: $'\\r': command not found\n",
    ),
    "exec-format": ("OSError: [Errno 8] Exec format error: './train'\n",),
    "jax-peer-died": (
        "F0929 17:42:48.594200 1044529 client.h:77] Terminating process because the JAX distributed service detected "
        "fatal errors. This most likely indicates that another task died; see the other task logs for more details.\n",
        "E external/xla/xla/tsl/distributed_runtime/coordination/coordination_service.cc:1170] /job:jax_worker/"
        "replica:0/task:0 has been set to ERROR in coordination service: UNAVAILABLE: Task /job:jax_worker/replica:0/"
        "task:0 heartbeat timeout. This indicates that the remote task has failed, got preempted, or crashed "
        "unexpectedly.\n",
    ),
    "jax-barrier": (
        "jaxlib.xla_extension.XlaRuntimeError: DEADLINE_EXCEEDED: Barrier timed out. Barrier_id: "
        "multihost_broadcast_sync0. Timed out task names:\n/job:jax_worker/replica:0/task:3\n",
    ),
    "nccl-timeout": (
        "[rank4]:[E321 02:07:08.414640780 ProcessGroupNCCL.cpp:607] [Rank 4] Watchdog caught collective operation "
        "timeout: WorkNCCL(SeqNum=1580, OpType=ALLREDUCE, NumelIn=466119168, NumelOut=466119168, Timeout(ms)=600000) "
        "ran for 600067 milliseconds before timing out.\n",
    ),
}
"""By the name of the rule. The pages that the rules name, and the sources of the programs, have them."""
