"""Messages of libtpu and the XLA compiler, of JAX, and of PyTorch."""

from iris_cli.core.known_causes import Rule

_ERRORS = "https://openxla.org/xla/errors/error_"

# The formatter would use twice as many lines for each rule.
# fmt: off

# Messages of libtpu and the XLA compiler for TPUs.
TPU = (
    Rule(name="tpu-in-use", source="https://github.com/jax-ml/jax/issues/22070", next="iris worker unwedge {worker}",
         text=("The TPU is already in use by process with pid", "libtpu.so already in use",
               "open(/dev/vfio/*Device or resource busy", "open(/dev/accel*Device or resource busy",
               "Couldn't open iommu group"),
         cause="another process holds the TPU chips of this host",
         fix="A chip serves one process. `iris worker unwedge` names the process and offers to stop it. If that "
             "process is part of the program, only one process of the program may import jax or torch_xla."),
    Rule(name="tpu-lockfile", source="https://github.com/jax-ml/jax/issues/10192", next="iris worker unwedge {worker}",
         text=("Internal error when accessing libtpu multi-process lockfile",),
         cause="a stale lock file of a killed process blocks libtpu",
         fix="If no process holds the chips, remove /tmp/libtpu_lockfile on the worker, as the owner of the file."),
    Rule(name="tpu-device-refused", source="https://github.com/pytorch/xla/issues/3947",
         next="iris worker unwedge {worker}",
         text=("open(/dev/accel*Operation not permitted", "open(/dev/accel*Permission denied",
               "open(/dev/vfio/*Operation not permitted", "open(/dev/vfio/*Permission denied",
               "Couldn't open device: /dev/accel"),
         cause="the TPU device of this host can't be opened",
         fix="Usually a process of an earlier run holds the device: find and stop it. Otherwise the user has no "
             "permission, or the VM is broken: restart or re-create the VM."),
    Rule(name="tpu-topology", source="https://github.com/google/gemma_pytorch/issues/25",
         next="iris status {job} --all",
         text=("Failed to get global TPU topology",),
         cause="libtpu can't determine the slice topology",
         fix="Run one task on every VM of the slice, as --tpu TYPE does. "
             "Variables TPU_* that the job sets itself must agree with the slice."),
    Rule(name="tpu-peers-missing", source="https://github.com/jax-ml/jax/issues/19971", next="iris logs {job} --diff",
         text=("TPU backend initialization is taking more than", "TPU initialization failed: Failed to connect to"),
         cause="the TPU waits for hosts of the slice that do not run the program",
         fix="All hosts of a slice must start the program at the same time. Launch it as a gang on the whole "
             "slice (--tpu TYPE), and find the rank that did not start the program."),
    Rule(name="libtpu-missing", source="https://github.com/jax-ml/jax/issues/24987",
         text=("Failed to open*libtpu.so*cannot open shared object file",),
         cause="libtpu is not installed where jax looks for it",
         fix="Install it with jax, so that the versions agree: pip install -U 'jax[tpu]', in --setup for instance."),
    Rule(name="libtpu-version", source="https://github.com/pytorch/xla/issues/6949",
         text=("Mismatched PJRT plugin PJRT API version",
               "The plugin is likely built with a later version than the framework"),
         cause="libtpu and the framework have incompatible versions",
         fix="Install both from one release, 'jax[tpu]==X' or 'torch_xla[tpu]==X', and no other libtpu."),
    Rule(name="tpu-memory-compile", source=f"{_ERRORS}1000",
         text=("Ran out of memory in memory space hbm", "TPU TensorCore Hbm usage:*exceeding available bytes"),
         cause="the compiled program needs more memory than a chip has",
         fix="Use a smaller batch per chip, more chips to shard over, bfloat16, jax.checkpoint or donated "
             "buffers. One huge allocation in the list usually means a missing sharding."),
    Rule(name="tpu-memory-program", source=f"{_ERRORS}0101",
         text=("Attempting to reserve*at the bottom of memory",),
         cause="the program does not fit next to the data in chip memory",
         fix="Free memory (referenced arrays, several jitted programs), donate buffers, or use a smaller batch or "
             "context."),
    Rule(name="tpu-memory-buffer", source=f"{_ERRORS}0100",
         text=("Error allocating device buffer: Attempting to allocate",),
         cause="a chip is out of memory",
         fix="Use a smaller batch or context, more sharding and donated buffers, and release unused jax.Arrays."),
    Rule(name="tpu-hardware", source=f"{_ERRORS}0200", next="iris worker drain {worker} --reason hardware",
         text=("observed errors are: [Hardware]", "observed errors are: [Network]", "observed errors are: [Power]"),
         cause="TPU hardware failed (a chip, its network or its power)",
         fix="Retry. If the same host fails again, drain it and re-create the slice."),
    Rule(name="tpu-programs-differ", source=f"{_ERRORS}0200",
         text=("An unexpected leader shows up in the launch group",),
         cause="the hosts of the slice run different programs",
         fix="Use the same code, XLA_FLAGS and versions of jax and libtpu on every host, and do not branch on the "
             "rank around a collective computation."),
    Rule(name="tpu-kernel", source=f"{_ERRORS}0200",
         text=("halted*BoundsCheck", "Semaphore*has a nonzero value upon exit from a Mosaic kernel"),
         cause="a custom kernel reads out of bounds, or doesn't wait for a transfer that it started",
         fix="Check the indexes, and wait for each DMA and semaphore of the Pallas kernel."),
    Rule(name="tpu-halted", source=f"{_ERRORS}0200",
         text=("Core halted unexpectedly", "Accelerator device halted prematurely",
               "The program continuator has halted unexpectedly"),
         cause="a core of the TPU stopped in the middle of the program",
         fix="The rest of the message shows if the cause was hardware, a kernel, or hosts out of step. If it happens "
             "only on one worker, drain that worker. Otherwise try another version of jax and libtpu, then report a "
             "bug."),
    Rule(name="xla-buffer-layout", source=f"{_ERRORS}0102",
         text=("expected parameter*but got buffer with incompatible size",),
         cause="data and compiled program disagree about the layout of a buffer",
         fix="The usual cause is a checkpoint or exported program that was created with other flags or versions, "
             "or for another topology: create it again."),
)

# JAX: its installation, its start on many hosts, its GPUs.
JAX = (
    Rule(name="jax-without-tpu", source="https://github.com/AI-Hypercomputer/RecML/issues/9",
         text=("A Google TPU may be present on this machine, but either a TPU-enabled jaxlib or libtpu is not",),
         cause="jax was installed without TPU support and uses the CPU",
         fix="pip install -U 'jax[tpu]' in the environment of the task; another package may have installed plain jax."),
    Rule(name="jax-versions", source="https://github.com/jax-ml/jax/issues/17638",
         text=("is newer than and incompatible with jax version", "but this version of jax requires version"),
         cause="jax and jaxlib are incompatible",
         fix="Install both in one step with the same version, such as 'jax[tpu]==X', and pin it."),
    Rule(name="jax-initialized-late", source="https://github.com/jax-ml/jax/pull/26194",
         text=("jax.distributed.initialize() must be called before any JAX",),
         cause="something used JAX before jax.distributed.initialize()",
         fix="Call the function first in the program. An import that queries devices or creates arrays is too early."),
    Rule(name="jax-no-coordinator", source="https://docs.jax.dev/en/latest/multi_process.html",
         text=("coordinator_address should be defined", "Number of processes must be defined",
               "The process id of the current process must be defined"),
         cause="jax.distributed.initialize() does not know its peers",
         fix="On hosts other than TPU VMs launch with --env-preset jax, or pass these variables to "
             "jax.distributed.initialize(): IRIS_COORDINATOR_ADDRESS, IRIS_NUM_TASKS, IRIS_TASK_INDEX."),
    Rule(name="jax-cpu-collectives", source="https://github.com/jax-ml/jax/pull/26174",
         text=("Multiprocess computations aren't implemented on the CPU backend",),
         cause="the ranks use CPUs without a collectives backend",
         fix="If they should use TPUs, earlier lines say why JAX fell back. On CPUs: --env "
             "JAX_CPU_COLLECTIVES_IMPLEMENTATION=gloo."),
    Rule(name="jax-peers-missing", source="https://github.com/AI-Hypercomputer/gpu-recipes/issues/2",
         next="iris logs {job} --diff",
         text=("Barrier timed out. Id: [Init]Wait_for_all_tasks_to_register",
               "Barrier timed out. Barrier_id: PjRT_Client_Connect",
               "coordination service as cluster registration failed"),
         cause="not all ranks reached jax.distributed.initialize() in time",
         fix="A rank died before the call, never calls it, or can't reach the coordinator. Check that there are as "
             "many processes as ranks, that the coordinator's address is not localhost, and that the firewall "
             "opens its port."),
    Rule(name="jax-gpu-memory", source="https://docs.jax.dev/en/latest/gpu_memory_allocation.html",
         text=("Out of memory while trying to allocate", "Out of memory trying to allocate"),
         cause="the GPU is out of memory",
         fix="Check for other processes on the GPU, or reduce the batch size. If other processes share the GPU, set "
             "XLA_PYTHON_CLIENT_PREALLOCATE=false or a smaller XLA_CLIENT_MEM_FRACTION."),
    Rule(name="gpu-driver", source="https://github.com/nagadomi/nunif/issues/702",
         next="iris exec {worker} -- nvidia-smi",
         text=("CUDA driver version is insufficient for CUDA runtime version", "Found no NVIDIA driver on your system",
               "no CUDA-capable device is detected", "FAILED_PRECONDITION: No visible GPU devices"),
         cause="the program finds no GPU that it can use",
         fix="Request a GPU (--gpu): without it, tasks see none. If the job requested one, the host's driver is "
             "missing or older than the program's CUDA."),
    Rule(name="jax-nan", source="https://github.com/jax-ml/jax/issues/475",
         text=("FloatingPointError: invalid value (nan) encountered",),
         cause="a NaN occurred, and jax_debug_nans stopped the program",
         fix="The traceback names the operation. If the NaN occurs only under jit or only in the gradient, look "
             "for log, sqrt or a division near 0 behind a jnp.where."),
)

ECHOES = (
    Rule(name="jax-peer-died", source="https://github.com/jax-ml/jax/pull/39095", echo=True,
         next="iris logs {job} --diff",
         text=("Terminating process because the JAX distributed service detected fatal errors",
               "heartbeat timeout. This indicates that the remote task", "Failed to send RPC to coordination service"),
         cause="JAX ended this rank because another rank or the coordinator died",
         fix="Find the rank without this message: its log has the cause. If every rank has the message, a host or the "
             "network failed."),
    Rule(name="jax-barrier", source="https://github.com/ayaka14732/llama-2-jax/issues/20", echo=True,
         next="iris logs {job} --diff",
         text=("DEADLINE_EXCEEDED: Barrier timed out",),
         cause="a rank did not reach a barrier where the others waited",
         fix="The message names the tasks that were missing: their logs have the cause. If compilation or "
             "restore times differ a lot, raise the timeout."),
    Rule(name="nccl-timeout", source="https://github.com/pytorch/pytorch/issues/118369", echo=True,
         next="iris logs {job} --diff",
         text=("Watchdog caught collective operation timeout",),
         cause="a rank did not reach a collective operation where the others waited",
         fix="Find the rank that left the loop first, because of an exception, an exhausted data loader, or an "
             "evaluation. A longer timeout only helps for an evaluation."),
)

# Messages of PyTorch, PyTorch/XLA and NCCL.
TORCH = (
    Rule(name="torch-xla-versions", source="https://github.com/pytorch/xla/issues/2259",
         text=("_XLAC.cpython*undefined symbol",),
         cause="torch and torch_xla are incompatible",
         fix="Install torch and torch_xla of the same release, both pinned in one pip install."),
    Rule(name="torch-xla-spawn", source="https://github.com/pytorch/xla/issues/7765",
         text=("Do not use the XLA device before calling xmp.spawn",),
         cause="the XLA device was used before the processes were started",
         fix="Do not query devices before xmp.spawn or torch_xla.launch, not even to count them."),
    Rule(name="torch-xla-device", source="https://github.com/pytorch/xla/pull/4599",
         text=("Missing XLA configuration",),
         cause="torch_xla has no device configured",
         fix="Set --env PJRT_DEVICE=TPU (or CPU, CUDA); versions before 2.0 need XRT_TPU_CONFIG."),
    Rule(name="cuda-memory", source="https://docs.pytorch.org/docs/stable/notes/cuda.html",
         next="iris exec {worker} -- nvidia-smi",
         text=("CUDA out of memory. Tried to allocate",),
         cause="the GPU is out of memory",
         fix="Use a smaller batch or activation checkpointing. If much memory is reserved but unallocated: --env "
             "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True."),
    Rule(name="torch-shared-memory", source="https://github.com/pytorch/pytorch/issues/5040",
         next="iris exec {worker} -- df -h /dev/shm",
         text=("It is possible that dataloader's workers are out of shared memory",
               "Unexpected bus error encountered in worker. This might be caused by insufficient shared memory"),
         cause="no space in /dev/shm for the batches of DataLoader workers",
         fix="Use fewer or no workers, smaller batches, or a larger /dev/shm; in a container --shm-size or "
             "--ipc=host."),
    Rule(name="torch-loader-killed", source="https://github.com/pytorch/pytorch/issues/8976",
         next="iris exec {worker} -- free -h",
         text=("DataLoader worker (pid*is killed by signal: Killed",),
         cause="the kernel killed a DataLoader worker: the host ran out of memory",
         fix="Use fewer workers or less prefetching; request enough memory (--memory)."),
    Rule(name="torch-open-files", source="https://github.com/pytorch/pytorch/issues/973",
         text=("received 0 items of ancdata",),
         cause="the processes of the DataLoader have too many files open",
         fix="Call torch.multiprocessing.set_sharing_strategy('file_system'), or raise the limit before the "
             "program starts: ulimit -n 65536."),
    Rule(name="torch-port-taken", source="https://github.com/meta-pytorch/torchtune/issues/392",
         text=("The server socket has failed to listen on any local network address",),
         cause="the rendezvous port of the host is in use (default: 29500)",
         fix="Use --env-preset torchrun, which gives each job a free port, or --ports NAME and IRIS_PORT_NAME."),
    Rule(name="torch-rendezvous", source="https://github.com/pytorch/pytorch/issues/107021",
         next="iris logs {job} --rank 0",
         text=("The client socket has timed out after", "The client socket has failed to connect to",
               "The connection to the C10d store has failed"),
         cause="a rank can't reach the rendezvous of rank 0",
         fix="Rank 0 died or started too late, MASTER_ADDR names a host that the others can't resolve, or a firewall "
             "closes the port."),
    Rule(name="nccl-interface", source="https://github.com/NVIDIA/nccl/issues/286",
         next="iris exec {worker} -- ip -br address",
         text=("Bootstrap : no socket interface found", "Bootstrap: no socket interface found"),
         cause="NCCL finds no network interface of the configured name",
         fix="Unset NCCL_SOCKET_IFNAME, or list the interfaces of all hosts: --env "
             "NCCL_SOCKET_IFNAME=eno1,eth0."),
)
