/* Captures and graphs: what was put on streams, as a list of nodes with what each stands behind. A launch
 * is one item of a queue, whose nodes run in a random legal order. */
#include <stdlib.h>
#include <string.h>

#include "standin/driver.h"

static uint64_t n_captures;

/* ---- captures ---- */
bool is_capturing_thread(void) {
  if (is_relaxed_thread()) return false;
  for (CUstream s = standin.streams; s; s = s->next)
    if (s->capture && s->capture->origin == s && pthread_equal(s->capture->thread, pthread_self()))
      return true;
  return false;
}

CUresult capture_add(CUstream s, op *o) {
  CUgraph g = s->capture->graph;
  if (g->n_nodes == g->cap) {
    g->cap = g->cap ? 2 * g->cap : 64;
    g->nodes = realloc(g->nodes, g->cap * sizeof *g->nodes);
    if (!g->nodes) abort();
  }
  uint32_t *last = malloc(sizeof *last);
  if (!last) abort();
  *last = g->n_nodes;
  g->nodes[g->n_nodes++] = (node){o, s->after.n, s->after.items};
  s->after = (node_set){1, last};
  return CUDA_SUCCESS;
}

CUresult cuStreamBeginCapture(CUstream s, CUstreamCaptureMode mode) {
  ENTER(cuStreamBeginCapture);
  (void)mode;
  if (!s || !stream_is_good(&s) || s->capture)
    return MISUSE(CUDA_ERROR_ILLEGAL_STATE, "a capture begins where there is one, or no stream");
  s->capture = calloc(1, sizeof *s->capture);
  if (!s->capture) abort();
  s->capture->graph = calloc(1, sizeof *s->capture->graph);
  if (!s->capture->graph) abort();
  s->capture->graph->refs = 1;
  s->capture->id = ++n_captures;
  s->capture->origin = s;
  s->capture->thread = pthread_self();
  return CUDA_SUCCESS;
}

static void mark_reached(const struct CUgraph_st *g, const node_set *from, bool *reached) {
  for (uint32_t i = 0; i < from->n; i++) {
    uint32_t at = from->items[i];
    if (reached[at]) continue;
    reached[at] = true;
    mark_reached(g, &(node_set){g->nodes[at].n_deps, g->nodes[at].deps}, reached);
  }
}

/* Everything captured must stand before the end of the first stream. */
static bool is_joined(const capture *c) {
  bool *reached = calloc(c->graph->n_nodes + (size_t)1, sizeof *reached), all = true;
  if (!reached) abort();
  mark_reached(c->graph, &c->origin->after, reached);
  for (uint32_t i = 0; i < c->graph->n_nodes; i++) all = all && reached[i];
  free(reached);
  return all;
}

/* Its streams are as before; the graph stays. */
static void end(capture *c) {
  for (CUstream x = standin.streams; x; x = x->next) {
    if (x->capture != c) continue;
    x->capture = NULL;
    free(x->after.items);
    x->after = (node_set){0, NULL};
  }
  free(c);
}

void capture_leave(CUstream s) {
  capture *c = s->capture;
  if (!c || c->origin != s) return;
  graph_drop(c->graph);
  end(c);
}

static CUresult end_capture(CUstream s, CUgraph *result) {
  ENTER(cuStreamEndCapture);
  if (!s || !stream_is_good(&s) || !s->capture || s->capture->origin != s)
    return MISUSE(CUDA_ERROR_ILLEGAL_STATE, "a capture ends that this stream did not begin");
  capture *c = s->capture;
  bool joined = is_joined(c);
  CUgraph g = c->graph;
  end(c);
  *result = NULL;
  if (!joined) {
    graph_drop(g);
    return MISUSE(CUDA_ERROR_STREAM_CAPTURE_UNJOINED, "a capture ends with work not joined to it");
  }
  handle_add(g);
  *result = g;
  return CUDA_SUCCESS;
}

/* One that fails is over, too. */
CUresult cuStreamEndCapture(CUstream s, CUgraph *result) {
  CUresult r = end_capture(s, result);
  (void)pthread_mutex_lock(&standin.lock);
  if (r != CUDA_SUCCESS && handle_is_live(s)) capture_leave(s);
  (void)pthread_mutex_unlock(&standin.lock);
  return r;
}

CUresult cuStreamIsCapturing(CUstream s, CUstreamCaptureStatus *status) {
  ENTER(cuStreamIsCapturing);
  if (!stream_is_good(&s)) return CUDA_ERROR_INVALID_HANDLE;
  *status = s->capture ? CU_STREAM_CAPTURE_STATUS_ACTIVE : CU_STREAM_CAPTURE_STATUS_NONE;
  return CUDA_SUCCESS;
}

/* The mode is of the calling thread; RELAXED lets it do during a capture what the capture does not see. */
static _Thread_local CUstreamCaptureMode thread_mode = CU_STREAM_CAPTURE_MODE_GLOBAL;

bool is_relaxed_thread(void) { return thread_mode == CU_STREAM_CAPTURE_MODE_RELAXED; }

CUresult cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode *mode) {
  ENTER(cuThreadExchangeStreamCaptureMode);
  CUstreamCaptureMode before = thread_mode;
  thread_mode = *mode;
  *mode = before;
  return CUDA_SUCCESS;
}

/* ---- graphs ---- */
void graph_drop(CUgraph g) {
  if (--g->refs > 0) return;
  for (uint32_t i = 0; i < g->n_nodes; i++) {
    op_free(g->nodes[i].op);
    free(g->nodes[i].deps);
  }
  free(g->nodes);
  free(g);
}

CUresult cuGraphDestroy(CUgraph g) {
  ENTER(cuGraphDestroy);
  if (!handle_is_live(g)) return MISUSE(CUDA_ERROR_INVALID_VALUE, "this is no graph");
  handle_remove(g);
  graph_drop(g);
  return CUDA_SUCCESS;
}

CUresult cuGraphInstantiateWithFlags(CUgraphExec *result, CUgraph g, unsigned long long flags) {
  ENTER(cuGraphInstantiateWithFlags);
  (void)flags;
  if (!handle_is_live(g)) return MISUSE(CUDA_ERROR_INVALID_VALUE, "this is no graph");
  *result = calloc(1, sizeof **result);
  if (!*result) abort();
  (*result)->graph = g;
  (*result)->refs = 1;
  g->refs++;
  handle_add(*result);
  return CUDA_SUCCESS;
}

CUresult cuGraphExecDestroy(CUgraphExec x) {
  ENTER(cuGraphExecDestroy);
  if (!handle_is_live(x)) return MISUSE(CUDA_ERROR_INVALID_VALUE, "this is no graph");
  handle_remove(x);
  graph_drop(x->graph);
  if (--x->refs == 0) free(x);
  return CUDA_SUCCESS;
}

CUresult cuGraphLaunch(CUgraphExec x, CUstream s) {
  ENTER(cuGraphLaunch);
  if (!handle_is_live(x)) return MISUSE(CUDA_ERROR_INVALID_VALUE, "this is no graph");
  if (!stream_is_good(&s)) return CUDA_ERROR_INVALID_HANDLE;
  uint32_t n = x->graph->n_nodes;
  if (s->capture) return MISUSE(CUDA_ERROR_NOT_SUPPORTED, "a graph in a capture is not modelled");
  if (n == 0) return CUDA_SUCCESS;
  op *o = op_new("a graph", s, 0);
  o->exec = x;
  o->left = n;
  o->begun = calloc(n, sizeof *o->begun);
  o->done = calloc(n, sizeof *o->done);
  if (!o->begun || !o->done) abort();
  x->refs++;
  x->graph->refs++;
  return submit(s, o);
}

static bool may_run(const op *launch, const node *x) {
  for (uint32_t i = 0; i < x->n_deps; i++)
    if (!launch->done[x->deps[i]]) return false;
  return !x->op->ready || x->op->ready(x->op);
}

/* A graph runs once at a time; among the nodes that may run, any. */
bool graph_pick(const op *launch, uint32_t *index) {
  const struct CUgraph_st *g = launch->exec->graph;
  bool is_first = launch->left == g->n_nodes;
  uint64_t start = random_draw();
  if (is_first && launch->exec->running) return false;
  for (uint32_t i = 0; i < g->n_nodes; i++) {
    uint32_t at = (uint32_t)((start + i) % g->n_nodes);
    if (launch->begun[at] || !may_run(launch, &g->nodes[at])) continue;
    *index = at;
    return true;
  }
  return false;
}
