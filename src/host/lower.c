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

/* What an rfactor made is not computed on its own, so it has no slices to stream. */
static bool streams_fit(ir_func *f) {
  bool ok = true;
  for (uint32_t i = 0; i < f->scheduled.len; i++) {
    const ir_op_data *op = ir_op_at(f, f->scheduled.data[i]);
    const ir_tensor_data *t = ir_tensor_at(f, op->result);
    bool made = op->result.id >= f->n_defined.tensors;
    for (uint32_t k = 0; made && k < t->now.loop.len; k++) {
      if (ir_axis_at(f, t->now.loop.data[k])->mark.kind != IR_MARK_STREAM) continue;
      diag_error(
          &f->module->errors, op->at,
          "'%s' was made by rfactor and cannot be streamed: mark the tensor it was made from",
          ir_tensor_name(f, op->result));
      ok = false;
      break;
    }
  }
  return ok;
}

static void forget_streams(ir_func *copy) {
  for (uint32_t i = 1; i < copy->axes.len; i++) {
    ir_mark *mark = &copy->axes.data[i].mark;
    if (mark->kind == IR_MARK_STREAM) *mark = (ir_mark){0};
  }
}

/* What is lowered is a copy of the fusion: there marks reach all tensors, and with several devices data
 * moves in steps of its own. */
static bool spread(lowering *l) {
  bool distributed = shard_is_distributed(l->f);
  if (!distributed && l->f->statements.len == 0) return true;
  l->f = ir_func_copy(l->fusion);
  if (distributed) host_merge_rfactors(l->f);
  (void)shard_propagate(l->f);
  l->n_spread = l->f->statements.len;
  if (l->options->streams == HOST_UNSTREAMED) forget_streams(l->f);
  if (!distributed) return true;
  l->shard = shard_begin(l->f, &l->scratch);
  if (!shard_decompose(l->shard)) return false;
  l->everywhere = shard_all_devices(l->f);
  return true;
}

/* The scratch arena must be freed even when memory runs out inside, hence the guard. */
static status lower_guarded(void *context) {
  lowering *l = context;
  if (!spread(l)) return fail(STATUS_BAD_PROGRAM, "the program cannot be lowered");
  ir_func *f = l->f;
  l->classes = ir_classes_build(f, IR_CLASS_BROADCAST, &l->scratch);
  l->ops = ARENA_ARRAY(&l->scratch, f->ops.len, op_plan);
  l->producer = ARENA_ARRAY(&l->scratch, f->tensors.len, ir_op);
  l->h = ir_host_of(l->fusion); /* device coordinates are symbols of the host program */
  l->h->meshes = f->meshes;
  host_vary_streams(l);
  if (!host_group(l)) return fail(STATUS_BAD_PROGRAM, "the program cannot be lowered");
  l->h->host->lowered = f;
  l->h->host->n_spread = l->n_spread;
  host_emit(l);
  return STATUS_OK;
}

status host_lower(ir_func *f, const host_options *options, ir_func **result) {
  check(f->applied);
  if (!names_fit(f) || !streams_fit(f))
    return fail(STATUS_BAD_PROGRAM, "the program cannot be lowered");
  lowering l = {.f = f, .fusion = f, .options = options};
  arena_init(&l.scratch, f->module->memory.memory);
  status st = memory_guard(lower_guarded, &l);
  arena_destroy(&l.scratch);
  if (st != STATUS_OK) return st;
  if (!options->plain) host_free_buffers(l.h);
  *result = l.h;
  return STATUS_OK;
}
