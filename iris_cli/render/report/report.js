
"use strict";
(() => {
  const begun = performance.now();
  const byId = (id) => document.getElementById(id);
  const data = JSON.parse(byId("data").textContent);

  // Words

  const two = (number) => String(number).padStart(2, "0");

  const ZONE = Intl.DateTimeFormat().resolvedOptions().timeZone || "local time";

  function local(seconds) { // from the epoch to a time in the reader's zone
    const date = new Date(seconds * 1000);
    if (isNaN(date)) return "?";
    const day = `${date.getFullYear()}-${two(date.getMonth() + 1)}-${two(date.getDate())}`;
    return `${day} ${two(date.getHours())}:${two(date.getMinutes())}:${two(date.getSeconds())}`;
  }

  const clock = (unit) => local(data.since + unit * data.unit); // a time in the chart's unit

  for (const each of document.querySelectorAll("time")) each.textContent = local(Number(each.dataset.at));
  for (const each of document.querySelectorAll(".zone")) each.textContent = ZONE;

  function words(seconds) {
    if (seconds < 10) return `${Math.round(seconds * 10) / 10}s`;
    const rest = Math.round(seconds), parts = [];
    const sizes = [["d", 86400], ["h", 3600], ["m", 60], ["s", 1]];
    let left = rest;
    for (const [name, size] of sizes) {
      const number = Math.floor(left / size);
      left -= number * size;
      if (number || parts.length) parts.push([number, name]);
    }
    return parts.slice(0, 2).filter((each) => each[0]).map((each) => each.join("")).join("");
  }

  const share = (busy, there) => (there > 0 ? `${Math.round(100 * busy / there)} %` : "");

  // The table of jobs

  const table = byId("jobs");
  const rowOf = new Map(); // table rows by the job's index in the data; the newest job is the first row

  function keyOf(row, column) {
    const cell = row.cells[column], key = cell.dataset.key;
    return key === undefined ? cell.textContent : Number(key);
  }

  function sortBy(header) {
    const column = header.cellIndex, body = table.tBodies[0];
    const isNumber = header.classList.contains("n");
    const was = header.getAttribute("aria-sort");
    const up = was ? was === "descending" : !isNumber;
    const keyed = Array.from(body.rows, (row) => [keyOf(row, column), row]);
    keyed.sort(([a], [b]) => (isNumber ? a - b : a < b ? -1 : a > b ? 1 : 0) * (up ? 1 : -1));
    for (const each of table.tHead.rows[0].cells) each.removeAttribute("aria-sort");
    header.setAttribute("aria-sort", up ? "ascending" : "descending");
    body.append(...keyed.map((each) => each[1]));
  }

  function find() {
    const wanted = byId("find").value.toLowerCase().split(/\s+/).filter(Boolean);
    let shown = 0;
    for (const row of table.tBodies[0].rows) {
      const text = row.textContent.toLowerCase();
      row.hidden = !wanted.every((word) => text.includes(word));
      shown += !row.hidden;
    }
    byId("found").textContent = wanted.length ? `${shown} of ${table.tBodies[0].rows.length}` : "";
  }

  function choose(job) { // highlight its bars and its row, or remove the highlight
    chosen = chosen === job ? -1 : job;
    for (const row of rowOf.values()) row.classList.toggle("chosen", rowOf.get(chosen) === row);
    byId("chosen").hidden = chosen < 0;
    byId("chosen").textContent = chosen < 0 ? "" : `${data.jobs[chosen][0]} ↑`;
    draw();
  }

  function goToRow() {
    const row = rowOf.get(chosen);
    if (row.hidden) { byId("find").value = ""; find(); }
    row.scrollIntoView({ block: "center" });
  }

  if (table) {
    for (const each of table.querySelectorAll("td.at")) each.textContent = local(Number(each.dataset.key));
    for (const each of table.tHead.rows[0].cells) each.textContent = each.textContent.replace("UTC", ZONE);
    const rows = Array.from(table.tBodies[0].rows);
    rows.forEach((row, place) => rowOf.set(rows.length - 1 - place, row));
    for (const header of table.tHead.rows[0].cells) {
      header.tabIndex = 0;
      header.addEventListener("click", () => sortBy(header));
      header.addEventListener("keydown", (event) => { if (event.key === "Enter") sortBy(header); });
    }
    byId("find").addEventListener("input", find);
    table.tBodies[0].addEventListener("click", (event) => {
      const cell = event.target.closest("td.job");
      if (!cell) return;
      for (const [job, row] of rowOf) if (row === cell.parentNode) { choose(job); if (chosen >= 0) lookAt(job); }
    });
  }

  // The rows of the chart: slices, which open to show their workers, and single workers

  const RANK = { ok: 0, stopped: 1, running: 2, lost: 3, failed: 4 };
  const kindOf = (bar) => data.reasons[bar.reason][1];

  function barsByWorker() {
    const found = data.workers.map(() => []);
    data.jobs.forEach(([, numbers], job) => {
      let placed = 0;
      for (let at = 0; at < numbers.length; at += 7) {
        const [task, attempt, worker, after, started, length, reason] = numbers.slice(at, at + 7);
        placed += after;
        found[worker].push({ job, task, attempt, from: placed, start: started < 0 ? placed + length : placed + started,
          to: placed + length, reason, tasks: 1 });
      }
    });
    return found;
  }

  function together(bars) { // merge the bars of a slice's workers for the same attempt of a job
    const merged = new Map();
    for (const bar of bars) {
      const key = `${bar.job} ${bar.attempt}`, known = merged.get(key);
      if (!known) { merged.set(key, { ...bar }); continue; }
      known.tasks += 1;
      known.from = Math.min(known.from, bar.from);
      known.start = Math.min(known.start, bar.start);
      known.to = Math.max(known.to, bar.to);
      if (RANK[kindOf(bar)] > RANK[kindOf(known)]) { known.reason = bar.reason; known.task = bar.task; }
    }
    return Array.from(merged.values());
  }

  const MOST_TRACKS = 48;

  function stacked(row) { // put overlapping bars on tracks, one below the other
    row.bars.sort((a, b) => a.from - b.from || a.job - b.job);
    const ends = [];
    row.bars.forEach((bar, place) => {
      let track = ends.findIndex((end) => end <= bar.from);
      if (track < 0) track = ends.length < MOST_TRACKS ? ends.length : place % MOST_TRACKS;
      ends[track] = Math.max(ends[track] || 0, bar.to);
      bar.track = track;
    });
    row.tracks = Math.max(1, ends.length);
    row.high = Math.max(20, (row.tracks > 16 ? 4 : 7) * row.tracks + 4);
    return row;
  }

  function workerRow(place, bars, inside) {
    const [name, , type, , there, busy, spans] = data.workers[place];
    return stacked({ name, note: inside ? "" : type, share: share(busy, there), spans: [spans], bars, inside });
  }

  function makeRows() {
    const bars = barsByWorker(), rows = [], slices = new Map();
    data.workers.forEach(([name, slice], place) => {
      if (!slice) { rows.push(workerRow(place, bars[place], false)); return; }
      if (!slices.has(slice)) { slices.set(slice, []); rows.push({ slice }); }
      slices.get(slice).push(place);
    });
    return rows.map((row) => {
      if (!row.slice) return row;
      const places = slices.get(row.slice), workers = places.map((each) => data.workers[each]);
      const sum = (column) => workers.reduce((all, each) => all + each[column], 0);
      return stacked({
        name: row.slice, note: `${workers[0][2]} × ${workers.length}`, share: share(sum(5), sum(4)),
        spans: workers.map((each) => each[6]), bars: together(places.flatMap((each) => bars[each])),
        workers: places.map((each) => workerRow(each, bars[each], true)), open: false,
      });
    });
  }

  // Drawing

  const AXIS = 26;
  const canvas = byId("canvas"), frame = byId("rows"), tip = byId("tip"), pen = canvas.getContext("2d");
  const rows = makeRows();
  const whole = { from: 0, to: Math.max(1, data.length) };
  let view = { ...whole }, shown = [], chosen = -1, drag = null, colours = {}, wide = 0, high = 0, left = 0;

  function layOut() {
    shown = rows.flatMap((row) => [row, ...(row.open ? row.workers : [])]);
    let top = AXIS;
    for (const row of shown) { row.top = top; top += row.high; }
    left = Math.min(230, Math.max(110, frame.clientWidth * 0.24));
    const limit = Math.min(innerHeight * 0.7, 900);
    high = Math.ceil(Math.min(top + 2, limit));
    wide = frame.clientWidth;
    const ratio = devicePixelRatio || 1;
    canvas.style.height = `${high}px`;
    canvas.width = Math.round(wide * ratio);
    canvas.height = Math.round(high * ratio);
    pen.setTransform(ratio, 0, 0, ratio, 0, 0);
    byId("height").style.height = `${Math.max(0, top + 2 - high)}px`;
    const style = getComputedStyle(document.documentElement);
    for (const name of ["ground", "text", "soft", "line", "band", "accent", "ok", "running", "failed", "lost", "stopped"])
      colours[name] = style.getPropertyValue(`--${name}`).trim();
    draw();
  }

  const xOf = (unit) => left + (unit - view.from) / (view.to - view.from) * (wide - left);
  const unitOf = (x) => view.from + (x - left) / (wide - left) * (view.to - view.from);

  const STEPS = [0.1, 1, 5, 15, 30, 60, 300, 900, 1800, 3600, 10800, 21600, 43200, 86400, 172800, 604800, 2592000, 7776000, 31536000];

  function drawAxis() {
    pen.fillStyle = colours.ground;
    pen.fillRect(0, 0, wide, AXIS);
    pen.fillStyle = colours.soft;
    pen.textAlign = "left";
    const seconds = (view.to - view.from) * data.unit;
    const step = STEPS.find((each) => seconds / each * 95 <= wide - left) || seconds;
    const from = data.since + view.from * data.unit, east = -60 * new Date(from * 1000).getTimezoneOffset();
    const first = Math.ceil((from + east) / step) * step - east;
    for (let at = first; at <= data.since + view.to * data.unit; at += step) {
      const unit = (at - data.since) / data.unit, x = Math.round(xOf(unit)) + 0.5, text = clock(unit + 0.001);
      pen.fillRect(x, AXIS - 4, 1, 4);
      const label = step >= 86400 ? text.slice(0, 10) : step >= 60 ? text.slice(5, 16) : text.slice(11);
      if (x + 70 < wide) pen.fillText(label, x + 3, 16);
    }
    pen.fillStyle = colours.line;
    pen.fillRect(0, AXIS - 1, wide, 1);
  }

  function drawBar(row, bar, y, step) {
    const x = Math.floor(Math.max(left, xOf(bar.from))), end = Math.max(x + 1, Math.floor(Math.min(wide, xOf(bar.to))));
    const start = Math.min(end, Math.max(x, Math.floor(xOf(bar.start)))), long = end - x;
    const top = y + 2 + bar.track * step, tall = Math.max(2, step - 1);
    pen.fillStyle = colours[kindOf(bar)];
    const pale = chosen >= 0 && chosen !== bar.job ? 0.22 : 1;
    pen.globalAlpha = pale * 0.4;
    if (start > x) pen.fillRect(x, top, start - x, tall);
    pen.globalAlpha = pale;
    pen.fillRect(start, top, Math.max(0, end - start - (long > 3 ? 1 : 0)), tall);
    if (long > 36 && tall > 10 && !row.inside) {
      pen.fillStyle = 2 * (start - x) > long ? colours.text : colours.ground; // readable on a pale bar
      drawName(data.jobs[bar.job][0], x + 4, top + tall - 4, long - 8);
    }
    pen.globalAlpha = 1;
  }

  function drawName(name, x, y, room) { // cut like `fitting`, but faster
    const most = Math.floor(room / 6.8);
    pen.fillText(name.length > most ? `…${name.slice(1 - most)}` : name, x, y);
  }

  function drawRow(row, y) {
    pen.fillStyle = colours.band;
    for (const spans of row.spans)
      for (let at = 0; at < spans.length; at += 2) {
        const x = Math.max(left, xOf(spans[at])), end = Math.min(wide, xOf(spans[at + 1]));
        if (end > x) pen.fillRect(x, y + 1, end - x, row.high - 2);
      }
    const step = (row.high - 3) / row.tracks, done = new Float64Array(row.tracks);
    for (const bar of row.bars) {
      if (bar.to < view.from || bar.from > view.to) continue;
      const end = xOf(bar.to);
      if (end < done[bar.track]) continue; // pixel already drawn
      drawBar(row, bar, y, step);
      done[bar.track] = Math.floor(end) + 1;
    }
    drawLabel(row, y);
  }

  function fitting(name, room) { // cut at the start: similar names differ at the end
    let cut = 0;
    const shown = () => (cut ? `…${name.slice(cut)}` : name);
    while (cut < name.length && pen.measureText(shown()).width > room) cut += 1;
    return shown();
  }

  function drawLabel(row, y) {
    pen.fillStyle = colours.ground;
    pen.fillRect(0, y, left - 4, row.high);
    const mark = row.workers ? (row.open ? "▾ " : "▸ ") : row.inside ? "    " : "";
    const room = left - 58, text = mark + fitting(row.name, room - pen.measureText(mark).width);
    pen.fillStyle = row.inside ? colours.soft : colours.text;
    pen.fillText(text, 6, y + 14);
    const taken = pen.measureText(text).width;
    pen.fillStyle = colours.soft;
    if (taken + 8 + pen.measureText(row.note).width <= room) pen.fillText(row.note, 14 + taken, y + 14);
    pen.textAlign = "right";
    pen.fillText(row.share, left - 8, y + 14);
    pen.textAlign = "left";
  }

  function draw() {
    pen.font = "12px system-ui, sans-serif";
    pen.fillStyle = colours.ground;
    pen.fillRect(0, 0, wide, high);
    for (const row of shown) {
      const y = row.top - frame.scrollTop;
      if (y + row.high > AXIS && y < high) drawRow(row, y);
    }
    drawAxis();
    if (drag && drag.to !== drag.from) {
      pen.fillStyle = colours.accent;
      pen.globalAlpha = 0.2;
      pen.fillRect(Math.min(drag.from, drag.to), AXIS, Math.abs(drag.to - drag.from), high - AXIS);
      pen.globalAlpha = 1;
    }
  }

  // Zoom and pan

  function see(from, to) {
    const least = Math.min(10 / data.unit, whole.to), long = Math.min(Math.max(to - from, least), whole.to);
    const begin = Math.min(Math.max(0, (from + to) / 2 - long / 2), whole.to - long);
    view = { from: begin, to: begin + long };
    byId("seen").textContent = `${clock(view.from)} to ${clock(view.to)} ${ZONE}`;
    draw();
  }

  function lookAt(job) {
    let from = Infinity, to = -Infinity;
    for (const row of rows)
      for (const bar of row.bars) if (bar.job === job) { from = Math.min(from, bar.from); to = Math.max(to, bar.to); }
    if (from > to) return;
    see(from - (to - from) * 0.3, to + (to - from) * 0.3);
    const row = shown.find((each) => each.bars.some((bar) => bar.job === job));
    frame.scrollTop = row.top - AXIS - 20;
    frame.scrollIntoView({ block: "nearest" });
  }

  function zoom(factor) {
    const middle = (view.from + view.to) / 2, half = (view.to - view.from) / 2 * factor;
    see(middle - half, middle + half);
  }

  function pan(part) {
    const by = (view.to - view.from) * part;
    see(view.from + by, view.to + by);
  }

  function hit(event) {
    const box = canvas.getBoundingClientRect(), x = event.clientX - box.left, y = event.clientY - box.top;
    const under = (each) => y >= each.top - frame.scrollTop && y < each.top - frame.scrollTop + each.high;
    const row = (y >= AXIS && y < high && shown.find(under)) || null;
    if (!row || x < left) return { x, row, bar: null };
    const track = Math.floor((y - row.top + frame.scrollTop - 2) / ((row.high - 3) / row.tracks));
    const near = 2 / (wide - left) * (view.to - view.from), at = unitOf(x);
    const bars = row.bars.filter((bar) => bar.track === track && bar.from - near <= at && at <= bar.to + near);
    return { x, row, bar: bars.length ? bars[bars.length - 1] : null };
  }

  function tell(event, { x, row, bar }) {
    if (bar) show(event, barWords(row, bar));
    else if (row && x < left) show(event, [row.name, row.note, row.share && `busy ${row.share}`].filter(Boolean).join("\n"));
    else tip.hidden = true;
  }

  function barWords(row, bar) {
    const job = data.jobs[bar.job][0], [reason, kind] = data.reasons[bar.reason];
    const who = bar.tasks > 1 ? `${job}, attempt ${bar.attempt}: ${bar.tasks} tasks` : `${job}/task-${bar.task}/attempt-${bar.attempt}`;
    const end = kind === "running" ? "runs still" : `${reason}${bar.tasks > 1 && kind === "failed" ? ` (task ${bar.task})` : ""}`;
    const waited = (bar.start - bar.from) * data.unit, ran = (bar.to - bar.start) * data.unit;
    return `${who}\n${end}, on ${row.name}\n${clock(bar.from)} to ${clock(bar.to)} ${ZONE}\n` +
      (ran > 0 ? `started after ${words(waited)}` : "never started") + `, held it for ${words(waited + ran)}`;
  }

  function show(event, text) { // keep the tip inside the window
    tip.hidden = false;
    tip.textContent = text;
    const box = tip.getBoundingClientRect();
    tip.style.left = `${Math.max(4, Math.min(event.clientX + 14, innerWidth - box.width - 8))}px`;
    const below = event.clientY + 18, fits = below + box.height <= innerHeight;
    tip.style.top = `${fits ? below : Math.max(4, event.clientY - box.height - 10)}px`;
  }

  function openAll(open) {
    for (const row of rows) if (row.workers) row.open = open;
    byId("fold").textContent = open ? "Collapse all" : "Expand all";
    layOut();
  }

  canvas.addEventListener("pointerdown", (event) => {
    const found = hit(event);
    if (event.button || found.row === null) return;
    drag = { from: found.x, to: found.x, row: found.row };
  });
  addEventListener("pointermove", (event) => { // a drag may end outside the chart
    if (!drag || drag.from < left) return;
    drag.to = Math.max(left, Math.min(wide, hit(event).x));
    draw();
  });
  canvas.addEventListener("pointermove", (event) => {
    const found = hit(event);
    tell(event, drag ? {} : found);
    canvas.style.cursor = found.bar || (found.row && found.x < left && found.row.workers) ? "pointer" : "default";
  });
  addEventListener("pointercancel", () => { drag = null; draw(); });
  canvas.addEventListener("pointerleave", () => { tip.hidden = true; });
  addEventListener("pointerup", (event) => {
    const found = hit(event), was = drag;
    drag = null;
    if (!was) return;
    if (Math.abs(was.to - was.from) > 4) {
      see(...[unitOf(was.from), unitOf(was.to)].sort((a, b) => a - b));
    } else if (found.row !== was.row) {
      draw();
    } else if (found.x < left && found.row.workers) {
      found.row.open = !found.row.open;
      layOut();
    } else if (found.bar) choose(found.bar.job);
    else if (chosen >= 0) choose(chosen);
  });
  canvas.addEventListener("dblclick", () => see(whole.from, whole.to));
  frame.addEventListener("scroll", () => { tip.hidden = true; draw(); });
  frame.addEventListener("keydown", (event) => {
    const does = { "+": () => zoom(0.6), "=": () => zoom(0.6), "-": () => zoom(1.7), "0": () => see(whole.from, whole.to),
      ArrowLeft: () => pan(-0.2), ArrowRight: () => pan(0.2) }[event.key];
    if (!does || event.ctrlKey || event.metaKey) return;
    event.preventDefault();
    does();
  });
  byId("fold").addEventListener("click", () => openAll(byId("fold").textContent === "Expand all"));

  for (const [name, seconds] of [["All", 0], ["30 d", 2592000], ["7 d", 604800], ["24 h", 86400], ["1 h", 3600]]) {
    if (seconds / data.unit > whole.to) continue;
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = seconds ? `Last ${name}` : name;
    button.addEventListener("click", () => see(seconds ? whole.to - seconds / data.unit : 0, whole.to));
    byId("spans").append(button, " ");
  }

  if (rows.length) {
    byId("chart").hidden = false;
    byId("fold").hidden = !rows.some((row) => row.workers);
    openAll(data.workers.length <= 24);
    see(whole.from, whole.to);
    byId("chosen").addEventListener("click", goToRow);
    new ResizeObserver(() => { if (frame.clientWidth !== wide) layOut(); }).observe(frame);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", layOut);
  }
  document.body.dataset.bars = rows.reduce((all, row) => all + (row.workers || [row]).reduce((sum, each) => sum + each.bars.length, 0), 0);
  document.body.dataset.drawn = Math.round(performance.now() - begun);
})();
