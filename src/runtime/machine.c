#define _GNU_SOURCE
#include "runtime/machine.h"

#include <errno.h>
#include <math.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>

#include "base/number.h"
#include "base/suggest.h"

/* ---- the tables ---- */
enum need { GIVEN, NEEDED };

typedef struct field {
  const char *key;
  size_t offset; /* in rt_speed */
  double scale, lowest, highest;
  enum need need;
} field;

static const field fields[] = {
#define FIELD(key, member, scale, lowest, highest, need, sentence)                                 \
  {key, offsetof(rt_speed, member), scale, lowest, highest, need},
#include "runtime/machine.def"
#undef FIELD
};
enum { N_FIELDS = sizeof fields / sizeof *fields };

static const struct machine {
  const char *name, *summary, *text;
} machines[] = {
#define MACHINE(name, sentence, figures) {name, sentence, figures},
#include "runtime/machines.def"
#undef MACHINE
};

uint32_t rt_machine_count(void) { return (uint32_t)(sizeof machines / sizeof *machines); }
const char *rt_machine_name(uint32_t i) { return machines[i].name; }
const char *rt_machine_summary(uint32_t i) { return machines[i].summary; }

static double *member_of(rt_speed *m, const field *f) {
  return (double *)(void *)((char *)m + f->offset);
}

/* ---- reading ---- */
typedef struct reading {
  const char *name;
  unsigned line;
  bool seen[N_FIELDS];
  rt_speed result;
} reading;

static const field *find_field(const char *key, size_t n) {
  for (const field *f = fields; f < fields + N_FIELDS; f++)
    if (strlen(f->key) == n && memcmp(f->key, key, n) == 0) return f;
  return NULL;
}

static status read_figure(reading *r, const field *f, const char *text, size_t n) {
  char number[NUMBER_TEXT_MAX];
  size_t used = n < sizeof number ? strspn(text, "0123456789.eE+-") : 0;
  if (n == 0 || used < n || !strpbrk(text, "0123456789"))
    return fail(STATUS_BAD_INPUT, "%s:%u: %s: '%.*s' is no number", r->name, r->line, f->key,
                (int)n, text);
  memcpy(number, text, n);
  number[n] = '\0';
  double value = number_parse(number);
  if (!(value >= f->lowest && value <= f->highest))
    return fail(STATUS_BAD_INPUT, "%s:%u: %s takes %g to %g, not %s", r->name, r->line, f->key,
                f->lowest, f->highest, number);
  bool *seen = &r->seen[f - fields];
  if (*seen) return fail(STATUS_BAD_INPUT, "%s:%u: %s is given twice", r->name, r->line, f->key);
  *seen = true;
  *member_of(&r->result, f) = value * f->scale;
  return STATUS_OK;
}

/* `key = number`, or nothing; from `at` to before `end`. */
static status read_line(reading *r, const char *at, const char *end) {
  static const char spaces[] = " \t\r";
  const char *comment = memchr(at, '#', (size_t)(end - at));
  if (comment) end = comment;
  while (at < end && strchr(spaces, *at)) at++;
  while (end > at && strchr(spaces, end[-1])) end--;
  if (at == end) return STATUS_OK;
  const char *equals = memchr(at, '=', (size_t)(end - at)), *key_end = equals, *text = equals;
  if (!equals) return fail(STATUS_BAD_INPUT, "%s:%u: a line is `key = number`", r->name, r->line);
  while (key_end > at && strchr(spaces, key_end[-1])) key_end--;
  for (text++; text < end && strchr(spaces, *text);) text++;
  const field *f = find_field(at, (size_t)(key_end - at));
  if (f) return read_figure(r, f, text, (size_t)(end - text));
  return fail(STATUS_BAD_INPUT,
              "%s:%u: a machine has no '%.*s'; weir list machines shows what it has", r->name,
              r->line, (int)(key_end - at), at);
}

static status check_all(const reading *r) {
  for (uint32_t i = 0; i < N_FIELDS; i++)
    if (fields[i].need == NEEDED && !r->seen[i])
      return fail(STATUS_BAD_INPUT, "%s: %s is missing", r->name, fields[i].key);
  if (r->result.island != floor(r->result.island))
    return fail(STATUS_BAD_INPUT, "%s: island takes a whole number", r->name);
  if (r->result.cores != floor(r->result.cores))
    return fail(STATUS_BAD_INPUT, "%s: cores takes a whole number", r->name);
  if (r->result.per_host != floor(r->result.per_host))
    return fail(STATUS_BAD_INPUT, "%s: per_host takes a whole number", r->name);
  if (r->result.direct != floor(r->result.direct))
    return fail(STATUS_BAD_INPUT, "%s: direct takes 0 or 1", r->name);
  if (r->result.packs != floor(r->result.packs))
    return fail(STATUS_BAD_INPUT, "%s: packs takes 0 or 1", r->name);
  return STATUS_OK;
}

status rt_machine_parse(const char *name, const char *text, rt_speed *result) {
  reading r = {.name = name};
  while (*text) {
    size_t n = strcspn(text, "\n");
    r.line++;
    TRY(read_line(&r, text, text + n));
    text += n + (text[n] == '\n');
  }
  TRY(check_all(&r));
  r.result.threads = 1;
  r.result.reads_ahead = r.result.packs == 0;
  *result = r.result;
  return STATUS_OK;
}

/* ---- finding ---- */
enum { MAX_FILE = 1 << 16 };

static status refuse_name(const char *name, int error) {
  suggestion near;
  suggest_advice advice;
  if (error != ENOENT) return fail(STATUS_BAD_INPUT, "%s: cannot read: %s", name, strerror(error));
  suggest_init(&near, name, strlen(name));
  for (uint32_t i = 0; i < rt_machine_count(); i++) suggest_offer(&near, machines[i].name);
  return fail(STATUS_BAD_INPUT,
              "there is no machine '%s'%s, and no such file; weir list machines shows those built "
              "in",
              name, suggest_text(&near, advice));
}

static status load_file(const char *path, rt_speed *result) {
  char text[MAX_FILE];
  FILE *f = fopen(path, "rb");
  if (!f) return refuse_name(path, errno);
  size_t n = fread(text, 1, sizeof text, f);
  int error = ferror(f) ? errno : 0;
  (void)fclose(f);
  if (error) return fail(STATUS_BAD_INPUT, "%s: cannot read: %s", path, strerror(error));
  if (n == sizeof text) return fail(STATUS_BAD_INPUT, "%s: too long for a machine file", path);
  text[n] = '\0';
  if (strlen(text) != n) return fail(STATUS_BAD_INPUT, "%s: contains a zero byte", path);
  return rt_machine_parse(path, text, result);
}

status rt_machine_load(const char *name, rt_speed *result) {
  for (uint32_t i = 0; i < rt_machine_count(); i++)
    if (strcmp(machines[i].name, name) == 0)
      return rt_machine_parse(name, machines[i].text, result);
  return load_file(name, result);
}

rt_speed rt_machine_default(void) {
  rt_speed result;
  status st = rt_machine_parse(machines[0].name, machines[0].text, &result);
  check(st == STATUS_OK);
  return result;
}

void rt_machine_print(const rt_speed *machine, strbuf *out) {
  rt_speed copy = *machine;
  for (uint32_t i = 0; i < N_FIELDS; i++) {
    double figure = *member_of(&copy, &fields[i]) / fields[i].scale;
    if (figure != 0 || fields[i].need == NEEDED)
      strbuf_printf(out, "%s = %.17g\n", fields[i].key, figure);
  }
}

static uint64_t mix(uint64_t hash, const void *data, size_t n) {
  for (const unsigned char *c = data; n > 0; c++, n--) hash = (hash ^ *c) * 1099511628211U;
  return hash;
}

uint64_t rt_system_hash(void) {
  char boot[64] = "";
  FILE *f = fopen("/proc/sys/kernel/random/boot_id", "r");
  if (f && !fgets(boot, sizeof boot, f)) boot[0] = '\0';
  if (f) (void)fclose(f);
  return mix(14695981039346656037U, boot, strlen(boot));
}

uint64_t rt_cores_hash(void) {
  cpu_set_t set;
  uint64_t hash = rt_system_hash();
  return sched_getaffinity(0, sizeof set, &set) == 0 ? mix(hash, &set, sizeof set) : hash;
}

/* ---- what figures mean ---- */
bool rt_machine_is_far(const rt_speed *m, uint32_t a, uint32_t b) {
  uint32_t size = (uint32_t)m->island;
  return size && a / size != b / size;
}

static bool spans_islands(const rt_speed *m, const rt_post *p) {
  uint32_t me = p->team[p->me];
  bool far = false;
  if (ir_comm_is_message(p->kind))
    return (p->to >= 0 && rt_machine_is_far(m, me, p->team[p->to])) ||
           (p->from >= 0 && rt_machine_is_far(m, me, p->team[p->from]));
  for (uint32_t i = 0; i < p->n_team; i++) far = far || rt_machine_is_far(m, me, p->team[i]);
  return far;
}

rt_link rt_machine_link_of(const rt_speed *m, bool far) {
  rt_link link = {m->link_bytes_per_ns, m->link_latency_ns, 0};
  if (m->link_burst_bytes > 0) link.burst_ns = m->link_burst_bytes / m->link_bytes_per_ns;
  if (far && m->far_bytes_per_ns > 0) link.bytes_per_ns = m->far_bytes_per_ns, link.burst_ns = 0;
  if (far && m->far_latency_ns > 0) link.latency_ns = m->far_latency_ns;
  return link;
}

double rt_link_through_ns(rt_link link, double start_ns, double bytes_ns, double *recovered_ns) {
  if (*recovered_ns < start_ns) *recovered_ns = start_ns;
  *recovered_ns += bytes_ns;
  double through_ns = *recovered_ns - link.burst_ns;
  return through_ns > start_ns ? through_ns : start_ns;
}

rt_link rt_machine_link(const rt_speed *m, const rt_post *p) {
  return rt_machine_link_of(m, m->island > 0 && spans_islands(m, p));
}

static ir_dtype value_dtype(const rt_body *b, const rt_value *v) {
  switch (v->kind) {
  case RT_VALUE_PARAM: return b->params[v->index].dtype;
  case RT_VALUE_STEP: return b->steps[v->index].results[v->result].dtype;
  case RT_VALUE_NONE:
  case RT_VALUE_NUMBER: break;
  }
  return IR_F32;
}

/* The dtype of the factors that a task multiplies; f32 if it multiplies nothing. A product of narrow factors
 * whose sums are kept in f32 runs on the same units. */
static ir_dtype factor_dtype(const rt_plan *plan, const rt_task *task) {
  if (!task->body) {
    bool multiplies = ir_op_multiplies(task->code) && task->operands[0].kind == RT_OPERAND_VIEW;
    return multiplies ? plan->views[task->operands[0].view].dtype : IR_F32;
  }
  for (uint32_t i = 0; i < task->body->n_steps; i++) {
    const rt_step *s = &task->body->steps[i];
    if (ir_op_multiplies(s->code)) return value_dtype(task->body, &s->operands[0]);
  }
  return IR_F32;
}

static double flops_per_ns(const rt_plan *plan, const rt_task *task, const rt_speed *m) {
  ir_dtype t = factor_dtype(plan, task);
  if (t == IR_BF16 && m->bf16_flops_per_ns > 0) return m->bf16_flops_per_ns;
  bool narrow = (t == IR_F16 || t == IR_BF16) && m->narrow_flops_per_ns > 0;
  return narrow ? m->narrow_flops_per_ns : m->flops_per_ns;
}

/* Operations that are no products have a rate of their own, if the machine has one. */
static double compute_ns(const rt_plan *plan, const rt_task *task, const rt_speed *m) {
  if (m->vector_flops_per_ns <= 0) return rt_task_flops(plan, task) / flops_per_ns(plan, task, m);
  return rt_task_product_flops(plan, task) / flops_per_ns(plan, task, m) +
         rt_task_vector_flops(plan, task) / m->vector_flops_per_ns;
}

/* The first bytes of a task are in the cache, where the task before it has left them. */
static double memory_ns(const rt_plan *plan, const rt_task *task, const rt_speed *m) {
  double bytes = rt_task_bytes(plan, task);
  double cached = m->cache_bytes_per_ns > 0 ? fmin(bytes, m->cache_bytes) : 0;
  double cached_ns = cached > 0 ? cached / m->cache_bytes_per_ns : 0;
  return cached_ns + (bytes - cached) / m->bytes_per_ns;
}

/* On a processor, a product reads its operands once to pack them, and only then computes. */
double rt_task_ns(const rt_plan *plan, const rt_task *task, const rt_speed *m) {
  double compute = compute_ns(plan, task, m), memory = memory_ns(plan, task, m);
  return m->launch_ns + (m->reads_ahead ? fmax(compute, memory) : compute + memory);
}
