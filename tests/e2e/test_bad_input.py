"""What bad input gets: one clear line, a hint with what to type, the exit code, and nothing changed."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.site import Site

CONFIG = """\
cluster: {name: lab}
slices:
  - {name: tpu-a, type: v5litepod-16, hosts: [h0, h1, h2, h3]}
workers:
  - {id: cpu-0, host: h4, cpu: 4, memory: 8GB}
"""


def a_site(directory: Path) -> Site:
    (directory / "cluster.yaml").write_text(CONFIG)
    (directory / "big.env").write_text("BIG=" + "x" * 131_072)
    (directory / "job.sh").write_text("#!/bin/sh\n")
    (directory / "odd.sh").write_text("#!/bin/sh\n#IRIS --mem 8GB\n")
    made = Site(directory, [])
    made.iris("launch", "--no-schedule", "--name", "there", "--", "true")
    return made


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return a_site(tmp_path)


@pytest.fixture(scope="module")
def unchanged(tmp_path_factory: pytest.TempPathFactory) -> Site:
    """One for all commands that change nothing."""
    return a_site(tmp_path_factory.mktemp("site"))


@pytest.mark.parametrize(
    ("words", "code", "said", "hint"),
    [
        (["launch"], 2, "no command", "iris launch"),
        (["launch", "python", "train.py"], 2, "'python' is not a job file", "put -- before the command"),
        (["launch", "big.env"], 2, "'big.env' is not a job file", "a job script begins with #!/bin/sh"),
        (
            ["launch", "tarin.sh"],
            2,
            "'tarin.sh' is not a job file: no such file",
            "put -- before the command",
        ),
        (["launch", "odd.sh"], 3, "odd.sh has 1 problem", "odd.sh:2: no such option: --mem (did you mean"),
        (["launch", "job.sh", "x"], 2, "unexpected argument: x", "put -- before the arguments"),
        (["launch", "job.sh", "--again", "there"], 2, "--again and job.sh can't be combined", "drop one"),
        (["launch", "--name", "a b", "--", "true"], 2, "'a b' is not a job name", "letters"),
        (["launch", "--name", "task-3", "--", "true"], 2, "task-3", "another name"),
        (["launch", "--name", "there", "--", "true"], 2, "job there already exists", "--name"),
        (["launch", "--tpu", "v5litepod-17x", "--", "true"], 2, "not a TPU type", "did you mean"),
        (["launch", "--tpu", "v4-64", "--", "true"], 9, "no worker or scale group has v4-64", "--force"),
        (
            ["launch", "--tpu", "v5e-16", "--replicas", "3", "--", "true"],
            2,
            "it takes a multiple of 4",
            "--replicas",
        ),
        (["launch", "-c", "region~~x", "--", "true"], 2, "region~~x", "key=value"),
        (["launch", "-c", "tpu-worker-id>=abc", "--", "true"], 2, "tpu-worker-id>=abc", "key>=1"),
        (["launch", "-c", "zone=a", "-c", "zone=b", "--", "true"], 2, "zone", "drop one"),
        (["launch", "-e", "1X=y", "--", "true"], 2, "'1X'", "letters"),
        (["launch", "-e", "IRIS_JOB_ID=y", "--", "true"], 2, "IRIS_JOB_ID", "choose a name"),
        (["launch", "--env-file", "big.env", "--", "true"], 2, "BIG", "file"),
        (["launch", "--group-by", "", "--", "true"], 2, "group_by", "--group-by"),
        (["launch", "--replicas", "10001", "--", "true"], 2, "10001", "split"),
        (
            ["launch", "--tpu", "v5e-16", "--max-task-failures", "1", "--", "true"],
            2,
            "gang",
            "--max-retries-failure",
        ),
        (["launch", "missing.yaml"], 3, "missing.yaml", ""),
    ],
)
def test_bad_words_change_nothing(unchanged: Site, words: list[str], code: int, said: str, hint: str) -> None:
    before = (unchanged.state / "events.jsonl").read_bytes()
    ran = unchanged.iris(*words, code=code)
    first, *rest = ran.err.splitlines()
    assert first.startswith("error: ")
    assert said in first
    assert hint in "\n".join(line for line in rest if line.startswith(("hint: ", "  ")))
    assert "Traceback" not in ran.err
    assert (unchanged.state / "events.jsonl").read_bytes() == before


def test_a_bad_configuration_tells_every_problem_with_its_line(site: Site) -> None:
    config = site.directory / "cluster.yaml"
    config.write_text(CONFIG + "regoin: x\nlimits: {settle_second: 3}\n")
    ran = site.iris("status", code=3)
    assert f"{config}:6: regoin: unknown key" in ran.err
    assert f"{config}:7: limits.settle_second: unknown key" in ran.err
    assert "settle_seconds" in ran.err


def test_no_configuration_says_how_to_begin(tmp_path: Path) -> None:
    ran = Site(tmp_path, []).iris("status", code=3)
    assert "iris init" in ran.err


def test_the_log_of_another_cluster_is_refused(site: Site) -> None:
    config = site.directory / "cluster.yaml"
    config.write_text(CONFIG.replace("lab", "other"))
    before = (site.state / "events.jsonl").read_bytes()
    ran = site.iris("launch", "--", "true", code=3)
    assert "lab" in ran.err
    assert "hint:" in ran.err
    assert (site.state / "events.jsonl").read_bytes() == before


def test_a_damaged_log_is_read_with_a_banner_and_never_written(site: Site) -> None:
    site.iris("launch", "--no-schedule", "--name", "second", "--", "true")
    site.iris("launch", "--no-schedule", "--name", "third", "--", "true")
    log = site.state / "events.jsonl"
    lines = log.read_bytes().splitlines(keepends=True)
    lines[-2] = lines[-2].replace(b"second", b"secone")
    damaged = b"".join(lines)
    log.write_bytes(damaged)
    ran = site.iris("launch", "--", "true", code=6)
    assert "iris log" in ran.err
    assert log.read_bytes() == damaged
    shown = site.iris("status", "--json").json()
    assert [job["id"] for job in shown["jobs"]] == ["there"]
    assert any("damaged" in message for message in shown["messages"])


def test_a_log_of_a_newer_program_is_refused_untouched(site: Site) -> None:
    log = site.state / "events.jsonl"
    lines = log.read_bytes().splitlines(keepends=True)
    newer = lines[0].replace(b'"format":1', b'"format":9')
    body = newer[: newer.rindex(b',"crc":"')]
    from zlib import crc32

    log.write_bytes(body + b',"crc":"%08x"}\n' % crc32(body))
    before = log.read_bytes()
    ran = site.iris("launch", "--", "true", code=6)
    assert "9" in ran.err
    assert log.read_bytes() == before


def test_a_state_directory_open_to_others_is_refused_with_the_line_that_mends_it(site: Site) -> None:
    site.state.chmod(0o755)
    ran = site.iris("launch", "--", "true", code=10)
    assert f"chmod 700 {site.state}" in ran.err


def test_a_torn_last_line_is_repaired_with_a_word(site: Site) -> None:
    log = site.state / "events.jsonl"
    whole = log.read_bytes()
    log.write_bytes(whole + b'{"seq":99,"prev')
    ran = site.iris("launch", "--no-schedule", "--name", "next", "--", "true")
    assert "torn" in ran.err
    assert log.read_bytes().startswith(whole)
    assert b'"seq":99' not in log.read_bytes()
