"""Messages of JAX (its installation, its start on many hosts, its GPUs), and messages of PyTorch."""

from __future__ import annotations

from iris_cli.core.known_causes.rule import Rule

# The formatter would use twice as many lines for each rule.
# fmt: off
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
