/* The stand-in for cuDNN: the functions of cudnn.def. Descriptors keep what they are given; when a graph is
 * finalized it becomes one flat program, which the plans, their text and their runs are made of.
 *
 * What the real library refuses is refused. What it computes wrongly without a word gives nonsense:
 * strides that are no multiple of 8, tensors that do not begin at 16 bytes, a workspace that two launches
 * use at the same time. What crashes it, or was never tried, ends the process.
 *
 * Environment:
 *   WEIR_STANDIN_ATTENTION=0         no graph has a configuration
 *   WEIR_STANDIN_CUDNN_VERSION=N     the library's version (91900) */
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "standin/cudnn.h"
#include "standin/standin.h"

#define FUNCTION(result, name, parameters) STANDIN_API result name parameters;
#include "device/cuda/cudnn.def"
#undef FUNCTION

static _Thread_local char last_error[256];

static int refuse(int code, const char *format, ...) {
  va_list args;
  va_start(args, format);
  (void)vsnprintf(last_error, sizeof last_error, format, args);
  va_end(args);
  return code;
}

size_t cudnnGetVersion(void) {
  const char *text = getenv("WEIR_STANDIN_CUDNN_VERSION");
  return text ? (size_t)strtoul(text, NULL, 10) : 91900;
}

const char *cudnnGetErrorString(int code) {
  return code == DNN_STATUS_SUCCESS         ? "CUDNN_STATUS_SUCCESS"
         : code == DNN_STATUS_NOT_SUPPORTED ? "CUDNN_STATUS_NOT_SUPPORTED"
                                            : "CUDNN_STATUS_(an error)";
}

void cudnnGetLastErrorString(char *message, size_t size_bytes) {
  (void)snprintf(message, size_bytes, "%s", last_error);
}

/* ---- handles ---- */
typedef struct handle {
  CUstream stream;
  atomic_flag busy;
} handle;

int cudnnCreate(void **result) {
  if (standin_fails("cudnnCreate")) return refuse(DNN_STATUS_INTERNAL_ERROR, "as asked");
  CUcontext context = NULL;
  if (cuCtxGetCurrent(&context) != CUDA_SUCCESS || !context)
    standin_misuse("cudnn: a handle without a current context");
  handle *h = calloc(1, sizeof *h);
  if (!h) abort();
  *result = h;
  return DNN_STATUS_SUCCESS;
}

int cudnnDestroy(void *h) {
  free(h);
  return DNN_STATUS_SUCCESS;
}

int cudnnSetStream(void *h, void *stream) {
  if (standin_fails("cudnnSetStream")) return refuse(DNN_STATUS_INTERNAL_ERROR, "as asked");
  ((handle *)h)->stream = stream;
  return DNN_STATUS_SUCCESS;
}

/* ---- descriptors ---- */
typedef struct attribute {
  int name, type;
  int64_t count;
  void *values;
} attribute;

enum { MOST_ATTRIBUTES = 12 };
typedef struct descriptor {
  int kind;
  bool is_final;
  uint32_t n;
  attribute attributes[MOST_ATTRIBUTES];
  program *program; /* of graphs, and what is made of them */
  const char *why;  /* heuristics: why there is nothing */
} descriptor;

static size_t size_of_type(int type) {
  switch (type) {
  case DNN_TYPE_INT64:
  case DNN_TYPE_HANDLE:
  case DNN_TYPE_VOID_PTR:
  case DNN_TYPE_BACKEND_DESCRIPTOR: return 8;
  case DNN_TYPE_BOOLEAN:
  case DNN_TYPE_CHAR: return 1;
  default: return 4;
  }
}

static const attribute *find(const descriptor *d, int name) {
  for (uint32_t i = 0; d && i < d->n; i++)
    if (d->attributes[i].name == name) return &d->attributes[i];
  return NULL;
}

static int64_t int64_of(const descriptor *d, int name, int64_t otherwise) {
  const attribute *a = find(d, name);
  if (!a) return otherwise;
  if (a->type == DNN_TYPE_BOOLEAN) return *(const bool *)a->values;
  return size_of_type(a->type) == 8 ? *(const int64_t *)a->values : *(const int32_t *)a->values;
}

static descriptor *linked(const descriptor *d, int name) {
  const attribute *a = find(d, name);
  return a ? *(descriptor *const *)a->values : NULL;
}

static program *copy_of(const program *p) {
  program *x = malloc(sizeof *x);
  if (!x) abort();
  memcpy(x, p, sizeof *x);
  return x;
}

int cudnnBackendCreateDescriptor(int kind, void **result) {
  if (standin_fails("cudnnBackendCreateDescriptor"))
    return refuse(DNN_STATUS_ALLOC_FAILED, "as asked");
  descriptor *d = calloc(1, sizeof *d);
  if (!d) abort();
  d->kind = kind;
  *result = d;
  return DNN_STATUS_SUCCESS;
}

int cudnnBackendDestroyDescriptor(void *x) {
  descriptor *d = x;
  for (uint32_t i = 0; d && i < d->n; i++) free(d->attributes[i].values);
  if (d) free(d->program);
  free(d);
  return DNN_STATUS_SUCCESS;
}

int cudnnBackendSetAttribute(void *x, int name, int type, int64_t count, const void *values) {
  descriptor *d = x;
  if (standin_fails("cudnnBackendSetAttribute")) return refuse(DNN_STATUS_BAD_PARAM, "as asked");
  if (d->is_final || d->n == MOST_ATTRIBUTES || count <= 0)
    return refuse(DNN_STATUS_BAD_PARAM, "the descriptor is final, or full");
  size_t bytes = size_of_type(type) * (size_t)count;
  attribute *a = &d->attributes[d->n++];
  *a = (attribute){name, type, count, malloc(bytes)};
  if (!a->values) abort();
  memcpy(a->values, values, bytes);
  return DNN_STATUS_SUCCESS;
}

/* ---- graphs ---- */
static int finish_tensor(const descriptor *d) {
  const attribute *dims = find(d, DNN_ATTR_TENSOR_DIMENSIONS);
  const attribute *strides = find(d, DNN_ATTR_TENSOR_STRIDES);
  bool is_whole = dims && strides && dims->count == 4 && strides->count == 4 &&
                  find(d, DNN_ATTR_TENSOR_DATA_TYPE) && find(d, DNN_ATTR_TENSOR_UNIQUE_ID);
  if (!is_whole) return refuse(DNN_STATUS_BAD_PARAM, "a tensor that lacks something");
  for (int i = 0; i < 4; i++)
    if (((const int64_t *)dims->values)[i] <= 0)
      return refuse(DNN_STATUS_BAD_PARAM, "a tensor without elements");
  return DNN_STATUS_SUCCESS;
}

/* The number of a tensor in the program; one descriptor per id. */
static int number_of(program *p, const descriptor **known, const descriptor *d) {
  if (!d) return NONE;
  tensor t = {.id = int64_of(d, DNN_ATTR_TENSOR_UNIQUE_ID, 0),
              .dtype = (int)int64_of(d, DNN_ATTR_TENSOR_DATA_TYPE, 0),
              .is_virtual = int64_of(d, DNN_ATTR_TENSOR_IS_VIRTUAL, 0) != 0,
              .by_value = int64_of(d, DNN_ATTR_TENSOR_IS_BY_VALUE, 0) != 0};
  memcpy(t.dims, find(d, DNN_ATTR_TENSOR_DIMENSIONS)->values, sizeof t.dims);
  memcpy(t.strides, find(d, DNN_ATTR_TENSOR_STRIDES)->values, sizeof t.strides);
  for (uint32_t i = 0; i < p->n_tensors; i++) {
    if (p->tensors[i].id != t.id) continue;
    if (known[i] != d) standin_misuse("cudnn: two descriptors of one id");
    return (int)i;
  }
  if (p->n_tensors == MOST_TENSORS) abort();
  known[p->n_tensors] = d;
  p->tensors[p->n_tensors] = t;
  return (int)p->n_tensors++;
}

static node node_of(program *p, const descriptor **known, const descriptor *op) {
#define TENSOR(name) number_of(p, known, linked(op, DNN_ATTR_OPERATION_##name))
  node n = {.b = NONE, .t = NONE, .axis = NONE, .cut_m = NONE, .cut_n = NONE, .cut_k = NONE};
  const descriptor *how;
  if (op->kind == DNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR) {
    n.kind = MATMUL;
    n.x = TENSOR(MATMUL_ADESC), n.b = TENSOR(MATMUL_BDESC), n.y = TENSOR(MATMUL_CDESC);
    n.cut_m = TENSOR(MATMUL_GEMM_M_OVERRIDE_DESC);
    n.cut_n = TENSOR(MATMUL_GEMM_N_OVERRIDE_DESC);
    n.cut_k = TENSOR(MATMUL_GEMM_K_OVERRIDE_DESC);
  } else if (op->kind == DNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR) {
    how = linked(op, DNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR);
    n.kind = POINTWISE;
    n.mode = (int)int64_of(how, DNN_ATTR_POINTWISE_MODE, NONE);
    n.axis = int64_of(how, DNN_ATTR_POINTWISE_AXIS, NONE);
    n.x = TENSOR(POINTWISE_XDESC), n.b = TENSOR(POINTWISE_BDESC);
    n.t = TENSOR(POINTWISE_TDESC), n.y = TENSOR(POINTWISE_YDESC);
  } else if (op->kind == DNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR) {
    how = linked(op, DNN_ATTR_OPERATION_REDUCTION_DESC);
    n.kind = REDUCTION;
    n.mode = (int)int64_of(how, DNN_ATTR_REDUCTION_OPERATOR, NONE);
    n.x = TENSOR(REDUCTION_XDESC), n.y = TENSOR(REDUCTION_YDESC);
  } else {
    n.kind = RESHAPE;
    n.x = TENSOR(RESHAPE_XDESC), n.y = TENSOR(RESHAPE_YDESC);
  }
#undef TENSOR
  return n;
}

static int finish_graph(descriptor *d) {
  const attribute *ops = find(d, DNN_ATTR_OPERATIONGRAPH_OPS);
  const descriptor *known[MOST_TENSORS];
  program *p = calloc(1, sizeof *p);
  if (!p || !ops || ops->count > MOST_NODES) abort();
  for (int64_t i = 0; i < ops->count; i++) {
    const descriptor *op = ((descriptor *const *)ops->values)[i];
    if (!op->is_final) standin_misuse("cudnn: an operation that is not final");
    p->nodes[p->n_nodes++] = node_of(p, known, op);
  }
  d->program = p;
  return DNN_STATUS_SUCCESS;
}

static int finish_matmul(const descriptor *d) {
  const descriptor *a = linked(d, DNN_ATTR_OPERATION_MATMUL_ADESC);
  const descriptor *b = linked(d, DNN_ATTR_OPERATION_MATMUL_BDESC);
  const int64_t *x = find(a, DNN_ATTR_TENSOR_DIMENSIONS)->values;
  const int64_t *y = find(b, DNN_ATTR_TENSOR_DIMENSIONS)->values;
  if (x[1] % y[1]) return refuse(DNN_STATUS_BAD_PARAM, "heads that do not divide");
  return DNN_STATUS_SUCCESS;
}

/* ---- configurations and plans ---- */
enum { N_CONFIGS = 3, FIRST_ENGINE = 7, OLD_ENGINE = 1, WORKSPACE = 256 };

static int finish_heuristics(descriptor *d) {
  const descriptor *graph = linked(d, DNN_ATTR_ENGINEHEUR_OPERATION_GRAPH);
  const char *asked = getenv("WEIR_STANDIN_ATTENTION");
  if (!graph || !graph->is_final) return refuse(DNN_STATUS_BAD_PARAM, "heuristics without a graph");
  d->program = copy_of(graph->program);
  d->program->is_wrong = program_is_wrong(d->program);
  d->why = asked && asked[0] == '0' ? "as asked" : program_refusal(d->program);
  return DNN_STATUS_SUCCESS;
}

/* Two of the first engine, one of another. */
static int64_t list_configs(const descriptor *d, int64_t asked, descriptor *const *to) {
  if (d->why) {
    (void)refuse(DNN_STATUS_NOT_SUPPORTED, "%s", d->why);
    return 0;
  }
  for (int64_t i = 0; i < asked && i < N_CONFIGS; i++) {
    to[i]->program = copy_of(d->program);
    to[i]->program->config = i;
    to[i]->program->engine = i < 2 ? FIRST_ENGINE : OLD_ENGINE;
    to[i]->is_final = true;
  }
  return N_CONFIGS;
}

/* The text of a plan: the version that made it, then its program in hexadecimal digits. */
enum { HEAD = 16, TEXT_BYTES = HEAD + 2 * sizeof(program) };

static void write_text(const program *p, char *text) {
  const unsigned char *bytes = (const unsigned char *)p;
  char head[HEAD + 1];
  (void)snprintf(head, sizeof head, "%-*zu", HEAD, cudnnGetVersion());
  memcpy(text, head, HEAD);
  for (size_t i = 0; i < sizeof *p; i++) {
    text[HEAD + 2 * i] = "0123456789abcdef"[bytes[i] >> 4];
    text[HEAD + 2 * i + 1] = "0123456789abcdef"[bytes[i] & 15];
  }
}

static unsigned digit(char c) { return (unsigned)(c <= '9' ? c - '0' : c - 'a' + 10); }

static int read_text(descriptor *d, const attribute *json) {
  const char *text = json->values;
  if (json->count != (int64_t)TEXT_BYTES) return refuse(DNN_STATUS_BAD_PARAM, "no plan");
  if (strtoul(text, NULL, 10) != cudnnGetVersion())
    return refuse(DNN_STATUS_SUBLIBRARY_VERSION_MISMATCH, "a plan of another version");
  d->program = malloc(sizeof *d->program);
  if (!d->program) abort();
  for (size_t i = 0; i < sizeof *d->program; i++)
    ((unsigned char *)d->program)[i] =
        (unsigned char)(digit(text[HEAD + 2 * i]) << 4 | digit(text[HEAD + 2 * i + 1]));
  return DNN_STATUS_SUCCESS;
}

static int finish_plan(descriptor *d) {
  const attribute *json = find(d, DNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION);
  const descriptor *config = linked(d, DNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG);
  if (!find(d, DNN_ATTR_EXECUTION_PLAN_HANDLE) && !find(d, DNN_ATTR_EXECUTION_PLAN_DEVICEPROP))
    return refuse(DNN_STATUS_BAD_PARAM, "a plan for no device");
  if (json) return read_text(d, json);
  if (!config || !config->program) return refuse(DNN_STATUS_BAD_PARAM, "a plan of nothing");
  d->program = copy_of(config->program);
  return DNN_STATUS_SUCCESS;
}

int cudnnBackendFinalize(void *x) {
  descriptor *d = x;
  int st = DNN_STATUS_SUCCESS;
  if (standin_fails("cudnnBackendFinalize")) return refuse(DNN_STATUS_INTERNAL_ERROR, "as asked");
  switch (d->kind) {
  case DNN_BACKEND_TENSOR_DESCRIPTOR: st = finish_tensor(d); break;
  case DNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR: st = finish_matmul(d); break;
  case DNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR: st = finish_graph(d); break;
  case DNN_BACKEND_ENGINEHEUR_DESCRIPTOR: st = finish_heuristics(d); break;
  case DNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR: st = finish_plan(d); break;
  default: break;
  }
  d->is_final = st == DNN_STATUS_SUCCESS;
  return st;
}

static int get_text(const descriptor *d, int64_t asked, int64_t *count, char *to) {
  *count = TEXT_BYTES;
  if (asked >= (int64_t)TEXT_BYTES) write_text(d->program, to);
  return DNN_STATUS_SUCCESS;
}

int cudnnBackendGetAttribute(void *x, int name, int type, int64_t asked, int64_t *count,
                             void *values) {
  descriptor *d = x;
  (void)type;
  if (standin_fails("cudnnBackendGetAttribute"))
    return refuse(DNN_STATUS_INTERNAL_ERROR, "as asked");
  if (!d->is_final) return refuse(DNN_STATUS_BAD_PARAM, "not final");
  *count = 1;
  switch (name) {
  case DNN_ATTR_ENGINEHEUR_RESULTS: *count = list_configs(d, asked, values); break;
  case DNN_ATTR_ENGINECFG_ENGINE:
    (*(descriptor **)values)->program = copy_of(d->program);
    (*(descriptor **)values)->is_final = true;
    break;
  case DNN_ATTR_ENGINE_GLOBAL_INDEX: *(int64_t *)values = d->program->engine; break;
  case DNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE: *(int64_t *)values = WORKSPACE; break;
  case DNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION: return get_text(d, asked, count, values);
  default: return refuse(DNN_STATUS_BAD_PARAM, "an attribute that is not modelled");
  }
  return DNN_STATUS_SUCCESS;
}

/* ---- runs ---- */
/* A plan may go while its work still waits: the work has a copy. Numbers are copied when it is called. */
typedef struct launch {
  program program;
  void *at[MOST_TENSORS];
  double numbers[MOST_TENSORS];
  uint64_t token, *workspace;
  bool is_wrong;
} launch;

static void clear(void *args) {
  const launch *l = args;
  *l->workspace = l->token;
}

/* Another launch that uses the same workspace has it now: what both count in it is wrong. */
static void run(void *args) {
  launch *l = args;
  void *at[MOST_TENSORS];
  for (uint32_t i = 0; i < l->program.n_tensors; i++)
    at[i] = l->program.tensors[i].by_value ? (void *)&l->numbers[i] : l->at[i];
  program_run(&l->program, at, l->is_wrong || *l->workspace != l->token);
  memset(l->workspace, 0x5a, WORKSPACE);
}

static int place(launch *l, const descriptor *pack, standin_range *ranges, size_t *n) {
  const attribute *ids = find(pack, DNN_ATTR_VARIANT_PACK_UNIQUE_IDS);
  const attribute *at = find(pack, DNN_ATTR_VARIANT_PACK_DATA_POINTERS);
  int64_t used = 0;
  for (uint32_t i = 0; i < l->program.n_tensors; i++) {
    const tensor *t = &l->program.tensors[i];
    if (t->is_virtual) continue;
    for (int64_t k = 0; k < ids->count; k++)
      if (((const int64_t *)ids->values)[k] == t->id) l->at[i] = ((void **)at->values)[k], used++;
    if (!l->at[i]) return refuse(DNN_STATUS_BAD_PARAM, "tensor %d has no address", (int)t->id);
    if (t->by_value) {
      memcpy(&l->numbers[i], l->at[i], tensor_size(t));
      continue;
    }
    l->is_wrong |= (uintptr_t)l->at[i] % 16 != 0;
    ranges[(*n)++] =
        (standin_range){(CUdeviceptr)(uintptr_t)l->at[i], (size_t)tensor_reach(t) * tensor_size(t)};
  }
  if (used != ids->count) standin_misuse("cudnn: an address for a tensor that the plan has not");
  return DNN_STATUS_SUCCESS;
}

static int execute(const handle *h, const descriptor *plan, const descriptor *pack, launch *l) {
  static atomic_uint_least64_t tokens;
  standin_range ranges[MOST_TENSORS + 1];
  size_t n = 0;
  l->program = *plan->program;
  l->is_wrong = l->program.is_wrong;
  l->token = atomic_fetch_add(&tokens, 1) + 1;
  int st = place(l, pack, ranges, &n);
  if (st) return st;
  const attribute *w = find(pack, DNN_ATTR_VARIANT_PACK_WORKSPACE);
  l->workspace = *(uint64_t **)w->values;
  standin_range workspace = {(CUdeviceptr)(uintptr_t)l->workspace, WORKSPACE};
  standin_work first = {.name = "cudnn (clear)",
                        .run = clear,
                        .args = l,
                        .args_bytes = sizeof *l,
                        .ranges = &workspace,
                        .n_ranges = 1};
  standin_work work = first;
  ranges[n++] = workspace;
  work.name = "cudnn", work.run = run, work.ranges = ranges, work.n_ranges = n;
  if (standin_submit(h->stream, &first) != CUDA_SUCCESS ||
      standin_submit(h->stream, &work) != CUDA_SUCCESS)
    return refuse(DNN_STATUS_EXECUTION_FAILED, "the stream has failed");
  return DNN_STATUS_SUCCESS;
}

int cudnnBackendExecute(void *x, void *plan, void *pack) {
  handle *h = x;
  if (standin_fails("cudnnBackendExecute")) return refuse(DNN_STATUS_EXECUTION_FAILED, "as asked");
  const descriptor *p = plan, *v = pack;
  if (!p->is_final || !v->is_final) return refuse(DNN_STATUS_BAD_PARAM, "not final");
  if (atomic_flag_test_and_set(&h->busy)) standin_misuse("cudnn: one handle in two threads");
  launch *l = calloc(1, sizeof *l);
  if (!l) abort();
  int st = execute(h, p, v, l);
  free(l);
  atomic_flag_clear(&h->busy);
  return st;
}
