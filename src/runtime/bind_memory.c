/* Buffers of a plan: caller's memory for inputs and outputs, one pool for the rest.
 *
 * A piece of the pool that was deallocated is used again only by an allocation that is ordered after
 * every access to the old buffer: its stream's clock must have passed them. An iteration's buffers are
 * thus shared by the iterations of one stream, and a loop over many iterations needs as many of them
 * as there are streams. */
#include "runtime/bind_internal.h"

enum { ALIGN_BYTES = 64 };

static bool is_output(const binder *b, ir_tensor t, uint32_t *slot) {
  for (uint32_t i = 0; i < b->h->outputs.len; i++) {
    if (!IR_SAME(b->h->outputs.data[i], t)) continue;
    *slot = i;
    return true;
  }
  return false;
}

/* Extents of a tensor's dimensions; false if they cannot be computed or overflow. */
static bool extents_of(binder *b, const ir_instr_data *d, ir_tensor t, rt_view *v, int64_t *bytes) {
  ir_axis dims[IR_MAX_RANK];
  v->rank = ir_tensor_dims(b->h, t, dims);
  v->dtype = ir_tensor_at(b->h, t)->dtype;
  *bytes = (int64_t)ir_dtype_size_bytes(v->dtype);
  bool empty = false;
  for (uint32_t i = 0; i < v->rank; i++) {
    if (!bind_eval(b, d, ir_axis_size(b->h, dims[i]), &v->extents[i])) return false;
    if (v->extents[i] < 0) return bind_error(b, d, "extent %u is negative", i);
    empty = empty || v->extents[i] == 0;
  }
  for (uint32_t i = 0; i < v->rank; i++) {
    if (!empty && __builtin_mul_overflow(*bytes, v->extents[i], bytes)) {
      return bind_error(b, d, "the buffer's size in bytes does not fit 63 bits");
    }
  }
  if (empty) *bytes = 0;
  return true;
}

/* Dense strides, innermost axis first: in the order of the allocation domain for the plan's own
 * buffers, of the dimensions for the caller's. */
static void dense_strides(const binder *b, ir_tensor t, bool own, rt_view *v) {
  ir_axis dims[IR_MAX_RANK];
  uint32_t rank = ir_tensor_dims(b->h, t, dims);
  const ir_domains *d = &ir_tensor_at(b->h, t)->defined;
  ir_axes order = own ? d->allocation : d->logical;
  int64_t stride = 1;
  for (uint32_t k = order.len; k-- > 0;) {
    for (uint32_t i = 0; i < rank; i++) {
      if (!IR_SAME(order.data[k], dims[i])) continue;
      v->strides[i] = stride;
      stride *= v->extents[i] > 0 ? v->extents[i] : 1;
    }
  }
}

static uint32_t add_buffer(binder *b, const rt_buffer *buffer) {
  vec_push(&b->scratch, &b->buffers, *buffer);
  vec_push(&b->scratch, &b->accesses, (access_list){0});
  return b->buffers.len - 1;
}

void bind_inputs(binder *b) {
  for (uint32_t i = 0; i < b->h->inputs.len; i++) {
    ir_tensor t = b->h->inputs.data[i];
    rt_view *v = &b->views[t.id];
    int64_t bytes;
    ir_instr_data place = {.at = ir_tensor_at(b->h, t)->at};
    if (!extents_of(b, &place, t, v, &bytes)) continue;
    dense_strides(b, t, false, v);
    rt_buffer buffer = {.kind = RT_BUFFER_INPUT, .slot = i, .size_bytes = bytes};
    buffer.freed_at = UINT32_MAX;
    buffer.name = ir_tensor_name(b->h, t);
    v->buffer = add_buffer(b, &buffer);
    b->bound[t.id] = true;
  }
}

/* ---- the pool ---- */

static bool is_past(const binder *b, const access_list *accesses) {
  for (uint32_t i = 0; i < accesses->len; i++) {
    const last_access *a = &accesses->data[i];
    if (b->clocks[b->stream][a->stream] < a->position) return false;
  }
  return true;
}

static access_list copy_accesses(binder *b, const access_list *from) {
  access_list copy = {0};
  for (uint32_t i = 0; i < from->len; i++) vec_push(&b->scratch, &copy, from->data[i]);
  return copy;
}

/* The smallest piece that is large enough and safe to use; the rest of it stays free. The new buffer
 * inherits the accesses: should it be freed untouched, they still hold. */
static bool reuse(binder *b, int64_t size, int64_t *offset, access_list *accesses) {
  uint32_t best = UINT32_MAX;
  for (uint32_t i = 0; i < b->pieces.len; i++) {
    const free_piece *p = &b->pieces.data[i];
    bool better = best == UINT32_MAX || p->size_bytes < b->pieces.data[best].size_bytes;
    if (p->size_bytes >= size && better && is_past(b, &p->accesses)) best = i;
  }
  if (best == UINT32_MAX) return false;
  free_piece *p = &b->pieces.data[best];
  *offset = p->offset_bytes;
  *accesses = copy_accesses(b, &p->accesses);
  p->offset_bytes += size;
  p->size_bytes -= size;
  if (p->size_bytes == 0) *p = b->pieces.data[--b->pieces.len];
  return true;
}

static int64_t round_up(int64_t bytes) {
  int64_t size = bytes > 0 ? bytes : 1;
  return (size + ALIGN_BYTES - 1) / ALIGN_BYTES * ALIGN_BYTES;
}

static bool place_in_pool(binder *b, const ir_instr_data *d, rt_buffer *buffer,
                          access_list *accesses) {
  if (buffer->size_bytes > INT64_MAX / 4) return bind_error(b, d, "the buffer is too large");
  int64_t size = round_up(buffer->size_bytes);
  if (reuse(b, size, &buffer->offset_bytes, accesses)) return true;
  buffer->offset_bytes = b->plan->pool_bytes;
  if (__builtin_add_overflow(b->plan->pool_bytes, size, &b->plan->pool_bytes)) {
    return bind_error(b, d, "the buffers together are too large");
  }
  return true;
}

bool bind_allocate(binder *b, const ir_instr_data *d) {
  rt_view *v = &b->views[d->tensor.id];
  rt_buffer buffer = {.kind = RT_BUFFER_POOL, .freed_at = UINT32_MAX};
  access_list accesses = {0};
  *v = (rt_view){0};
  if (!extents_of(b, d, d->tensor, v, &buffer.size_bytes)) return false;
  buffer.allocated_at = b->instrs.len;
  buffer.name = ir_tensor_name(b->h, d->tensor);
  bool output = is_output(b, d->tensor, &buffer.slot);
  dense_strides(b, d->tensor, !output, v);
  if (output) buffer.kind = RT_BUFFER_OUTPUT;
  else if (!place_in_pool(b, d, &buffer, &accesses)) return false;
  v->buffer = add_buffer(b, &buffer);
  b->accesses.data[v->buffer] = accesses;
  b->bound[d->tensor.id] = true;
  return true;
}

bool bind_deallocate(binder *b, const ir_instr_data *d) {
  if (!b->bound[d->tensor.id])
    return bind_error(b, d, "'%s' is not allocated", ir_tensor_name(b->h, d->tensor));
  uint32_t id = b->views[d->tensor.id].buffer;
  rt_buffer *buffer = &b->buffers.data[id];
  b->bound[d->tensor.id] = false;
  if (buffer->kind != RT_BUFFER_POOL) {
    return bind_error(b, d, "'%s' is an input or an output and cannot be deallocated",
                      buffer->name);
  }
  buffer->freed_at = b->instrs.len;
  free_piece p = {buffer->offset_bytes, round_up(buffer->size_bytes), b->accesses.data[id]};
  vec_push(&b->scratch, &b->pieces, p);
  return true;
}

void bind_touch(binder *b, uint32_t buffer) {
  access_list *list = &b->accesses.data[buffer];
  uint32_t position = b->positions[b->stream];
  for (uint32_t i = 0; i < list->len; i++) {
    if (list->data[i].stream != b->stream) continue;
    list->data[i].position = position;
    return;
  }
  last_access a = {b->stream, position};
  vec_push(&b->scratch, list, a);
}
