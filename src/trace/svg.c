/* A picture of a trace, for pages and papers: what the timeline shows, without its controls. */
#include <stdio.h>
#include <string.h>

#include "trace/lanes.h"
#include "trace/links.h"

/* In pixels. */
enum { LEFT = 120, WIDTH = 840, TOP = 44, LANE = 20, HEAD = 22, FOOT = 8 };

typedef struct picture {
  strbuf *out;
  const trace_part *t;
  trace_lanes lanes;
  trace_links links;
  int64_t end_ns;
  uint32_t *top; /* by rank: where its header begins */
} picture;

static double x_of(const picture *p, int64_t ns) {
  return LEFT + (double)ns / (double)p->end_ns * WIDTH;
}

static void put_text(strbuf *out, const char *text) {
  for (; *text; text++) {
    if (*text == '<') strbuf_puts(out, "&lt;");
    else if (*text == '&') strbuf_puts(out, "&amp;");
    else strbuf_putc(out, *text);
  }
}

static void put_label(strbuf *out, double x, double y, const char *class, const char *text) {
  strbuf_printf(out, "<text x=\"%.1f\" y=\"%.1f\" class=\"%s\">", x, y, class);
  put_text(out, text);
  strbuf_puts(out, "</text>\n");
}

/* ---- time ---- */
static void format_time(char *text, size_t size, int64_t ns) {
  static const struct unit {
    double ns;
    const char *name;
  } units[] = {{1e9, "s"}, {1e6, "ms"}, {1e3, "us"}, {1, "ns"}};
  const struct unit *u = units;
  while (u->ns > 1 && (double)ns < u->ns) u++;
  (void)snprintf(text, size, "%.3g %s", (double)ns / u->ns, u->name);
}

/* The smallest of 1, 2, 5, 10, 20 … of which at most eight fit. */
static int64_t tick_ns(int64_t end_ns) {
  int64_t step = 1;
  for (int k = 0; end_ns / step > 8; k++) step = k % 3 == 1 ? step / 2 * 5 : step * 2;
  return step;
}

static void put_ticks(const picture *p, uint32_t height) {
  int64_t step = tick_ns(p->end_ns);
  for (int64_t t = 0; t <= p->end_ns; t += step) {
    char text[32];
    format_time(text, sizeof text, t);
    strbuf_printf(p->out, "<path d=\"M%.1f %dV%u\" class=\"tick\"/>\n", x_of(p, t), TOP,
                  height - FOOT);
    put_label(p->out, x_of(p, t) + 3, TOP - 4, "small", text);
  }
}

static void put_legend(strbuf *out, const char *title) {
  static const char *const kinds[] = {"compute", "communication", "wait", "copy"};
  put_label(out, 8, 18, "title", title);
  for (uint32_t k = 0; k < 4; k++) {
    double x = LEFT + WIDTH - 400 + 110.0 * k;
    strbuf_printf(out, "<rect x=\"%.0f\" y=\"9\" width=\"10\" height=\"10\" class=\"%s\"/>\n", x,
                  kinds[k]);
    put_label(out, x + 15, 18, "small", kinds[k]);
  }
}

/* ---- spans ---- */
static void put_box(const picture *p, uint32_t span, const char *kind, const char *name,
                    int64_t start_ns, int64_t end_ns) {
  uint32_t rank = rt_plan_rank(p->t->plan, p->t->spans[span].stream);
  double y = p->top[rank] + HEAD + (double)LANE * trace_lane(&p->lanes, p->t, span);
  double x = x_of(p, start_ns), width = x_of(p, end_ns) - x;
  strbuf_printf(p->out, "<rect x=\"%.2f\" y=\"%.1f\" width=\"%.2f\" height=\"%d\" class=\"%s\"/>\n",
                x, y + 2, width < 0.5 ? 0.5 : width, LANE - 4, kind);
  if (width > 8.0 + 6.5 * (double)strlen(name)) put_label(p->out, x + 4, y + 14, "name", name);
}

static void put_span(const picture *p, uint32_t i) {
  const rt_plan *plan = p->t->plan;
  const rt_span *s = &p->t->spans[i];
  if (i < plan->n_tasks) {
    const rt_task *task = &plan->tasks[plan->instrs[s->instr].task];
    rt_label label;
    put_box(p, i, trace_kind(task), rt_task_label(task, label), s->start_ns, s->end_ns);
    return;
  }
  int64_t ready_ns = p->links.ready_ns[i - plan->n_tasks];
  const char *kind = ir_comm_text(plan->posts[i - plan->n_tasks].kind);
  if (ready_ns > s->start_ns) put_box(p, i, "wait", "wait", s->start_ns, ready_ns);
  put_box(p, i, "communication", kind, ready_ns, s->end_ns);
}

/* ---- the picture ---- */
static void put_rank(const picture *p, uint32_t rank) {
  arena *memory = p->out->memory;
  uint32_t n = trace_lane_count(&p->lanes, p->t, rank), y = p->top[rank];
  strbuf_printf(p->out, "<rect x=\"0\" y=\"%u\" width=\"%d\" height=\"%d\" class=\"band\"/>\n",
                y + 2, LEFT + WIDTH + 8, HEAD - 4);
  put_label(p->out, 8, y + 15.0, "rank",
            arena_printf(memory, "%s %u", p->t->device, p->t->rank + rank));
  for (uint32_t k = 0; k < n; k++)
    put_label(p->out, 16, y + HEAD + (double)LANE * k + 14, "small",
              trace_lane_name(p->t, rank, k, memory));
}

static const char style[] =
    "<style>text{font:12px sans-serif;fill:#222}.small{font-size:11px;fill:#555}"
    ".title,.rank{font-weight:600}.name{font-size:11px;fill:#111}.tick{stroke:#0002}.band{fill:#"
    "eef1f5}"
    ".compute{fill:#5b8def}.communication{fill:#f0a33c}.wait{fill:#c9ccd1}.copy{fill:#58b38c}</"
    "style>\n"
    "<rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n";

static uint32_t lay_ranks(picture *p) {
  uint32_t y = TOP;
  for (uint32_t r = 0; r < trace_ranks(p->t->plan); r++) {
    p->top[r] = y;
    y += HEAD + LANE * trace_lane_count(&p->lanes, p->t, r);
  }
  return y + FOOT;
}

void trace_svg(const trace_part *t, const char *title, strbuf *out) {
  const rt_plan *plan = t->plan;
  uint32_t n_posts = t->n_spans > plan->n_tasks ? t->n_spans - plan->n_tasks : 0;
  picture p = {.out = out, .t = t, .end_ns = 1};
  p.lanes = trace_assign_lanes(t, out->memory);
  p.links = trace_link_posts(plan, n_posts ? t->spans + plan->n_tasks : NULL, n_posts, out->memory);
  p.top = ARENA_ARRAY(out->memory, trace_ranks(plan), uint32_t);
  for (uint32_t i = 0; i < t->n_spans; i++)
    if (t->spans[i].end_ns > p.end_ns) p.end_ns = t->spans[i].end_ns;
  uint32_t height = lay_ranks(&p);
  strbuf_printf(out, "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %u\">\n",
                LEFT + WIDTH + 8, height);
  strbuf_puts(out, style);
  put_legend(out, title);
  for (uint32_t r = 0; r < trace_ranks(plan); r++) put_rank(&p, r);
  put_ticks(&p, height);
  for (uint32_t i = 0; i < t->n_spans; i++)
    if (trace_shows(&t->spans[i])) put_span(&p, i);
  strbuf_puts(out, "</svg>\n");
}
