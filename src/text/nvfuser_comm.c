/* Communications in the notation of nvFuser's dumps, as one rank sees them. */
#include "text/nvfuser_style.h"

/* ---- what the rank takes part in ---- */
static int64_t position_in(const text_nvfuser *s, ir_mesh mesh) {
  return ir_mesh_find(ir_mesh_at(s->h, mesh), s->rank);
}

const ir_coordinate *text_nvfuser_coordinate(const text_nvfuser *s, ir_scalar symbol) {
  for (uint32_t i = 0; i < s->h->host->coordinates.len; i++) {
    const ir_coordinate *c = &s->h->host->coordinates.data[i];
    if (IR_SAME(c->symbol, symbol)) return c;
  }
  return NULL;
}

const ir_block *text_nvfuser_membership(const text_nvfuser *s, const ir_instr_data *d) {
  int64_t zero;
  if (d->kind != IR_IF || d->relation != IR_LE) return NULL;
  if (!ir_scalar_is_const(&s->h->module->scalars, d->a, &zero) || zero != 0) return NULL;
  const ir_coordinate *c = text_nvfuser_coordinate(s, d->b);
  if (!c) return NULL;
  return position_in(s, c->mesh) >= 0 ? &d->body : &d->otherwise;
}

bool text_nvfuser_takes_part(const text_nvfuser *s, const ir_instr_data *d) {
  return position_in(s, d->team) >= 0;
}

/* Does a send or receive of the group that begins there concern the rank? */
static bool group_takes_part(const text_nvfuser *s, const ir_block *block, uint32_t start) {
  for (uint32_t i = start + 1; i < block->len; i++) {
    const ir_instr_data *d = ir_instr_at(s->h, block->data[i]);
    if (d->kind != IR_COMMUNICATE) return false;
    if (text_nvfuser_takes_part(s, d)) return true;
  }
  return false;
}

/* ---- numbers ---- */
static uint32_t give_number(text_nvfuser *s, uint32_t name) {
  uint32_t number = s->n_communications++;
  if (name) map_put(&s->numbers, name, number + 1);
  return number;
}

/* ---- printing ---- */
static void put_key(text_nvfuser *s, const char *key, ir_scalar x) {
  strbuf_puts(s->out, key);
  text_nvfuser_put_scalar(s, x);
}

static void put_team(text_nvfuser *s, const ir_instr_data *d) {
  const ir_mesh_data *m = ir_mesh_at(s->h, d->team);
  int64_t n = ir_mesh_size(m, d->team_axis);
  int64_t *team = ARENA_ARRAY(s->out->memory, (size_t)n, int64_t);
  /* mutant: dev_team_of_first */
  ir_mesh_slice(m, position_in(s, d->team), d->team_axis, team);
  strbuf_puts(s->out, "team=(");
  for (int64_t i = 0; i < n; i++) {
    if (i) strbuf_putc(s->out, ' ');
    strbuf_int(s->out, team[i]);
  }
  strbuf_putc(s->out, ')');
}

static void put_ends(text_nvfuser *s, const ir_instr_data *d) {
  strbuf_puts(s->out, ", input=");
  text_nvfuser_put_tensor(s, d->from);
  strbuf_puts(s->out, ", output=");
  text_nvfuser_put_tensor(s, d->tensor);
}

static void put_communicate(text_nvfuser *s, const ir_instr_data *d) {
  uint32_t number = give_number(s, d->name);
  const char *type = ir_comm_info_of(d->comm)->nvfuser;
  if (d->comm == IR_COMM_SEND || d->comm == IR_COMM_RECV) {
    bool send = d->comm == IR_COMM_SEND;
    strbuf_printf(s->out, "P2PCommunication %u (type=%s, buffer=", number, type);
    text_nvfuser_put_tensor(s, send ? d->from : d->tensor);
    put_key(s, ", peer=", send ? d->to : d->peer);
  } else if (d->comm == IR_COMM_PERMUTE) {
    strbuf_printf(s->out, "%s %u (", type, number);
    put_team(s, d);
    put_key(s, ", send_peer=", d->to);
    put_key(s, ", recv_peer=", d->peer);
    put_ends(s, d);
  } else {
    strbuf_printf(s->out, "Communication %u (type=%s, ", number, type);
    put_team(s, d);
    if (d->root.id) put_key(s, ", root=", d->root);
    put_ends(s, d);
  }
  strbuf_puts(s->out, ", backend=NCCL)\n");
}

static void put_line(text_nvfuser *s, uint32_t depth, const char *what) {
  text_nvfuser_put_indent(s, depth);
  strbuf_puts(s->out, what);
}

/* Where the rank has no part, its wait has nothing to wait for. */
void text_nvfuser_put_comm(text_nvfuser *s, const ir_block *block, uint32_t at, uint32_t depth) {
  const ir_instr_data *d = ir_instr_at(s->h, block->data[at]);
  uint32_t number;
  switch (d->kind) {
  case IR_COMMUNICATE:
    if (!text_nvfuser_takes_part(s, d)) {
      if (d->name) map_put(&s->numbers, d->name, 0);
      return;
    }
    put_line(s, depth, "");
    put_communicate(s, d);
    return;
  case IR_GROUP_START:
    s->grouped = group_takes_part(s, block, at);
    if (s->grouped) put_line(s, depth, "StartCoalescing\n");
    return;
  case IR_GROUP_END:
    if (!s->grouped) {
      map_put(&s->numbers, d->name, 0);
      return;
    }
    put_line(s, depth, "EndCoalescing ");
    strbuf_printf(s->out, "%u\n", give_number(s, d->name));
    return;
  case IR_WAIT:
    number = map_get(&s->numbers, d->name, 0);
    if (number == 0) return;
    put_line(s, depth, "Wait Communication ");
    strbuf_printf(s->out, "%u\n", number - 1);
    return;
  case IR_ALLOCATE:
  case IR_DEALLOCATE:
  case IR_CURRENT_STREAM:
  case IR_SET_STREAM:
  case IR_WAIT_STREAM:
  case IR_FOR:
  case IR_IF:
  case IR_SELECT:
  case IR_SHARD:
  case IR_VIEW:
  case IR_COMPUTE:
  case IR_LAUNCH: break;
  }
  impossible("not a communication");
}
