/* What the options say about compiling and running. */
#include <string.h>

#include "api/program.h"
#include "runtime/machine.h"

static weir_status read_dump(const char *word, api_options *o) {
  if (strcmp(word, "fusion") == 0) o->dump.fusion = true;
  else if (strcmp(word, "host") == 0) o->dump.host = true;
  else if (strcmp(word, "nvfuser") == 0) o->dump.nvfuser = true;
  else if (strcmp(word, "plan") == 0) o->session.dump_plan = true;
  else if (strcmp(word, "passes") != 0)
    return api_refuse("there is no dump '%s'; there are fusion, host, nvfuser, plan and passes",
                      word);
  return WEIR_OK;
}

/* Words that outlive the options. */
static const char *read_proof(const char *word) {
  static const char *const words[] = {"auto", "always", "never"};
  for (int i = 0; i < 3; i++) {
    if (strcmp(words[i], word) == 0) return words[i];
  }
  impossible("the option is one of these");
}

bool api_find_pipeline(const char *word, host_pipeline *result) {
  if (strcmp(word, "marked") == 0) word = "auto"; /* without a choice: api_options.chooses */
  for (host_pipeline i = HOST_AUTO; i <= HOST_BROADCAST; i++) {
    if (strcmp(host_pipeline_text(i), word) != 0) continue;
    *result = i;
    return true;
  }
  return false;
}

weir_status api_read_pipeline(const weir_options *o, host_pipeline *result) {
  const char *word = NULL;
  weir_status st = weir_options_get(o, "pipeline", 0, &word);
  if (st == WEIR_OK) (void)api_find_pipeline(word, result); /* the option is one of the words */
  return st;
}

static status load_machine(arena *scratch, void *context) {
  (void)scratch;
  api_options *o = context;
  o->session.has_machine = true;
  return rt_machine_load(o->machine_name, &o->session.machine);
}

static weir_status read_machine(const weir_options *o, api_options *result) {
  weir_status st = weir_options_get(o, "machine", 0, &result->machine_name);
  if (st != WEIR_OK || !result->machine_name[0]) return st;
  return api_call(&memory_default, load_machine, result);
}

/* Names that outlive the options. */
static void read_names(const char *device, const char *comm, session_options *s) {
  const rt_device_ops *known = rt_device_find(device);
  const rt_comm_ops *backend = rt_comm_find(comm);
  s->device = known ? known->name : "ref";
  s->comm = backend ? backend->name : "auto";
  s->carrier = rt_carrier_find(comm);
}

static weir_status read_dumps(const weir_options *o, api_options *result) {
  for (size_t i = 0;; i++) {
    const char *word = NULL;
    weir_status st = weir_options_get(o, "dump", i, &word);
    if (st != WEIR_OK || !word) return st;
    st = read_dump(word, result);
    if (st != WEIR_OK) return st;
  }
}

/* The options of the session. */
static weir_status read_session(const weir_options *o, session_options *s) {
  int64_t streams = 0, threads = 0, devices = 0;
  const char *device = "ref", *comm = "auto", *link = "auto";
  weir_status st = weir_options_get(o, "device", 0, &device);
  if (st == WEIR_OK) st = weir_options_get_int(o, "streams", &streams);
  if (st == WEIR_OK) st = weir_options_get_int(o, "threads", &threads);
  if (st == WEIR_OK) st = weir_options_get_int(o, "adversary", &s->adversary);
  if (st == WEIR_OK) st = weir_options_get_int(o, "memory-limit", &s->memory_limit);
  if (st == WEIR_OK) st = weir_options_get_int(o, "plan-cache", &s->plan_cache);
  if (st == WEIR_OK) st = weir_options_get_bool(o, "graph", &s->graph);
  if (st == WEIR_OK) st = weir_options_get_bool(o, "tf32", &s->tf32);
  if (st == WEIR_OK) st = weir_options_get_bool(o, "deterministic", &s->deterministic);
  if (st == WEIR_OK) st = weir_options_get(o, "link", 0, &link);
  if (st == WEIR_OK) st = weir_options_get(o, "comm", 0, &comm);
  if (st == WEIR_OK) st = weir_options_get_int(o, "devices", &devices);
  if (st == WEIR_OK) st = weir_options_get_int(o, "timeout", &s->timeout_s);
  read_names(device, comm, s);
  s->link_host = strcmp(link, "host") == 0;
  s->devices = (uint32_t)devices;
  s->streams = (uint32_t)streams;
  s->threads = (uint32_t)threads;
  return st;
}

static weir_status read_all(const weir_options *o, api_options *result) {
  const char *proof = "auto", *pipeline = "auto";
  weir_status st = read_session(o, &result->session);
  if (st == WEIR_OK) st = weir_options_get(o, "prove", 0, &proof);
  if (st == WEIR_OK) st = api_read_pipeline(o, &result->pipeline);
  if (st == WEIR_OK) st = weir_options_get(o, "pipeline", 0, &pipeline);
  if (st == WEIR_OK) st = read_dumps(o, result);
  if (st == WEIR_OK) st = read_machine(o, result);
  result->proof = read_proof(proof);
  result->chooses = strcmp(pipeline, "auto") == 0;
  return st;
}

weir_status api_read_options(const weir_options *o, api_options *result) {
  weir_options *defaults = NULL;
  weir_status st = o ? WEIR_OK : weir_options_create(&defaults);
  if (st == WEIR_OK) st = read_all(o ? o : defaults, result);
  if (o) result->session.device_memory = api_device_memory(o);
  if (o) result->session.group = api_world_group(o);
  weir_options_destroy(defaults);
  return st;
}
