#include "bind/loop.h"

#include <string.h>

#include "base/table.h"

enum { MOST_TRIES = 6 };

/* ---- what is watched ---- */
static void shrink(const binder *b, int64_t windows) {
  if (windows < b->watch->windows) b->watch->windows = windows;
}

static void refuse(const binder *b, const char *why) {
  if (!b->watch->why && !b->watch->probes) b->watch->why = why;
}

void bind_watch_rank(binder *b, ir_scalar x) {
  const ir_scalars *s = &b->h->module->scalars;
  if (!bind_is_alone(b) && ir_scalar_has(s, x, IR_SYMBOL_RANK) &&
      ir_scalar_has(s, x, IR_SYMBOL_INDEX))
    refuse(b, "what an iteration does depends on the device");
}

void bind_watch_turn(binder *b, ir_tensor from, int64_t offset_bytes) {
  bind_watch *w = b->watch;
  w->turned = hash_mix(hash_mix(w->turned, from.id), (uint64_t)offset_bytes);
}

void bind_watch_value(binder *b, ir_scalar x) {
  bind_motion m;
  bind_watch_rank(b, x);
  if (!bind_motion_of(b, b->watch, x, &m)) return;
  shrink(b, m.step ? 1 : m.horizon);
  if (m.step) refuse(b, "an extent, an attribute or a stream differs from iteration to iteration");
}

/* The difference says how long the relation holds, or does not. */
void bind_watch_relation(binder *b, const ir_instr_data *d) {
  bind_motion x, y, way;
  bind_watch_rank(b, d->a);
  bind_watch_rank(b, d->b);
  if (!bind_motion_of(b, b->watch, d->a, &x) || !bind_motion_of(b, b->watch, d->b, &y)) return;
  way.horizon = x.horizon < y.horizon ? x.horizon : y.horizon;
  if (__builtin_sub_overflow(x.value, y.value, &way.value) ||
      __builtin_sub_overflow(x.step, y.step, &way.step)) {
    shrink(b, 1);
    return;
  }
  int64_t limit = d->relation == IR_LT ? -1 : 0;
  bool equality = d->relation == IR_EQ || d->relation == IR_NE;
  if (way.value > 0 || (way.value == 0 && d->relation == IR_LT))
    shrink(b, bind_moves_below(way, limit + 1));
  else if (way.value < 0 || !equality) shrink(b, bind_moves_above(way, equality ? -1 : limit));
  else shrink(b, way.step ? 1 : way.horizon);
}

void bind_watch_index(binder *b, ir_scalar x, int64_t n) {
  bind_motion m;
  if (!bind_motion_of(b, b->watch, x, &m)) return;
  shrink(b, bind_moves_above(m, n - 1));
  shrink(b, bind_moves_below(m, 0));
}

/* A whole piece is followed by whole ones, as long as there are any. */
void bind_watch_piece(binder *b, const ir_instr_data *d, int64_t n, int64_t begin, int64_t length) {
  bind_motion m;
  if (!bind_motion_of(b, b->watch, d->index, &m)) return;
  bool whole = length > 0 && begin == m.value * length;
  if (m.step == 0) shrink(b, m.horizon);
  else if (d->partition.kind == IR_CHUNKS) refuse(b, "it takes pieces of different lengths");
  else if (whole) bind_watch_index(b, d->index, n / length);
  else shrink(b, 1);
}

/* ---- windows ---- */
static bind_mark mark(const binder *b) {
  return (bind_mark){b->instrs.len, b->tasks.len, b->buffers.len, b->posts.len};
}

/* Keeps the state that the second window begins with. Its arrays are allocated once, since windows do not
 * nest. */
static void keep_state(binder *b) {
  bind_state *s = &b->before;
  uint32_t n = b->clock_room, tensors = b->h->tensors.len;
  if (!s->views) {
    s->views = ARENA_ARRAY(&b->scratch, tensors, rt_view);
    s->bound = ARENA_ARRAY(&b->scratch, tensors, bool);
  }
  if (s->room < n) {
    s->clocks = ARENA_ARRAY(&b->scratch, (size_t)n * n, uint32_t);
    s->positions = ARENA_ARRAY(&b->scratch, n, uint32_t);
    s->room = n;
  }
  memcpy(s->views, b->views, tensors * sizeof *s->views);
  memcpy(s->bound, b->bound, tensors * sizeof *s->bound);
  for (uint32_t i = 0; i < b->plan->n_streams; i++)
    memcpy(&s->clocks[(size_t)i * s->room], b->clocks[i], b->plan->n_streams * sizeof *s->clocks);
  memcpy(s->positions, b->positions, b->plan->n_streams * sizeof *s->positions);
  s->stream = b->stream;
  s->n_streams = b->plan->n_streams;
}

static void watch(binder *b, bind_try *t, int64_t i, int64_t period) {
  t->watch.period = period;
  t->watch.windows = t->watch.left = (t->n - i) / period;
  t->watch.why = NULL;
  t->watch.turned = 0;
  b->watch = &t->watch;
}

/* Begins a window with iteration i. */
static void begin_window(binder *b, bind_try *t, bind_phase phase, int64_t i) {
  t->phase = phase;
  t->left = t->watch.wanted;
  t->marks[phase == BIND_WINDOW_2] = mark(b);
  b->in_window = true;
  watch(b, t, i, t->watch.wanted);
}

static void give_up(binder *b, bind_try *t, const char *why) {
  t->phase = BIND_PLAIN;
  b->in_window = false;
  b->watch = NULL;
  for (uint32_t k = 0; k < b->unrolled.len; k++)
    if (b->unrolled.data[k].origin == t->origin) return;
  if (why) vec_push(&b->scratch, &b->unrolled, ((rt_unrolled){t->origin, why}));
}

static bool is_worth(const binder *b, const bind_try *t, int64_t i) {
  return (t->n - i) / t->watch.wanted >= (int64_t)b->min_loops + 1;
}

void bind_try_begin(binder *b, uint32_t origin, uint32_t symbol, int64_t n, bind_try *t) {
  *t = (bind_try){.origin = origin, .n = n, .tries = MOST_TRIES};
  t->watch = (bind_watch){.symbol = symbol, .wanted = 1};
  t->loops = b->loops.len;
  if (!b->min_loops || b->in_window || n < (int64_t)b->min_loops + 3) return;
  t->phase = BIND_FIRST;
}

void bind_try_before(binder *b, bind_try *t, int64_t i) {
  if (t->phase == BIND_PROBE) {
    b->in_window = true;
    t->watch.probes = true;
    watch(b, t, i, 1);
  }
}

/* ---- did the second window do what the first one did? ---- */
static bool same_buffer(const binder *b, const bind_try *t, uint32_t first, uint32_t second) {
  const bind_mark *m = t->marks;
  if (first == second) return first < m[0].buffers;
  if (first < m[0].buffers || first - m[0].buffers != second - m[1].buffers) return false;
  const rt_buffer *x = &bind_buffer_at(b, first)->buffer, *y = &bind_buffer_at(b, second)->buffer;
  return x->offset_bytes == y->offset_bytes && x->size_bytes == y->size_bytes;
}

static bool same_view(const binder *b, const bind_try *t, uint32_t first, uint32_t second) {
  const rt_view *x = bind_view_at(b, first), *y = bind_view_at(b, second);
  return x->dtype == y->dtype && x->rank == y->rank && x->extents == y->extents &&
         x->strides == y->strides && same_buffer(b, t, x->buffer, y->buffer) &&
         (x->buffer == y->buffer || x->offset_bytes == y->offset_bytes);
}

static bool same_number(const ir_number *a, const ir_number *b) {
  return a == b || (a && b && ir_number_same(*a, *b));
}

static bool same_operand(const binder *b, const bind_try *t, const rt_operand *x,
                         const rt_operand *y) {
  if (x->kind != y->kind || x->sliced != y->sliced || !same_number(x->number, y->number))
    return false;
  return x->kind != RT_OPERAND_VIEW || same_view(b, t, x->view, y->view);
}

static bool same_body(const rt_body *x, const rt_body *y) {
  return x == y || (x && y && rt_body_equal(x, y));
}

static bool same_task(const binder *b, const bind_try *t, const rt_task *x, const rt_task *y) {
  bool same = x->code == y->code && x->n_more == y->n_more && x->n_operands == y->n_operands &&
              x->compute == y->compute && x->attrs == y->attrs && x->offset == y->offset &&
              x->whole == y->whole && same_body(x->body, y->body);
  for (uint32_t k = 0; same && k < rt_task_n_results(x); k++)
    same = same_view(b, t, rt_task_result(x, k), rt_task_result(y, k));
  for (uint32_t k = 0; same && k < x->n_operands; k++)
    same = same_operand(b, t, &x->operands[k], &y->operands[k]);
  return same;
}

/* Is post `second` what `first` is one window earlier? */
static bool same_number_of_post(const bind_try *t, uint32_t first, uint32_t second) {
  if (first == RT_NO_POST || second == RT_NO_POST) return first == second;
  return second >= t->marks[0].posts && second - first == t->marks[1].posts - t->marks[0].posts;
}

static bool same_side(const binder *b, const bind_try *t, uint32_t first, uint32_t second) {
  if (first == RT_NO_VIEW || second == RT_NO_VIEW) return first == second;
  return same_view(b, t, first, second);
}

/* Peers may differ; whether they may was checked when they were found. */
static bool same_peers(const rt_post *x, const rt_post *y) {
  return (x->to < 0) == (y->to < 0) && (x->from < 0) == (y->from < 0);
}

static bool same_post(const binder *b, const bind_try *t, uint32_t first, uint32_t second) {
  const rt_post *x = &b->posts.data[first], *y = &b->posts.data[second];
  return x->kind == y->kind && x->op == y->op && x->dtype == y->dtype && x->team == y->team &&
         x->me == y->me && x->root == y->root && same_peers(x, y) && x->count == y->count &&
         x->count_from == y->count_from && same_side(b, t, x->in, y->in) &&
         same_side(b, t, x->out, y->out) && same_number_of_post(t, x->before, y->before);
}

static bool same_instr(const binder *b, const bind_try *t, const rt_instr *x, const rt_instr *y) {
  if (x->kind != y->kind || x->stream != y->stream || x->other != y->other ||
      x->origin != y->origin)
    return false;
  switch ((rt_instr_kind)x->kind) {
  case RT_LAUNCH:
    return same_task(b, t, bind_row(&b->tasks, x->task), bind_row(&b->tasks, y->task));
  case RT_WAIT: return true;
  case RT_POST: return same_post(b, t, x->task, y->task);
  case RT_JOIN: return same_number_of_post(t, x->task, y->task);
  }
  return false;
}

/* ---- communications of the second window ---- */
static bool is_joined_there(const binder *b, uint32_t instr) {
  const rt_instr *post = bind_row(&b->instrs, instr);
  for (uint32_t i = instr + 1; i < b->instrs.len; i++) {
    const rt_instr *join = bind_row(&b->instrs, i);
    if (join->kind == RT_JOIN && join->task == post->task && join->stream == post->stream)
      return true;
  }
  return false;
}

/* Says which communication is open at the end of a window, where it would need room of its own; NULL: none. */
static const char *leaves_open(const binder *b, const bind_try *t) {
  for (uint32_t i = t->marks[1].instrs; i < b->instrs.len; i++) {
    const rt_instr *x = bind_row(&b->instrs, i);
    if (x->kind == RT_JOIN && x->task < t->marks[0].posts)
      return "it waits for a communication that was posted before it";
    if (x->kind != RT_POST) continue;
    const rt_post *p = &b->posts.data[x->task];
    if (p->n_team > 1 && ir_comm_has_root(p->kind)) return "it communicates with a root";
    if (!is_joined_there(b, i))
      return "the stream that posts a communication does not wait for it in the same iteration";
  }
  return NULL;
}

/* Is every buffer of the window freed in it, and at the place of its counterpart in the first window? */
static bool same_buffers(const binder *b, const bind_try *t) {
  const bind_mark *m = t->marks;
  uint32_t n = m[1].buffers - m[0].buffers;
  if (b->buffers.len - m[1].buffers != n) return false;
  for (uint32_t k = 0; k < n; k++) {
    const rt_buffer *x = &bind_buffer_at(b, m[0].buffers + k)->buffer;
    const rt_buffer *y = &bind_buffer_at(b, m[1].buffers + k)->buffer;
    if (x->kind != RT_BUFFER_POOL || y->kind != RT_BUFFER_POOL || y->freed_at == UINT32_MAX ||
        x->freed_at > m[1].instrs || !same_buffer(b, t, m[0].buffers + k, m[1].buffers + k))
      return false;
  }
  return true;
}

static bool same_tensors(const binder *b) {
  const bind_state *s = &b->before;
  for (uint32_t i = 0; i < b->h->tensors.len; i++) {
    const rt_view *x = &s->views[i], *y = &b->views[i];
    if (s->bound[i] != b->bound[i]) return false;
    if (b->bound[i] &&
        (x->buffer != y->buffer || x->extents != y->extents || x->strides != y->strides))
      return false;
  }
  return true;
}

/* A stream's knowledge of another one advances with that one from window to window, or stays. What advances
 * must be beyond all that stays: then it is so in all later windows too, and whether a wait is needed has
 * the same answer in each. */
static bool same_clocks(const binder *b) {
  const bind_state *s = &b->before;
  uint32_t n = b->plan->n_streams;
  if (s->n_streams != n || s->stream != b->stream) return false;
  for (uint32_t x = 0; x < n; x++) {
    uint32_t delta = b->positions[x] - s->positions[x], resting = 0, moving = UINT32_MAX;
    for (uint32_t i = 0; i < n; i++) {
      uint32_t before = s->clocks[(size_t)i * s->room + x], now = b->clocks[i][x];
      if (now != before && now - before != delta) return false;
      if (now == before && now > resting) resting = now;
      if (now != before && before < moving) moving = before;
    }
    if (delta && moving <= resting) return false;
  }
  return true;
}

/* Memory that the loop writes is touched by views that all move alike: the checker compares them by their distance
 * alone. */
typedef struct moving {
  bool touched, written, mixed;
  int64_t step_bytes;
} moving;

static void move_view(const binder *b, moving *of, uint32_t first, uint32_t second, bool writes) {
  const rt_view *x = bind_view_at(b, first), *y = bind_view_at(b, second);
  int64_t step = x->buffer == y->buffer ? y->offset_bytes - x->offset_bytes : 0;
  moving *m = &of[y->buffer];
  if (m->touched && m->step_bytes != step) m->mixed = true;
  m->touched = true;
  m->written = m->written || writes;
  m->step_bytes = step;
}

static void move_posts(const binder *b, const bind_try *t, moving *of) {
  uint32_t n = t->marks[1].posts - t->marks[0].posts;
  for (uint32_t i = t->marks[1].posts; i < b->posts.len; i++) {
    const rt_post *x = &b->posts.data[i - n], *y = &b->posts.data[i];
    if (x->in != RT_NO_VIEW) move_view(b, of, x->in, y->in, false);
    if (x->out != RT_NO_VIEW) move_view(b, of, x->out, y->out, true);
  }
}

static bool moves_alike(binder *b, const bind_try *t) {
  moving *of = ARENA_ARRAY(&b->scratch, b->buffers.len, moving);
  uint32_t n = t->marks[1].tasks - t->marks[0].tasks;
  move_posts(b, t, of);
  for (uint32_t i = 0; i < n; i++) {
    const rt_task *x = bind_row(&b->tasks, t->marks[0].tasks + i);
    const rt_task *y = bind_row(&b->tasks, t->marks[1].tasks + i);
    for (uint32_t k = 0; k < rt_task_n_results(x); k++)
      move_view(b, of, rt_task_result(x, k), rt_task_result(y, k), true);
    for (uint32_t k = 0; k < x->n_operands; k++)
      if (x->operands[k].kind == RT_OPERAND_VIEW)
        move_view(b, of, x->operands[k].view, y->operands[k].view, false);
  }
  for (uint32_t k = 0; k < b->buffers.len; k++)
    if (of[k].mixed && of[k].written) return false;
  return true;
}

/* How the second window differs from the first; NULL: it does not. */
static const char *differs(binder *b, const bind_try *t) {
  const bind_mark *m = t->marks;
  uint32_t n = m[1].instrs - m[0].instrs;
  if (b->instrs.len - m[1].instrs != n || n == 0) return "iterations differ";
  for (uint32_t i = 0; i < n; i++) {
    const rt_instr *x = bind_row(&b->instrs, m[0].instrs + i);
    const rt_instr *y = bind_row(&b->instrs, m[1].instrs + i);
    if (!same_instr(b, t, x, y)) return "iterations differ";
  }
  if (t->turned != t->watch.turned) return "iterations differ";
  const char *open = leaves_open(b, t);
  if (open) return open;
  if (!same_buffers(b, t) || !same_tensors(b))
    return "a buffer is kept from one iteration to the next";
  if (!same_clocks(b))
    return "streams do not wait for each other in the same way in each iteration";
  if (!moves_alike(b, t)) return "it writes a buffer by slices that move at different speeds";
  return NULL;
}

/* ---- the loop ---- */
static uint32_t moved_view(binder *b, uint32_t first, uint32_t second) {
  const rt_view *x = bind_view_at(b, first);
  rt_view v = *bind_view_at(b, second);
  if (x->buffer != v.buffer || x->offset_bytes == v.offset_bytes) return second;
  v.step_bytes = v.offset_bytes - x->offset_bytes;
  if (b->alike) vec_push(&b->scratch, &b->view_turns, b->view_turns.data[second]);
  return bind_row_add(b, &b->all_views, &v);
}

/* Makes the post one of a loop. The post before it is in its own repetition, or in the one before. */
static void move_post(binder *b, const bind_try *t, uint32_t post) {
  uint32_t n = t->marks[1].posts - t->marks[0].posts;
  rt_post x = b->posts.data[post - n], *y = &b->posts.data[post];
  if (y->in != RT_NO_VIEW) y->in = moved_view(b, x.in, y->in);
  if (y->out != RT_NO_VIEW) y->out = moved_view(b, x.out, y->out);
  y->loop = b->loops.len;
  y->to_step = y->to - x.to;
  y->from_step = y->from - x.from;
  if (y->before != RT_NO_POST && y->before < t->marks[1].posts) y->again = y->before + n;
}

/* The first repetition may join a post of the window before it. Later ones join the same post of the repetition
 * before. */
static void move_join(const binder *b, const bind_try *t, const rt_instr *i) {
  if (i->kind != RT_JOIN || i->task >= t->marks[1].posts) return;
  b->posts.data[i->task].next = i->task + t->marks[1].posts - t->marks[0].posts;
}

static void move_task(binder *b, const rt_task *x, rt_task *y) {
  uint32_t *more = arena_copy(b->memory, y->more, y->n_more * sizeof *more);
  rt_operand *operands = arena_copy(b->memory, y->operands, y->n_operands * sizeof *operands);
  y->result = moved_view(b, x->result, y->result);
  for (uint32_t k = 0; k < y->n_more; k++) more[k] = moved_view(b, x->more[k], more[k]);
  for (uint32_t k = 0; k < y->n_operands; k++)
    if (operands[k].kind == RT_OPERAND_VIEW)
      operands[k].view = moved_view(b, x->operands[k].view, operands[k].view);
  y->more = more;
  y->operands = operands;
}

/* The tensors are what they are after the last repetition. */
static void move_tensors(binder *b, int64_t times) {
  const bind_state *s = &b->before;
  for (uint32_t i = 0; i < b->h->tensors.len; i++)
    if (b->bound[i] && b->views[i].buffer != BIND_LOCAL)
      b->views[i].offset_bytes +=
          (times - 1) * (b->views[i].offset_bytes - s->views[i].offset_bytes);
}

static void add_loop(binder *b, const bind_try *t, int64_t times) {
  const bind_mark *m = t->marks;
  for (uint32_t k = 0; k < m[1].tasks - m[0].tasks; k++)
    move_task(b, bind_row(&b->tasks, m[0].tasks + k), bind_row(&b->tasks, m[1].tasks + k));
  rt_loop l = {m[1].instrs, b->instrs.len - m[1].instrs, (uint32_t)times};
  vec_push(&b->scratch, &b->loops, l);
  for (uint32_t k = m[1].posts; k < b->posts.len; k++) move_post(b, t, k);
  for (uint32_t i = m[1].instrs; i < b->instrs.len; i++) move_join(b, t, bind_row(&b->instrs, i));
  b->n_done += (int64_t)l.n * (times - 1);
  move_tensors(b, times);
}

/* Ends the second window. Returns how many iterations the loop that was made of it has beyond those bound. */
static int64_t close_window(binder *b, bind_try *t, int64_t i) {
  bind_watch *w = &t->watch;
  int64_t times = w->windows < t->horizon ? w->windows : t->horizon - 1,
          bound = b->n_done + b->instrs.len;
  const char *why = w->why ? w->why : differs(b, t);
  int64_t most = (UINT32_MAX - bound) / (b->instrs.len - t->marks[1].instrs + 1);
  b->watch = NULL;
  if (times > most) times = most;
  if (!why && times >= (int64_t)b->min_loops) {
    add_loop(b, t, times);
    t->tries = MOST_TRIES;
    i += (times - 1) * w->period;
    if (is_worth(b, t, i)) begin_window(b, t, BIND_WINDOW_1, i);
    else give_up(b, t, NULL);
    return (times - 1) * w->period;
  }
  if (!why) why = "it goes another way after a few iterations";
  t->marks[0] = t->marks[1];
  if (--t->tries == 0 || !is_worth(b, t, i)) give_up(b, t, why);
  return 0;
}

static void open_window(binder *b, bind_try *t, int64_t i) {
  t->horizon = t->watch.why ? 1 : t->watch.windows;
  t->turned = t->watch.turned;
  keep_state(b);
  begin_window(b, t, BIND_WINDOW_2, i);
}

static void end_probe(binder *b, bind_try *t, int64_t i) {
  b->watch = NULL;
  t->watch.probes = false;
  if (t->watch.too_long) give_up(b, t, "streams take turns that repeat after too many iterations");
  else if (!is_worth(b, t, i)) give_up(b, t, NULL);
  else begin_window(b, t, BIND_WINDOW_1, i);
}

int64_t bind_try_after(binder *b, bind_try *t, int64_t i) {
  int64_t skip = 0;
  switch (t->phase) {
  case BIND_PLAIN: return 0;
  case BIND_FIRST: t->phase = b->loops.len > t->loops ? BIND_PLAIN : BIND_PROBE; return 0;
  case BIND_PROBE: end_probe(b, t, i); return 0;
  case BIND_WINDOW_1:
    if (--t->left) return 0;
    if (b->instrs.len - t->marks[0].instrs > BIND_LONGEST_BLOCK) give_up(b, t, "it is too long");
    else open_window(b, t, i);
    return 0;
  case BIND_WINDOW_2:
    if (--t->left) return 0;
    skip = close_window(b, t, i);
    if (t->phase == BIND_WINDOW_2) open_window(b, t, i);
    return skip;
  }
  return 0;
}

void bind_try_end(binder *b, bind_try *t) {
  if (t->phase != BIND_PLAIN) give_up(b, t, NULL);
}
