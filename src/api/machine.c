#include "api/machine.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "api/api.h"
#include "api/execute.h"
#include "runtime/machine.h"
#include "runtime/measured.h"

enum { HOST_NAME = 64 };

typedef struct machine_call {
  api_machine *result;
  rt_device *device;
  const api_ranks *ranks;
  const allocator *memory;
  bool renew;
  bool kept; /* what was measured now */
  rt_measured_key key;
  arena scratch;
} machine_call;

/* ---- hosts ---- */
/* Names from elsewhere become part of a file that is read again. */
static void clean(char name[HOST_NAME]) {
  name[HOST_NAME - 1] = '\0';
  for (char *c = name; *c; c++)
    if (*c <= ' ' || *c > '~' || *c == '#') *c = '_';
  if (!name[0]) memcpy(name, "?", 2);
}

static status find_hosts(machine_call *c) {
  const api_ranks *r = c->ranks;
  uint32_t n = api_ranks_are_spread(r) ? r->world : 1;
  char mine[HOST_NAME] = "", *all = ARENA_ARRAY(&c->scratch, (size_t)n * HOST_NAME, char);
  strbuf text;
  (void)gethostname(mine, sizeof mine);
  clean(mine);
  TRY(api_ranks_exchange(r, mine, all, HOST_NAME));
  strbuf_init(&text, &c->scratch);
  for (uint32_t i = 0; i < n; i++) {
    clean(all + (size_t)i * HOST_NAME);
    strbuf_printf(&text, "%s%s", i ? " " : "", all + (size_t)i * HOST_NAME);
  }
  c->key = (rt_measured_key){.device = c->device->ops->name, .ranks = n, .hosts = text.data};
  c->key.comm = n > 1 ? r->ops->name : "inproc";
  return STATUS_OK;
}

/* ---- figures ---- */
/* Another process must wake up for a communication. Between hosts of 10 Gbit/s, where nothing is measured. */
static void assume_link(rt_speed *s) {
  s->link_bytes_per_ns = 1;
  s->link_latency_ns = 30e3;
  s->post_ns = 250e3;
}

static status measure(machine_call *c, rt_speed *s) {
  bool spread = api_ranks_are_spread(c->ranks);
  rt_speed link = {0};
  if (spread)
    TRY(api_ranks_measure(c->ranks, c->memory, &link.link_latency_ns, &link.link_bytes_per_ns));
  if (c->ranks->first != 0) return STATUS_OK;
  c->device->ops->measure(c->device, s);
  if (!spread) return STATUS_OK;
  assume_link(s);
  s->link_latency_ns = link.link_latency_ns;
  s->link_bytes_per_ns = link.link_bytes_per_ns;
  return STATUS_OK;
}

static void build_in(machine_call *c, rt_speed *s) {
  *s = c->device->ops->speed(c->device, NULL, 1);
  if (api_ranks_are_spread(c->ranks)) assume_link(s);
}

/* Of several processes that measure at once, the first that keeps its figures speaks for all. */
static bool keep(machine_call *c, rt_speed *s) {
  rt_speed kept;
  if (!rt_measured_write(&c->key, s, c->renew, &c->scratch) ||
      rt_measured_read(&c->key, &kept) != RT_MEASURED_FOUND)
    return false;
  *s = kept;
  return true;
}

static status find(machine_call *c) {
  bool asked = c->ranks->first == 0;
  api_machine m = {0};
  uint8_t state = RT_MEASURED_MISSING;
  TRY(find_hosts(c));
  if (asked) state = (uint8_t)rt_measured_read(&c->key, &m.speed);
  if (c->renew) state = RT_MEASURED_MISSING;
  TRY(api_ranks_decide(c->ranks, &state));
  m.origin = API_MACHINE_KEPT;
  if (state == RT_MEASURED_MISSING) {
    m.origin = API_MACHINE_MEASURED;
    TRY(measure(c, &m.speed));
    c->kept = asked && keep(c, &m.speed);
    if (!c->kept && !c->renew) state = RT_MEASURED_NOWHERE;
  }
  if (state == RT_MEASURED_NOWHERE) {
    m.origin = API_MACHINE_BUILT_IN;
    build_in(c, &m.speed);
  }
  TRY(api_ranks_tell(c->ranks, &m, sizeof m));
  *c->result = m;
  return STATUS_OK;
}

static status find_guarded(void *context) { return find(context); }

static status find_machine(machine_call *c) {
  arena_init(&c->scratch, c->memory);
  status st = memory_guard(find_guarded, c);
  arena_destroy(&c->scratch);
  return st;
}

status api_machine_need(api_machine *m, rt_device *device, const api_ranks *ranks,
                        const allocator *memory) {
  machine_call c = {.result = m, .device = device, .ranks = ranks, .memory = memory};
  if (m->origin != API_MACHINE_UNKNOWN || !device->ops->measure) return STATUS_OK;
  return find_machine(&c);
}

const rt_speed *api_machine_speed(const api_machine *m) {
  return m->origin == API_MACHINE_UNKNOWN ? NULL : &m->speed;
}

/* ---- for people ---- */
typedef struct tell_call {
  api_executor_options options;
  bool renew;
  char **text;
} tell_call;

static void print(const machine_call *c, strbuf *out) {
  bool measured = c->result->origin == API_MACHINE_MEASURED;
  strbuf path;
  strbuf_init(&path, out->memory);
  if (!rt_measured_path(&c->key, &path))
    strbuf_puts(&path, "a folder: neither XDG_CACHE_HOME nor HOME names one");
  strbuf_printf(out, "# device %s, communication %s, hosts %s\n", c->key.device, c->key.comm,
                c->key.hosts);
  if (c->result->origin == API_MACHINE_KEPT) strbuf_puts(out, "# measured earlier, kept in ");
  else if (measured && c->kept) strbuf_puts(out, "# measured, kept in ");
  else strbuf_printf(out, "# %s: nothing can be kept in ", measured ? "measured" : "built in");
  strbuf_printf(out, "%s\n", path.data);
  rt_machine_print(&c->result->speed, out);
}

static status tell_opened(api_executor *x, const tell_call *t, arena *scratch) {
  strbuf out;
  if (!x->device->ops->measure)
    return fail(STATUS_BAD_USAGE, "--device %s is not measured", x->device->ops->name);
  machine_call c = {.result = &x->machine, .device = x->device, .ranks = &x->ranks};
  c.memory = &memory_default;
  c.renew = t->renew;
  arena_init(&c.scratch, scratch->memory);
  x->machine = (api_machine){0};
  status st = memory_guard(find_guarded, &c);
  if (st == STATUS_OK) {
    strbuf_init(&out, scratch);
    print(&c, &out);
    st = api_string(&out, t->text);
  }
  arena_destroy(&c.scratch);
  return st;
}

static status tell_body(arena *scratch, void *context) {
  tell_call *t = context;
  api_executor x = {0};
  status st = api_executor_open(&x, NULL, &t->options, &memory_default);
  if (st == STATUS_OK) st = tell_opened(&x, t, scratch);
  api_executor_close(&x);
  return st;
}

weir_status weir_machine(const weir_options *o, bool measure, char **text) {
  const char *proof;
  tell_call t = {.renew = measure, .text = text};
  if (!text) return api_refuse("weir_machine: an argument is NULL");
  weir_status st = api_read_options(o, &t.options, &proof);
  return st == WEIR_OK ? api_call(&memory_default, tell_body, &t) : st;
}
