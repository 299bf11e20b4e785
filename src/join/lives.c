/* When buffers are in use while groups are found: what a group computes, it computes at its last position. */
#include "join/internal.h"

static const join_buffer *buffer_of(const join_block *b, ir_tensor root) {
  return &b->facts->buffers[root.id];
}

const join_numbers *join_touches(const join_block *b, ir_tensor root) {
  static const join_numbers none;
  uint32_t list = map_get(&b->touch_list, root.id, 0);
  return list ? &b->lists.data[list - 1] : &none;
}

uint32_t join_moved_to(const join_block *b, uint32_t at) {
  uint32_t node = b->node_at[at];
  if (!node) return at;
  return b->nodes[b->groups[b->nodes[node - 1].group].last].at;
}

static uint32_t number_at(const join_block *b, uint32_t at) {
  return b->facts->number[b->block->data[at].id];
}

uint32_t join_position(const join_block *b, uint32_t number) {
  uint32_t low = 0, high = b->block->len;
  while (high - low > 1) {
    uint32_t middle = low + (high - low) / 2;
    if (number_at(b, middle) <= number) low = middle;
    else high = middle;
  }
  return low;
}

bool join_is_of_block(const join_block *b, ir_tensor root) {
  const join_facts *f = b->facts;
  uint32_t own = f->in[b->block->data[0].id];
  return f->once[buffer_of(b, root)->block] == f->once[own];
}

bool join_needs_memory(const join_block *b, ir_tensor root) {
  return buffer_of(b, root)->allocate.id && !buffer_of(b, root)->output;
}

static bool computes(const join_block *b, uint32_t at) {
  const ir_instr_data *d = join_instr(b, at);
  if (d->kind != IR_COMPUTE && d->kind != IR_LAUNCH) return false;
  return !join_writes_nothing(b->facts->h, ir_op_at(b->facts->h, d->op));
}

bool join_computes_at(const join_block *b, uint32_t at) {
  uint32_t node = b->node_at[at];
  if (!node) return computes(b, at);
  const join_group *g = &b->groups[b->nodes[node - 1].group];
  if (b->nodes[g->last].at != at) return false;
  for (uint32_t n = g->first; n != JOIN_NONE; n = b->nodes[n].next)
    if (computes(b, b->nodes[n].at)) return true;
  return false;
}

bool join_ends_before(const join_block *b, ir_tensor root, uint32_t at) {
  const join_numbers *list = join_touches(b, root);
  if (!join_is_of_block(b, root) || buffer_of(b, root)->last > number_at(b, at - 1)) return false;
  for (uint32_t i = 0; i < list->len; i++)
    if (join_moved_to(b, list->data[i]) >= at) return false;
  return true;
}

bool join_begins_at(const join_block *b, ir_tensor root, uint32_t at) {
  const join_numbers *list = join_touches(b, root);
  if (!join_is_of_block(b, root) || buffer_of(b, root)->first < number_at(b, 0)) return false;
  for (uint32_t i = 0; i < list->len; i++)
    if (join_moved_to(b, list->data[i]) < at) return false;
  return true;
}

static bool is_one_of(const join_block *b, uint32_t at, uint32_t g, uint32_t other) {
  uint32_t node = b->node_at[at];
  return node && (b->nodes[node - 1].group == g || b->nodes[node - 1].group == other);
}

static bool makes(const join_block *b, uint32_t g, ir_tensor root) {
  for (uint32_t n = b->groups[g].first; n != JOIN_NONE; n = b->nodes[n].next)
    if (join_writes(b, b->nodes[n].at, root)) return true;
  return false;
}

bool join_is_inside(const join_block *b, ir_tensor root, uint32_t g, uint32_t other) {
  const join_numbers *readers = join_readers(b, root);
  if (!join_is_private(b->facts, root)) return false;
  for (uint32_t i = 0; i < readers->len; i++)
    if (!is_one_of(b, readers->data[i], g, other)) return false;
  return makes(b, g, root) || makes(b, other, root);
}
