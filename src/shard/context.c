/* The context: the prover's scalars, and the places of devices in meshes. */
#include "shard/internal.h"

/* min(m, s) == s, asserted by an operation that meets a slice of m up to s, says nothing about s, but of
 * the expression all there is to know. */
static void note_assertion(shard_ctx *c, ir_scalar a, ir_scalar b) {
  const ir_scalars *s = &c->f->module->scalars;
  const ir_scalar_node *x = ir_scalar_node_of(s, a), *y = ir_scalar_node_of(s, b);
  bool expression = x->kind != IR_SCALAR_SYMBOL && y->kind == IR_SCALAR_SYMBOL;
  if (expression && ir_scalar_mentions(s, a, (uint32_t)y->value)) map_put(&c->asserted, a.id, b.id);
}

shard_ctx *shard_begin(ir_func *f, arena *scratch) {
  shard_ctx *c = ARENA_NEW(scratch, shard_ctx);
  c->f = f;
  c->scratch = scratch;
  ir_scalars_init(&c->s, scratch);
  map_init(&c->translated, scratch);
  map_init(&c->extents, scratch);
  map_init(&c->asserted, scratch);
  for (uint32_t i = 0; i < f->constraints.len; i++) {
    const ir_constraint *x = &f->constraints.data[i];
    if (x->kind != IR_REQUIRE_EQ) continue;
    note_assertion(c, x->a, x->b);
    note_assertion(c, x->b, x->a);
  }
  for (uint32_t i = 0; i < SHARD_SLOTS; i++) {
    c->slots[i].symbol = ir_scalar_symbol(&c->s, (ir_symbol_data){.kind = IR_SYMBOL_INDEX});
  }
  return c;
}

static ir_scalar translate_symbol(shard_ctx *c, uint32_t symbol) {
  ir_scalar learned = {map_get(&c->f->learned, symbol, 0)};
  if (learned.id) return shard_translate(c, learned);
  uint32_t own = map_get(&c->extents, symbol, 0);
  if (own == 0) {
    own = ir_scalar_symbol(&c->s, (ir_symbol_data){.kind = IR_SYMBOL_EXTENT}).id;
    map_put(&c->extents, symbol, own);
    vec_push(c->scratch, &c->own_extents, (ir_scalar){own});
  }
  return (ir_scalar){own};
}

static ir_scalar translate_node(shard_ctx *c, const ir_scalar_node n) {
  ir_scalars *s = &c->s;
  if (n.kind == IR_SCALAR_OVERFLOWED) return IR_SCALAR_OVERFLOW;
  if (n.kind == IR_SCALAR_CONST) return ir_scalar_const(s, n.value);
  if (n.kind == IR_SCALAR_SYMBOL) return translate_symbol(c, (uint32_t)n.value);
  if (n.kind == IR_SCALAR_LIST) {
    const ir_chunk_list *l = &c->f->module->scalars.lists.data[n.value];
    return ir_scalar_list(s, l->lengths, l->len);
  }
  ir_scalar a = shard_translate(c, n.a);
  return ir_scalar_of_kind(s, n.kind, a, shard_translate(c, n.b));
}

ir_scalar shard_translate(shard_ctx *c, ir_scalar x) {
  uint32_t known = map_get(&c->translated, x.id, 0);
  if (known) return (ir_scalar){known};
  ir_scalar same = {map_get(&c->asserted, x.id, 0)};
  ir_scalar y = same.id ? shard_translate(c, same)
                        : translate_node(c, *ir_scalar_node_of(&c->f->module->scalars, x));
  map_put(&c->translated, x.id, y.id);
  return y;
}

/* ---- meshes ---- */

static const map *positions_of(shard_ctx *c, ir_mesh mesh) {
  while (c->positions.len <= mesh.id) vec_push(c->scratch, &c->positions, NULL);
  if (c->positions.data[mesh.id]) return c->positions.data[mesh.id];
  const ir_mesh_data *d = ir_mesh_at(c->f, mesh);
  map *m = ARENA_NEW(c->scratch, map);
  map_init(m, c->scratch);
  for (int64_t i = 0; i < d->n_devices; i++) map_put(m, (uint64_t)d->devices[i], (uint32_t)i + 1);
  return c->positions.data[mesh.id] = m;
}

int64_t shard_position(shard_ctx *c, ir_mesh mesh, int64_t device) {
  if (!ir_mesh_at(c->f, mesh)->listed) return ir_mesh_find(ir_mesh_at(c->f, mesh), device);
  return (int64_t)map_get(positions_of(c, mesh), (uint64_t)device, 0) - 1;
}

int64_t shard_coordinate(shard_ctx *c, ir_mesh mesh, int64_t device, uint32_t k) {
  return ir_mesh_coordinate(ir_mesh_at(c->f, mesh), shard_position(c, mesh, device), k);
}

int64_t shard_neighbour(shard_ctx *c, ir_mesh mesh, int64_t device, uint32_t k, int64_t i) {
  const ir_mesh_data *m = ir_mesh_at(c->f, mesh);
  int64_t at = shard_position(c, mesh, device), stride = 1;
  for (uint32_t j = m->rank - k; j < m->rank; j++) stride *= m->shape[j];
  return m->devices[at + (i - ir_mesh_coordinate(m, at, k)) * stride];
}
