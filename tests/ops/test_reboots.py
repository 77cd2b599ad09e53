"""How it is found out that a host was rebooted makes no difference to what had ended there before."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from iris_cli.core.ids import WorkerId
from iris_cli.core.model.task import EndReason, TaskState
from iris_cli.ops.cycle import cycle
from iris_cli.ops.cycle.dispatch import Dispatcher
from iris_cli.ops.workers import workers
from tests.support.fake_runner import Site


def by_a_poll(site: Site) -> None:
    site.cycle()


def by_a_probe(site: Site) -> None:
    workers.probe(site.session(), ["w0"])


def by_the_operators_word(site: Site) -> None:
    session = site.session()
    workers.accept(session, workers.probe_unrecorded(session, "w0"))


def by_another_launch(site: Site) -> None:
    """Without asking how the host is: it is healthy by the log."""
    session = site.session()
    site.launch("other")
    with Dispatcher(session) as dispatcher:
        with session.transaction() as draft:
            _, mine = cycle.assign(session, draft)
        dispatcher.begin(poll=False)
        dispatcher.start(mine)
        dispatcher.process_calls()


@pytest.mark.parametrize("found_out", [by_a_poll, by_a_probe, by_the_operators_word, by_another_launch])
def test_a_success_before_a_reboot_counts_however_that_is_found_out(
    tmp_path: Path, found_out: Callable[[Site], None]
) -> None:
    site = Site(tmp_path, "w0")
    site.launch("one")
    site.launch("two")
    site.cycle()
    w0 = site.hosts["w0"]
    w0.exits("one")
    w0.reboot()
    found_out(site)
    assert site.task("one").state is TaskState.SUCCEEDED
    end = site.task("two").attempts[0].end
    assert end is not None
    assert (end.reason, end.error) == (EndReason.WORKER_FAILED, "host w0 was rebooted")
    site.run()
    assert site.cluster.workers[WorkerId("w0")].boot_id == w0.boot_id
    assert sorted(set(w0.running) - {"other/task-0"}) == ["two/task-0"]
