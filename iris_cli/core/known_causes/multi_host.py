"""Messages of programs on several hosts: hosts, devices, arguments or checkpoints do not match."""

from iris_cli.core.known_causes import Rule

# The formatter would use twice as many lines for each rule.
# fmt: off
_OWN_NAME = "iris exec {worker} -- sh -c 'hostname; getent hosts $(hostname)'"
_METADATA = "http://metadata.google.internal/computeMetadata/v1/instance/attributes/tpu-env"

MULTI_HOST = (
    Rule(name="jax-gloo-name", source="https://github.com/pytorch/gloo/issues/40", next=_OWN_NAME,
         text=("gloo/transport/tcp/device.cc*] rv == 0. -",),
         cause="the host can't resolve its own name, and gloo needs the address of that name",
         fix="Run before the program: echo \"$(hostname -I | cut -d' ' -f1) $(hostname)\" | sudo tee -a /etc/hosts. "
             "JAX has no option for another name or interface."),
    Rule(name="jax-gloo-loopback", source="https://github.com/aws-samples/aws-do-eks/pull/69", next=_OWN_NAME,
         text=("Gloo context initialization failed*remote=[127.", "Gloo connectFullMesh failed*remote=[127."),
         cause="gloo connects to a loopback address, which no other host can reach",
         fix="In /etc/hosts, the host's own name has the address 127.0.0.1 or 127.0.1.1: replace it with the "
             "address that the other hosts use. With PyTorch you can set --env GLOO_SOCKET_IFNAME=eth0 instead. If "
             "all ranks are on one host, a loopback address is correct: find the rank that failed first."),
    Rule(name="gloo-sizes", source="https://github.com/pytorch/gloo/pull/456", next="iris logs {job} --diff",
         text=("gloo/transport/tcp/pair.cc*] op.preamble.length <= op.nbytes.",),
         cause="the ranks run a CPU collective with different shapes, or different CPU collectives",
         fix="All ranks must run the same collectives with the same shapes in the same order: look for a last "
             "batch that is smaller, and for a branch on the rank."),
    Rule(name="tpu-no-device", source="https://github.com/jax-ml/jax/issues/13260",
         next="iris exec {worker} -- sh -c 'ls -l /dev/accel* /dev/vfio'",
         text=("NOT_FOUND: No ba16c7433 device found",),
         cause="libtpu finds no TPU device on this host",
         fix="Run on a TPU VM (--tpu TYPE); a container needs the devices of its host. If /dev has none, the VM "
             "or its image is broken: re-create the slice."),
    Rule(name="tpu-metadata", source="https://github.com/google/gvisor/issues/10795",
         next="iris exec {worker} -- curl -s -H Metadata-Flavor:Google " + _METADATA,
         text=("Failed to get TPU metadata (tpu-env) from instance metadata*Couldn't connect to server",
               "ConnectionError: HTTPConnectionPool(host='metadata.google.internal'*Max retries exceeded"),
         cause="the program can't reach the metadata server, which describes the TPU slice",
         fix="Use the host's network in a container, and add metadata.google.internal to no_proxy. Without a "
             "metadata server, set TPU_SKIP_MDS_QUERY=1 and the TPU_* variables."),
    Rule(name="tpu-worker-list", source="https://github.com/huggingface/transformers/issues/28204",
         next="iris exec {worker} -- sh -c 'env | grep TPU_'",
         text=("slice_builder_worker_addresses specified. Expected*worker addresses, got",
               "unexpected worker hostname*from env var TPU_WORKER_HOSTNAMES."),
         cause="a TPU_* variable lists other workers than the slice has",
         fix="Unset TPU_PROCESS_ADDRESSES and TPU_WORKER_HOSTNAMES: on a TPU VM libtpu gets them from the "
             "metadata server. If the job must set them, list one name for each worker of the slice, in the same "
             "order on all workers."),
    Rule(name="tpu-slice-failure", source="https://github.com/AI-Hypercomputer/maxtext/pull/2041",
         next="iris logs {job} --diff",
         text=("Detected failure SLICE_FAILURE_", "Session master detected TPU session error from worker"),
         cause="a worker of the slice failed its health check, or its chip driver reported an error",
         fix="The lines before and after the message name the worker. Drain that worker and retry; re-create the slice "
             "if its workers fail again."),
    Rule(name="tpu-fatal-error", source="https://github.com/marin-community/marin/issues/1534",
         next="iris history {worker}",
         text=("A program or fatal error occurred, all pending programs will fail",
               "An unknown error has occurred, contact your next level of support"),
         cause="the TPU stopped with an error that libtpu can't name: a bad chip or a compiler fault",
         fix="Retry. If the same worker fails again, drain it and re-create the slice. If another worker fails, "
             "try other versions of jax and libtpu."),
    Rule(name="tpu-vmem", source="https://github.com/pytorch/xla/issues/9524",
         text=("Ran out of memory in memory space vmem", "Ran out of memory in memory space smem",
               "exceeded scoped vmem limit by"),
         cause="one operation or kernel needs more on-chip memory (vmem, smem) than a core has",
         fix="Use smaller blocks in the Pallas kernel, or a shorter sequence or chunk. For vmem (not smem) you "
             "can also raise xla_tpu_scoped_vmem_limit_kib in LIBTPU_INIT_ARGS."),
    Rule(name="megascale-culprit", source="https://openxla.org/xla/megascale/debugging_workflow",
         text=("hang that is likely caused by bad TPU chips on the following hosts",
               "hang that is likely caused by a networking issue."),
         cause="Megascale found bad chips, or a broken network link, on the hosts in the next lines",
         fix="Drain those workers and retry. If the same host is named three times, re-create its slice."),
    Rule(name="xla-flags", source="https://github.com/jax-ml/jax/issues/15616",
         text=("Unknown flags in XLA_FLAGS:",),
         cause="XLA_FLAGS has a flag that this version does not know",
         fix="Flags of the TPU compiler (xla_tpu_...) belong in LIBTPU_INIT_ARGS. Others were renamed or removed: "
             "compare with the version of jaxlib."),
    Rule(name="jax-remote-shards", source="https://github.com/jax-ml/jax/issues/28409",
         text=("that spans non-addressable (non process local) devices is not possible",),
         cause="a rank reads an array of which other hosts hold a part",
         fix="Call jax.experimental.multihost_utils.process_allgather(x, tiled=True) on all ranks, or print, save "
             "and pickle only x.addressable_shards."),
    Rule(name="jax-device-sets", source="https://github.com/keras-team/keras/issues/18681",
         text=("Received incompatible devices for jitted computation.",
               "Received incompatible devices for pjitted computation."),
         cause="the arguments of one jitted function are on different sets of devices",
         fix="The usual cause is an array on one device together with arrays on the whole mesh. Create it with a "
             "sharding of the mesh (jax.make_array_from_process_local_data, or out_shardings of its jit)."),
    Rule(name="jax-values-differ", source="https://github.com/sgl-project/sglang-jax/pull/155",
         next="iris logs {job} --diff",
         text=("passed to device_put is not the same on each process.",),
         cause="device_put replicates a value over all hosts, but the ranks have different values",
         fix="Use the same seed and data on all ranks, and no uninitialized memory (np.empty). If the values "
             "should differ, use jax.make_array_from_process_local_data."),
    Rule(name="jax-sync-names", source="https://github.com/google/flax/issues/2834", next="iris logs {job} --diff",
         text=("sync_global_devices name mismatch ('",),
         cause="the ranks wait at different barriers: they do not run the same steps",
         fix="Around checkpoints and collectives, do not branch on the rank or on local files. Write checkpoints "
             "to a directory that all hosts share (gs://...)."),
    Rule(name="jax-indivisible", source="https://github.com/jax-ml/jax/issues/27808",
         text=("which implies that the global size of its dimension*should be divisible by*but it is equal to",
               "implies that array axis*is partitioned*times, but the dimension size is"),
         cause="a dimension can't be divided by the number of devices along its mesh axis",
         fix="Make the global batch (or the sharded dimension) a multiple of that axis; with more hosts the mesh "
             "is larger. Or shard another dimension."),
    Rule(name="jax-mesh-size", source="https://github.com/xai-org/grok-1/issues/248",
         next="iris status {job} --all",
         text=("must equal the product of mesh_shape (", "must be >= the product of mesh_shape (",
               "does not match the product of the parallelism", "does not match the product of the ICI parallelism",
               "does not match the product of the DCN parallelism"),
         cause="the mesh of the program does not have as many devices as JAX sees",
         fix="Compute the mesh from jax.device_count(). If JAX sees fewer devices than the slice has, a rank did "
             "not call jax.distributed.initialize(), or JAX uses the CPU."),
    Rule(name="orbax-sharding", source="https://github.com/AI-Hypercomputer/maxtext/pull/3082",
         text=("sharding passed to deserialization should be specified, concrete",),
         cause="orbax restores an array without knowing its sharding",
         fix="Restore into a tree of jax.ShapeDtypeStruct with shardings of the current mesh "
             "(checkpoint_utils.construct_restore_args)."),
    Rule(name="checkpoint-missing", source="https://github.com/google/orbax/issues/924",
         text=('Error opening "zarr" driver: Metadata at*does not exist',
               'Error opening "zarr3" driver: Metadata at*does not exist'),
         cause="the checkpoint is incomplete, or not on this host",
         fix="A local directory has only the part that its host saved: save to a directory that all hosts share "
             "(gs://..., NFS). Restore a step that was committed, with the version of orbax that saved it."),
    Rule(name="gcs-object-rate", source="https://github.com/jax-ml/jax/issues/12583",
         text=("exceeded the rate limit for object mutation operations",
               "exceeds the rate limit. Please reduce the rate of create, update, and delete requests"),
         cause="several ranks write the same object of a bucket: about one change per second is allowed",
         fix="Write the object on rank 0 only (IRIS_TASK_INDEX=0), or under a name that contains the rank. Check "
             "checkpoint directories, logs and the compilation cache."),
)
"""Rules for faults of one rank or of the whole program."""

MULTI_HOST_ECHOES = (
    Rule(name="jax-restarted", source="https://github.com/marin-community/marin/issues/7650", echo=True,
         next="iris logs {job} --diff",
         text=("unexpectedly tried to connect with a different incarnation.",),
         cause="a rank started again while the others ran, or another job uses the same coordinator",
         fix="Find why that rank ended. Restart the gang as a whole, never one rank (no `while true` around the "
             "program), and give each job its own coordinator port."),
    Rule(name="jax-no-register", source="https://github.com/jax-ml/jax/issues/35905", echo=True,
         next="iris logs {job} --rank 0",
         text=("RPC: /tensorflow.CoordinationService/RegisterTask",
               "while calling /tensorflow.CoordinationService/RegisterTask",
               "RPC: /xla.coordination.CoordinationService/RegisterTask"),
         cause="the rank can't reach the JAX coordinator on rank 0",
         fix="Rank 0 ended or never started, or a firewall closes the port: since jax 0.8.1 it is 8482, not 8476, "
             "and the default rules of TPU networks do not open it. --env JAX_COORDINATOR_PORT=8476 restores it."),
    Rule(name="jax-key-timeout", source="https://github.com/EnzymeAD/Enzyme-JAX/issues/623", echo=True,
         next="iris logs {job} --diff",
         text=("GetKeyValue() timed out with key:",),
         cause="a rank waited for data of another rank, and the data did not arrive",
         fix="Find the rank that ended, hangs or is slower: `iris stacks` compares the ranks while the job runs."),
    Rule(name="gloo-peers", source="https://github.com/sgl-project/sglang/issues/3226", echo=True,
         next="iris logs {job} --diff",
         text=("Gloo context initialization failed:", "Gloo connectFullMesh failed with"),
         cause="the ranks can't connect to each other for CPU collectives (gloo)",
         fix="Another rank ended first, or the host name of a rank resolves to an address that the other hosts can't "
             "reach, or a firewall closes the ports: gloo uses any free port. With PyTorch, --env "
             "GLOO_SOCKET_IFNAME=eth0 names the network interface."),
    Rule(name="gloo-peer-closed", source="https://github.com/pytorch/pytorch/issues/75512", echo=True,
         next="iris logs {job} --diff",
         text=("gloo/transport/tcp/*Connection closed by peer", "gloo/transport/tcp/*Connection reset by peer"),
         cause="another rank ended during a CPU collective (gloo)",
         fix="Find the rank that ended first: its log has the cause."),
    Rule(name="megascale-hang", source="https://openxla.org/xla/megascale/debugging_workflow", echo=True,
         next="iris logs {job} --diff",
         text=("Megascale hang detected: Timed out waiting for",),
         cause="a slice waited for another slice, which made no progress",
         fix="Lines of rank 0 with `Megascale detects a hang` name cause and hosts. A rank "
             "that ended or stopped in its own code is the usual cause."),
)
"""Rules for effects of another rank's fault."""
