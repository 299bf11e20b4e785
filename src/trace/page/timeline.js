'use strict';
/* ---- the data: lanes of ranks, spans of lanes, arrows ---- */
const KINDS = ['compute', 'communication', 'wait', 'copy'];
const one = id => document.getElementById(id);
const count = (n, word) => n.toLocaleString('en') + ' ' + word + (n === 1 ? '' : 's');

const ranks = [], lanes = [], spans = [], arrows = [];
const steps = new Map(), sources = [];
(function read() {
  const rankOf = new Map(), laneOf = new Map(), starts = new Map();
  for (const [part, trace] of DATA.entries()) {
    const program = trace.weir || {};
    for (const origin in program.steps || {}) steps.set(part + ':' + origin, program.steps[origin]);
    sources.push({file: program.file || '', lines: (program.source || '').split('\n')});
    for (const e of Array.isArray(trace.traceEvents) ? trace.traceEvents : []) {
      const key = e.pid + ':' + e.tid;
      if (e.name === 'process_name') {
        if (rankOf.has(e.pid)) continue;
        const rank = {pid: e.pid, name: e.args.name, folded: false, lanes: [], sums: null};
        rankOf.set(e.pid, rank);
        ranks.push(rank);
      } else if (e.name === 'thread_name') {
        if (laneOf.has(key) || !rankOf.has(e.pid)) continue;
        const lane = {rank: rankOf.get(e.pid), name: e.args.name, spans: []};
        laneOf.set(key, lane);
        lane.rank.lanes.push(lane);
        lanes.push(lane);
      } else if (e.ph === 'X') {
        const lane = laneOf.get(key);
        if (!lane) continue;
        const span = {name: e.name, kind: KINDS.indexOf(e.cat), start: e.ts, end: e.ts + e.dur, lane,
                      args: e.args || {}, part, arrows: [], index: 0};
        if (span.kind < 0) span.kind = span.args.flops === undefined ? 1 : 0;
        lane.spans.push(span);
        spans.push(span);
      } else if (e.ph === 's') {
        starts.set(part + ':' + e.id, {kind: e.cat, lane: laneOf.get(key), at: e.ts});
      } else if (e.ph === 'f') {
        const from = starts.get(part + ':' + e.id);
        if (from && from.lane && laneOf.has(key)) arrows.push({kind: from.kind, from, to: {lane: laneOf.get(key), at: e.ts}});
      }
    }
  }
  ranks.sort((a, b) => a.pid - b.pid);
  for (const lane of lanes) lane.spans.sort((a, b) => a.start - b.start);
  spans.sort((a, b) => a.start - b.start);
  spans.forEach((s, i) => { s.index = i; });
  for (const a of arrows) {
    a.a = at(a.from.lane, a.from.at);
    a.b = at(a.to.lane, a.to.at);
    if (a.a) a.a.arrows.push(a);
    if (a.b && a.b !== a.a) a.b.arrows.push(a);
  }
})();
const end = spans.reduce((m, s) => Math.max(m, s.end), 0) || 1;

/* The span of a lane that a time is in; what begins there wins over what ends there. */
function at(lane, t) {
  const i = firstAfter(lane.spans, t + 1e-6);
  for (let k = i - 1; k >= 0 && k > i - 4; k--)
    if (lane.spans[k].end >= t - 1e-6) return lane.spans[k];
  return null;
}
function firstAfter(list, t) {
  let low = 0, high = list.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (list[middle].start < t) low = middle + 1; else high = middle;
  }
  return low;
}

/* ---- sums: how long a rank computes, communicates, and does both ---- */
function union(list) {
  const joined = [];
  for (const [a, b] of list) {
    const last = joined[joined.length - 1];
    if (last && a <= last[1]) last[1] = Math.max(last[1], b); else joined.push([a, b]);
  }
  return joined;
}
const length = list => list.reduce((sum, [a, b]) => sum + b - a, 0);
function common(x, y) {
  let sum = 0;
  for (let i = 0, k = 0; i < x.length && k < y.length;) {
    sum += Math.max(0, Math.min(x[i][1], y[k][1]) - Math.max(x[i][0], y[k][0]));
    if (x[i][1] < y[k][1]) i++; else k++;
  }
  return sum;
}
function overlapOf(rank, from, to) {
  const parts = {work: [], comm: [], wait: []};
  for (const lane of rank.lanes) for (const s of lane.spans) {
    const a = Math.max(from, s.start), b = Math.min(to, s.end);
    if (a < b) (s.kind === 1 || s.kind === 2 ? parts.comm : parts.work).push([a, b]);
    if (a < b && s.kind === 2) parts.wait.push([a, b]);
  }
  const byStart = (a, b) => a[0] - b[0];
  const work = union(parts.work.sort(byStart)), comm = union(parts.comm.sort(byStart));
  const both = common(work, comm);
  return {compute: length(work), comm: length(comm), both, exposed: length(comm) - both,
          waiting: length(union(parts.wait.sort(byStart)))};
}
for (const r of ranks) r.sums = overlapOf(r, 0, end);
function total(key) { return ranks.reduce((sum, r) => sum + r.sums[key], 0); }
const percent = (part, whole) => whole > 0 ? Math.round(100 * part / whole) + '%' : '0%';

/* ---- words ---- */
function time(us) {
  const abs = Math.abs(us);
  if (abs >= 1e6) return (us / 1e6).toFixed(3) + ' s';
  if (abs >= 1e3) return (us / 1e3).toFixed(3) + ' ms';
  return us.toFixed(3) + ' us';
}
/* Ticks have one unit, and no more digits than their distance needs. */
function tick(us, step, last) {
  const [size, unit] = last >= 1e6 ? [1e6, 's'] : last >= 1e3 ? [1e3, 'ms'] : [1, 'us'];
  const digits = Math.max(0, -Math.floor(Math.log10(step / size) + 1e-9));
  return (us / size).toFixed(digits) + ' ' + unit;
}
function amount(n, unit) {
  for (const [size, letter] of [[1e12, 'T'], [1e9, 'G'], [1e6, 'M'], [1e3, 'k']])
    if (n >= size) return (n / size).toFixed(2) + ' ' + letter + unit;
  return n.toFixed(0) + ' ' + unit;
}
function rates(s) {
  const seconds = (s.end - s.start) / 1e6, rows = [];
  if (!(seconds > 0) || s.kind === 2) return rows;
  if (s.args.flops > 0) rows.push(amount(s.args.flops / seconds, 'FLOP/s'));
  if (s.args.bytes > 0) rows.push(amount(s.args.bytes / seconds, 'B/s'));
  return rows;
}
const stepOf = s => steps.get(s.part + ':' + s.args.origin);
function escapeText(text) {
  return String(text).replace(/[&<>"]/g, c => ({'&': '&amp;', '<': '&lt;', '>': '&gt;', '"': '&quot;'})[c]);
}

/* ---- the view ---- */
const canvas = one('c'), tip = one('tip'), g = canvas.getContext('2d');
const LANE = 22, HEAD = 24, LEFT = 150, TOP = 26;
const view = {from: 0, to: end, scroll: 0};
let drag = null, hovered = null, chosen = null, range = null, found = null, hits = [], hitAt = -1;
let colors = {}, rows = [], height = 0, pending = false;

/* A row is a rank's header or a lane with something in it; folded ranks have their header only. */
function layRows() {
  rows = [];
  let y = 0;
  for (const rank of ranks) {
    rows.push({y, h: HEAD, rank, lane: null});
    rank.y = y;
    y += HEAD;
    for (const lane of rank.lanes) {
      const shown = !rank.folded && lane.spans.length > 0;
      lane.y = shown ? y : null;
      if (!shown) continue;
      rows.push({y, h: LANE, rank, lane});
      y += LANE;
    }
  }
  height = y;
}
function readColors() {
  const style = getComputedStyle(document.documentElement);
  for (const k of [...KINDS, 'ink', 'paper', 'line', 'band', 'mark'])
    colors[k] = style.getPropertyValue('--' + k).trim();
}
const width = () => Math.max(1, canvas.clientWidth - LEFT);
const xOf = t => LEFT + (t - view.from) / (view.to - view.from) * width();
const tOf = x => view.from + (x - LEFT) / width() * (view.to - view.from);
const yOf = y => TOP + y - view.scroll;
function limitScroll() {
  const most = Math.max(0, TOP + height + 8 - canvas.clientHeight);
  view.scroll = Math.min(most, Math.max(0, view.scroll));
}
function redraw() {
  if (pending) return;
  pending = true;
  requestAnimationFrame(() => { pending = false; draw(); });
}

/* ---- drawing ---- */
const widths = new Map();
/* As much of a name as there is room for; '' if that says nothing. */
function fitting(name, room) {
  if (room < 8) return '';
  if (!widths.has(name)) widths.set(name, g.measureText(name).width);
  const whole = widths.get(name);
  if (whole <= room) return name;
  const letters = Math.floor(name.length * room / whole) - 2;
  return letters < 3 ? '' : name.slice(0, letters) + '\u2026';
}
function drawTicks(h) {
  const raw = (view.to - view.from) / Math.max(2, width() / 110);
  const unit = Math.pow(10, Math.floor(Math.log10(raw)));
  const step = unit * (raw / unit > 5 ? 10 : raw / unit > 2 ? 5 : raw / unit > 1 ? 2 : 1);
  g.fillStyle = colors.ink;
  for (let t = Math.ceil(view.from / step) * step; t <= view.to; t += step) {
    const x = xOf(t);
    if (x < LEFT) continue;
    g.globalAlpha = 0.12; g.fillRect(x, TOP, 1, h);
    g.globalAlpha = 1; g.fillText(tick(t, step, Math.max(Math.abs(view.from), Math.abs(view.to))), x + 3, 16);
  }
}
/* What the head's boxes say, read once a frame. */
const wanted = {path: false, kinds: []};
function readBoxes() {
  wanted.path = one('path').checked;
  wanted.kinds = KINDS.map((_, i) => one('kind' + i).checked);
}
function dim(s) {
  return (found && !found.has(s)) || (wanted.path && !s.args.critical) || !wanted.kinds[s.kind];
}
/* Spans narrower than a pixel are drawn once per pixel, so that any number of them costs little. */
function drawLane(spansOf, y, h, named) {
  let edge = -1;
  const scale = width() / (view.to - view.from), most = canvas.clientWidth;
  for (let i = Math.max(0, firstAfter(spansOf, view.from) - 16); i < spansOf.length; i++) {
    const s = spansOf[i];
    if (s.start > view.to) break;
    if (s.end < view.from) continue;
    const x = Math.max(LEFT, LEFT + (s.start - view.from) * scale);
    const right = Math.max(x + 1, LEFT + (s.end - view.from) * scale), hidden = dim(s);
    if (right <= edge && s !== chosen && !found) continue;
    edge = Math.ceil(right);
    g.globalAlpha = hidden ? 0.15 : s.kind === 2 ? 0.75 : 1;
    g.fillStyle = colors[KINDS[s.kind]];
    g.fillRect(x, y + 2, Math.max(1, right - x - (right - x > 4 ? 1 : 0)), h - 4);
    if (s === chosen || s === hovered || (!hidden && wanted.path)) {
      g.globalAlpha = 1; g.strokeStyle = s === chosen ? colors.mark : colors.ink;
      g.lineWidth = s === chosen ? 2 : 1;
      g.strokeRect(x + 0.5, y + 2.5, Math.max(1, right - x - 1), h - 5);
    }
    const to = Math.min(right, most);
    const label = named ? fitting(s.name, to - x - 6) : '';
    if (label) { g.globalAlpha = hidden ? 0.3 : 1; g.fillStyle = '#111'; g.fillText(label, x + 3, y + 15); }
  }
  g.globalAlpha = 1;
}
function drawRank(rank, y) {
  g.fillStyle = colors.band; g.fillRect(0, y, canvas.clientWidth, HEAD - 1);
  g.fillStyle = colors.ink; g.font = '600 12px system-ui,sans-serif';
  g.fillText((rank.folded ? '\u25b8 ' : '\u25be ') + rank.name, 8, y + 16);
  g.font = '12px system-ui,sans-serif';
  if (rank.folded) {
    g.save(); g.beginPath(); g.rect(LEFT, TOP, width(), canvas.clientHeight); g.clip();
    for (const lane of rank.lanes) drawLane(lane.spans, y, HEAD, false);
    g.restore();
    return;
  }
  const s = rank.sums;
  if (s.comm > 0)
    g.fillText('compute ' + time(s.compute) + ', communicate ' + time(s.comm) + ', overlapped ' +
               percent(s.both, s.comm) + ', exposed ' + time(s.exposed) +
               (s.waiting > 0 ? ', waited for others ' + time(s.waiting) : ''), LEFT, y + 16);
  else g.fillText('compute ' + time(s.compute) + ' of ' + time(end), LEFT, y + 16);
}
function centre(lane) { return yOf(lane.y === null ? lane.rank.y : lane.y) + LANE / 2; }
function drawArrow(a, strong) {
  const x0 = xOf(a.from.at), x1 = xOf(a.to.at), y0 = centre(a.from.lane), y1 = centre(a.to.lane);
  g.globalAlpha = strong ? 1 : 0.35; g.strokeStyle = g.fillStyle = strong ? colors.mark : colors.ink;
  g.lineWidth = strong ? 1.5 : 1;
  const bend = Math.max(12, Math.abs(x1 - x0) / 2);
  g.beginPath(); g.moveTo(x0, y0); g.bezierCurveTo(x0 + bend, y0, x1 - bend, y1, x1, y1); g.stroke();
  g.beginPath(); g.moveTo(x1, y1); g.lineTo(x1 - 6, y1 - 3); g.lineTo(x1 - 6, y1 + 3); g.fill();
  g.globalAlpha = 1;
}
/* All arrows where there are few, otherwise those of what is hovered or chosen. */
function drawArrows() {
  if (!one('arrows').checked) return 0;
  const strong = new Set([...(chosen ? chosen.arrows : []), ...(hovered ? hovered.arrows : [])]);
  const seen = arrows.length > 4000 ? [] : arrows.filter(a => a.to.at >= view.from && a.from.at <= view.to);
  if (seen.length <= 150) for (const a of seen) if (!strong.has(a)) drawArrow(a, false);
  for (const a of strong) drawArrow(a, true);
  return strong.size + (seen.length <= 150 ? seen.length : 0);
}
function draw() {
  const w = canvas.clientWidth, h = canvas.clientHeight, r = devicePixelRatio || 1;
  if (canvas.width !== Math.round(w * r) || canvas.height !== Math.round(h * r)) {
    canvas.width = Math.round(w * r); canvas.height = Math.round(h * r);
  }
  limitScroll();
  readBoxes();
  g.setTransform(r, 0, 0, r, 0, 0); g.clearRect(0, 0, w, h); g.font = '12px system-ui,sans-serif';
  g.save(); g.beginPath(); g.rect(0, TOP, w, h - TOP); g.clip();
  for (const row of rows) {
    const y = yOf(row.y);
    if (y > h || y + row.h < TOP) continue;
    if (!row.lane) drawRank(row.rank, y);
    else { g.fillStyle = colors.ink; g.fillText(row.lane.name, 20, y + 15, LEFT - 26); }
  }
  g.beginPath(); g.rect(LEFT, TOP, w - LEFT, h - TOP); g.clip();
  if (range) {
    g.globalAlpha = 0.15; g.fillStyle = colors.mark;
    g.fillRect(xOf(range[0]), TOP, xOf(range[1]) - xOf(range[0]), h); g.globalAlpha = 1;
  }
  for (const row of rows) {
    const y = yOf(row.y);
    if (row.lane && y <= h && y + row.h >= TOP) drawLane(row.lane.spans, y, LANE, true);
  }
  drawArrows();
  g.restore();
  drawTicks(h);
  page.frames++;
}

/* ---- the side: details of a span, sums of a time ---- */
function table(head, lines) {
  const cell = (tag, text, i) => '<' + tag + (i ? ' class="n"' : '') + '>' + escapeText(text) + '</' + tag + '>';
  const row = (tag, cells) => '<tr>' + cells.map((text, i) => cell(tag, text, i)).join('') + '</tr>';
  return '<table>' + (head ? row('th', head) : '') + lines.map(l => row('td', l)).join('') + '</table>';
}
function sourceAround(s) {
  const source = sources[s.part], line = s.args.line;
  if (!line || !source.lines[line - 1]) return '';
  let text = '';
  for (let i = Math.max(1, line - 2); i <= Math.min(source.lines.length, line + 2); i++) {
    const shown = escapeText(String(i).padStart(4) + '  ' + source.lines[i - 1]);
    text += (i === line ? '<mark>' + shown + '</mark>' : shown) + '\n';
  }
  return '<p>' + escapeText(source.file) + ', line ' + line + '</p><pre>' + text + '</pre>';
}
function showSide(html) { one('info').innerHTML = html; one('side').hidden = false; redraw(); }
function detail(s) {
  const lines = [['kind', KINDS[s.kind]], ['rank', s.lane.rank.name], ['lane', s.lane.name],
                 ['start', time(s.start)], ['took', time(s.end - s.start)]];
  const units = {bytes: 'B', flops: 'FLOP'};
  for (const k in s.args)
    if (k !== 'origin') lines.push([k, units[k] ? amount(s.args[k], units[k]) : s.args[k]]);
  for (const rate of rates(s)) lines.push(['rate', rate]);
  const step = stepOf(s);
  showSide('<h2>' + escapeText(s.name) + '</h2>' + table(null, lines) +
           (step ? '<p>program</p><pre>' + escapeText(step) + '</pre>' : '') + sourceAround(s));
}
function sums(from, to) {
  const byName = new Map();
  for (const s of spans) {
    if (s.start >= to) break;
    const t = Math.min(to, s.end) - Math.max(from, s.start);
    if (t <= 0) continue;
    const key = KINDS[s.kind] + ' ' + s.name, row = byName.get(key) || {n: 0, t: 0, bytes: 0};
    row.n++; row.t += t; row.bytes += s.kind === 1 ? s.args.bytes || 0 : 0;
    byName.set(key, row);
  }
  const lines = [...byName].sort((a, b) => b[1].t - a[1].t)
    .map(([name, row]) => [name, row.n, time(row.t), row.bytes ? amount(row.bytes, 'B') : '']);
  const perRank = ranks.map(r => {
    const o = overlapOf(r, from, to);
    return [r.name, time(o.compute), time(o.comm), percent(o.both, o.comm), time(o.exposed)];
  });
  showSide('<h2>' + time(to - from) + ' from ' + time(from) + '</h2>' +
           table(['', 'spans', 'time', 'sent'], lines) +
           '<h2>by rank</h2>' + table(['', 'compute', 'communicate', 'overlapped', 'exposed'], perRank));
}
function choose(s) { chosen = s; range = null; if (s) detail(s); else one('side').hidden = true; redraw(); }

/* ---- search ---- */
function search(text) {
  const words = text.trim().toLowerCase();
  found = null; hits = []; hitAt = -1;
  if (words) {
    hits = spans.filter(s => (s.name + ' ' + (stepOf(s) || '') + ' ' + (s.args.writes || '')).toLowerCase().includes(words));
    found = new Set(hits);
  }
  one('found').textContent = words ? count(hits.length, 'span') : '';
  redraw();
}
function nextHit(step) {
  if (!hits.length) return;
  hitAt = (hitAt + step + hits.length) % hits.length;
  reveal(hits[hitAt]);
  choose(hits[hitAt]);
}
/* Moves as little as needed for a span to be seen. */
function reveal(s) {
  const span = view.to - view.from;
  if (s.lane.rank.folded) { s.lane.rank.folded = false; layRows(); }
  if (s.end < view.from || s.start > view.to) {
    view.from = (s.start + s.end) / 2 - span / 2;
    view.to = view.from + span;
  }
  const room = canvas.clientHeight - TOP - LANE;
  if (s.lane.y < view.scroll) view.scroll = s.lane.y;
  if (s.lane.y > view.scroll + room) view.scroll = s.lane.y - room;
}

/* ---- hands ---- */
function zoom(factor, t) {
  const span = (view.to - view.from) * factor;
  if (span < 0.002 || span > 4 * end) return;
  view.from = t - (t - view.from) * factor;
  view.to = view.from + span;
  redraw();
}
function move(part) {
  const by = (view.to - view.from) * part;
  view.from += by; view.to += by;
  redraw();
}
function showAll() { Object.assign(view, {from: 0, to: end, scroll: 0}); redraw(); }
function showChosen() {
  const [a, b] = chosen ? [chosen.start, chosen.end] : range || [0, end], margin = (b - a) * 0.1 || 1;
  Object.assign(view, {from: a - margin, to: b + margin});
  redraw();
}
function fold(all) { for (const r of ranks) r.folded = all; layRows(); redraw(); }
function rowAt(y) { return rows.find(r => y >= yOf(r.y) && y < yOf(r.y) + r.h); }
function hit(x, y) {
  const row = y > TOP && x >= LEFT ? rowAt(y) : null;
  if (!row || !row.lane) return null;
  const slack = (view.to - view.from) / width(), t = tOf(x), list = row.lane.spans;
  for (let i = firstAfter(list, t + slack) - 1; i >= 0 && i > firstAfter(list, t) - 8; i--)
    if (list[i].start <= t + slack && t <= Math.max(list[i].end, list[i].start + slack)) return list[i];
  return null;
}
function showTip(ev, s) {
  tip.style.display = s ? 'block' : 'none';
  if (!s) return;
  const lines = [s.name, 'at ' + time(s.start) + ', took ' + time(s.end - s.start), ...rates(s)];
  const step = stepOf(s);
  if (step) lines.push(step.split('\n')[0]);
  if (s.args.writes) lines.push('writes ' + s.args.writes);
  tip.textContent = lines.join('\n');
  tip.style.left = Math.max(0, Math.min(ev.clientX + 14, innerWidth - tip.offsetWidth - 8)) + 'px';
  tip.style.top = Math.max(0, Math.min(ev.clientY + 14, innerHeight - tip.offsetHeight - 8)) + 'px';
}
canvas.addEventListener('wheel', ev => {
  ev.preventDefault();
  if (ev.shiftKey) { view.scroll += ev.deltaY || ev.deltaX; redraw(); }
  else if (Math.abs(ev.deltaX) > Math.abs(ev.deltaY)) move(ev.deltaX / width());
  else zoom(Math.exp(ev.deltaY * 0.0015), tOf(Math.max(LEFT, ev.offsetX)));
}, {passive: false});
canvas.addEventListener('pointerdown', ev => {
  canvas.focus();
  drag = {x: ev.offsetX, y: ev.offsetY, from: view.from, to: view.to, scroll: view.scroll,
          select: ev.shiftKey, moved: false};
  canvas.setPointerCapture(ev.pointerId);
});
canvas.addEventListener('pointermove', ev => {
  if (!drag) {
    const s = hit(ev.offsetX, ev.offsetY);
    if (s !== hovered) { hovered = s; redraw(); }
    return showTip(ev, s);
  }
  const dx = ev.offsetX - drag.x;
  drag.moved = drag.moved || Math.abs(dx) + Math.abs(ev.offsetY - drag.y) > 3;
  if (!drag.moved) return;
  tip.style.display = 'none';
  if (drag.select) range = [tOf(drag.x), tOf(ev.offsetX)].sort((a, b) => a - b);
  else {
    const dt = dx / width() * (drag.to - drag.from);
    Object.assign(view, {from: drag.from - dt, to: drag.to - dt, scroll: drag.scroll - (ev.offsetY - drag.y)});
  }
  redraw();
});
canvas.addEventListener('pointerup', ev => {
  const was = drag;
  drag = null;
  if (!was) return;
  if (was.moved) { if (was.select && range) { chosen = null; sums(range[0], range[1]); } return; }
  const row = rowAt(ev.offsetY);
  if (row && !row.lane && ev.offsetY > TOP) { row.rank.folded = !row.rank.folded; layRows(); redraw(); }
  else choose(hit(ev.offsetX, ev.offsetY));
});
canvas.addEventListener('pointercancel', () => { drag = null; });
canvas.addEventListener('pointerleave', () => { tip.style.display = 'none'; hovered = null; redraw(); });
canvas.addEventListener('dblclick', showAll);
const KEYS = {
  w: () => zoom(0.8, (view.from + view.to) / 2), s: () => zoom(1.25, (view.from + view.to) / 2),
  a: () => move(-0.1), d: () => move(0.1), ArrowLeft: () => move(-0.1), ArrowRight: () => move(0.1),
  ArrowUp: () => { view.scroll -= LANE; redraw(); }, ArrowDown: () => { view.scroll += LANE; redraw(); },
  0: showAll, f: showChosen, '[': () => fold(true), ']': () => fold(false),
  '/': () => one('search').focus(), '?': () => { one('keys').hidden = !one('keys').hidden; },
  Escape: () => { one('keys').hidden = true; range = null; choose(null); },
};
addEventListener('keydown', ev => {
  if (ev.target === one('search')) {
    if (ev.key === 'Enter') nextHit(ev.shiftKey ? -1 : 1);
    if (ev.key === 'Escape') { ev.target.value = ''; search(''); canvas.focus(); }
    return;
  }
  const act = ev.ctrlKey || ev.metaKey || ev.altKey ? null : KEYS[ev.key.length === 1 ? ev.key.toLowerCase() : ev.key];
  if (act) { ev.preventDefault(); act(); }
});
one('search').addEventListener('input', ev => search(ev.target.value));
one('help').addEventListener('click', KEYS['?']);
one('close').addEventListener('click', () => { range = null; choose(null); });
for (const id of ['arrows', 'path']) one(id).addEventListener('change', redraw);

/* ---- the head ---- */
KINDS.forEach((kind, i) => {
  const label = document.createElement('label');
  label.innerHTML = '<input type="checkbox" checked id="kind' + i + '"><i style="background:var(--' + kind + ')"></i>' + kind;
  label.firstChild.addEventListener('change', redraw);
  one('legend').append(label);
});
one('title').textContent = document.title;
one('sum').textContent = (function () {
  const n = kind => spans.filter(s => s.kind === kind).length;
  const words = [time(end), count(n(0) + n(3), 'launch').replace('launchs', 'launches')];
  if (n(1)) words.push(count(n(1), 'communication'));
  if (ranks.length > 1) words.push(count(ranks.length, 'rank'));
  if (total('comm') > 0)
    words.push(percent(total('both'), total('comm')) + ' of communication overlapped, ' +
               time(total('exposed') / ranks.length) + ' exposed per rank');
  return words.join(' \u00b7 ');
})();
one('path').parentElement.hidden = !spans.some(s => s.args.critical);
one('arrows').parentElement.hidden = !arrows.length;

const page = {frames: 0, ranks, lanes, spans, arrows, view, draw, hit, xOf, yOf, LANE};
layRows();
readColors();
matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => { readColors(); redraw(); });
new ResizeObserver(redraw).observe(canvas);
draw();
page.ready_ms = performance.now();
