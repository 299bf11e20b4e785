#include "runtime/trace.h"

/* The page: a head up to the title, a body up to the data, and the script that draws them. The data
 * is the JSON of rt_trace_json(), so both forms of a trace always say the same. */
static const char head[] = "<!DOCTYPE html>\n"
                           "<html lang=\"en\"><head><meta charset=\"utf-8\"><title>";

static const char body[] =
    "</title>\n"
    "<style>\n"
    "html,body{margin:0;height:100%;font:13px system-ui,sans-serif;background:#fff;color:#222}\n"
    "body{display:flex;flex-direction:column}\n"
    "header{padding:6px 10px;border-bottom:1px solid #ccc;display:flex;gap:1.5em}\n"
    "header b{font-weight:600}\n"
    "canvas{flex:1;min-height:0;width:100%;cursor:grab}\n"
    "#tip{position:fixed;display:none;pointer-events:none;background:#222;color:#fff;\n"
    "  padding:6px 8px;border-radius:4px;white-space:pre;font:12px ui-monospace,monospace}\n"
    "@media(prefers-color-scheme:dark){html,body{background:#1b1b1b;color:#ddd}\n"
    "  header{border-color:#444}#tip{background:#eee;color:#111}}\n"
    "</style></head><body>\n"
    "<header><b id=\"title\"></b><span id=\"sum\"></span>\n"
    "<span>wheel: zoom &middot; drag: move &middot; double click: all</span></header>\n"
    "<canvas id=\"c\"></canvas><div id=\"tip\"></div>\n"
    "<script>\n"
    "'use strict';\n"
    "const DATA = ";

static const char script[] =
    ";\n"
    "const canvas = document.getElementById('c'), tip = document.getElementById('tip');\n"
    "const g = canvas.getContext('2d');\n"
    "const LANE = 26, LEFT = 120, TOP = 26;\n"
    "const devices = new Map(), lanes = [], spans = [];\n"
    "const laneOf = new Map(), key = e => e.pid + ':' + e.tid;\n"
    "for (const e of DATA.traceEvents) {\n"
    "  if (e.name === 'process_name') devices.set(e.pid, e.args.name);\n"
    "  else if (e.name === 'thread_name') {\n"
    "    laneOf.set(key(e), lanes.length);\n"
    "    lanes.push({name: devices.get(e.pid) + ' ' + e.args.name});\n"
    "  } else if (e.ph === 'X') spans.push(e);\n"
    "}\n"
    "spans.sort((a, b) => a.ts - b.ts);\n"
    "const end = spans.reduce((m, e) => Math.max(m, e.ts + e.dur), 0) || 1;\n"
    "let from = 0, to = end, scroll = 0, drag = null;\n"
    "document.getElementById('title').textContent = document.title;\n"
    "document.getElementById('sum').textContent =\n"
    "  spans.length + ' tasks, ' + lanes.length + ' streams, ' + time(end);\n"
    "function time(us) {\n"
    "  if (us >= 1e6) return (us / 1e6).toFixed(3) + ' s';\n"
    "  if (us >= 1e3) return (us / 1e3).toFixed(3) + ' ms';\n"
    "  return us.toFixed(3) + ' us';\n"
    "}\n"
    "function color(name) {\n"
    "  let h = 0;\n"
    "  for (const c of name) h = (h * 31 + c.codePointAt(0)) % 360;\n"
    "  return 'hsl(' + h + ' 60% 62%)';\n"
    "}\n"
    "const width = () => canvas.clientWidth - LEFT;\n"
    "const xOf = t => LEFT + (t - from) / (to - from) * width();\n"
    "const tOf = x => from + (x - LEFT) / width() * (to - from);\n"
    "const yOf = lane => TOP + lane * LANE - scroll;\n"
    "function ticks(ink) {\n"
    "  const raw = (to - from) / Math.max(2, width() / 110);\n"
    "  const unit = Math.pow(10, Math.floor(Math.log10(raw)));\n"
    "  const step = unit * (raw / unit > 5 ? 10 : raw / unit > 2 ? 5 : raw / unit > 1 ? 2 : 1);\n"
    "  for (let t = Math.ceil(from / step) * step; t <= to; t += step) {\n"
    "    const x = xOf(t);\n"
    "    g.fillStyle = ink; g.globalAlpha = 0.15;\n"
    "    g.fillRect(x, TOP, 1, canvas.clientHeight);\n"
    "    g.globalAlpha = 1; g.fillText(time(t), x + 3, 15);\n"
    "  }\n"
    "}\n"
    "function draw() {\n"
    "  const w = canvas.clientWidth, h = canvas.clientHeight, r = devicePixelRatio || 1;\n"
    "  canvas.width = w * r; canvas.height = h * r; g.setTransform(r, 0, 0, r, 0, 0);\n"
    "  const ink = getComputedStyle(document.body).color;\n"
    "  g.clearRect(0, 0, w, h); g.font = '12px system-ui,sans-serif';\n"
    "  ticks(ink);\n"
    "  g.save(); g.beginPath(); g.rect(0, TOP, w, h - TOP); g.clip();\n"
    "  g.fillStyle = ink;\n"
    "  lanes.forEach((l, i) => g.fillText(l.name, 8, yOf(i) + 17, LEFT - 12));\n"
    "  g.beginPath(); g.rect(LEFT, TOP, w - LEFT, h - TOP); g.clip();\n"
    "  for (const e of spans) {\n"
    "    if (e.ts > to || e.ts + e.dur < from) continue;\n"
    "    const x = xOf(e.ts), n = Math.max(1, e.dur / (to - from) * width());\n"
    "    const y = yOf(laneOf.get(key(e)));\n"
    "    g.fillStyle = color(e.name); g.fillRect(x, y + 2, n, LANE - 4);\n"
    "    if (n > 24) { g.fillStyle = '#111'; g.fillText(e.name, Math.max(x, LEFT) + 3, y + 17, n - "
    "6); }\n"
    "  }\n"
    "  g.restore();\n"
    "}\n"
    "function hit(x, y) {\n"
    "  const lane = Math.floor((y - TOP + scroll) / LANE), t = tOf(x);\n"
    "  const slack = (to - from) / width();\n"
    "  if (x < LEFT || y < TOP) return null;\n"
    "  return spans.find(e => laneOf.get(key(e)) === lane && e.ts <= t && t <= e.ts + "
    "Math.max(e.dur, slack));\n"
    "}\n"
    "function show(ev) {\n"
    "  const e = hit(ev.offsetX, ev.offsetY);\n"
    "  tip.style.display = e ? 'block' : 'none';\n"
    "  if (!e) return;\n"
    "  const rows = [e.name, 'at ' + time(e.ts) + ', took ' + time(e.dur)];\n"
    "  for (const k in e.args) rows.push(k + ': ' + e.args[k]);\n"
    "  if (e.dur > 0) rows.push((e.args.flops / e.dur / 1e3).toFixed(2) + ' GFLOP/s, ' +\n"
    "                           (e.args.bytes / e.dur / 1e3).toFixed(2) + ' GB/s');\n"
    "  tip.textContent = rows.join('\\n');\n"
    "  tip.style.left = Math.min(ev.clientX + 14, innerWidth - tip.offsetWidth - 8) + 'px';\n"
    "  tip.style.top = Math.min(ev.clientY + 14, innerHeight - tip.offsetHeight - 8) + 'px';\n"
    "}\n"
    "canvas.addEventListener('wheel', ev => {\n"
    "  ev.preventDefault();\n"
    "  const t = tOf(Math.max(LEFT, ev.offsetX)), f = Math.exp(ev.deltaY * 0.0015);\n"
    "  if ((to - from) * f < 0.002 || (to - from) * f > 4 * end) return;\n"
    "  from = t - (t - from) * f; to = t + (to - t) * f; draw();\n"
    "}, {passive: false});\n"
    "canvas.addEventListener('pointerdown', ev => {\n"
    "  drag = {x: ev.offsetX, y: ev.offsetY, from, to, scroll}; "
    "canvas.setPointerCapture(ev.pointerId);\n"
    "});\n"
    "canvas.addEventListener('pointerup', () => { drag = null; });\n"
    "canvas.addEventListener('pointermove', ev => {\n"
    "  if (!drag) return show(ev);\n"
    "  const dt = (ev.offsetX - drag.x) / width() * (drag.to - drag.from);\n"
    "  from = drag.from - dt; to = drag.to - dt;\n"
    "  const most = Math.max(0, TOP + lanes.length * LANE - canvas.clientHeight);\n"
    "  scroll = Math.min(most, Math.max(0, drag.scroll - (ev.offsetY - drag.y))); draw();\n"
    "});\n"
    "canvas.addEventListener('pointerleave', () => { tip.style.display = 'none'; });\n"
    "canvas.addEventListener('dblclick', () => { from = 0; to = end; scroll = 0; draw(); });\n"
    "addEventListener('resize', draw);\n"
    "draw();\n"
    "</script></body></html>\n";

static void put_escaped(strbuf *out, const char *text) {
  for (; *text; text++) {
    switch (*text) {
    case '&': strbuf_puts(out, "&amp;"); break;
    case '<': strbuf_puts(out, "&lt;"); break;
    case '>': strbuf_puts(out, "&gt;"); break;
    case '"': strbuf_puts(out, "&quot;"); break;
    default: strbuf_putc(out, *text);
    }
  }
}

void rt_trace_html(const rt_trace *traces, uint32_t n, const char *title, strbuf *out) {
  strbuf_puts(out, head);
  put_escaped(out, title);
  strbuf_puts(out, body);
  rt_trace_json(traces, n, out);
  strbuf_puts(out, script);
}
