/* Plans of the library: from a graph, and as text. */
#include <string.h>

#include "device/cuda/attention.h"

enum { MOST_CONFIGS = 16 };

typedef struct making {
  dnn_graph *g;
  void *handle, *description;
  void *configs[MOST_CONFIGS];
  uint32_t n_configs;
} making;

static void *make_graph(making *m) {
  dnn_graph *g = m->g;
  void *d = dnn_make(g, DNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
  dnn_set(g, d, DNN_ATTR_OPERATIONGRAPH_OPS, DNN_TYPE_BACKEND_DESCRIPTOR, g->n_ops, g->ops);
  if (m->handle) dnn_set(g, d, DNN_ATTR_OPERATIONGRAPH_HANDLE, DNN_TYPE_HANDLE, 1, &m->handle);
  dnn_finish(g, d, "a graph");
  return d;
}

/* Asks for configurations. If the library refuses the graph, it returns success and none. */
static void ask(making *m, void *graph) {
  dnn_graph *g = m->g;
  int mode = DNN_HEUR_MODE_A;
  int64_t n = 0;
  void *d = dnn_make(g, DNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
  dnn_set(g, d, DNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, DNN_TYPE_BACKEND_DESCRIPTOR, 1, &graph);
  dnn_set(g, d, DNN_ATTR_ENGINEHEUR_MODE, DNN_TYPE_HEUR_MODE, 1, &mode);
  if (m->description)
    dnn_set(g, d, DNN_ATTR_ENGINEHEUR_DEVICEPROP, DNN_TYPE_BACKEND_DESCRIPTOR, 1, &m->description);
  dnn_finish(g, d, "asking for configurations");
  if (g->status) return;
  dnn_fail(g,
           g->dnn->cudnnBackendGetAttribute(d, DNN_ATTR_ENGINEHEUR_RESULTS,
                                            DNN_TYPE_BACKEND_DESCRIPTOR, 0, &n, NULL),
           "asking for configurations");
  if (n > MOST_CONFIGS) n = MOST_CONFIGS;
  for (int64_t i = 0; i < n; i++) m->configs[i] = dnn_make(g, DNN_BACKEND_ENGINECFG_DESCRIPTOR);
  if (g->status) return;
  int64_t got = 0;
  dnn_fail(g,
           g->dnn->cudnnBackendGetAttribute(d, DNN_ATTR_ENGINEHEUR_RESULTS,
                                            DNN_TYPE_BACKEND_DESCRIPTOR, n, &got, m->configs),
           "asking for configurations");
  m->n_configs = (uint32_t)(got < n ? got : n);
  if (m->n_configs == 0) dnn_fail(g, DNN_STATUS_NOT_SUPPORTED, "no configuration");
}

enum { NO_ENGINE = -1 };
static int64_t engine_of(making *m, uint32_t config) {
  const cuda_dnn *dnn = m->g->dnn;
  int64_t n = 0, index = NO_ENGINE;
  void *engine = dnn_make(m->g, DNN_BACKEND_ENGINE_DESCRIPTOR);
  if (!engine) return NO_ENGINE;
  if (dnn->cudnnBackendGetAttribute(m->configs[config], DNN_ATTR_ENGINECFG_ENGINE,
                                    DNN_TYPE_BACKEND_DESCRIPTOR, 1, &n, &engine))
    return NO_ENGINE;
  if (dnn->cudnnBackendGetAttribute(engine, DNN_ATTR_ENGINE_GLOBAL_INDEX, DNN_TYPE_INT64, 1, &n,
                                    &index))
    return NO_ENGINE;
  return index;
}

/* NULL: the library refuses this configuration; *st says why. */
static void *make_plan(making *m, uint32_t config, int *st) {
  const cuda_dnn *dnn = m->g->dnn;
  void *plan = NULL;
  *st = dnn->cudnnBackendCreateDescriptor(DNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR, &plan);
  if (*st) return NULL;
  if (m->handle)
    *st = dnn->cudnnBackendSetAttribute(plan, DNN_ATTR_EXECUTION_PLAN_HANDLE, DNN_TYPE_HANDLE, 1,
                                        &m->handle);
  else
    *st = dnn->cudnnBackendSetAttribute(plan, DNN_ATTR_EXECUTION_PLAN_DEVICEPROP,
                                        DNN_TYPE_BACKEND_DESCRIPTOR, 1, &m->description);
  if (!*st)
    *st = dnn->cudnnBackendSetAttribute(plan, DNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG,
                                        DNN_TYPE_BACKEND_DESCRIPTOR, 1, &m->configs[config]);
  if (!*st) *st = dnn->cudnnBackendFinalize(plan);
  if (!*st) return plan;
  dnn_graph *g = m->g;
  if (config == 0) { /* the reason for the first one is reported */
    dnn_fail(g, *st, "a plan");
    g->status = DNN_STATUS_SUCCESS;
  }
  (void)dnn->cudnnBackendDestroyDescriptor(plan);
  return NULL;
}

/* Other engines than the first one are older kernels, at half its speed: they are used only if it has no plan. */
void cuda_att_build(cuda_attention *a, void *handle, void *description, uint32_t most,
                    cuda_att_plans *result) {
  making m = {.g = &a->g, .handle = handle, .description = description};
  int64_t wanted = NO_ENGINE;
  int st = DNN_STATUS_SUCCESS;
  *result = (cuda_att_plans){.n = 0};
  cuda_att_graph(m.g, &a->shape, a->ordered);
  if (most > ATT_MOST_PLANS) most = ATT_MOST_PLANS;
  ask(&m, make_graph(&m));
  if (m.g->status) return;
  for (uint32_t i = 0; i < m.n_configs && result->n < most; i++) {
    int64_t engine = engine_of(&m, i);
    if (result->n > 0 && engine != wanted) continue;
    void *plan = make_plan(&m, i, &st);
    if (!plan) continue;
    if (result->n == 0) wanted = engine;
    result->plans[result->n++] = plan;
  }
  if (result->n == 0) m.g->status = st;
}

/* ---- as text ---- */
size_t cuda_att_workspace(const cuda_dnn *dnn, void *plan) {
  int64_t bytes = 0, n = 0;
  int st = dnn->cudnnBackendGetAttribute(plan, DNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE,
                                         DNN_TYPE_INT64, 1, &n, &bytes);
  return st || bytes < 0 ? 0 : (size_t)bytes;
}

char *cuda_att_json(const cuda_dnn *dnn, void *plan, const allocator *memory, size_t *size_bytes) {
  int64_t n = 0, got = 0;
  int which = DNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION;
  if (dnn->cudnnBackendGetAttribute(plan, which, DNN_TYPE_CHAR, 0, &n, NULL) || n <= 0) return NULL;
  char *json = memory->alloc(memory->context, (size_t)n);
  if (!json) return NULL;
  if (dnn->cudnnBackendGetAttribute(plan, which, DNN_TYPE_CHAR, n, &got, json) || got > n) {
    memory_free(memory, json);
    return NULL;
  }
  *size_bytes = (size_t)got;
  return json;
}

void *cuda_att_from_json(const cuda_dnn *dnn, void *handle, const void *json, size_t size_bytes) {
  void *plan = NULL;
  if (dnn->cudnnBackendCreateDescriptor(DNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR, &plan)) return NULL;
  int st = dnn->cudnnBackendSetAttribute(plan, DNN_ATTR_EXECUTION_PLAN_HANDLE, DNN_TYPE_HANDLE, 1,
                                         &handle);
  if (!st)
    st = dnn->cudnnBackendSetAttribute(plan, DNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION,
                                       DNN_TYPE_CHAR, (int64_t)size_bytes, json);
  if (!st) st = dnn->cudnnBackendFinalize(plan);
  if (!st) return plan;
  (void)dnn->cudnnBackendDestroyDescriptor(plan);
  return NULL;
}
