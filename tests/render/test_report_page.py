"""The page of a report: one file that asks for nothing, in which whatever users and workers say is data."""

from __future__ import annotations

import json
import re
import stat
from base64 import b64encode
from hashlib import sha256
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from iris_cli.cli import app
from iris_cli.core.ids import JobId
from iris_cli.core.messages.observations import AttemptReport, RemoteState
from iris_cli.errors import ExitCode
from iris_cli.ops.views.report import report
from iris_cli.render.as_json import document
from iris_cli.render.console import Output
from iris_cli.render.report.page import page, script_json
from iris_cli.render.report.summary import report_document, show_report
from tests.render.scenes import SCENES, busy, retried_gang, session_of
from tests.render.snapshots import check
from tests.render.test_hostile_text import ESCAPES, session_on
from tests.support.json_output import checked
from tests.support.lab import Lab

HOSTILE = f"</script><script>alert(1)</script><img src=x onerror=alert(2)>\"'&lt;<!--]]>{ESCAPES}"


LOOKED_AT = ("busy", "empty", "failed_gang", "family", "lost_host", "retried_gang")


class Parsed(HTMLParser):
    """The tags of a page with their attributes, and the text of its scripts and styles."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.inside: dict[str, list[str]] = {"script": [], "style": []}
        self._now = ""
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        self._now = tag
        if tag in self.inside:
            self.inside[tag].append("")

    def handle_endtag(self, tag: str) -> None:
        self._now = ""

    def handle_data(self, data: str) -> None:
        if self._now in self.inside:
            self.inside[self._now][-1] += data

    @property
    def policy(self) -> str:
        (found,) = (each["content"] for _, each in self.tags if each.get("http-equiv"))
        return found or ""


def shown(lab: Lab, directory: Path) -> str:
    return page(report(session_of(lab, directory / "state")))


def data_of(text: str) -> Any:
    return json.loads(Parsed(text).inside["script"][0])


def hashed(text: str) -> str:
    return f"'sha256-{b64encode(sha256(text.encode()).digest()).decode()}'"


def without_parts(text: str) -> str:
    """The page without its style sheet and its program, which are files of their own."""
    text = re.sub(r"<style>.*?</style>|<script>.*?</script>", "", text, flags=re.DOTALL)
    return re.sub(r"sha256-[^']+|iris [0-9][^\"]*", "…", text)


@pytest.mark.parametrize("scene", LOOKED_AT)
def test_the_page_of_a_scene_is_the_recorded_one(scene: str, tmp_path: Path) -> None:
    check(f"report-{scene}.html", without_parts(shown(SCENES[scene](), tmp_path)))


def test_it_runs_no_script_and_no_style_but_its_own(tmp_path: Path) -> None:
    parsed = Parsed(shown(busy(), tmp_path))
    _data, program = parsed.inside["script"]
    (style,) = parsed.inside["style"]
    assert parsed.policy == (
        f"default-src 'none'; img-src data:; style-src {hashed(style)}; script-src {hashed(program)}"
    )


def test_it_refers_to_nothing_outside(tmp_path: Path) -> None:
    text = shown(busy(), tmp_path)
    references = [
        each[key] for _, each in Parsed(text).tags for key in ("href", "src", "action") if key in each
    ]
    assert references == ["data:,"]
    assert not re.search(r"https?:|//[a-z]|@import|url\(|\bfetch\(|XMLHttp|innerHTML|\beval\(", text)


def test_hostile_text_adds_no_tag_and_no_attribute(tmp_path: Path) -> None:
    (tmp_path / "kind").mkdir()
    kind, hostile = (
        page(report(session_on(text, tmp_path / name / "state")))
        for name, text in (("kind", "x"), ("", HOSTILE))
    )
    tags = [Parsed(text).tags for text in (kind, hostile)]
    bare = [[(tag, sorted(attrs)) for tag, attrs in each] for each in tags]
    assert bare[0] == bare[1]
    assert len(Parsed(hostile).inside["script"]) == 2
    assert "&lt;/script&gt;&lt;script&gt;alert(1)" in hostile


def test_controls_of_hostile_text_are_made_visible(tmp_path: Path) -> None:
    text = page(report(session_on(HOSTILE, tmp_path / "state")))
    assert "\\x1b[31mred" in text
    assert "\\u202e" in text
    assert not set("\x1b\x07\x9b\x85\u202e\u2028\ud800\x7f") & set(text)
    assert text.encode()


@pytest.mark.parametrize("text", ["</script>", "<!--<script>", "]]>", "&lt;", "\u2028", "\ud800"])
def test_what_is_embedded_ends_no_script_and_comes_back_whole(text: str) -> None:
    assert json.loads(script_json([text])) == [text]
    assert not set("<>&") & set(script_json([text]))
    assert script_json([text]).isascii()


def test_the_chart_gets_each_attempt_once(tmp_path: Path) -> None:
    data = data_of(shown(retried_gang(), tmp_path))
    ((name, numbers),) = data["jobs"]
    attempts = [numbers[at : at + 7] for at in range(0, len(numbers), 7)]
    assert name == "train"
    assert [(task, attempt, worker) for task, attempt, worker, *_ in attempts] == [
        (task, attempt, task) for task in range(4) for attempt in range(2)
    ]
    lengths = [length * data["unit"] for *_, length, _reason in attempts]
    assert lengths == [600.0, 300.0] * 4


def test_the_last_lines_of_a_failed_job_are_one_click_away(tmp_path: Path) -> None:
    lab = Lab().worker("w").job("bad").job("good").schedule()
    token = lab.attempt("bad").token
    lines = [
        *(f"step {number}" for number in range(50)),
        f'at /home/me/.iris/c/w/a/{token}/work/a.py: <b> & "x"',
        "",
    ]
    report_of_end = AttemptReport(
        token=token, state=RemoteState.EXITED, exit_code=1, log_tail="\n".join(lines)
    )
    lab.answers(lab.answer_of("w", report_of_end)).reports("good/* exited 0")
    (folded,) = re.findall("<details>.*?</details>", shown(lab, tmp_path), re.DOTALL)
    assert folded.startswith("<details><summary>exit 1</summary><pre>step 31\nstep 32\n")
    assert folded.endswith("step 49\nat a.py: &lt;b&gt; &amp; &quot;x&quot;</pre></details>")


def test_only_the_newest_failed_jobs_have_their_last_lines(tmp_path: Path) -> None:
    lab = Lab().worker("w").job("bad").schedule()
    ended = AttemptReport(
        token=lab.attempt("bad").token, state=RemoteState.EXITED, exit_code=1, log_tail="why"
    )
    found = report(session_of(lab.answers(lab.answer_of("w", ended)), tmp_path / "state"))
    many = [replace(found.jobs[0], id=JobId(f"bad-{number}")) for number in range(501)]
    rows = re.findall("<tr><td.*", page(replace(found, jobs=tuple(many))))
    assert "<details>" in rows[0]
    assert "bad-0" in rows[500]
    assert "<details>" not in rows[500]


def test_a_thousand_jobs_in_one_state_are_counted_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = report(session_of(Lab().worker("w").job("wait"), tmp_path / "state"))
    many = [replace(found.jobs[0], id=JobId(f"wait-{number}")) for number in range(1234)]
    show_report(Output(), replace(found, jobs=tuple(many)))
    assert re.search("jobs +1,234 pending\n", capsys.readouterr().out)


def test_times_name_their_zone_and_are_put_into_that_of_the_reader(tmp_path: Path) -> None:
    text = shown(busy(), tmp_path)
    parsed = Parsed(text)
    assert [each["data-at"] for tag, each in parsed.tags if tag == "time"] == ["1800000000", "1800001740"]
    assert '<span class="zone">UTC</span>' in text
    assert ">Submitted (UTC)<" in text
    program = parsed.inside["script"][1]
    assert "UTC" not in program.replace('.replace("UTC", ZONE)', "")
    assert "toISOString" not in program


def test_a_phone_shows_the_reason_of_a_job_and_a_tip_that_is_no_wider(tmp_path: Path) -> None:
    (style,) = Parsed(shown(busy(), tmp_path)).inside["style"]
    phone = style.partition("@media (max-width: 700px)")[2]
    visible = phone.partition("{ display: block; min-width: 0;")[0].rpartition("}")[2]
    assert "td.why" in visible
    assert "grid-column: 1 / -1" in phone
    assert "max-width: min(30rem, calc(100vw - 12px))" in style


def test_commands_are_not_on_the_page(tmp_path: Path) -> None:
    """They may hold what is nobody else's business, and a page is passed on."""
    lab = Lab().worker("w").job("a", command=("curl", "-H", "token-of-mine"), env={"KEY": "also-mine"})
    assert "mine" not in shown(lab.schedule(), tmp_path)


def test_a_damaged_log_is_told_up_to_its_damage_and_the_page_says_so(tmp_path: Path) -> None:
    session = session_of(retried_gang(), tmp_path / "state")
    log = tmp_path / "state" / "events.jsonl"
    lines = log.read_bytes().splitlines(keepends=True)
    log.write_bytes(b"".join([*lines[:-3], lines[-3].replace(b"train", b"trail"), *lines[-2:]]))
    warnings = re.findall(r'<p class="warning">(.*?)</p>', page(report(session)).partition("<noscript>")[0])
    assert ("damaged" in warnings[0], "iris log salvage" in warnings[-1]) == (True, True)
    assert warnings[1:-1] == ["only the lines before the damage were read"]


# The command


@pytest.fixture
def config(tmp_path: Path) -> Path:
    session_of(retried_gang(), tmp_path / "state")
    path = tmp_path / "cluster.yaml"
    path.write_text("cluster: {name: lab}\n")
    return path


def test_the_command_writes_the_page_for_its_owner_alone(
    config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = config.parent / "page.html"
    target.write_text("old")
    assert app.run(["--config", str(config), "report", "--html", str(target)]) == ExitCode.OK
    assert target.read_text().startswith("<!doctype html>")
    assert stat.S_IMODE(target.stat().st_mode) == 0o600
    assert capsys.readouterr().out.startswith(f"wrote {target}: 1 job on 4 workers since ")


def test_the_command_tells_programs_what_it_wrote(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = config.parent / "page.html"
    assert app.run(["--config", str(config), "report", "--html", str(target), "--json"]) == ExitCode.OK
    [told] = checked("iris report", capsys.readouterr().out)
    assert (told["file"], told["size"], told["jobs"]) == (str(target), target.stat().st_size, 1)


def test_a_page_that_cannot_be_written_leaves_nothing_behind(
    config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = sorted(path.name for path in config.parent.iterdir())
    code = app.run(["--config", str(config), "report", "--html", str(config.parent / "state")])
    assert code == ExitCode.NOT_WRITABLE
    assert sorted(path.name for path in config.parent.iterdir()) == before
    assert "can't be written" in capsys.readouterr().err


def test_without_a_page_the_figures_are_told_here(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert app.run(["--config", str(config), "report", "--since", "5m"]) == ExitCode.OK
    shown = capsys.readouterr().out
    assert "jobs        1 running\n" in shown
    assert shown.endswith("next: iris report --html report.html\n")
    assert sorted(path.name for path in config.parent.iterdir()) == ["cluster.yaml", "state"]


def test_the_figures_add_up(tmp_path: Path) -> None:
    """Two rounds of a gang on 16 chips: ten minutes wasted, and five so far."""
    found = report(session_of(retried_gang(), tmp_path / "state"))
    total = document(report_document(found).total)
    assert (total["chip_seconds_in_vain"], total["chip_seconds"]) == (16 * 600.0, 16 * 900.0)
    assert (total["jobs"], total["retries"], total["preemptions"]) == (1, 1, 0)
