"""What PyTorch, PyTorch/XLA and NCCL say."""

from __future__ import annotations

from iris_cli.core.known_causes.rule import Rule

# A rule takes six lines or so; the formatter would take up to fourteen.
# fmt: off
TORCH = (
    Rule(name="torch-xla-versions", source="https://github.com/pytorch/xla/issues/2259",
         says=("_XLAC.cpython*undefined symbol",),
         cause="torch and torch_xla don't fit each other",
         fix="They must be of one release. Something installed another torch afterwards: pin both in one pip install."),
    Rule(name="torch-xla-spawn", source="https://github.com/pytorch/xla/issues/7765",
         says=("Do not use the XLA device before calling xmp.spawn",),
         cause="the XLA device was touched before the processes were started",
         fix="Nothing before xmp.spawn or torch_xla.launch may ask for a device, not even whether there is one."),
    Rule(name="torch-xla-device", source="https://github.com/pytorch/xla/pull/4599",
         says=("Missing XLA configuration",),
         cause="torch_xla was not told on what to compute",
         fix="--env PJRT_DEVICE=TPU (or CPU, CUDA); versions before 2.0 want XRT_TPU_CONFIG."),
    Rule(name="cuda-memory", source="https://docs.pytorch.org/docs/stable/notes/cuda.html",
         next="iris exec {worker} -- nvidia-smi",
         says=("CUDA out of memory. Tried to allocate",),
         cause="the memory of the GPU is full",
         fix="Smaller batch or activation checkpointing. If the message tells of much that is reserved but "
             "unallocated: --env PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True."),
    Rule(name="torch-shared-memory", source="https://github.com/pytorch/pytorch/issues/5040",
         next="iris exec {worker} -- df -h /dev/shm",
         says=("It is possible that dataloader's workers are out of shared memory",
               "Unexpected bus error encountered in worker. This might be caused by insufficient shared memory"),
         cause="no room in /dev/shm, where the workers of the DataLoader share their batches",
         fix="Fewer or no workers, smaller batches, or a larger /dev/shm; in a container --shm-size or --ipc=host."),
    Rule(name="torch-loader-killed", source="https://github.com/pytorch/pytorch/issues/8976",
         next="iris exec {worker} -- free -h",
         says=("DataLoader worker (pid*is killed by signal: Killed",),
         cause="the kernel ended a worker of the DataLoader: the host ran out of memory",
         fix="Fewer workers or less prefetching; ask for what it really needs (--memory)."),
    Rule(name="torch-open-files", source="https://github.com/pytorch/pytorch/issues/973",
         says=("received 0 items of ancdata",),
         cause="the processes of the DataLoader have too many files open",
         fix="torch.multiprocessing.set_sharing_strategy('file_system'), or a higher limit: ulimit -n 65536 in front."),
    Rule(name="torch-port-taken", source="https://github.com/meta-pytorch/torchtune/issues/392",
         says=("The server socket has failed to listen on any local network address",),
         cause="the port of the rendezvous is taken on that host, 29500 unless you say another",
         fix="--env-preset torchrun gives each job a port that was free; or --ports NAME and IRIS_PORT_NAME."),
    Rule(name="torch-rendezvous", source="https://github.com/pytorch/pytorch/issues/107021",
         next="iris logs {job} --rank 0",
         says=("The client socket has timed out after", "The client socket has failed to connect to",
               "The connection to the C10d store has failed"),
         cause="a rank can't reach the rendezvous of rank 0",
         fix="Rank 0 died or started too late, MASTER_ADDR names a host that the others can't resolve, or a firewall "
             "closes the port."),
    Rule(name="nccl-interface", source="https://github.com/NVIDIA/nccl/issues/286",
         next="iris exec {worker} -- ip -br address",
         says=("Bootstrap : no socket interface found", "Bootstrap: no socket interface found"),
         cause="NCCL finds no network interface of the name that it was given",
         fix="Leave NCCL_SOCKET_IFNAME away, or name one of each host, with commas between: --env "
             "NCCL_SOCKET_IFNAME=eno1,eth0."),
)
