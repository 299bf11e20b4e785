#include "session/memory.h"

#include <string.h>

const rt_memory_ops *session_memory(void) {
  const rt_device_ops *cuda = rt_device_find("cuda");
  return cuda ? cuda->memory : NULL;
}

status session_memory_copy(const ir_array *to, const ir_array *from) {
  if (to->space || from->space) return session_memory()->copy(to, from);
  ir_array_copy(to, from);
  return STATUS_OK;
}

static status make_room(session_away *w) {
  if (w->n < w->room) return STATUS_OK;
  uint32_t room = w->room ? 2 * w->room : 8;
  session_moved *moved = memory_alloc(w->memory, room * sizeof *moved);
  if (!moved) return STATUS_OUT_OF_MEMORY;
  if (w->n) memcpy(moved, w->moved, w->n * sizeof *moved);
  memory_free(w->memory, w->moved);
  w->moved = moved;
  w->room = room;
  return STATUS_OK;
}

static status allocate(const session_away *w, ir_array *a) {
  int64_t bytes;
  if (!a->space) return ir_array_alloc(a, w->memory);
  check(ir_array_size_bytes(a, &bytes));
  ir_array_dense(a);
  return session_memory()->alloc(a->space, (size_t)bytes, &a->data);
}

static void release(const session_away *w, const ir_array *a) {
  if (a->space) session_memory()->free(a->space, a->data);
  else memory_free(w->memory, a->data);
}

status session_away_move(session_away *w, ir_array *a, uint32_t space, bool is_output) {
  TRY(make_room(w));
  ir_array copy = *a;
  copy.data = NULL;
  copy.space = space;
  TRY(allocate(w, &copy));
  status st = is_output ? STATUS_OK : session_memory_copy(&copy, a);
  if (st != STATUS_OK) {
    release(w, &copy);
    return st;
  }
  w->moved[w->n++] = (session_moved){a, *a, is_output};
  *a = copy;
  return STATUS_OK;
}

status session_away_end(session_away *w, status st) {
  for (uint32_t i = 0; i < w->n; i++) {
    const session_moved *m = &w->moved[i];
    ir_array copy = *m->entry;
    *m->entry = m->original;
    if (st == STATUS_OK && m->is_output) st = session_memory_copy(&m->original, &copy);
    release(w, &copy);
  }
  memory_free(w->memory, w->moved);
  *w = (session_away){.memory = w->memory};
  return st;
}
