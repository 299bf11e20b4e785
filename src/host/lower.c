#include <string.h>

#include "host/internal.h"
#include "ir/build.h"

/* `streams` means the number of worker streams in a host program. */
static bool names_fit(ir_func *f) {
  uint32_t name = strings_find(&f->module->names, "streams", strlen("streams"));
  if (name == 0 || ir_func_lookup(f, name).kind != IR_NAME_EXTENT) return true;
  diag_error(&f->module->errors, f->at,
             "an extent called 'streams' cannot be lowered: host programs use that word");
  return false;
}

/* Does it compute from what devices hold, or only move data? */
static bool is_step(shard_ctx *c, const ir_op_data *op) {
  shard_comm move = {0};
  return shard_fits(c, op) || shard_comm_of(c, op, &move) == SHARD_ONE;
}

static bool report_undecomposed(ir_func *f, const ir_op_data *op, const char *why) {
  diag_error(&f->module->errors, op->at,
             "'%s' %s: a program for several devices is lowered after pass 'decompose'",
             ir_tensor_name(f, op->result), why);
  return false;
}

/* Operations of a program for several devices are lowered one by one. */
bool host_is_decomposed(ir_func *f, arena *scratch) {
  if (!shard_is_distributed(f)) return true;
  shard_ctx *shard = shard_begin(f, scratch);
  for (uint32_t i = 0; i < f->order.len; i++) {
    const ir_op_data *op = ir_op_at(f, f->order.data[i]);
    if (ir_tensor_at(f, op->result)->mesh.id == 0)
      return report_undecomposed(f, op, "is on no mesh");
    if (!is_step(shard, op))
      return report_undecomposed(f, op, "needs data that other devices hold");
  }
  return true;
}

/* The scratch arena must be freed even when memory runs out inside, hence the guard. */
static status lower_guarded(void *context) {
  lowering *l = context;
  ir_func *f = l->f;
  if (shard_is_distributed(f)) {
    l->shard = shard_begin(f, &l->scratch);
    l->everywhere = shard_all_devices(f);
  }
  l->cuts = host_cut_store_new(&l->scratch);
  l->classes = ir_classes_build(f, IR_CLASS_BROADCAST, &l->scratch);
  l->ops = ARENA_ARRAY(&l->scratch, f->ops.len, op_plan);
  l->producer = ARENA_ARRAY(&l->scratch, f->tensors.len, ir_op);
  l->h = ir_host_of(f); /* device coordinates are symbols of the host program */
  l->h->meshes = f->meshes;
  if (!host_group(l)) return fail(STATUS_BAD_PROGRAM, "the program cannot be lowered");
  l->h->host->lowered = f;
  host_emit(l);
  return STATUS_OK;
}

status host_lower(ir_func *f, const host_options *options, ir_func **result) {
  check(f->applied);
  if (!names_fit(f)) return fail(STATUS_BAD_PROGRAM, "the program cannot be lowered");
  lowering l = {.f = f, .options = options};
  arena_init(&l.scratch, f->module->memory.memory);
  status st = memory_guard(lower_guarded, &l);
  arena_destroy(&l.scratch);
  if (st == STATUS_OK) *result = l.h;
  return st;
}

const char *host_pipeline_text(host_pipeline form) {
  switch (form) {
  case HOST_AUTO: return "auto";
  case HOST_COLLECTIVE: return "collective";
  case HOST_P2P: return "p2p";
  case HOST_P2P_OFFSET: return "p2p-offset";
  case HOST_RING: return "ring";
  case HOST_BROADCAST: return "broadcast";
  }
  impossible("a pipeline of no form");
}
