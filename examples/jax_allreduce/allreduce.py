"""A gang program: every rank contributes its number, and every rank prints the same sum."""

import jax
import jax.numpy as jnp
from jax.experimental import multihost_utils


def main() -> None:
    jax.distributed.initialize()  # peers: from --env-preset jax; on TPU VMs from the metadata server
    rank, ranks = jax.process_index(), jax.process_count()
    contributions = multihost_utils.process_allgather(jnp.asarray([rank + 1.0]))
    print(f"rank {rank} of {ranks}: sum = {float(contributions.sum()):.1f}", flush=True)


if __name__ == "__main__":
    main()
