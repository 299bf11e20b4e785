/* What the files of the public API share.
 *
 * A handle of weir.h is the internal object itself: weir_fusion is an ir_func, and a weir_tensor or
 * weir_mesh holds the interned id of its name, which stays the same when passes and schedules renumber
 * tables. Every entry point that can fail goes through api_call() or api_edit(): these clear the error
 * record, catch the exhaustion of memory, and turn diagnostics into the message of weir_error(). */
#ifndef WEIR_API_API_H
#define WEIR_API_API_H

#include <weir/weir.h>

#include "ir/array.h"
#include "ir/bind.h"
#include "ir/ir.h"
#include "runtime/comm.h"
#include "runtime/device.h"

typedef struct session_profile session_profile; /* session/profile.h: what a weir_profile is */

struct weir_module {
  ir_module ir; /* first: ir_func.module is the weir_module */
  allocator memory;
  bool broken; /* memory ran out while it was changed: it can only be destroyed */
};

/* ---- calls (call.c) ---- */
typedef status (*api_body)(arena *scratch, void *context);

/* Runs the body with a scratch arena and a guard. */
weir_status api_call(const allocator *memory, api_body body, void *context);
/* The same for a body that may change the module or report to its diagnostics; with diagnostics the
 * call fails, the message is all of them, and they are dropped. */
weir_status api_edit(weir_module *m, api_body body, void *context);
/* The part of api_edit() after the body: diagnostics, if any, become the message. Needs a guard. */
status api_take_diags(ir_module *m, status st, arena *scratch);
/* For entry points that allocate nothing: records the message and returns BAD_USAGE. */
weir_status api_refuse(const char *fmt, ...) PRINTF_LIKE(1, 2);
void api_begin(void); /* clears the error record */
weir_status api_end(status st);

/* ---- errors (error.c) ----
 * What the last failed call of a thread left: its message, and the same as a list. It never
 * changes, and threads may share one. */
typedef struct api_error api_error;
/* Sets the message of weir_error(), of any length. Places at the start of its lines become diagnostics. */
void api_set_error(const char *text);
void api_set_diags(const char *text, diags *d);
/* This thread's error, to be shown on another thread; NULL: there is none, or no memory for it. */
api_error *api_error_take(void);
void api_error_show(api_error *e); /* NULL: none */
void api_error_drop(api_error *e); /* accepts NULL */

/* ---- memory ---- */
/* `memory` NULL: malloc and free. */
allocator api_allocator(const weir_allocator *memory);
/* Refuses an allocator without one of its two functions; `function` begins the message. NULL is allowed. */
weir_status api_check_allocator(const weir_allocator *memory, const char *function);
/* Refuses a struct_size of 0, in a struct that the library fills. */
weir_status api_check_size(size_t struct_size, const char *function);
/* Copies a struct between the library and a caller whose header may be older or newer: the fields that both have. */
void api_copy_sized(void *to, const void *from, size_t struct_size, size_t size_here);
/* Copies a text with malloc, for a char ** result. */
status api_string(const strbuf *text, char **result);
/* Reads a whole file; the caller frees *data. */
status api_read_file(const char *path, const allocator *memory, char **data, size_t *length);

/* ---- what options hold beside the table (options.c, world.c) ---- */
rt_device_memory api_device_memory(const weir_options *o);
rt_group *api_world_group(const weir_options *o); /* NULL: none */
weir_status api_group_of(const weir_world *w, rt_group **result);

/* ---- handles ---- */
static inline ir_func *api_func(const weir_fusion *f) { return (ir_func *)f; }
static inline weir_module *api_module(const weir_fusion *f) {
  return (weir_module *)api_func(f)->module;
}
static inline session_profile *api_profile(const weir_profile *p) { return (session_profile *)p; }
/* None, with a diagnostic, when the fusion has no such tensor or mesh. */
ir_tensor api_tensor(ir_func *f, weir_tensor t);
ir_mesh api_mesh(ir_func *f, weir_mesh m);
static inline weir_tensor api_tensor_handle(const ir_func *f, ir_tensor t) {
  return (weir_tensor){ir_tensor_at(f, t)->name};
}
/* Interns a name after checking that the language can write it; 0 with a diagnostic otherwise. */
uint32_t api_name(ir_func *f, const char *name);

/* Applies the schedules of all functions and verifies them; reports to the module's diagnostics. */
void api_verify(ir_module *m);
/* Derives the scheduled view, or drops it before the definition changes. */
bool api_schedule(ir_func *f);
void api_unschedule(ir_func *f);

/* ---- arrays ---- */
struct weir_array {
  allocator memory;
  ir_array value;
  weir_dl_tensor tensor; /* the view of `value` */
};
/* The dtype of a caller's tensor; `what` names the tensor in messages ("input x"). */
status api_dtype_of(weir_dl_dtype t, const char *what, weir_dtype *result);
/* A view of a caller's tensor. Checks everything but dtype and shape. With `shape_only` it may have no data. */
status api_view(const weir_dl_tensor *t, const char *what, bool shape_only, ir_array *result);

/* The extents of the fusion's i-th input; false: they are not all known. */
bool api_shapes_known(const weir_shapes *s, uint32_t i, int64_t extents[IR_MAX_RANK],
                      uint32_t *rank);
/* The same for completed shapes. */
status api_shapes_input(const weir_shapes *s, uint32_t i, int64_t extents[IR_MAX_RANK],
                        uint32_t *rank);

bool api_shapes_complete(const weir_shapes *s); /* NULL: no */
/* What is known of the extents; NULL: no shapes were given. */
const ir_env *api_shapes_env(const weir_shapes *s);

/* A tensor of completed shapes, and their environment. None, with a message, if the shapes are not completed or
 * have no such tensor. */
ir_tensor api_shapes_tensor(const weir_shapes *s, weir_tensor t, const ir_env **env);

static const loc api_nowhere = {0, 0, false};

#endif
