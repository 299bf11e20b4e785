/* Lowering to text. */
#include <string.h>

#include "api/passes.h"
#include "api/program.h"
#include "draw/draw.h"
#include "explain/explain.h"
#include "ir/host.h"
#include "text/text.h"

typedef struct lower_call {
  ir_func *f;
  const weir_options *options;
  const weir_shapes *shapes; /* of weir_draw() and weir_why() */
  bool nvfuser, explain;
  int64_t rank; /* whose program the nvFuser style shows */
  host_pipeline pipeline;
  const char *variant; /* the pass that makes the variant; NULL: the program as it is marked */
  char **text;
} lower_call;

/* Lowers the fusion as the options say. */
static status lower_fusion(arena *scratch, const lower_call *c, ir_func **result) {
  if (!api_schedule(c->f)) return STATUS_BAD_PROGRAM;
  pass_request request = {0};
  TRY(api_pass_request(scratch, c->options, &request));
  if (api_expect_shapes(c->f, c->options) != WEIR_OK) return STATUS_BAD_USAGE;
  request.options.pipeline = c->pipeline;
  api_pass_also(scratch, c->variant, &request.enable);
  if (c->nvfuser) api_show_plain(scratch, &request);
  return api_lower(scratch, c->f, &request, result);
}

/* A host program is taken as it is. */
static status host_of(arena *scratch, const lower_call *c, ir_func **result) {
  *result = c->f;
  if (c->f->host) return STATUS_OK;
  TRY(lower_fusion(scratch, c, result));
  if (ir_host_verify(*result)) return STATUS_OK;
  return fail(STATUS_BAD_PROGRAM, "the lowered program is broken");
}

static status lower_body(arena *scratch, void *context) {
  lower_call *c = context;
  ir_func *h;
  strbuf out;
  strbuf_init(&out, scratch);
  TRY(host_of(scratch, c, &h));
  explain_subject subject = {.h = h, .scratch = scratch};
  bool explain = c->explain && h->host->lowered;
  if (!c->nvfuser && h->host->fusion) {
    text_print_func(h->host->fusion, &out);
    strbuf_putc(&out, '\n');
  }
  if (c->nvfuser && explain) explain_nvfuser(&subject, c->pipeline, c->rank, &out);
  else if (c->nvfuser) text_print_nvfuser(h, c->rank, &out);
  else if (explain) explain_host(&subject, c->pipeline, &out);
  else text_print_host(h, &out);
  return api_string(&out, c->text);
}

weir_status weir_lower(const weir_fusion *f, const weir_options *o, const char *style,
                       char **text) {
  return weir_lower_for(f, o, NULL, style, text);
}

weir_status weir_lower_for(const weir_fusion *f, const weir_options *o, const weir_shapes *s,
                           const char *style, char **text) {
  if (!f || !style || !text) return api_refuse("weir_lower: an argument is NULL");
  lower_call c = {
      .f = api_func(f), .options = o, .nvfuser = strcmp(style, "nvfuser") == 0, .text = text};
  if (o && weir_options_get_int(o, "rank", &c.rank) != WEIR_OK) return WEIR_BAD_USAGE;
  if (o && weir_options_get_bool(o, "explain", &c.explain) != WEIR_OK) return WEIR_BAD_USAGE;
  if (o && api_read_pipeline(o, &c.pipeline) != WEIR_OK) return WEIR_BAD_USAGE;
  if (!c.nvfuser && strcmp(style, "weir") != 0)
    return api_refuse("there is no style '%s'; there are weir and nvfuser", style);
  /* nvFuser has no choice: it streams what is marked. */
  weir_status st = c.nvfuser ? WEIR_OK : api_choose_pass(f, o, s, &c.variant);
  if (st != WEIR_OK) return st;
  return api_edit(api_module(f), lower_body, &c);
}

/* ---- pictures ---- */
static status draw_body(arena *scratch, void *context) {
  lower_call *c = context;
  ir_func *h;
  strbuf out;
  strbuf_init(&out, scratch);
  TRY(host_of(scratch, c, &h));
  ir_env env = {0};
  const ir_env *given = c->shapes ? api_shapes_env(c->shapes) : NULL;
  if (given) env = *given;
  env.func = h;
  draw_program(h, given ? &env : NULL, scratch, &out);
  return api_string(&out, c->text);
}

weir_status weir_draw(const weir_fusion *f, const weir_options *o, const weir_shapes *s,
                      char **text) {
  if (!f || !text) return api_refuse("weir_draw: an argument is NULL");
  lower_call c = {.f = api_func(f), .options = o, .shapes = s, .text = text};
  if (o && api_read_pipeline(o, &c.pipeline) != WEIR_OK) return WEIR_BAD_USAGE;
  return api_edit(api_module(f), draw_body, &c);
}

/* ---- reasons ---- */
typedef struct why_call {
  lower_call lower;
  const char *const *names;
  size_t n_names;
} why_call;

static status why_body(arena *scratch, void *context) {
  const why_call *c = context;
  explain_subject subject = {.env = api_shapes_env(c->lower.shapes), .scratch = scratch};
  strbuf out;
  strbuf_init(&out, scratch);
  TRY(lower_fusion(scratch, &c->lower, &subject.h));
  bool known = true;
  for (size_t i = 0; i < c->n_names; i++) {
    if (i) strbuf_putc(&out, '\n');
    known = explain_why(&subject, c->names[i], &out) && known;
  }
  if (!known) return fail(STATUS_BAD_USAGE, "a name is not known");
  return api_string(&out, c->lower.text);
}

weir_status weir_why(const weir_fusion *f, const weir_options *o, const weir_shapes *s,
                     const char *const *names, size_t n_names, char **text) {
  if (!f || !text || (n_names && !names)) return api_refuse("weir_why: an argument is NULL");
  for (size_t i = 0; i < n_names; i++)
    if (!names[i]) return api_refuse("weir_why: name %zu is NULL", i);
  lower_call l = {.f = api_func(f), .options = o, .shapes = s, .text = text};
  if (l.f->host && l.f->host->fusion) l.f = l.f->host->fusion;
  if (l.f->host)
    return api_refuse("host program '%s' was written by hand, without a fusion: its lines are all "
                      "the reasons it has",
                      ir_name_text(l.f, l.f->name));
  if (o && api_read_pipeline(o, &l.pipeline) != WEIR_OK) return WEIR_BAD_USAGE;
  weir_status st = f == (const weir_fusion *)l.f ? api_choose_pass(f, o, s, &l.variant) : WEIR_OK;
  why_call c = {l, names, n_names};
  return st == WEIR_OK ? api_edit(api_module(f), why_body, &c) : st;
}
