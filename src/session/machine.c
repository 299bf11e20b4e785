#include "session/machine.h"

#include <string.h>
#include <unistd.h>

#include "runtime/machine.h"
#include "runtime/measured.h"
#include "session/link.h"

enum { HOST_NAME = 64 };

typedef struct machine_call {
  session_machine *result;
  rt_device *device;
  const session_ranks *ranks;
  const allocator *memory;
  bool renew;
  bool kept; /* the figures measured now were stored */
  rt_measured_key key;
  uint32_t per_host; /* ranks that share cores; 0: not the same number on each host */
  bool is_first;     /* of those that share this rank's cores */
  arena scratch;
} machine_call;

/* ---- hosts ---- */
/* Names that other hosts sent become part of a file that is read again. */
static void clean(char name[HOST_NAME]) {
  name[HOST_NAME - 1] = '\0';
  for (char *c = name; *c; c++)
    if (*c <= ' ' || *c > '~' || *c == '#') *c = '_';
  if (!name[0]) memcpy(name, "?", 2);
}

/* How many consecutive ranks share cores; systems[r] identifies the cores of rank r. 0: not always as many. */
static uint32_t count_alike(const uint64_t *systems, uint32_t n) {
  uint32_t first = 1;
  while (first < n && systems[first] == systems[0]) first++;
  for (uint32_t i = first; i < n; i++)
    if ((systems[i] == systems[i - 1]) != (i % first != 0)) return 0;
  return n % first ? 0 : first;
}

static status find_systems(machine_call *c, uint32_t n) {
  uint64_t mine = rt_cores_hash(), *all = ARENA_ARRAY(&c->scratch, n, uint64_t);
  uint32_t first = 0;
  TRY(session_ranks_exchange(c->ranks, &mine, all, sizeof mine));
  while (all[first] != mine) first++;
  c->per_host = count_alike(all, n);
  c->is_first = first == c->ranks->first;
  return STATUS_OK;
}

static status find_hosts(machine_call *c) {
  const session_ranks *r = c->ranks;
  uint32_t n = session_ranks_are_spread(r) ? r->world : 1;
  char mine[HOST_NAME] = "", *all = ARENA_ARRAY(&c->scratch, (size_t)n * HOST_NAME, char);
  strbuf text;
  (void)gethostname(mine, sizeof mine);
  clean(mine);
  TRY(session_ranks_exchange(r, mine, all, HOST_NAME));
  strbuf_init(&text, &c->scratch);
  for (uint32_t i = 0; i < n; i++) {
    clean(all + (size_t)i * HOST_NAME);
    strbuf_printf(&text, "%s%s", i ? " " : "", all + (size_t)i * HOST_NAME);
  }
  c->key = (rt_measured_key){.device = c->device->ops->name, .ranks = n, .hosts = text.data};
  c->key.comm = n > 1 ? r->ops->name : "inproc";
  return n > 1 ? find_systems(c, n) : STATUS_OK;
}

/* ---- figures ---- */
/* Figures where nothing is measured: hosts with 10 Gbit/s between them. A communication must wake up
 * another process: a socket does so sooner than a thread polls MPI. */
static void assume_link(const machine_call *c, rt_speed *s) {
  bool sockets = strcmp(c->key.comm, "tcp") == 0;
  s->link_bytes_per_ns = 1;
  s->link_latency_ns = 30e3;
  s->post_ns = sockets ? 100e3 : 250e3;
}

/* One of the ranks that share cores measures them. Ranks with other cores measure at the same time, because all of them
 * share the memory. */
static status measure_device(machine_call *c, rt_speed *s) {
  bool spread = session_ranks_are_spread(c->ranks), on_host = !c->device->ops->memory;
  uint8_t nothing = 0;
  if (c->ranks->first == 0 || (spread && on_host && c->is_first))
    c->device->ops->measure(c->device, s);
  return session_ranks_decide(c->ranks, &nothing);
}

static status measure(machine_call *c, rt_speed *s) {
  bool spread = session_ranks_are_spread(c->ranks);
  session_link link = {0};
  if (spread) TRY(session_link_measure(c->ranks, c->memory, &link));
  TRY(measure_device(c, s));
  if (!spread || c->ranks->first != 0) return STATUS_OK;
  assume_link(c, s);
  /* A socket wakes the thread that communicates: a step takes no other time beside its bytes. MPI is polled more
   * often where a thread waits for it than while all compute, which the assumed figures are closer to. */
  bool wakes = strcmp(c->key.comm, "tcp") == 0;
  s->link_latency_ns = wakes ? link.latency_ns : link.idle_ns;
  if (wakes) s->post_ns = 0;
  s->direct = wakes;
  s->link_bytes_per_ns = link.bytes_per_ns;
  s->link_burst_bytes = link.burst_bytes;
  s->per_host = c->per_host;
  if (c->per_host == 0) s->cores = 0;
  s->comm_cores = link.cores; /* a fraction of the share of a core that a rank has */
  if (s->cores < s->per_host) s->comm_cores *= s->cores / s->per_host;
  return STATUS_OK;
}

static void build_in(machine_call *c, rt_speed *s) {
  *s = c->device->ops->speed(c->device, NULL, 1);
  if (session_ranks_are_spread(c->ranks)) assume_link(c, s);
}

/* Of several processes that measure at once, the first that stores its figures decides for all. */
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
  session_machine m = {0};
  uint8_t state = RT_MEASURED_MISSING;
  TRY(find_hosts(c));
  if (asked) state = (uint8_t)rt_measured_read(&c->key, &m.speed);
  if (c->renew) state = RT_MEASURED_MISSING;
  TRY(session_ranks_decide(c->ranks, &state));
  m.origin = SESSION_MACHINE_KEPT;
  if (state == RT_MEASURED_MISSING) {
    m.origin = SESSION_MACHINE_MEASURED;
    TRY(measure(c, &m.speed));
    c->kept = asked && keep(c, &m.speed);
    if (!c->kept && !c->renew) state = RT_MEASURED_NOWHERE;
  }
  if (state == RT_MEASURED_NOWHERE) {
    m.origin = SESSION_MACHINE_BUILT_IN;
    build_in(c, &m.speed);
  }
  TRY(session_ranks_tell(c->ranks, &m, sizeof m));
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

status session_machine_need(session_machine *m, rt_device *device, const session_ranks *ranks,
                            const allocator *memory) {
  machine_call c = {.result = m, .device = device, .ranks = ranks, .memory = memory};
  if (m->origin != SESSION_MACHINE_UNKNOWN || !device->ops->measure) return STATUS_OK;
  return find_machine(&c);
}

const rt_speed *session_machine_speed(const session_machine *m) {
  return m->origin == SESSION_MACHINE_UNKNOWN ? NULL : &m->speed;
}

/* ---- for people ---- */
typedef struct describe_call {
  machine_call *call;
  strbuf *out;
} describe_call;

static void print(const machine_call *c, strbuf *out) {
  bool measured = c->result->origin == SESSION_MACHINE_MEASURED;
  strbuf path;
  strbuf_init(&path, out->memory);
  if (!rt_measured_path(&c->key, &path))
    strbuf_puts(&path, "a folder: neither XDG_CACHE_HOME nor HOME names one");
  strbuf_printf(out, "# device %s, communication %s, hosts %s\n", c->key.device, c->key.comm,
                c->key.hosts);
  if (c->result->origin == SESSION_MACHINE_KEPT) strbuf_puts(out, "# measured earlier, kept in ");
  else if (measured && c->kept) strbuf_puts(out, "# measured, kept in ");
  else strbuf_printf(out, "# %s: nothing can be kept in ", measured ? "measured" : "built in");
  strbuf_printf(out, "%s\n", path.data);
  rt_machine_print(&c->result->speed, out);
}

static status describe_guarded(void *context) {
  const describe_call *d = context;
  TRY(find(d->call));
  print(d->call, d->out);
  return STATUS_OK;
}

status session_machine_describe(session_machine *m, rt_device *device, const session_ranks *ranks,
                                bool renew, const allocator *memory, strbuf *out) {
  machine_call c = {.result = m, .device = device, .ranks = ranks, .memory = memory};
  describe_call d = {&c, out};
  c.renew = renew;
  *m = (session_machine){0};
  arena_init(&c.scratch, memory);
  status st = memory_guard(describe_guarded, &d);
  arena_destroy(&c.scratch);
  return st;
}
