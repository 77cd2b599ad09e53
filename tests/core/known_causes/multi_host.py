"""Log lines of failures on several hosts, composed in the form of the reports, and lines that only look like them."""

from __future__ import annotations

_XLA = "jax.errors.JaxRuntimeError: "
_CPU = "RuntimeError: Unable to initialize backend 'cpu': "

SEEN: dict[str, tuple[str, ...]] = {
    "jax-gloo-name": (  # as jax 0.10.2 prints it: EAI_NONAME, and EAI_AGAIN without a name server
        f"{_CPU}[enforce fail at external/gloo/gloo/transport/tcp/device.cc:99] rv == 0. -2 vs 0 (set "
        "JAX_PLATFORMS='' to automatically choose an available backend)\n",
        f"{_CPU}[enforce fail at external/gloo/gloo/transport/tcp/device.cc:99] rv == 0. -3 vs 0\n",
    ),
    "jax-gloo-loopback": (
        f"{_XLA}UNKNOWN: Gloo context initialization failed: [external/gloo/gloo/transport/tcp/pair.cc:152] timed out "
        "connecting: SO_ERROR: Connection refused, remote=[127.0.1.1]:9222\n",
        "RuntimeError: Gloo connectFullMesh failed with [/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:152] "
        "timed out connecting: SO_ERROR: Connection refused, remote=[127.0.0.1]:14215\n",
    ),
    "tpu-no-device": (
        "jaxlib.xla_extension.XlaRuntimeError: NOT_FOUND: No ba16c7433 device found.\n",
        "RuntimeError: Unable to initialize backend 'tpu': NOT_FOUND: No ba16c7433 device found. (set "
        "JAX_PLATFORMS='' to automatically choose an available backend)\n",
    ),
    "tpu-metadata": (
        "Failed to get TPU metadata (tpu-env) from instance metadata for variable CHIPS_PER_HOST_BOUNDS: INTERNAL: "
        "Couldn't connect to server\n",
        "requests.exceptions.ConnectionError: HTTPConnectionPool(host='metadata.google.internal', port=80): Max "
        "retries exceeded with url: /computeMetadata/v1/instance/attributes/tpu-env (Caused by NewConnectionError("
        "'Failed to establish a new connection: [Errno -2] Name or service not known'))\n",
    ),
    "tpu-worker-list": (
        "RuntimeError: Bad StatusOr access: UNKNOWN: TPU initialization failed: Invalid "
        "--2a886c8_slice_builder_worker_addresses specified. Expected 4 worker addresses, got 1.\n",
        "INVALID_ARGUMENT: Error: unexpected worker hostname 'w-0:8470' from env var TPU_WORKER_HOSTNAMES. Expecting "
        "a valid hostname or IP address without port number\n",
    ),
    "tpu-slice-failure": (
        "E0511 18:18:50.796514     915 session_master.cc:505] Session is failing with the following status: Session "
        "master detected TPU session error from worker w-15:8471. The reporting TPU chip locations are:tpu31:pe4:3\n",
        "E0511 18:18:50.796852     915 tpunetd_client.cc:311] Detected failure SLICE_FAILURE_CHIP_DRIVER_ERROR in "
        "session e6c885828b538167; Start failure handling\n",
    ),
    "tpu-fatal-error": (
        "6x2x0_SC1: *** A program or fatal error occurred, all pending programs will fail, and results may be "
        "corrupted. Physical location: tpu3:pe2:2\n",
        "E0827 23:43:41.200512 39676 fake_program_continuator.cc:556] 1x0x2_BC1: *** A Unknown error has occurred. "
        "An unknown error has occurred, contact your next level of support.\n",
    ),
    "tpu-vmem": (
        "RuntimeError: Bad StatusOr access: RESOURCE_EXHAUSTED: XLA:TPU compile permanent error. Ran out of memory in "
        "memory space vmem. Used 32.42M of 16.00M vmem. Exceeded vmem capacity by 16.42M\n",
        "RESOURCE_EXHAUSTED: XLA:TPU compile permanent error. Ran out of memory in memory space smem. Used 1.00M of "
        "1.00M smem. Exceeded smem capacity by 1.7K.\n",
        f"{_XLA}RESOURCE_EXHAUSTED: Scoped allocation with size 31.07M and limit 16.00M exceeded scoped vmem limit by "
        "15.07M.\n",
    ),
    "megascale-culprit": (
        "E0301 10:00:00.000000 77 error_handler.cc:12] Megascale detects a hang that is likely caused by bad TPU chips "
        "on the following hosts. Please remove the hosts from the fleet and restart the workload.\n",
        "Megascale detects a hang that is likely caused by a networking issue. Please examine the underlying "
        "networking stack for the following hosts.\n",
    ),
    "xla-flags": (
        "F0415 10:21:37.000000 9 parse_flags_from_env.cc:226] Unknown flags in XLA_FLAGS: "
        "--xla_tpu_spmd_rng_bit_generator_unsafe=1 \n",
    ),
    "jax-remote-shards": (
        "RuntimeError: Fetching value for `jax.Array` that spans non-addressable (non process local) devices is not "
        "possible. You can use `jax.experimental.multihost_utils.process_allgather` to print the global array\n",
    ),
    "jax-device-sets": (
        "ValueError: Received incompatible devices for jitted computation. Got argument a of step with shape "
        "float32[8] and device ids [0, 1, 2048, 2049] on platform TPU and argument b of step with device ids [0]\n",
        "ValueError: Received incompatible devices for pjitted computation. Got argument params of to_bf16\n",
    ),
    "jax-values-differ": (
        "AssertionError: <class 'numpy.ndarray'> passed to device_put is not the same on each process. Make sure you "
        "are passing the same value of <class 'numpy.ndarray'> on each process.\n",
    ),
    "jax-sync-names": (
        "AssertionError: sync_global_devices name mismatch ('starting_save_checkpoint'). Expected: [3690404440 "
        "2901420750]; got: 2901420750.\n",
    ),
    "jax-indivisible": (
        "ValueError: One of pjit outputs was given the sharding of NamedSharding(mesh=Mesh('dp': 1, 'fsdp': 32), "
        "spec=PartitionSpec(('dp', 'fsdp'),)), which implies that the global size of its dimension 0 should be "
        "divisible by 32, but it is equal to 1 (full shape: (1, 130048))\n",
        "jax._src.sharding.IndivisibleError: Sharding NamedSharding(mesh=Mesh('x': 4), spec=P('x',)) implies that "
        "array axis 0 is partitioned 4 times, but the dimension size is 7 (full shape: (7,))\n",
    ),
    "jax-mesh-size": (
        "ValueError: Number of devices 1 must equal the product of mesh_shape (1, 8)\n",
        "ValueError: Number of devices 4 must be >= the product of mesh_shape (3, 2)\n",
        "AssertionError: Number of devices 8         does not match the product of the parallelism 16\n",
        "AssertionError: Number of devices per slice 8 does not match the product of the ICI parallelism 16\n",
    ),
    "orbax-sharding": (
        "ValueError: sharding passed to deserialization should be specified, concrete and an instance of "
        "`jax.sharding.Sharding`. Got None\n",
    ),
    "checkpoint-missing": (
        'ValueError: NOT_FOUND: Error opening "zarr" driver: Metadata at local file "/home/me/ckpt/a/.zarray" does '
        "not exist [source locations='tensorstore/driver/kvs_backed_chunk_driver.cc:1255']\n",
        'ValueError: NOT_FOUND: Error opening "zarr3" driver: Metadata at gs://b/ckpt/10/a/zarr.json does not exist\n',
    ),
    "gcs-object-rate": (
        'TooManyRequests: 429 POST https://storage.googleapis.com/: { "message": "The object b/run/log.jsonl exceeded '
        'the rate limit for object mutation operations (create, update, and delete)." }\n',
        '    "message": "The rate of change requests to the object b/cache/jit_f exceeds the rate limit. Please reduce '
        'the rate of create, update, and delete requests.",\n',
    ),
    "gloo-sizes": (
        "terminate called after throwing an instance of 'gloo::EnforceNotMet'\n"
        "  what():  [enforce fail at external/gloo/gloo/transport/tcp/pair.cc:459] op.preamble.length <= op.nbytes. 8 "
        "vs 6. Received data size doesn't match expected size.\n",
        "gloo::EnforceNotMet: [enforce fail at fbcode/gloo/transport/tcp/pair.cc:456] op.preamble.length <= op.nbytes. "
        "194478720 vs 4\n",
    ),
    "jax-restarted": (
        "E1125 23:06:02.190628   19350 coordination_service.cc:518] ABORTED: 1 unexpectedly tried to connect with a "
        "different incarnation. It has likely restarted.\n",
        "ABORTED: /job:jax_worker/replica:0/task:3 unexpectedly tried to connect with a different incarnation. It has "
        "likely restarted.\n",
    ),
    "jax-no-register": (
        "F1125 23:05:50.450759 17592 client.h:80] Terminating process because the JAX distributed service detected "
        "fatal errors. absl::Status: DEADLINE_EXCEEDED: Deadline Exceeded\n\n"
        "RPC: /xla.coordination.CoordinationService/RegisterTask\n",
        "DEADLINE_EXCEEDED: Deadline Exceeded\nRPC: /tensorflow.CoordinationService/RegisterTask\n",
        "Additional GRPC error information from remote target unknown_target_for_coordination_leader while calling "
        "/tensorflow.CoordinationService/RegisterTask:\n",
    ),
    "jax-key-timeout": (
        "Execution of replica 0 failed: DEADLINE_EXCEEDED: GetKeyValue() timed out with key: "
        "cpu:global_topology/cpu and duration: 10m\n",
    ),
    "gloo-peers": (
        f"{_XLA}UNKNOWN: Gloo context initialization failed: [external/gloo/gloo/transport/tcp/pair.h:311] Connect "
        "timeout [none]\n",
        "RuntimeError: Gloo connectFullMesh failed with [../gloo/gloo/transport/tcp/pair.cc:144] no error\n",
    ),
    "gloo-peer-closed": (
        "RuntimeError: [../third_party/gloo/gloo/transport/tcp/pair.cc:598] Connection closed by peer "
        "[10.0.0.30]:28048\n",
        f"{_XLA}UNKNOWN: Gloo all-reduce failed: [external/gloo/gloo/transport/tcp/pair.cc:547] Read error "
        "[10.0.0.3]:3311: Connection reset by peer\n",
    ),
    "megascale-hang": (
        "Megascale hang detected: Timed out waiting for 4 graphs to complete at launch_id 13650. Already completed: "
        "100. StepGloballyInProgress: true. Timeout: 1m\n",
    ),
}
"""By the name of the rule that must match."""

LOOK_ALIKES: dict[str, str] = {
    "jax-gloo-name": "[Gloo] Rank 0 is connected to 1 peer ranks (gloo/transport/tcp/device.cc). rv == 0\n",
    "jax-gloo-loopback": "[Gloo] Rank 1 is connected to 1 peer ranks, remote=[127.0.0.1]:9222\n",
    "tpu-no-device": "No ba16c7433 device found yet, will try again\n",
    "tpu-metadata": (
        "UserWarning: cloud_tpu_init failed: ConnectionError(MaxRetryError(\"HTTPConnectionPool(host='metadata.google."
        "internal', port=80): Max retries exceeded with url: /computeMetadata/v1/\"))\n"
        "Failed to get TPU metadata (tpu-env) from instance metadata for variable ALT: NOT_FOUND\n"
    ),
    "tpu-worker-list": "slice_builder: Expected 4 worker addresses, got 4; TPU_WORKER_HOSTNAMES=w-0,w-1,w-2,w-3\n",
    "tpu-slice-failure": "I0511 18:18:30 session_master.cc:211] Worker Address: w-53:8471, no SLICE_FAILURE\n",
    "tpu-fatal-error": "A program error occurred in the input pipeline, all pending requests will be retried\n",
    "tpu-vmem": "Memory space vmem: used 12.42M of 16.00M; scoped vmem limit 16.00M\n",
    "megascale-culprit": "I0301 Megascale hang detection is on, timeout 1m, no bad TPU chips on the hosts\n",
    "xla-flags": "XLA_FLAGS=--xla_dump_to=/tmp/hlo: all flags known\n",
    "jax-remote-shards": "x.is_fully_addressable is False: x spans non-addressable devices, as it should\n",
    "jax-device-sets": "Received 4 devices for jitted computation, all compatible\n",
    "jax-values-differ": "array passed to device_put is the same on each process\n",
    "jax-sync-names": "sync_global_devices('starting_save_checkpoint') done in 0.2 s\n",
    "jax-indivisible": (
        "NamedSharding(...), which implies that the global size of its dimension 0 is\n32: should be divisible by 32\n"
    ),
    "jax-mesh-size": "Number of devices 8 matches the product of mesh_shape (1, 8)\n",
    "orbax-sharding": "sharding passed to deserialization: NamedSharding(mesh=Mesh('x': 4))\n",
    "checkpoint-missing": 'Opening "zarr" driver: Metadata at local file "/ckpt/a/.zarray"\nfile b does not exist\n',
    "gcs-object-rate": "The learning rate exceeds the rate limit of 1e-3, please reduce the rate\n",
    "gloo-sizes": "  what():  [enforce fail at pair.cc:459] op.nbytes <= limit. 8 vs 6\n",
    "jax-restarted": "task:3 connected with incarnation 7064756694357617212 after it restarted\n",
    "jax-no-register": "RPC: /xla.coordination.CoordinationService/GetTaskState\n",
    "jax-key-timeout": "GetKeyValue() took 9m with key: cpu:global_topology/cpu\n",
    "gloo-peers": "[Gloo] Rank 0 is connected to 0 peer ranks. Expected number of connected peer ranks is : 0\n",
    "gloo-peer-closed": "gloo/transport/tcp/pair.cc: connected\nssh: Connection closed by peer\n",
    "megascale-hang": "Megascale hang detection: waiting for 4 graphs to complete at launch_id 13650\n",
}
"""By the name of the rule that must not match; no other one may match either."""
