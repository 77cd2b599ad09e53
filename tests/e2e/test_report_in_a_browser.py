"""A real browser draws the page of a report without a word on its console, in about a second for 1,000 jobs."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
from contextlib import suppress
from html import escape
from pathlib import Path

import pytest

from iris_cli.core.ids import JobId, WorkerId
from iris_cli.core.model.job import JobState, Priority
from iris_cli.core.model.task import EndReason
from iris_cli.ops.views.report import AttemptSpan, JobLine, Report, report
from iris_cli.ops.views.report_fleet import WorkerLine
from iris_cli.render.report.page import page
from tests.render.scenes import busy, failed_gang, session_of
from tests.render.test_hostile_text import session_on
from tests.render.test_report_page import HOSTILE

HOUR = 3600.0
NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
OPTIONS = (
    *("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run"),
    *("--disable-extensions", "--disable-background-networking", "--enable-logging=stderr", "--v=0"),
    "--virtual-time-budget=2000",
)


class Browser:
    """Loads a file and gives back its elements as they are once its script is through."""

    def __init__(self, program: str, home: Path) -> None:
        self._program, self._home = program, home

    def elements(self, text: str, *, width: int = 1400, dark: bool = False) -> tuple[str, list[str]]:
        """The page after its script in a window of that width, and what the console says. Its zone is Berlin's."""
        path = self._home / "page.html"
        path.write_text(text, encoding="utf-8")
        words = [
            self._program,
            *OPTIONS,
            f"--window-size={width},900",
            f"--blink-settings=preferredColorScheme={0 if dark else 1}",
            f"--user-data-dir={self._home / 'profile'}",
            "--dump-dom",
            path.as_uri(),
        ]
        process = subprocess.Popen(
            words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True, env=self._env()
        )
        try:
            out, err = process.communicate(timeout=120)
        except subprocess.TimeoutExpired:
            pytest.skip("the browser takes too long here")
        finally:
            _end(process)
        if b"</html>" not in out:
            pytest.skip("the browser broke off")
        return out.decode(), [line for line in err.decode(errors="replace").splitlines() if "CONSOLE" in line]

    def _env(self) -> dict[str, str]:
        return {**os.environ, "HOME": str(self._home), "TZ": "Europe/Berlin"}


def _end(process: subprocess.Popen[bytes]) -> None:
    """The browser with everything that it started."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Browser:
    """Skips where there is none, or where it can't show the simplest page: it needs more than some machines allow."""
    program = next((found for name in NAMES if (found := shutil.which(name))), None)
    if program is None:
        pytest.skip("no headless browser here (Debian: chromium)")
    made = Browser(program, tmp_path_factory.mktemp("browser"))
    shown, _ = made.elements("<p id=it></p><script>document.getElementById('it').textContent=6*7</script>")
    if ">42<" not in shown:
        pytest.skip("the browser shows nothing here")
    return made


def drawn(text: str) -> int:
    """How many bars the chart has."""
    (found,) = re.findall(r'<body[^>]* data-bars="([0-9]+)"', text)
    return int(found)


def test_hostile_text_runs_nothing(browser: Browser, tmp_path: Path) -> None:
    """Its own policy would refuse what came through, and say so on the console."""
    text, console = browser.elements(page(report(session_on(HOSTILE, tmp_path / "state"))))
    assert (console, drawn(text)) == ([], 1)
    assert "<img" not in text


def test_a_script_of_somebody_else_is_refused(browser: Browser, tmp_path: Path) -> None:
    text = page(report(session_of(busy(), tmp_path / "state")))
    _, console = browser.elements(text.replace("</body>", "<script>document.title='mine'</script></body>"))
    assert any("Content Security Policy" in line for line in console)


PERSON = """<script>
const canvas = document.getElementById("canvas"), said = [];
const box = () => canvas.getBoundingClientRect();
const at = (name, x, y) => canvas.dispatchEvent(
  new PointerEvent(name, { clientX: box().left + x, clientY: box().top + y, bubbles: true }));
const say = (id) => said.push(document.getElementById(id).textContent);
const click = (x, y) => { at("pointerdown", x, y); at("pointerup", x, y); };
say("seen");
at("pointermove", box().width - 300, 40); say("tip");
at("pointerdown", box().width / 2, 40); at("pointermove", box().width + 50, 40); at("pointerup", box().width + 50, 40);
say("seen");
click(box().width - 300, 40); say("chosen");
canvas.dispatchEvent(new MouseEvent("dblclick")); say("seen");
const high = box().height; click(20, 40); said.push(box().height < high ? "closed" : "as it was");
const find = document.getElementById("find");
find.value = "EVAL"; find.dispatchEvent(new Event("input")); say("found");
const first = () => document.querySelector("#jobs tbody td").textContent;
said.push(first()); document.querySelector("#jobs th").click(); said.push(first());
document.querySelector("#jobs th").click(); said.push(first());
document.body.dataset.said = said.join("|");
</script></body>"""


def test_a_person_looks_closer_picks_a_job_and_sorts(browser: Browser, tmp_path: Path) -> None:
    """What a hand and a mouse would do, by a script that the page's own policy would not let in."""
    text = page(report(session_of(busy(), tmp_path / "state")))
    text, console = browser.elements(without_policy(text).replace("</body>", PERSON))
    (said,) = re.findall(r'data-said="([^"]*)"', text)
    assert console == []
    seen, tip, closer, chosen, again, slice_is, found, *orders = said.split("|")
    assert seen == again == "2027-01-15 09:00:00 to 2027-01-15 09:29:00 Europe/Berlin"
    assert closer.endswith(" to 2027-01-15 09:29:00 Europe/Berlin")
    assert closer != seen
    assert tip.split("\n")[:2] == ["train, attempt 0: 4 tasks", "runs still, on v5a"]
    assert tip.split("\n")[3] == "started after 0s, held it for 29m"
    assert (chosen, slice_is, found, orders) == ("train ↑", "closed", "1 of 4", ["big", "big", "train"])


LOOK = """<script>
const row = document.querySelector("#jobs tbody tr"), why = row.querySelector("td.why").getBoundingClientRect();
const pre = row.querySelector("pre"), before = pre.checkVisibility();
row.querySelector("summary").click();
const canvas = document.getElementById("canvas"), box = canvas.getBoundingClientRect();
const over = { clientX: box.right - 5, clientY: box.top + 40, bubbles: true };
canvas.dispatchEvent(new PointerEvent("pointermove", over));
const tip = document.getElementById("tip").getBoundingClientRect();
const inside = (part) => part.width > 50 && part.left >= 0 && part.right <= innerWidth;
const wide = document.documentElement.scrollWidth > innerWidth;
const headers = Array.from(document.querySelectorAll("#jobs th"), (each) => each.textContent);
document.body.dataset.said = [innerWidth, getComputedStyle(document.body).backgroundColor, inside(why), before,
  pre.checkVisibility(), inside(tip), wide, row.querySelector("td.at").textContent, headers[3]].join("|");
</script></body>"""


@pytest.mark.parametrize("dark", [False, pytest.param(True, marks=pytest.mark.soak)], ids=["light", "dark"])
def test_at_each_width_the_reason_is_seen_its_lines_are_one_click_away_and_the_tip_is_whole(
    browser: Browser, tmp_path: Path, dark: bool
) -> None:
    widths = (1400, 800, 390)
    text = without_policy(page(report(session_of(failed_gang(), tmp_path / "state"))))
    inner = escape(text.replace("</body>", LOOK))
    # A window is at least 500 pixels wide: the pages stand in frames.
    framed = "".join(
        f'<iframe style="border:0" width="{width}" height="900" srcdoc="{inner}"></iframe>'
        for width in widths
    )
    script = (
        '<script>addEventListener("load", () => { document.body.dataset.said = Array.from('
        'document.querySelectorAll("iframe"), (each) => each.contentDocument.body.dataset.said).join(";"); });</script>'
    )
    found, console = browser.elements(f"<!doctype html><body>{framed}{script}</body>", dark=dark)
    assert console == []
    (said,) = re.findall(r'<body data-said="([^"]*)"', found)
    ground = "rgb(22, 24, 27)" if dark else "rgb(255, 255, 255)"
    seen = ["true", "false", "true", "true", "false"]
    told = [ground, *seen, "2027-01-15 09:00:00", "Submitted (Europe/Berlin)"]
    assert [each.split("|") for each in said.split(";")] == [[str(width), *told] for width in widths]


SPY = """<script>
const pen = CanvasRenderingContext2D.prototype, draw = pen.fillText, names = [], shares = [];
pen.fillText = function (text, x, y) {
  const wide = this.measureText(text).width;
  if (this.textAlign === "right") shares.push(x - wide);
  else if (x === 6) names.push([text.trim(), x + wide]);
  return draw.call(this, text, x, y);
};
addEventListener("load", () => {
  const ends = names.map((each) => each[1]);
  parent.document.body.dataset.said =
    [Math.max(...ends) < Math.min(...shares), ...new Set(names.map((each) => each[0].slice(-2)))].join("|");
});
</script></head>"""


def test_on_a_phone_the_names_of_workers_keep_their_ends(browser: Browser, tmp_path: Path) -> None:
    """Their beginnings are alike, and the column is narrow."""
    text = without_policy(page(report(session_of(failed_gang(), tmp_path / "state"))))
    text = text.replace("v5a", "slice-of-a-long-name-v5a").replace("</head>", SPY)
    framed = f'<iframe width="390" height="900" srcdoc="{escape(text)}"></iframe>'
    found, console = browser.elements(f"<!doctype html><body>{framed}</body>", width=500)
    assert console == []
    (said,) = re.findall(r'<body data-said="([^"]*)"', found)
    assert said.split("|") == ["true", "5a", "-0", "-1", "-2", "-3"]


def without_policy(text: str) -> str:
    return re.sub(r"<meta http-equiv=[^>]*>", "", text)


@pytest.mark.soak
def test_a_thousand_gangs_of_64_are_drawn_in_a_page_of_a_few_megabytes(browser: Browser) -> None:
    text = page(many(jobs=1_000, ranks=64, slices=4))
    assert len(text) < 4 << 20
    shown, console = browser.elements(text)
    assert (console, drawn(shown)) == ([], 64_000)
    print("milliseconds:", re.findall(r'data-drawn="([0-9]+)"', shown))


def many(*, jobs: int, ranks: int, slices: int) -> Report:
    """Gangs that took turns on a few slices."""
    workers = tuple(
        WorkerLine(
            id=WorkerId(f"pod-{number}-{index}"),
            slice=f"pod-{number}",
            index=index,
            type=f"v5litepod-{4 * ranks}",
            chips=4,
            configured_spans=((0.0, jobs * HOUR),),
        )
        for number in range(slices)
        for index in range(ranks)
    )
    lines = tuple(gang(number, ranks, number % slices) for number in range(jobs))
    return Report(
        name="big",
        since=0.0,
        at=jobs * HOUR,
        messages=(),
        log_damage=None,
        jobs=lines,
        older=0,
        workers=workers,
    )


def gang(number: int, ranks: int, place: int) -> JobLine:
    begin = number * HOUR
    failed = number % 7 == 3
    attempts = tuple(
        AttemptSpan(
            task=rank,
            attempt=0,
            worker=place * ranks + rank,
            chips=4,
            placed_at=begin + 60,
            started_at=begin + 90 + rank,
            over_at=begin + 3 * HOUR,
            reason=EndReason.USER_ERROR if failed else EndReason.OK,
        )
        for rank in range(ranks)
    )
    return JobLine(
        id=JobId(f"train-{number}"),
        state=JobState.FAILED if failed else JobState.SUCCEEDED,
        display="FAILED" if failed else "SUCCEEDED",
        tries=0,
        labels={"team": ("vision", "text", "audio")[number % 3]},
        priority=Priority.NORMAL,
        replicas=ranks,
        gang=True,
        submitted_at=begin,
        started_at=begin + 90,
        ended_at=begin + 3 * HOUR,
        waited=90.0,
        ran=3 * HOUR - 90,
        retries=0,
        preemptions=0,
        why="rank 1 failed first: exit 1" if failed else "",
        attempts=attempts,
    )
