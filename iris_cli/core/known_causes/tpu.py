"""Messages of libtpu and the XLA compiler for TPUs."""

from __future__ import annotations

from iris_cli.core.known_causes.rule import Rule

_ERRORS = "https://openxla.org/xla/errors/error_"

# The formatter would use twice as many lines for each rule.
# fmt: off
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
         fix="If no process holds the chips, remove /tmp/libtpu_lockfile on the worker, as the owner of "
             "the file."),
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
         fix="Check the indices, and wait for each DMA and semaphore of the Pallas kernel."),
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
