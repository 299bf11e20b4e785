/* The pipeline in two parts: for every k, the first k passes, printed and parsed back, and then the rest
 * give the same text as all passes in one go; and what is printed in between verifies, prints the same
 * again, and evaluates to the same results.
 *
 *   test_passes [N] [--first S] [--seconds T]   N random programs, 400 by default
 *   test_passes FILE...                         the programs of files
 *   test_passes --seed S                        one of them, with what is printed after every pass */
#include <stdlib.h>
#include <string.h>

#include "command.h"
#include "data/compare.h"
#include "gen.h"
#include "ir/verify.h"
#include "pass/pass.h"
#include "stream_kit.h"
#include "test.h"

static const char *const variants[] = {
    NULL, NULL, NULL, "unstream", "stream-slices", "stream-pieces", "slice-products"};

typedef struct trial {
  const char *text, *where;
  const gen_program *program; /* NULL: from a file, whose results are not evaluated */
  host_pipeline pipeline;
  const char *variant;
  ir_module whole, first, second;
  subject before, after;
  arena memory;
  bool print;
  uint32_t passes; /* how many there are */
  bool refused;
} trial;

static uint64_t n_refused, n_texts, n_evaluated;

/* ---- running passes ---- */
static bool load(ir_module *m, const char *text) {
  if (text_parse(m, "program.weir", text, strlen(text)) != STATUS_OK) return false;
  for (uint32_t i = 0; i < m->funcs.len; i++) {
    ir_func *f = m->funcs.data[i];
    if (f->host ? !ir_host_verify(f) : !schedule_apply(f) || !ir_verify(f)) return false;
  }
  return m->errors.errors == 0;
}

static bool run_passes(trial *t, ir_module *m, const char *passes) {
  strbuf log;
  strbuf_init(&log, &m->memory);
  pass_request request = {.passes = passes, .enable = t->variant, .verify = true};
  request.options.pipeline = t->pipeline;
  return pass_run(m, &request, &log, NULL) == STATUS_OK;
}

static const char *print(trial *t, const ir_module *m) {
  strbuf out;
  strbuf_init(&out, &t->memory);
  text_print_module(m, &out);
  return out.data;
}

/* "a,b,c" of the passes first … last - 1. */
static const char *names(trial *t, const pass_list *list, uint32_t first, uint32_t last) {
  strbuf out;
  strbuf_init(&out, &t->memory);
  strbuf_puts(&out, "");
  for (uint32_t i = first; i < last; i++)
    strbuf_printf(&out, "%s%s", i > first ? "," : "", list->data[i]->name);
  return out.data ? out.data : "";
}

static bool wrong(trial *t, ir_module *m, const char *what, const char *passes) {
  strbuf out;
  strbuf_init(&out, &t->memory);
  if (m) diags_render(&m->errors, &out);
  fprintf(stderr, "%s, --pipeline %s%s%s: %s '%s'\n%s%s\n%s\n", t->where,
          host_pipeline_text(t->pipeline), t->variant ? " --enable " : "",
          t->variant ? t->variant : "", what, passes, out.data ? out.data : "", status_message(),
          t->text);
  return false;
}

/* ---- results ---- */
static bool bind(subject *s, const gen_program *p) {
  ir_env_init(&s->env, s->func, &s->memory);
  for (uint32_t i = 0; i < p->n_bindings; i++) {
    char name[48];
    const char *equals = strchr(p->bindings[i], '=');
    snprintf(name, sizeof name, "%.*s", (int)(equals - p->bindings[i]), p->bindings[i]);
    ir_name_entry e = ir_func_lookup(s->func, strings_find(&s->module.names, name, strlen(name)));
    int64_t extents[IR_MAX_RANK] = {0};
    uint32_t rank = 0;
    for (const char *at = equals; at; at = strchr(at + 1, 'x'))
      extents[rank++] = strtoll(at + 1, NULL, 10);
    if (e.kind == IR_NAME_TENSOR
            ? !ir_bind_shape(&s->env, (ir_tensor){e.id}, extents, rank, p->bindings[i])
            : !ir_bind_name(&s->env, name, extents[0]))
      return false;
  }
  return subject_values(s);
}

/* The fusion that was printed, evaluated on the same inputs. */
static bool evaluates_alike(trial *t, const char *text, bool rounds) {
  subject *a = &t->before, *b = &t->after;
  bool good = subject_parse(b, text);
  if (good) b->func = b->module.funcs.data[0];
  good = good && schedule_apply(b->func) && bind(b, t->program) &&
         subject_reference(b, a->in, b->out, false);
  for (uint32_t i = 0; good && i < a->n_out; i++) {
    int64_t bytes = 0;
    ir_dtype least = data_least_dtype(a->func, a->func->outputs.data[i], &a->memory);
    good = ir_array_size_bytes(&a->expected[i], &bytes) &&
           (memcmp(a->expected[i].data, b->out[i].data, (size_t)bytes) == 0 ||
            (rounds && data_compare(&b->out[i], &a->expected[i], least).ok));
  }
  subject_close(b);
  n_evaluated++;
  return good;
}

static bool prepare_inputs(trial *t) {
  subject *s = &t->before;
  if (!subject_open(s, t->text) || !bind(s, t->program)) return false;
  for (uint32_t i = 0; i < s->n_in; i++) {
    const gen_value *v = &t->program->inputs[i];
    bool index = v->fill == GEN_FILL_INDEX;
    int64_t n = 0;
    (void)ir_array_count(&s->in[i], &n);
    for (int64_t k = 0; k < n; k++) {
      char *at = (char *)s->in[i].data + (size_t)k * ir_dtype_size_bytes(s->in[i].dtype);
      int64_t value = index ? k % v->index_bound : 1 + k % 3;
      if (ir_dtype_is_float(s->in[i].dtype)) ir_element_set_f64(s->in[i].dtype, at, (double)value);
      else ir_element_set_i64(s->in[i].dtype, at, value);
    }
  }
  return subject_reference(s, s->in, s->expected, false);
}

/* ---- one program ---- */
static bool check_cut(trial *t, const pass_list *list, uint32_t k, const char *whole) {
  const char *head = names(t, list, 0, k), *tail = names(t, list, k, list->len);
  ir_module_init(&t->first, &memory_default);
  ir_module_init(&t->second, &memory_default);
  if (!load(&t->first, t->text) || !run_passes(t, &t->first, head))
    return wrong(t, &t->first, "the first passes fail:", head);
  const char *between = print(t, &t->first);
  if (t->print) printf("# after %s\n%s\n", k ? list->data[k - 1]->name : "nothing", between);
  n_texts++;
  if (!load(&t->second, between)) return wrong(t, &t->second, "does not parse back:", between);
  if (strcmp(print(t, &t->second), between) != 0)
    return wrong(t, NULL, "prints differently:", between);
  bool rounds = strstr(head, "sharded-forms") != NULL; /* one operation became several */
  if (t->program && k > 0 && !evaluates_alike(t, between, rounds))
    return wrong(t, NULL, "evaluates differently:", between);
  if (!run_passes(t, &t->second, tail)) return wrong(t, &t->second, "the rest fails:", between);
  const char *end = print(t, &t->second);
  if (strcmp(end, whole) == 0) return true;
  fprintf(stderr, "---- in one go\n%s---- in two parts\n%s---- between\n%s", whole, end, between);
  return wrong(t, NULL, "the rest gives another text after", head);
}

static status check_all(void *context) {
  trial *t = context;
  pass_list list;
  pass_request request = {.enable = t->variant};
  arena_init(&t->memory, &memory_default);
  TRY(pass_select(&request, &t->memory, &list));
  ir_module_init(&t->whole, &memory_default);
  if (!load(&t->whole, t->text)) return STATUS_OK; /* not about passes */
  if (!run_passes(t, &t->whole, "default")) {
    t->refused = true;
    return t->whole.errors.errors ? STATUS_OK : STATUS_CHECK_FAILED;
  }
  const char *whole = print(t, &t->whole);
  bool good = !t->program || prepare_inputs(t);
  for (uint32_t k = 0; good && k <= list.len; k++) {
    good = check_cut(t, &list, k, whole);
    ir_module_destroy(&t->first);
    ir_module_destroy(&t->second);
  }
  return good ? STATUS_OK : STATUS_CHECK_FAILED;
}

static void try_text(trial *t) {
  bool good = memory_guard(check_all, t) == STATUS_OK;
  n_refused += t->refused;
  test_passed += good;
  test_failed += !good;
  ir_module_destroy(&t->whole);
  subject_close(&t->before);
  arena_destroy(&t->memory);
  status_clear();
}

static gen_program *generate(uint64_t seed) {
  gen_options o = gen_options_default(seed);
  if (seed % 8 == 7) return gen_create_gathers(seed, true);
  if (seed % 8 == 6) return gen_create_along(seed, seed % 3 > 0);
  o.exact_only = true;
  o.symbolic = seed % 5 != 0;
  o.edges = seed % 3 == 0;
  o.max_ops = 1 + (uint32_t)(seed % 9);
  o.max_elements = 256;
  o.devices = seed % 8 < 5;
  o.streams = !o.devices;
  o.max_devices = seed % 2 ? 8 : 4;
  o.rfactor = seed % 7 < 3;
  return gen_create(&o);
}

static void try_seed(uint64_t seed, bool shown) {
  char where[32];
  snprintf(where, sizeof where, "seed %llu", (unsigned long long)seed);
  gen_program *p = generate(seed);
  trial t = {.text = p->text, .where = where, .program = p, .print = shown};
  t.pipeline = (host_pipeline)(seed / 3 % 6);
  t.variant = variants[seed / 2 % 7];
  if (shown) printf("%s\n", p->text);
  try_text(&t);
  gen_destroy(p);
}

static void try_file(const char *path) {
  FILE *file = fopen(path, "rb");
  if (!EXPECT(file != NULL)) return;
  char *text = calloc(1, 1 << 20);
  size_t n = text ? fread(text, 1, (1 << 20) - 1, file) : 0;
  fclose(file);
  for (host_pipeline form = HOST_AUTO; n && form <= HOST_BROADCAST; form++) {
    trial t = {.text = text, .where = path, .pipeline = form};
    try_text(&t);
  }
  free(text);
}

/* A file; its programs are tried at once. */
static bool any_file;
static int own_option(command *c, char **argv) {
  (void)c;
  if (argv[0][0] == '-') return 0;
  any_file = true;
  try_file(argv[0]);
  return 1;
}

int main(int argc, char **argv) {
  (void)argc;
  command asked = command_read(argv, (command){.count = 400}, own_option);
  for (uint64_t k = 0; !any_file && command_more(&asked, k); k++)
    try_seed(asked.first + k, asked.one);
  printf("%llu texts between passes, %llu evaluated; %llu programs refused\n",
         (unsigned long long)n_texts, (unsigned long long)n_evaluated,
         (unsigned long long)n_refused);
  return test_finish();
}
