"""Which state directory looks after the slices of a log: exactly one, for a copy knows nothing of what came after it.

A copy has the same owner, so what its original has made since is listed as its own, and unknown to its log; and what
works for its original is idle to it. So the log names the directory that it is in, and a directory that is another one
asks for nothing and deletes nothing. Where a log was put back in its own place, the numbers of slices tell.
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct

from iris_cli.core.events.events import SlicesAdopted
from iris_cli.core.evolve import Draft
from iris_cli.core.messages.cloud import CloudSlice
from iris_cli.core.model.cluster import Cluster
from iris_cli.core.model.slice import Keeper, slice_number
from iris_cli.core.units import count


class Objection(Struct, frozen=True, kw_only=True):
    """Why this directory must not change slices: they are managed `elsewhere`, or some are `unheard_of`."""

    elsewhere: str = ""
    unheard_of: tuple[str, ...] = ()

    def __str__(self) -> str:
        if self.elsewhere:
            what = "this state directory is a copy of that one, or was moved"
            return f"slices are managed from {self.elsewhere}; {what}"
        there = f"{count(len(self.unheard_of), 'slice')} of this cluster ({', '.join(self.unheard_of)})"
        return f"the log never asked for {there}: it is an old copy, or another copy of it is in use"


def objection(
    cluster: Cluster, here: Keeper, owner: str, listed: Iterable[CloudSlice] = ()
) -> Objection | None:
    """What speaks against making and deleting slices from `here`, as far as what is `listed` shows it."""
    kept = cluster.keeper
    elsewhere = kept.where or kept.place if kept is not None and kept.place != here.place else ""
    beyond = tuple(sorted(each.name for each in listed if _is_beyond(cluster, each.name, owner)))
    return Objection(elsewhere=elsewhere, unheard_of=beyond) if elsewhere or beyond else None


def _is_beyond(cluster: Cluster, name: str, owner: str) -> bool:
    """Whether a slice has a number that the log has not come to. It counts them before anybody is asked."""
    numbered = slice_number(name, owner)
    if numbered is None or name in cluster.slices:
        return False
    record = cluster.scale_groups.get(numbered[0])
    return numbered[1] > (record.requested if record is not None else 0)


def claim(draft: Draft, here: Keeper) -> None:
    """With the first slice of a log its directory becomes the one that looks after them."""
    if draft.cluster.keeper is None and draft.cluster.slices:
        draft.record(SlicesAdopted(place=here.place, where=here.where))


def adopt(draft: Draft, here: Keeper, owner: str, unheard_of: Iterable[str]) -> None:
    """The operator's word that this is the one by now, and that these slices may go."""
    counted: dict[str, int] = {}
    for name in unheard_of:
        numbered = slice_number(name, owner)
        if numbered is not None and _is_beyond(draft.cluster, name, owner):
            counted[numbered[0]] = max(numbered[1], counted.get(numbered[0], 0))
    if draft.cluster.keeper != here or counted:
        draft.record(SlicesAdopted(place=here.place, where=here.where, counted=counted))
