"""`--each-line`: the log names the lines, the state directory keeps them, each task gets its own."""

from __future__ import annotations

from pathlib import Path

from iris_cli.core.ids import AttemptId, JobId, TaskId
from iris_cli.core.model.job import JobState
from iris_cli.core.model.task import TaskState
from iris_cli.ops.cycle.environment import array_variables, placement_of, read_line
from tests.support.fake_runner import Site


def variables(site: Site, index: int) -> dict[str, str]:
    place = placement_of(site.cluster, AttemptId(TaskId(JobId("j"), index), 0))
    return array_variables(place, read_line(site.session().state, place.job, place.index))


def test_each_task_is_told_its_line_and_its_index(tmp_path: Path) -> None:
    site = Site(tmp_path, "w0")
    site.launch("j", each_line=("first", "", "third 'line'"), cpu=0.1)
    site.run()
    assert [variables(site, index) for index in range(3)] == [
        {"IRIS_ARRAY_INDEX": "0", "IRIS_EACH_LINE": "first"},
        {"IRIS_ARRAY_INDEX": "1", "IRIS_EACH_LINE": ""},
        {"IRIS_ARRAY_INDEX": "2", "IRIS_EACH_LINE": "third 'line'"},
    ]
    assert site.state_of("j") is JobState.RUNNING


def test_some_of_the_lines_can_be_chosen(tmp_path: Path) -> None:
    site = Site(tmp_path, "w0")
    site.launch("j", each_line=("a", "b", "c"), array="0,2", cpu=0.1)
    site.run()
    assert variables(site, 1) == {"IRIS_ARRAY_INDEX": "2", "IRIS_EACH_LINE": "c"}


def test_an_array_without_lines_tells_the_index_alone(tmp_path: Path) -> None:
    site = Site(tmp_path, "w0")
    site.launch("j", array="5,7", cpu=0.1)
    site.run()
    assert variables(site, 1) == {"IRIS_ARRAY_INDEX": "7"}


def test_the_log_stays_small(tmp_path: Path) -> None:
    site = Site(tmp_path, "w0")
    before = sum(path.stat().st_size for path in tmp_path.rglob("events.jsonl"))
    site.launch("j", each_line=tuple(f"input file number {number}" for number in range(10_000)))
    assert sum(path.stat().st_size for path in tmp_path.rglob("events.jsonl")) - before < 1_000


def test_without_its_lines_nothing_starts_and_the_job_waits(tmp_path: Path) -> None:
    site = Site(tmp_path, "w0")
    site.launch("j", each_line=("only here",))
    (kept,) = tmp_path.glob("**/lines/*")
    kept.unlink()
    site.run()
    assert site.task("j").state is TaskState.PENDING
    assert not any(host.running for host in site.hosts.values())
