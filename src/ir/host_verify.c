#include "ir/host_verify.h"

typedef enum life { ABSENT, LIVE, MAYBE_FREED, FREED } life;
typedef enum definition { PARAMETER, BUFFER, SLICE, LOCAL } definition;

typedef struct tensor_state {
  life now;
  definition how;
  ir_tensor root; /* the parameter or buffer whose memory it is */
  uint32_t loops; /* open where it was defined */
  bool written;
  uint8_t branches; /* of the current if that deallocate it: 1 and 2 */
  loc freed;        /* where */
} tensor_state;

typedef struct freeing {
  ir_tensor tensor;
  life before;
} freeing;

typedef enum name_use { FREE, TENSOR, EXTENT, INDEX, STREAM, MESH, COMM } name_use;

typedef struct verifier {
  ir_func *h;
  bool ok;
  tensor_state *tensors;  /* by id */
  VEC(ir_tensor) visible; /* defined in the open blocks, the innermost last */
  VEC(uint32_t) names;    /* of tensors, indexes and streams there */
  map uses;               /* name -> name_use */
  VEC(uint32_t) comms;    /* names of communications in the open loops */
  VEC(ir_scalar) indexes; /* of the open loops */
  map fixed;              /* scalars without an index */
  VEC(bool) repeats;      /* the open loops that may run more than once */
  VEC(freeing) freed;     /* deallocations so far, for the branches of an if */
  bool streamed;          /* a stream loop is being entered */
} verifier;

#define BROKEN(v, at, ...)                                                                         \
  do {                                                                                             \
    diag_error(&(v)->h->module->errors, (at), __VA_ARGS__);                                        \
    (v)->ok = false;                                                                               \
  } while (0)

static arena *memory_of(const verifier *v) { return &v->h->module->memory; }
static const char *name_of(const verifier *v, ir_tensor t) { return ir_tensor_name(v->h, t); }
static tensor_state *state_of(const verifier *v, ir_tensor t) {
  check(t.id && t.id < v->h->tensors.len);
  return &v->tensors[t.id];
}

/* ---- names ---- */
/* Each name means one thing at a time, or the text would not say what the program does. A stream may
 * be named again, and so may a communication, whose name is visible to the end of its loop; parameters
 * share their extents. */
static void claim(verifier *v, uint32_t name, name_use how, loc at) {
  name_use before = (name_use)map_get(&v->uses, name, FREE);
  if (before == how && (how == EXTENT || how == STREAM || how == COMM)) return;
  if (before != FREE) {
    BROKEN(v, at, "'%s' names two things at once", ir_name_text(v->h, name));
    return;
  }
  map_put(&v->uses, name, how);
  if (how == COMM) vec_push(memory_of(v), &v->comms, name);
  else vec_push(memory_of(v), &v->names, name);
}

static void release(verifier *v, uint32_t names) {
  while (v->names.len > names) map_put(&v->uses, v->names.data[--v->names.len], FREE);
}

static void release_comms(verifier *v, uint32_t names) {
  while (v->comms.len > names) map_put(&v->uses, v->comms.data[--v->comms.len], FREE);
}

static uint32_t symbol_name(const verifier *v, ir_scalar x) {
  const ir_scalars *s = &v->h->module->scalars;
  const ir_scalar_node *n = ir_scalar_node_of(s, x);
  return n->kind == IR_SCALAR_SYMBOL ? s->symbols.data[n->value].name : 0;
}

static void claim_extents(verifier *v, ir_tensor parameter) {
  ir_axis dims[IR_MAX_RANK];
  uint32_t rank = ir_tensor_dims(v->h, parameter, dims);
  for (uint32_t i = 0; i < rank; i++) {
    uint32_t name = symbol_name(v, ir_axis_whole(v->h, dims[i]));
    if (name) claim(v, name, EXTENT, ir_tensor_at(v->h, parameter)->at);
  }
}

/* ---- scalars ---- */
static bool is_open(const verifier *v, ir_scalar symbol) {
  for (uint32_t i = v->indexes.len; i-- > 0;) {
    if (IR_SAME(v->indexes.data[i], symbol)) return true;
  }
  return false;
}

/* Checks that loop indexes are used inside their loops only. Returns true if x has none. Such scalars are
 * remembered and not visited again, because parts of parts repeat them many times over. */
static bool check_nodes(verifier *v, ir_scalar x, loc at) {
  const ir_scalars *s = &v->h->module->scalars;
  const ir_scalar_node n = *ir_scalar_node_of(s, x);
  bool fixed = true;
  if (map_get(&v->fixed, x.id, 0)) return true;
  if (n.kind == IR_SCALAR_OVERFLOWED) {
    BROKEN(v, at, "an integer expression %s", ir_scalar_overflow_text(s));
    fixed = false;
  } else if (n.kind == IR_SCALAR_SYMBOL) {
    const ir_symbol_data *d = &s->symbols.data[n.value];
    fixed = d->kind != IR_SYMBOL_INDEX;
    if (!fixed && !is_open(v, x)) {
      BROKEN(v, at, "loop index '%s' is used outside its loop", ir_name_text(v->h, d->name));
    }
  }
  if (n.a.id) fixed = check_nodes(v, n.a, at) && fixed;
  if (n.b.id) fixed = check_nodes(v, n.b, at) && fixed;
  if (fixed) map_put(&v->fixed, x.id, 1);
  return fixed;
}

static void check_scalar(verifier *v, ir_scalar x, loc at) { (void)check_nodes(v, x, at); }

static void check_scalars(verifier *v, const ir_scalar *list, uint32_t n, loc at) {
  for (uint32_t i = 0; i < n; i++) {
    if (list[i].id) check_scalar(v, list[i], at);
  }
}

/* ---- definitions and lifetimes ---- */
static void define(verifier *v, ir_tensor t, definition how, ir_tensor root, loc at) {
  tensor_state *s = state_of(v, t);
  if (s->now != ABSENT) BROKEN(v, at, "'%s' is defined twice", name_of(v, t));
  *s = (tensor_state){.now = LIVE, .how = how, .root = root, .loops = v->indexes.len};
  vec_push(memory_of(v), &v->visible, t);
  v->ok = ir_host_verify_cuts(v->h, t) && v->ok;
  claim(v, ir_tensor_at(v->h, t)->name, TENSOR, at);
}

static void use(verifier *v, ir_tensor t, loc at) {
  const ir_tensor_data *d = ir_tensor_at(v->h, t);
  if (d->kind == IR_TENSOR_CONST) {
    if (d->value.id) check_scalar(v, d->value, at);
    return;
  }
  const tensor_state *s = state_of(v, t);
  if (s->now == ABSENT) {
    BROKEN(v, at, "'%s' is used before it is defined, or outside its block", name_of(v, t));
    return;
  }
  const tensor_state *root = state_of(v, s->root);
  if (root->now == LIVE) return;
  bool slice = s->how == SLICE;
  BROKEN(v, at, "'%s' is used, but %s%s%s%s deallocated before", name_of(v, t),
         slice ? "its buffer '" : "it", slice ? name_of(v, s->root) : "", slice ? "'" : "",
         root->now == FREED ? " was" : " may have been");
  if (root->freed.known) diag_note(&v->h->module->errors, root->freed, "it is deallocated here");
}

static bool repeats_inside(const verifier *v, uint32_t loops) {
  for (uint32_t i = loops; i < v->repeats.len; i++) {
    if (v->repeats.data[i]) return true;
  }
  return false;
}

static void check_deallocate(verifier *v, const ir_instr_data *d) {
  tensor_state *s = state_of(v, d->tensor);
  const char *name = name_of(v, d->tensor);
  if (s->now == ABSENT) {
    use(v, d->tensor, d->at);
  } else if (s->how == PARAMETER) {
    BROKEN(v, d->at, "'%s' is a parameter: its memory is the caller's", name);
  } else if (s->how == SLICE) {
    BROKEN(v, d->at, "'%s' is a slice; deallocate '%s' instead", name, name_of(v, s->root));
  } else if (s->now != LIVE) {
    BROKEN(v, d->at, "'%s' %s deallocated twice", name, s->now == FREED ? "is" : "may be");
    if (s->freed.known) diag_note(&v->h->module->errors, s->freed, "the first time is here");
  } else {
    if (repeats_inside(v, s->loops)) {
      BROKEN(v, d->at,
             "'%s' is allocated outside this loop: its second iteration would use it after this "
             "and deallocate it again",
             name);
    }
    vec_push(memory_of(v), &v->freed, ((freeing){d->tensor, s->now}));
    s->now = FREED;
    s->freed = d->at;
  }
}

static void check_allocate(verifier *v, const ir_instr_data *d) {
  ir_axis dims[IR_MAX_RANK];
  const ir_tensor_data *t = ir_tensor_at(v->h, d->tensor);
  int64_t bytes = (int64_t)ir_dtype_size_bytes(t->dtype), n = 1;
  uint32_t rank = ir_tensor_dims(v->h, d->tensor, dims);
  bool fits = true, known = true;
  for (uint32_t i = 0; i < rank; i++) {
    ir_scalar size = ir_axis_size(v->h, dims[i]);
    check_scalar(v, size, d->at);
    check_scalar(v, ir_axis_whole(v->h, dims[i]), d->at);
    known = known && ir_scalar_is_const(&v->h->module->scalars, size, &n);
    if (known && n == 0) bytes = 0;
    fits = fits && !(known && __builtin_mul_overflow(bytes, n, &bytes));
  }
  if (known && !fits) {
    BROKEN(v, d->at, "the extents of %s overflow: its size in bytes does not fit 63 bits",
           ir_type_text(v->h, d->tensor));
  }
  define(v, d->tensor, BUFFER, d->tensor, d->at);
}

/* ---- slices and operations ---- */
static void check_slice(verifier *v, const ir_instr_data *d) {
  use(v, d->from, d->at);
  check_scalar(v, d->index, d->at);
  if (d->kind == IR_SHARD && d->partition.size.id) check_scalar(v, d->partition.size, d->at);
  v->ok = ir_host_verify_slice(v->h, d) && v->ok;
  const tensor_state *from = state_of(v, d->from);
  define(v, d->tensor, SLICE, from->now == ABSENT ? d->tensor : from->root, d->at);
}

static void check_attrs(verifier *v, const ir_op_data *op, loc at) {
  uint32_t n = ir_op_info_of(op->code)->n_attrs;
  for (uint32_t i = 0; i < n; i++) {
    const ir_attr *a = &op->attrs[i];
    if (a->scalar.id) check_scalar(v, a->scalar, at);
    if (a->scalars) check_scalars(v, a->scalars, a->len, at);
  }
}

static void check_view(verifier *v, const ir_instr_data *d) {
  const ir_op_data *op = ir_op_at(v->h, d->op);
  check(IR_SAME(op->result, d->tensor) && ir_op_is_view(op->code));
  ir_tensor from = op->operands[0];
  use(v, from, d->at);
  check_attrs(v, op, d->at);
  v->ok = ir_host_verify_compute(v->h, d) && v->ok;
  const tensor_state *s = state_of(v, from);
  define(v, d->tensor, SLICE, s->now == ABSENT ? d->tensor : s->root, d->at);
}

static void write_to(verifier *v, ir_tensor t, loc at) {
  const tensor_state *s = state_of(v, t);
  if (s->now == ABSENT) return;
  state_of(v, s->root)->written = true;
  if (state_of(v, s->root)->how != PARAMETER) return;
  BROKEN(v, at, "'%s' is memory of parameter '%s', which is only read", name_of(v, t),
         name_of(v, s->root));
}

static void check_communicate(verifier *v, const ir_instr_data *d) {
  const ir_scalar ranks[] = {d->root, d->to, d->peer};
  if (d->from.id) use(v, d->from, d->at);
  if (d->tensor.id) use(v, d->tensor, d->at);
  check_scalars(v, ranks, 3, d->at);
  v->ok = ir_host_verify_communicate(v->h, d) && v->ok;
  if (d->tensor.id) write_to(v, d->tensor, d->at);
  if (d->name) claim(v, d->name, COMM, d->at);
}

/* No tensor may be the destination of two results. Whether slices of one buffer overlap is left to the
 * checker. */
static void write_result(verifier *v, const ir_op_data *op, uint32_t k, loc at) {
  ir_tensor t = ir_op_result(op, k);
  for (uint32_t i = 0; i < k; i++) {
    if (IR_SAME(ir_op_result(op, i), t))
      BROKEN(v, at, "'%s' is the destination of two results", name_of(v, t));
  }
  write_to(v, t, at);
}

static void check_compute(verifier *v, const ir_instr_data *d) {
  const ir_op_data *op = ir_op_at(v->h, d->op);
  check(IR_SAME(op->result, d->tensor));
  for (uint32_t i = 0; i < op->n_operands; i++) {
    if (op->operands[i].id) use(v, op->operands[i], d->at);
  }
  for (uint32_t k = 0; k < ir_op_n_results(op); k++) use(v, ir_op_result(op, k), d->at);
  check_attrs(v, op, d->at);
  ir_axis dims[IR_MAX_RANK];
  uint32_t rank = ir_tensor_dims(v->h, d->tensor, dims);
  if (d->offsets) check_scalars(v, d->offsets, rank, d->at);
  v->ok = ir_host_verify_compute(v->h, d) && v->ok;
  for (uint32_t k = 0; k < ir_op_n_results(op); k++) write_result(v, op, k, d->at);
}

/* ---- kernels ---- */
static bool is_parameter(const ir_op_data *launch, ir_tensor t) {
  for (uint32_t i = 0; i < launch->n_operands; i++) {
    if (IR_SAME(launch->operands[i], t)) return true;
  }
  return false;
}

/* Is it a local of the current body? Locals of other bodies are not LIVE any more. */
static bool is_local(const verifier *v, ir_tensor t) {
  const tensor_state *s = state_of(v, t);
  return s->now == LIVE && s->how == LOCAL;
}

static void check_body_op(verifier *v, const ir_op_data *launch, const ir_instr_data *d) {
  check(d->kind == IR_COMPUTE);
  const ir_op_data op = *ir_op_at(v->h, d->op);
  check(IR_SAME(op.result, d->tensor));
  for (uint32_t i = 0; i < op.n_operands; i++) {
    ir_tensor t = op.operands[i];
    if (t.id == 0) continue;
    bool number = ir_tensor_at(v->h, t)->kind == IR_TENSOR_CONST;
    if (number) use(v, t, d->at);
    else if (!is_parameter(launch, t) && !is_local(v, t))
      BROKEN(v, d->at, "the kernel reads '%s', which is not one of its parameters", name_of(v, t));
  }
  check_attrs(v, &op, d->at);
  ir_axis dims[IR_MAX_RANK];
  uint32_t rank = ir_tensor_dims(v->h, d->tensor, dims);
  for (uint32_t i = 0; i < rank; i++) check_scalar(v, ir_axis_size(v->h, dims[i]), d->at);
  if (d->offsets) check_scalars(v, d->offsets, rank, d->at);
  define(v, d->tensor, LOCAL, d->tensor, d->at);
  v->ok = ir_host_verify_compute(v->h, d) && v->ok;
}

static void check_body(verifier *v, const ir_instr_data *d, const ir_op_data *launch) {
  uint32_t visible = v->visible.len, names = v->names.len;
  for (uint32_t i = 0; i < d->body.len; i++) {
    const ir_instr_data inner = *ir_instr_at(v->h, d->body.data[i]);
    check_body_op(v, launch, &inner);
  }
  for (uint32_t k = 0; k < ir_op_n_results(launch); k++) {
    if (is_local(v, d->returns[k])) continue;
    BROKEN(v, d->at, "the kernel returns '%s', which it does not compute",
           name_of(v, d->returns[k]));
  }
  while (v->visible.len > visible) state_of(v, v->visible.data[--v->visible.len])->now = ABSENT;
  release(v, names);
}

static void check_launch(verifier *v, const ir_instr_data *d) {
  const ir_op_data launch = *ir_op_at(v->h, d->op);
  check(launch.code == IR_OP_NONE && IR_SAME(launch.result, d->tensor));
  for (uint32_t i = 0; i < launch.n_operands; i++) use(v, launch.operands[i], d->at);
  check_body(v, d, &launch);
  for (uint32_t k = 0; k < ir_op_n_results(&launch); k++) {
    ir_tensor to = ir_op_result(&launch, k);
    use(v, to, d->at);
    v->ok = ir_host_verify_return(v->h, d, to, d->returns[k]) && v->ok;
    write_to(v, to, d->at);
    for (uint32_t i = 0; i < k; i++) {
      if (IR_SAME(ir_op_result(&launch, i), to))
        BROKEN(v, d->at, "the kernel writes '%s' twice", name_of(v, to));
    }
  }
}

/* ---- streams ---- */
static void check_stream(verifier *v, const ir_instr_data *d) {
  if (!d->stream.name) {
    int64_t index;
    check_scalar(v, d->stream.index, d->at);
    if (ir_scalar_is_const(&v->h->module->scalars, d->stream.index, &index) && index < 0) {
      BROKEN(v, d->at, "the index of a stream cannot be negative: %lld", (long long)index);
    }
    return;
  }
  if (map_get(&v->uses, d->stream.name, FREE) == STREAM) return;
  BROKEN(v, d->at, "stream '%s' is used before current_stream() named it",
         ir_name_text(v->h, d->stream.name));
}

/* ---- blocks ---- */
static void check_block(verifier *v, const ir_block *block);

static void check_scope(verifier *v, const ir_block *block) {
  uint32_t visible = v->visible.len, names = v->names.len;
  check_block(v, block);
  while (v->visible.len > visible) state_of(v, v->visible.data[--v->visible.len])->now = ABSENT;
  release(v, names);
}

static void check_for(verifier *v, const ir_instr_data *d) {
  int64_t n;
  bool fixed = ir_scalar_is_const(&v->h->module->scalars, d->extent, &n);
  check_scalar(v, d->extent, d->at);
  if (fixed && n < 0) BROKEN(v, d->at, "a loop cannot have %lld iterations", (long long)n);
  uint32_t names = v->names.len, comms = v->comms.len;
  claim(v, symbol_name(v, d->variable), INDEX, d->at);
  vec_push(memory_of(v), &v->indexes, d->variable);
  vec_push(memory_of(v), &v->repeats, !fixed || n > 1);
  check_scope(v, &d->body);
  v->indexes.len--;
  v->repeats.len--;
  release(v, names);
  release_comms(v, comms);
}

/* A tensor that only one branch frees may or may not exist after the if. */
static void merge_branches(verifier *v, uint32_t first, uint32_t second) {
  for (uint32_t i = first; i < v->freed.len; i++) {
    state_of(v, v->freed.data[i].tensor)->branches |= i < second ? 1 : 2;
  }
  for (uint32_t i = first; i < v->freed.len; i++) {
    tensor_state *s = state_of(v, v->freed.data[i].tensor);
    if (s->branches && s->now != ABSENT) s->now = s->branches == 3 ? FREED : MAYBE_FREED;
    s->branches = 0;
  }
}

static void check_if(verifier *v, const ir_instr_data *d) {
  check_scalar(v, d->a, d->at);
  check_scalar(v, d->b, d->at);
  uint32_t first = v->freed.len;
  check_scope(v, &d->body);
  uint32_t second = v->freed.len;
  for (uint32_t i = first; i < second; i++) {
    tensor_state *s = state_of(v, v->freed.data[i].tensor);
    if (s->now != ABSENT) s->now = v->freed.data[i].before;
  }
  check_scope(v, &d->otherwise);
  merge_branches(v, first, second);
}

static void check_instr(verifier *v, const ir_instr_data *d) {
  switch (d->kind) {
  case IR_ALLOCATE: check_allocate(v, d); return;
  case IR_DEALLOCATE: check_deallocate(v, d); return;
  case IR_CURRENT_STREAM: claim(v, d->stream.name, STREAM, d->at); return;
  case IR_SET_STREAM:
  case IR_WAIT_STREAM: check_stream(v, d); return;
  case IR_FOR: check_for(v, d); return;
  case IR_IF: check_if(v, d); return;
  case IR_SELECT:
  case IR_SHARD: check_slice(v, d); return;
  case IR_VIEW: check_view(v, d); return;
  case IR_COMPUTE: check_compute(v, d); return;
  case IR_LAUNCH: check_launch(v, d); return;
  case IR_COMMUNICATE: check_communicate(v, d); return;
  case IR_GROUP_END: claim(v, d->name, COMM, d->at); return;
  case IR_GROUP_START:
  case IR_WAIT: return;
  }
  impossible("an instruction without a kind");
}

/* The workers of a stream loop begin at the current_stream() before it. A stream loop directly inside
 * another begins together with it; one directly after another continues with its workers. */
static void check_streamed(verifier *v, const ir_instr_data *d, bool *begins, bool *went_on) {
  if (d->kind != IR_FOR || !d->streamed) {
    if (*went_on) *begins = false;
    if (d->kind == IR_CURRENT_STREAM) *begins = true;
    *went_on = false;
    return;
  }
  if (!*begins)
    BROKEN(v, d->at, "no 'main = current_stream()' before it says where the loop's streams begin");
  *went_on = true;
}

static void check_block(verifier *v, const ir_block *block) {
  bool begins = v->streamed, went_on = false;
  for (uint32_t i = 0; i < block->len; i++) {
    const ir_instr_data d = *ir_instr_at(v->h, block->data[i]);
    check_streamed(v, &d, &begins, &went_on);
    v->streamed = d.kind == IR_FOR && d.streamed;
    check_instr(v, &d);
    v->streamed = false;
  }
}

/* ---- the program ---- */
static void check_output(verifier *v, ir_tensor t) {
  const tensor_state *s = state_of(v, t);
  const char *name = name_of(v, t);
  loc at = ir_tensor_at(v->h, t)->at;
  if (s->now == ABSENT) {
    BROKEN(v, v->h->at, "output '%s' is not defined at the end of the program", name);
  } else if (s->how == SLICE) {
    BROKEN(v, at, "output '%s' is a slice; an output is allocated, or a parameter", name);
  } else if (s->now != LIVE) {
    BROKEN(v, s->freed, "output '%s' is deallocated", name);
  } else if (s->how == BUFFER && !s->written) {
    BROKEN(v, at, "nothing is ever written to output '%s'", name);
  }
}

static bool same_kind(const ir_func *a, ir_tensor x, const ir_func *b, ir_tensor y) {
  ir_axis dims[IR_MAX_RANK];
  return ir_tensor_at(a, x)->dtype == ir_tensor_at(b, y)->dtype &&
         ir_tensor_dims(a, x, dims) == ir_tensor_dims(b, y, dims);
}

/* Results are checked against the fusion of the same name, so both must have the same inputs and outputs. */
static void check_fusion(verifier *v) {
  const ir_func *h = v->h, *f = h->host->fusion;
  if (!f) return;
  bool same = f->inputs.len == h->inputs.len && f->outputs.len == h->outputs.len;
  for (uint32_t i = 0; same && i < h->inputs.len; i++) {
    same = same_kind(h, h->inputs.data[i], f, f->inputs.data[i]);
  }
  for (uint32_t i = 0; same && i < h->outputs.len; i++) {
    same = same_kind(h, h->outputs.data[i], f, f->outputs.data[i]);
  }
  if (same) return;
  BROKEN(v, h->at, "the inputs and outputs of host program '%s' are not those of its fusion",
         ir_name_text(h, h->name));
  diag_note(&h->module->errors, f->at, "the fusion is here");
}

bool ir_host_verify(ir_func *h) {
  verifier v = {.h = h, .ok = true};
  v.tensors = ARENA_ARRAY(&h->module->memory, h->tensors.len, tensor_state);
  map_init(&v.uses, &h->module->memory);
  map_init(&v.fixed, &h->module->memory);
  claim(&v, symbol_name(&v, h->host->streams), INDEX, h->at);
  for (uint32_t i = 1; i < h->meshes.len; i++) claim(&v, h->meshes.data[i].name, MESH, h->at);
  for (uint32_t i = 0; i < h->inputs.len; i++) {
    define(&v, h->inputs.data[i], PARAMETER, h->inputs.data[i], h->at);
  }
  for (uint32_t i = 0; i < h->inputs.len; i++) claim_extents(&v, h->inputs.data[i]);
  check_block(&v, &h->host->body);
  for (uint32_t i = 0; i < h->outputs.len; i++) check_output(&v, h->outputs.data[i]);
  if (h->outputs.len == 0) {
    BROKEN(&v, h->at, "host program '%s' returns nothing", ir_name_text(h, h->name));
  }
  check_fusion(&v);
  bool waits = ir_host_verify_waits(h), joins = ir_host_verify_streams(h);
  return waits && joins && v.ok;
}
