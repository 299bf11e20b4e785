/* Profiles: what ran when in a run. */
#include <stdio.h>
#include <string.h>

#include "api/program.h"
#include "base/beside.h"
#include "data/npy.h"
#include "session/profile.h"
#include "text/text.h"
#include "trace/trace.h"

weir_status weir_profile_create(weir_profile **result) {
  if (!result) return api_refuse("weir_profile_create: an argument is NULL");
  api_begin();
  session_profile *p = memory_alloc(&memory_default, sizeof *p);
  if (!p) return api_end(STATUS_OUT_OF_MEMORY);
  *p = (session_profile){0};
  *result = (weir_profile *)p;
  return WEIR_OK;
}

void weir_profile_destroy(weir_profile *p) {
  if (!p) return;
  session_profile_drop(api_profile(p));
  memory_free(&memory_default, p);
}

bool weir_profile_filled(const weir_profile *p) { return p && api_profile(p)->plan; }

weir_status weir_profile_gather(const weir_program *p, weir_profile *profile) {
  session_profile *q = api_profile(profile);
  if (!p || !profile) return api_refuse("weir_profile_gather: an argument is NULL");
  if (!q->plan) return api_refuse("the profile is empty: no run on a device filled it");
  session *x = &((weir_program *)p)->session;
  if (q->owner != x) return api_refuse("the profile is of a run of another program");
  if (!session_ranks_are_spread(&x->ranks) || q->world) return WEIR_OK;
  api_begin();
  (void)pthread_mutex_lock(&((weir_program *)p)->lock);
  status st = session_profile_gather(x, q);
  (void)pthread_mutex_unlock(&((weir_program *)p)->lock);
  return api_end(st);
}

weir_status weir_profile_stats(const weir_profile *p, weir_stats *stats) {
  if (!p || !stats) return api_refuse("weir_profile_stats: an argument is NULL");
  if (!weir_profile_filled(p))
    return api_refuse("the profile is empty: no run on a device filled it");
  if (api_check_size(stats->struct_size, "weir_profile_stats") != WEIR_OK) return WEIR_BAD_USAGE;
  const trace_stats *s = &api_profile(p)->stats;
  weir_stats all = {.struct_size = stats->struct_size,
                    .launches = s->launches,
                    .waits = s->waits,
                    .wall_ns = s->wall_ns,
                    .host_ns = s->host_ns,
                    .task_ns = s->task_ns,
                    .compute_ns = s->compute_ns,
                    .overlap_ns = s->overlap_ns,
                    .pool_bytes = s->pool_bytes,
                    .peak_bytes = s->peak_bytes,
                    .flops = s->flops,
                    .bytes = s->bytes,
                    .posts = s->posts,
                    .joins = s->joins,
                    .comm_ns = s->comm_ns,
                    .both_ns = s->both_ns,
                    .sent_bytes = s->sent_bytes};
  api_copy_sized(stats, &all, stats->struct_size, sizeof all);
  return WEIR_OK;
}

/* ---- the critical path ---- */
size_t weir_profile_path_count(const weir_profile *p) {
  return weir_profile_filled(p) ? api_profile(p)->path_len : 0;
}

size_t weir_profile_ranks(const weir_profile *p) {
  if (!weir_profile_filled(p)) return 0;
  uint32_t n = api_profile(p)->plan->n_ranks;
  return n ? n : 1;
}

typedef struct rank_call {
  const session_profile *profile;
  uint32_t rank;
  trace_rank_stats stats;
} rank_call;

static status rank_body(arena *scratch, void *context) {
  rank_call *c = context;
  const session_profile *p = c->profile;
  trace_stats_of_rank(p->plan, p->spans, p->n_spans, c->rank, scratch, &c->stats);
  return STATUS_OK;
}

weir_status weir_profile_rank_stats(const weir_profile *p, size_t i, weir_rank_stats *stats) {
  if (!p || !stats || i >= weir_profile_ranks(p))
    return api_refuse("weir_profile_rank_stats: there is no such device in the profile");
  if (api_check_size(stats->struct_size, "weir_profile_rank_stats") != WEIR_OK)
    return WEIR_BAD_USAGE;
  rank_call c = {.profile = api_profile(p), .rank = (uint32_t)i};
  weir_status st = api_call(&memory_default, rank_body, &c);
  weir_rank_stats all = {.struct_size = stats->struct_size,
                         .device = (int64_t)api_profile(p)->first_rank + (int64_t)i,
                         .compute_ns = c.stats.compute_ns,
                         .comm_ns = c.stats.comm_ns,
                         .both_ns = c.stats.both_ns,
                         .posts = c.stats.posts,
                         .sent_bytes = c.stats.sent_bytes,
                         .received_bytes = c.stats.received_bytes};
  if (st == WEIR_OK) api_copy_sized(stats, &all, stats->struct_size, sizeof all);
  return st;
}

/* Spans of tasks are in plan order, those of communications follow by number. */
static const rt_span *span_of(const session_profile *p, uint32_t instr) {
  const rt_instr *i = &p->plan->instrs[instr];
  if (i->kind == RT_POST || i->kind == RT_JOIN) return &p->spans[p->plan->n_tasks + i->task];
  uint32_t low = 0, high = p->plan->n_tasks;
  while (low + 1 < high) {
    uint32_t middle = low + (high - low) / 2;
    if (p->spans[middle].instr <= instr) low = middle;
    else high = middle;
  }
  return &p->spans[low];
}

typedef struct step_call {
  const session_profile *profile;
  uint32_t instr;
  weir_path_step *step;
} step_call;

static status step_body(arena *scratch, void *context) {
  const step_call *c = context;
  strbuf text;
  strbuf_init(&text, scratch);
  rt_describe(c->profile->plan, c->instr, &text);
  (void)snprintf(c->step->text, sizeof c->step->text, "%s", text.data);
  return STATUS_OK;
}

weir_status weir_profile_path_step(const weir_profile *p, size_t i, weir_path_step *step) {
  if (!p || !step) return api_refuse("weir_profile_path_step: an argument is NULL");
  if (i >= weir_profile_path_count(p)) return api_refuse("the critical path has no such step");
  if (api_check_size(step->struct_size, "weir_profile_path_step") != WEIR_OK) return WEIR_BAD_USAGE;
  const rt_span *span = span_of(api_profile(p), api_profile(p)->path[i]);
  weir_path_step all = {.struct_size = step->struct_size,
                        .instr = span->instr,
                        .stream = (int64_t)span->stream - 1,
                        .start_ns = span->start_ns,
                        .end_ns = span->end_ns};
  step_call c = {api_profile(p), span->instr, &all};
  weir_status st = api_call(&memory_default, step_body, &c);
  if (st == WEIR_OK) api_copy_sized(step, &all, step->struct_size, sizeof all);
  return st;
}

typedef struct write_call {
  const session_profile *profile;
  const char *title, *path;
  bool of_rank; /* only what `rank` of the plan did */
  uint32_t rank;
} write_call;

static bool ends_in(const char *text, const char *ending) {
  size_t n = strlen(text), m = strlen(ending);
  return n >= m && strcmp(text + n - m, ending) == 0;
}

/* Writes the whole file, or leaves it as it was. */
static status save(const char *path, const char *text, size_t length) {
  beside b;
  status st = beside_open(&b, path, &memory_default);
  if (st == STATUS_OK && fwrite(text, 1, length, b.file) != length) st = beside_failed(&b);
  if (st == STATUS_OK) st = beside_close(&b);
  if (st == STATUS_OK) st = beside_commit(&b);
  beside_drop(&b);
  return st;
}

weir_status weir_text_write(const char *text, const char *path) {
  if (!text || !path) return api_refuse("weir_text_write: an argument is NULL");
  api_begin();
  return api_end(save(path, text, strlen(text)));
}

/* The spans to show: those of other ranks get no length, and are then left out. */
static const rt_span *spans_of(const write_call *c, arena *scratch) {
  const session_profile *p = c->profile;
  if (!c->of_rank) return p->spans;
  rt_span *spans = arena_copy(scratch, p->spans, p->n_spans * sizeof *spans);
  for (uint32_t i = 0; i < p->n_spans; i++)
    if (rt_plan_rank(p->plan, spans[i].stream) != c->rank) spans[i].end_ns = spans[i].start_ns;
  return spans;
}

static status write_body(arena *scratch, void *context) {
  const write_call *c = context;
  trace_part trace = {.device = c->profile->device,
                      .rank = c->profile->first_rank,
                      .plan = c->profile->plan,
                      .spans = spans_of(c, scratch),
                      .n_spans = c->profile->n_spans,
                      .sparse = c->of_rank,
                      .path = c->profile->path,
                      .path_len = c->profile->path_len,
                      .describe = text_print_kernel};
  strbuf out;
  strbuf_init(&out, scratch);
  if (ends_in(c->path, ".html")) trace_html(&trace, 1, c->title, &out);
  else if (ends_in(c->path, ".svg")) trace_svg(&trace, c->title, &out);
  else trace_json(&trace, 1, &out);
  return save(c->path, out.data, out.len);
}

/* ---- pages of traces written earlier ---- */
typedef struct page_call {
  const char *const *traces;
  size_t n;
  const char *title, *path;
  char **texts; /* freed by the entry point */
} page_call;

static status read_trace(arena *scratch, const char *path, char **result) {
  char *text;
  size_t length;
  TRY(api_read_file(path, &memory_default, &text, &length));
  *result = memory_alloc(&memory_default, length + 1);
  if (*result) memcpy(*result, text, length), (*result)[length] = '\0';
  memory_free(&memory_default, text);
  if (!*result) return STATUS_OUT_OF_MEMORY;
  if (strlen(*result) != length)
    return fail(STATUS_BAD_INPUT, "%s: not JSON: it contains a zero byte", path);
  status st = trace_check(*result);
  if (st == STATUS_OK) return st;
  const char *why = arena_printf(scratch, "%s", status_message());
  status_clear();
  return fail(st, "%s: %s", path, why);
}

static status page_body(arena *scratch, void *context) {
  const page_call *c = context;
  for (size_t i = 0; i < c->n; i++) TRY(read_trace(scratch, c->traces[i], &c->texts[i]));
  strbuf out;
  strbuf_init(&out, scratch);
  TRY(trace_page((const char *const *)c->texts, (uint32_t)c->n, c->title, &out));
  return save(c->path, out.data, out.len);
}

weir_status weir_trace_page(const char *const *traces, size_t n, const char *title,
                            const char *path) {
  if (!traces || !title || !path) return api_refuse("weir_trace_page: an argument is NULL");
  for (size_t i = 0; i < n; i++)
    if (!traces[i]) return api_refuse("weir_trace_page: trace %zu is NULL", i);
  if (n == 0) return api_refuse("weir_trace_page: there is no trace");
  if (n > UINT32_MAX) return api_refuse("weir_trace_page: there are too many traces");
  api_begin();
  char **texts = memory_alloc(&memory_default, n * sizeof *texts);
  if (!texts) return api_end(STATUS_OUT_OF_MEMORY);
  memset(texts, 0, n * sizeof *texts);
  page_call c = {traces, n, title, path, texts};
  weir_status st = api_call(&memory_default, page_body, &c);
  for (size_t i = 0; i < n; i++) memory_free(&memory_default, texts[i]);
  memory_free(&memory_default, texts);
  return st;
}

static weir_status write_profile(write_call c) {
  if (!c.profile->plan) return api_refuse("the profile is empty: no run on a device filled it");
  if (!ends_in(c.path, ".json") && !ends_in(c.path, ".html") && !ends_in(c.path, ".svg"))
    return api_refuse("%s: a trace is written to a file ending in .json, .html or .svg", c.path);
  return api_call(&memory_default, write_body, &c);
}

weir_status weir_profile_write(const weir_profile *p, const char *title, const char *path) {
  if (!p || !title || !path) return api_refuse("weir_profile_write: an argument is NULL");
  return write_profile((write_call){.profile = api_profile(p), .title = title, .path = path});
}

weir_status weir_profile_write_rank(const weir_profile *p, size_t i, const char *title,
                                    const char *path) {
  if (!p || !title || !path) return api_refuse("weir_profile_write_rank: an argument is NULL");
  if (weir_profile_filled(p) && i >= weir_profile_ranks(p))
    return api_refuse("weir_profile_write_rank: there is no such device in the profile");
  return write_profile(
      (write_call){api_profile(p), title, path, .of_rank = true, .rank = (uint32_t)i});
}
