#include <string.h>

#include "host/internal.h"

static bool on_one_device(ir_func *f) {
  for (uint32_t i = 1; i < f->meshes.len; i++) {
    if (f->meshes.data[i].n_devices == 1) continue;
    diag_error(&f->module->errors, f->meshes.data[i].at,
               "mesh '%s' has several devices; only programs for one device are lowered so far",
               ir_name_text(f, f->meshes.data[i].name));
    return false;
  }
  return true;
}

/* `streams` means the number of worker streams in a host program. */
static bool names_fit(ir_func *f) {
  uint32_t name = strings_find(&f->module->names, "streams", strlen("streams"));
  if (name == 0 || ir_func_lookup(f, name).kind != IR_NAME_EXTENT) return true;
  diag_error(&f->module->errors, f->at,
             "an extent called 'streams' cannot be lowered: host programs use that word");
  return false;
}

/* The scratch arena must be freed even when memory runs out inside, hence the guard. */
static status lower_guarded(void *context) {
  lowering *l = context;
  ir_func *f = l->f;
  l->classes = ir_classes_build(f, IR_CLASS_BROADCAST, &l->scratch);
  l->ops = ARENA_ARRAY(&l->scratch, f->ops.len, op_plan);
  l->producer = ARENA_ARRAY(&l->scratch, f->tensors.len, ir_op);
  if (!host_group(l)) return fail(STATUS_BAD_PROGRAM, "the program cannot be lowered");
  l->h = ir_host_of(f);
  host_emit(l);
  return STATUS_OK;
}

status host_lower(ir_func *f, const host_options *options, ir_func **result) {
  check(f->applied);
  if (!on_one_device(f) || !names_fit(f))
    return fail(STATUS_BAD_PROGRAM, "the program cannot be lowered");
  lowering l = {.f = f, .options = options};
  arena_init(&l.scratch, f->module->memory.memory);
  status st = memory_guard(lower_guarded, &l);
  arena_destroy(&l.scratch);
  if (st != STATUS_OK) return st;
  if (!options->plain) host_free_buffers(l.h);
  *result = l.h;
  return STATUS_OK;
}
