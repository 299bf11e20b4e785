/* Any text that is a host program is bound for every device and judged by the checker; one that is
 * proven runs, and gives the same in program order and in hostile orders. Programs that are long,
 * large or for many devices are left out. */
#include "device_kit.h"
#include "mutate.h"

enum { DEVICES = 4, STREAMS = 2, MAX_STEPS = 4000, MAX_BYTES = 1 << 18, EXTENT = 4, ORDERS = 2 };

static rt_device *hostile;
static uint64_t n_parsed, n_bound, n_proven;

static void tell(void) {
  (void)fprintf(stderr, "host programs: %llu parsed, %llu bound, %llu proven and run\n",
                (unsigned long long)n_parsed, (unsigned long long)n_bound,
                (unsigned long long)n_proven);
}

static void begin(void) {
  hostile = kit_device(1, true);
  require(hostile != NULL, "no device", kit_reason);
  (void)atexit(tell);
}

/* ---- extents and values ---- */
/* Extents that the program leaves open get a small one that devices divide. */
static bool bind_extents(subject *s) {
  ir_func *f = s->func;
  for (uint32_t i = 0; i < f->inputs.len; i++) {
    ir_axis dims[IR_MAX_RANK];
    int64_t extents[IR_MAX_RANK];
    uint32_t rank = ir_tensor_dims(f, f->inputs.data[i], dims);
    for (uint32_t k = 0; k < rank; k++)
      if (!ir_env_eval(&s->env, ir_axis_whole(f, dims[k]), &extents[k])) extents[k] = EXTENT;
    if (!ir_bind_shape(&s->env, f->inputs.data[i], extents, rank, "the fuzzer")) return false;
  }
  return ir_bind_complete(&s->env) && ir_bind_check(&s->env);
}

static bool is_small(const subject *s, const ir_tensor *list, uint32_t n) {
  for (uint32_t i = 0; i < n; i++) {
    ir_array a = {.dtype = ir_tensor_at(s->func, list[i])->dtype};
    int64_t bytes;
    if (!ir_env_shape(&s->env, list[i], a.extents, &a.rank)) return false;
    if (!ir_array_size_bytes(&a, &bytes) || bytes > MAX_BYTES) return false;
  }
  return n <= KIT_VALUES;
}

static void fill_inputs(subject *s) {
  for (uint32_t k = 0; k < s->n_in; k++) {
    const ir_array *a = &s->in[k];
    int64_t n = 0;
    if (!ir_array_count(a, &n)) continue;
    for (int64_t i = 0; i < n; i++)
      ir_element_set_f64(a->dtype, (char *)a->data + (size_t)i * ir_dtype_size_bytes(a->dtype),
                         (double)(i % 3));
  }
}

/* ---- plans ---- */
static bool open_plans(team *t, subject *s, ir_func *h, uint32_t devices) {
  *t = (team){.s = s, .h = h};
  if (!team_bind(t)) return false;
  bind_options options = {.streams = STREAMS, .seed = KIT_SEED, .keep_waits = true};
  options.max_steps = MAX_STEPS;
  options.max_bytes = 16 * MAX_BYTES;
  for (; t->n < devices; t->n++) {
    options.rank = t->n;
    status st = bind_plan(&t->env, &options, &memory_default, &t->plans[t->n]);
    require(st == STATUS_OK || st == STATUS_BAD_PROGRAM, "neither bound nor refused",
            status_message());
    if (st != STATUS_OK) return false;
  }
  return true;
}

static bool is_cheap(const team *t) {
  double work = 0;
  for (uint32_t r = 0; r < t->n; r++) {
    const rt_plan *p = t->plans[r];
    if (p->pool_bytes > MAX_BYTES) return false;
    for (uint32_t i = 0; i < p->n_tasks; i++)
      work += rt_task_flops(p, &p->tasks[i]) + rt_task_bytes(p, &p->tasks[i]);
  }
  return work < 16 * MAX_BYTES;
}

static bool is_proven(team *t) {
  check_world_report report;
  status st = check_world((const rt_plan *const *)t->plans, t->n, NULL, &report);
  require(st == STATUS_OK, "the checker fails", status_message());
  strbuf text;
  strbuf_init(&text, &t->s->memory);
  check_world_text(&report, &text);
  bool passes = report.n_found == 0;
  check_world_report_destroy(&report);
  return passes;
}

/* ---- running ---- */
static void run_hostile(team *t, const rt_plan *plan, bool fails) {
  session_ranks world = {0};
  rt_loaded *loaded = NULL;
  require(
      kit_ok(kit_ranks_open(&world, t->h, t->n, INT64_C(20000000000), hostile), "open the world"),
      "cannot run", kit_reason);
  bool good = kit_ok(hostile->ops->load(hostile, plan, &loaded), "load");
  for (uint64_t k = 0; good && k < ORDERS; k++) {
    cpu_adversary_reseed(loaded, k);
    team_cut(t);
    good = kit_ok(rt_run(loaded, t->in, t->out, NULL, NULL), "run") && team_assemble(t);
    if (good && !fails)
      require(subject_same(t->s), "a proven program depends on order", kit_reason);
  }
  require(good || fails, "a proven program fails in another order", kit_reason);
  if (loaded) hostile->ops->unload(loaded);
  hostile->ops->attach(hostile, NULL, 0, 0); /* the next world is another */
  session_ranks_close(&world, &memory_default);
}

/* What a proof does not promise: that an index is inside its axis, and that copies of an output are equal. */
static bool depends_on_values(const char *reason) {
  return strstr(reason, "index") || strstr(reason, "position") || strstr(reason, "zero-size") ||
         strstr(reason, "disagree");
}

static bool run_in_order(team *t) {
  if (!team_step(t)) {
    require(depends_on_values(kit_reason), "a proven program does not run", kit_reason);
    return false;
  }
  for (uint32_t i = 0; i < t->s->n_out; i++) ir_array_copy(&t->s->expected[i], &t->s->out[i]);
  return true;
}

static void run(team *t) {
  rt_plan *plan = NULL;
  t->ranks = (session_ranks){.n = t->n, .world = t->n};
  if (!kit_ok(session_pieces_make(&t->ranks, t->h, &t->env, &memory_default, &t->pieces), "pieces"))
    return;
  require(kit_ok(rt_plan_join(t->plans, t->n, &memory_default, &plan), "join"), "cannot be joined",
          kit_reason);
  bool good = run_in_order(t);
  run_hostile(t, plan, !good);
  rt_plan_destroy(plan);
}

/* ---- one input ---- */
static int64_t count_devices(const ir_func *f) {
  int64_t largest = 0;
  for (uint32_t i = 1; i < f->meshes.len; i++) {
    const ir_mesh_data *m = &f->meshes.data[i];
    for (int64_t k = 0; k < m->n_devices; k++)
      if (m->devices[k] > largest) largest = m->devices[k];
  }
  return largest + 1;
}

static void try_program(subject *s) {
  const ir_func *f = s->func;
  team t = {0};
  int64_t devices = count_devices(f);
  if (f->kind != IR_FUNC_HOST || devices > DEVICES || !ir_host_verify(s->func)) return;
  n_parsed++;
  ir_env_init(&s->env, s->func, &s->memory);
  if (!bind_extents(s)) return;
  if (!is_small(s, f->inputs.data, f->inputs.len) || !is_small(s, f->outputs.data, f->outputs.len))
    return;
  if (!subject_values(s)) return;
  fill_inputs(s);
  bool bound = open_plans(&t, s, s->func, (uint32_t)devices);
  n_bound += bound;
  if (bound && is_cheap(&t) && is_proven(&t)) run(&t), n_proven++;
  team_close(&t);
}

static status try_text(void *context) {
  subject s;
  if (subject_parse(&s, context)) try_program(&s);
  subject_close(&s);
  status_clear();
  return STATUS_OK;
}

/* ---- mutations ---- */
/* libFuzzer keeps texts for what the parser does with them, and few of them are programs. So every
 * other input is made of one that was, and lines and words change more often than bytes. */
enum { KEPT = 256, KEPT_BYTES = 2048 };
static struct kept {
  uint8_t data[KEPT_BYTES];
  size_t size;
} kept[KEPT];
static uint64_t n_kept;

static void keep(const uint8_t *data, size_t size) {
  if (size == 0 || size > KEPT_BYTES) return;
  struct kept *k = &kept[n_kept++ % KEPT];
  memcpy(k->data, data, size);
  k->size = size;
}

__attribute__((weak)) size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t max_size);
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max_size, unsigned seed);
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max_size, unsigned seed) {
  mutation m = {.state = seed, .data = data, .size = size, .room = max_size};
  const struct kept *k = &kept[mutation_below(&m, n_kept < KEPT ? n_kept : KEPT)];
  if (n_kept && k->size <= max_size && mutation_below(&m, 2)) {
    memcpy(data, k->data, k->size);
    m.size = k->size;
  }
  if (m.size == 0 || mutation_below(&m, 16) == 0) return LLVMFuzzerMutate(data, m.size, max_size);
  mutate(&m, true);
  return m.size;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  if (!hostile) begin();
  uint64_t before = n_parsed;
  char *text = text_of(data, size);
  require(memory_guard(try_text, text) == STATUS_OK, "out of memory", status_message());
  free(text);
  if (n_parsed > before) keep(data, size);
  return 0;
}
