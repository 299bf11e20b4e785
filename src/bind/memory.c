/* Buffers of a plan: caller's memory for inputs and outputs, one pool for the rest.
 *
 * A piece of the pool that was deallocated is used again only by an allocation that is ordered after
 * every access to the old buffer: its stream's clock must have passed them. An iteration's buffers are
 * thus shared by the iterations of one stream, and a loop over many iterations needs as many of them
 * as there are streams. */
#include "bind/internal.h"
#include "runtime/lives.h"

static bool is_output(const binder *b, ir_tensor t, uint32_t *slot) {
  for (uint32_t i = 0; i < b->h->outputs.len; i++) {
    if (!IR_SAME(b->h->outputs.data[i], t)) continue;
    *slot = i;
    return true;
  }
  return false;
}

/* Extents of a tensor's dimensions; false if they cannot be computed or overflow. */
static bool extents_of(binder *b, const ir_instr_data *d, ir_tensor t, bind_shape *s,
                       int64_t *bytes) {
  ir_axis dims[IR_MAX_RANK];
  uint32_t rank = s->view.rank = ir_tensor_dims(b->h, t, dims);
  s->view.dtype = ir_tensor_at(b->h, t)->dtype;
  *bytes = (int64_t)ir_dtype_size_bytes(s->view.dtype);
  bool empty = false;
  for (uint32_t i = 0; i < rank; i++) {
    if (!bind_eval(b, d, ir_axis_size(b->h, dims[i]), &s->extents[i])) return false;
    if (s->extents[i] < 0) {
      return bind_error(
          b, d, "extent %u of '%s' is negative: %s = %lld", i, ir_tensor_name(b->h, t),
          ir_scalar_text((ir_func *)b->h, ir_axis_size(b->h, dims[i])), (long long)s->extents[i]);
    }
    empty = empty || s->extents[i] == 0;
  }
  for (uint32_t i = 0; i < rank; i++) {
    if (!empty && __builtin_mul_overflow(*bytes, s->extents[i], bytes)) {
      return bind_error(b, d, "the buffer's size in bytes does not fit 63 bits");
    }
  }
  if (empty) *bytes = 0;
  return true;
}

/* Dense strides, innermost axis first: in the order of the allocation domain for the plan's own
 * buffers, of the dimensions for the caller's. */
static void dense_strides(const binder *b, ir_tensor t, bool own, bind_shape *s) {
  ir_axis dims[IR_MAX_RANK];
  uint32_t rank = ir_tensor_dims(b->h, t, dims);
  const ir_domains *d = &ir_tensor_at(b->h, t)->defined;
  ir_axes order = own ? d->allocation : d->logical;
  int64_t stride = 1;
  for (uint32_t k = order.len; k-- > 0;) {
    for (uint32_t i = 0; i < rank; i++) {
      /* mutant: plan_dense_reversed */
      if (!IR_SAME(order.data[k], dims[i])) continue;
      s->strides[i] = stride;
      stride *= s->extents[i] > 0 ? s->extents[i] : 1;
    }
  }
}

static uint32_t add_buffer(binder *b, const rt_buffer *buffer) {
  bind_buffer row = {.buffer = *buffer};
  return bind_row_add(b, &b->buffers, &row);
}

void bind_inputs(binder *b) {
  for (uint32_t i = 0; i < b->h->inputs.len; i++) {
    ir_tensor t = b->h->inputs.data[i];
    if (b->absent[t.id]) continue;
    bind_shape s = {0};
    int64_t bytes;
    ir_instr_data place = {.at = ir_tensor_at(b->h, t)->at};
    if (!extents_of(b, &place, t, &s, &bytes)) continue;
    dense_strides(b, t, false, &s);
    rt_buffer buffer = {.kind = RT_BUFFER_INPUT, .slot = i, .size_bytes = bytes};
    buffer.freed_at = UINT32_MAX;
    buffer.name = ir_tensor_name(b->h, t);
    s.view.buffer = add_buffer(b, &buffer);
    bind_tensor(b, t, &s);
  }
}

/* ---- the pool ---- */

static bool place_in_pool(binder *b, const ir_instr_data *d, bind_buffer *row) {
  rt_buffer *buffer = &row->buffer;
  if (buffer->size_bytes > INT64_MAX / 4) return bind_error(b, d, "the buffer is too large");
  return bind_pool_take(&b->pool, b->clocks[b->stream], rt_pool_bytes(buffer->size_bytes),
                        &buffer->offset_bytes, &row->accesses) ||
         bind_error(b, d, "the buffers together are too large");
}

bool bind_allocate(binder *b, const ir_instr_data *d) {
  if (b->absent[d->tensor.id]) return true;
  bind_shape s = {0};
  bind_buffer row = {.buffer = {.kind = RT_BUFFER_POOL, .freed_at = UINT32_MAX}};
  rt_buffer *buffer = &row.buffer;
  if (!extents_of(b, d, d->tensor, &s, &buffer->size_bytes)) return false;
  buffer->allocated_at = b->instrs.len;
  buffer->name = ir_tensor_name(b->h, d->tensor);
  /* mutant: plan_output_in_pool */
  bool output = is_output(b, d->tensor, &buffer->slot);
  dense_strides(b, d->tensor, !output, &s);
  if (output) buffer->kind = RT_BUFFER_OUTPUT;
  else if (!place_in_pool(b, d, &row)) return false;
  s.view.buffer = bind_row_add(b, &b->buffers, &row);
  bind_tensor(b, d->tensor, &s);
  return true;
}

bool bind_deallocate(binder *b, const ir_instr_data *d) {
  if (b->absent[d->tensor.id]) return true;
  if (!b->bound[d->tensor.id])
    return bind_error(b, d, "'%s' is not allocated", ir_tensor_name(b->h, d->tensor));
  bind_buffer *row = bind_buffer_at(b, b->views[d->tensor.id].buffer);
  rt_buffer *buffer = &row->buffer;
  b->bound[d->tensor.id] = false;
  if (buffer->kind != RT_BUFFER_POOL) {
    return bind_error(b, d, "'%s' is an input or an output and cannot be deallocated",
                      buffer->name);
  }
  if (buffer->freed_at != UINT32_MAX)
    return bind_error(b, d, "'%s' is deallocated already", buffer->name);
  buffer->freed_at = b->instrs.len;
  bind_pool_give(&b->pool, buffer->offset_bytes, rt_pool_bytes(buffer->size_bytes), &row->accesses);
  return true;
}

void bind_touch(binder *b, uint32_t buffer) {
  bind_buffer *row = bind_buffer_at(b, buffer);
  if (row->buffer.kind != RT_BUFFER_POOL) return;
  bind_pool_touch(&b->pool, &row->accesses, b->stream, b->clocks[b->stream]);
}
