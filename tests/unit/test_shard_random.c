/* Random operations and placements: where nothing is said to move, every device has what it needs. */
#include "unit/shard_random_kit.h"

static void draw_slice(const shape *s) {
  put("y = slice(x, starts=[");
  int64_t stops[MAX_DIMS];
  for (uint32_t i = 0; i < s->len; i++) {
    int64_t start = pick((uint32_t)s->size[i]);
    stops[i] = start + 1 + pick((uint32_t)(s->size[i] - start));
    put("%s%d", i ? ", " : "", (int)start);
  }
  put("], stops=[");
  for (uint32_t i = 0; i < s->len; i++) put("%s%d", i ? ", " : "", (int)stops[i]);
  put("], steps=[");
  for (uint32_t i = 0; i < s->len; i++) put("%s%d", i ? ", " : "", 1 + (int)pick(2));
  put("])\n");
}

/* Writes x, perhaps w, and y = op(x, w); the number of operands. */
static uint32_t draw_definition(shape *x, shape *w) {
  uint32_t op = pick(12);
  bool symbolic = op != 3 && op != 4;
  *x = *w = (shape){0};
  uint32_t rank = op == 6 ? 2 : 1 + pick(3);
  for (uint32_t i = 0; i < rank; i++) draw_dim(x, symbolic);
  put("x : f32");
  put_shape(x);
  put("\n");
  uint32_t dim = pick(rank);
  switch (op) {
  case 0: put("y = set(x)\n"); return 1;
  case 1: put("y = sum(x, dims=[%u])\n", dim); return 1;
  case 2:
    *w = *x;
    if (chance(40)) {
      w->size[dim] = 1;
      w->name[dim] = -1;
    }
    put("w : f32");
    put_shape(w);
    put("\ny = x + w\n");
    return 2;
  case 3: draw_slice(x); return 1;
  case 4:
    if (rank == 1) put("y = reshape(x, [%d, -1])\n", x->size[0] % 2 ? 1 : 2);
    else if (rank == 2 || chance(50)) put("y = reshape(x, [-1%s])\n", rank == 3 ? ", 1" : "");
    else put("y = reshape(x, [%d, %d])\n", (int)(x->size[0] * x->size[1]), (int)x->size[2]);
    return 1;
  case 5: put("y = softmax(x, dim=%u)\n", dim); return 1;
  case 6:
    w->size[0] = x->size[1];
    w->name[0] = x->name[1];
    w->len = 1;
    draw_dim(w, true);
    put("w : f32");
    put_shape(w);
    put("\ny = matmul(x, w)\n");
    return 2;
  case 7: put("y = permute(x, [%s])\n", rank == 1 ? "0" : rank == 2 ? "1, 0" : "2, 0, 1"); return 1;
  case 8: put("y = cumsum(x, dim=%u)\n", dim); return 1;
  case 9: put("y = argsort(x, dim=%u)\n", dim); return 1;
  case 10: put("y = topk(x, k=1, dim=%u)\n", dim); return 1;
  default: put("y = select(x, dim=%u, index=%u)\n", dim, pick((uint32_t)x->size[dim])); return 1;
  }
}

typedef struct counts {
  uint32_t programs, still, moving, needless;
} counts;

/* If the operand is said to lie right, then every device has what it needs. */
static void check_operand(const ir_op_data *op, uint32_t i, counts *n) {
  bool moves = false, lacks = false, equal_sets = true;
  elements have, need;
  for (uint32_t k = 0; k < 3; k++) moves |= shard_differs(ctx, op, i, k);
  const ir_mesh_data *mesh = ir_mesh_at(f, ir_tensor_at(f, op->result)->mesh);
  for (int64_t d = 0; d < mesh->n_devices; d++) {
    held_by(op->operands[i], mesh->devices[d], &have);
    needed_by(op, i, mesh->devices[d], &need);
    lacks |= !within(&need, &have);
    equal_sets &= equal(&need, &have);
  }
  if (!EXPECT(moves || !lacks)) fprintf(stderr, "seed %d\n%s", (int)seed_now, body);
  n->still += !moves;
  n->moving += moves;
  n->needless += moves && equal_sets;
}

static void still_case(uint64_t seed, counts *n) {
  grid p, q;
  shape x, w;
  loops result;
  seed_now = seed;
  drawn = n_named = 0;
  body[0] = 0;
  draw_meshes(&p, &q);
  uint32_t operands = draw_definition(&x, &w);
  if (!loops_of_result(&result)) return;
  put("return y\nschedule {\n");
  uint64_t start = drawn;
  loops lx = loops_of(&x), lw = loops_of(&w);
  draw_placement("x", &lx, &p, "p", 50);
  if (chance(50)) drawn = start; /* the same choices again often give placements that agree */
  if (operands > 1) draw_placement("w", &lw, &p, "p", 50);
  if (chance(50)) drawn = start;
  draw_placement("y", &result, &q, "q", 50);
  put("}\n");
  if (!random_program(body)) return;
  n->programs++;
  for (uint32_t i = 0; i < operands; i++) check_operand(def("y"), i, n);
}

static void nothing_moves(void) {
  counts n = {0};
  for (uint64_t seed = 0; seed < 6000; seed++) still_case(seed, &n);
  printf("%u programs: %u operands in place, %u not, %u of these hold just what is needed\n",
         n.programs, n.still, n.moving, n.needless);
  EXPECT(n.programs > 3000 && n.still > 800 && n.moving > 800);
}

int main(void) {
  nothing_moves();
  forget();
  return test_finish();
}
