#include "runtime/comm.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "ir/mesh.h"

bool rt_comm_requests_agree(const rt_comm_request *a, const rt_comm_request *b) {
  return a->kind == b->kind && a->count == b->count && a->dtype == b->dtype &&
         (!ir_comm_has_root(a->kind) || a->root == b->root) &&
         (!ir_comm_combines(a->kind) || a->op == b->op);
}

/* ---- text ---- */
/* Appends, and stops at the end of the room. */
PRINTF_LIKE(4, 5)
static void add(char *text, size_t size_bytes, size_t *used, const char *fmt, ...) {
  if (*used + 1 >= size_bytes) return;
  va_list args;
  va_start(args, fmt);
  int n = vsnprintf(text + *used, size_bytes - *used, fmt, args);
  va_end(args);
  if (n > 0) *used += (size_t)n;
}

/* The device of a team rank; -1: it is not in the team. */
static int64_t device_of(const rt_comm_request *r, int32_t team_rank) {
  bool known = r->team && team_rank >= 0 && (uint32_t)team_rank < r->n_team;
  return known ? (int64_t)r->team[team_rank] : -1;
}

static void add_peers(const rt_comm_request *r, char *text, size_t size_bytes, size_t *used) {
  bool both = r->kind == IR_COMM_PERMUTE;
  if ((both && r->to >= 0) || r->kind == IR_COMM_SEND)
    add(text, size_bytes, used, " to rank %" PRId64, device_of(r, r->to));
  if (both && r->from >= 0) add(text, size_bytes, used, " and %" PRId64, r->count_from);
  if ((both && r->from >= 0) || r->kind == IR_COMM_RECV)
    add(text, size_bytes, used, " from rank %" PRId64, device_of(r, r->from));
}

void rt_comm_request_text(const rt_comm_request *r, char *text, size_t size_bytes) {
  size_t used = 0;
  add(text, size_bytes, &used, "%s of %" PRId64 " %s", ir_comm_text(r->kind), r->count,
      ir_dtype_text(r->dtype));
  if (ir_comm_combines(r->kind)) add(text, size_bytes, &used, " (%s)", ir_combine_text(r->op));
  if (ir_comm_has_root(r->kind))
    add(text, size_bytes, &used, " with root %" PRId64, device_of(r, (int32_t)r->root));
  if (ir_comm_is_message(r->kind)) add_peers(r, text, size_bytes, &used);
  if (r->origin) add(text, size_bytes, &used, " at %s", r->origin);
}

/* ---- a request by itself ---- */
static status wrong(const rt_comm_request *r, const char *what) {
  return fail(STATUS_BAD_USAGE, "%s%s%s: %s", r->origin ? r->origin : "", r->origin ? ": " : "",
              ir_comm_text(r->kind), what);
}

static status check_team(const rt_comm_request *r, uint32_t rank, uint32_t n_ranks) {
  if (!r->team || r->n_team == 0 || r->n_team > n_ranks) return wrong(r, "no team, or too large");
  uint64_t seen[IR_MESH_MAX_DEVICES / 64];
  uint32_t end = 0;
  check(n_ranks <= IR_MESH_MAX_DEVICES);
  for (uint32_t i = 0; i < r->n_team; i++) {
    if (r->team[i] >= n_ranks) return wrong(r, "the team has a device that does not exist");
    if (r->team[i] >= end) end = r->team[i] + 1;
  }
  memset(seen, 0, (end + 63) / 64 * sizeof *seen);
  for (uint32_t i = 0; i < r->n_team; i++) {
    uint32_t device = r->team[i];
    uint64_t bit = (uint64_t)1 << (device % 64);
    if (seen[device / 64] & bit) return wrong(r, "the team has a device twice");
    seen[device / 64] |= bit;
  }
  if (r->me >= r->n_team || r->team[r->me] != rank) return wrong(r, "the poster is not `me`");
  return STATUS_OK;
}

static status check_peers(const rt_comm_request *r) {
  int32_t n = (int32_t)r->n_team;
  bool sends = r->kind == IR_COMM_SEND || (r->kind == IR_COMM_PERMUTE && r->to != RT_COMM_NOBODY);
  bool receives =
      r->kind == IR_COMM_RECV || (r->kind == IR_COMM_PERMUTE && r->from != RT_COMM_NOBODY);
  if (ir_comm_has_root(r->kind) && r->root >= r->n_team) return wrong(r, "no such root");
  if (!ir_comm_is_message(r->kind)) return STATUS_OK;
  if (sends && (r->to < 0 || r->to >= n)) return wrong(r, "no such receiver");
  if (receives && (r->from < 0 || r->from >= n)) return wrong(r, "no such sender");
  return STATUS_OK;
}

static bool uses_in(const rt_comm_request *r) {
  bool only_root = ir_comm_info_of(r->kind)->root == IR_ROOT_SENDS;
  if (ir_comm_is_message(r->kind)) return r->kind != IR_COMM_RECV && r->to >= 0;
  return !only_root || r->root == r->me;
}

static bool uses_out(const rt_comm_request *r) {
  bool only_root = ir_comm_info_of(r->kind)->root == IR_ROOT_RECEIVES;
  if (ir_comm_is_message(r->kind)) return r->kind != IR_COMM_SEND && r->from >= 0;
  return !only_root || r->root == r->me;
}

static int64_t out_count(const rt_comm_request *r) {
  return r->kind == IR_COMM_PERMUTE ? r->count_from : r->count;
}

/* The root may have one buffer where the others have none. */
static status check_given(const rt_comm_request *r) {
  bool root = ir_comm_has_root(r->kind) && r->root == r->me;
  bool from_root = ir_comm_info_of(r->kind)->root == IR_ROOT_SENDS;
  bool in_optional = root && !from_root && r->n_team > 1;
  bool out_optional = root && from_root;
  uintptr_t mask = ir_dtype_size_bytes(r->dtype) - 1;
  if (uses_in(r) && !r->in && r->count > 0 && !in_optional) return wrong(r, "no input");
  if (uses_out(r) && !r->out && out_count(r) > 0 && !out_optional) return wrong(r, "no output");
  if ((uses_in(r) && (uintptr_t)r->in & mask) || (uses_out(r) && (uintptr_t)r->out & mask))
    return wrong(r, "a buffer is not aligned for its dtype");
  return STATUS_OK;
}

/* Apart, or in place as the header says. */
static status check_overlap(const rt_comm_request *r) {
  if (!uses_in(r) || !uses_out(r) || !r->in || !r->out) return STATUS_OK;
  uintptr_t size = ir_dtype_size_bytes(r->dtype), piece = (uintptr_t)r->count * size;
  uintptr_t n_in = ir_comm_info_of(r->kind)->in == IR_PIECES_TEAM ? r->n_team : 1;
  uintptr_t n_out = ir_comm_info_of(r->kind)->out == IR_PIECES_TEAM ? r->n_team : 1;
  uintptr_t in = (uintptr_t)r->in, out = (uintptr_t)r->out, mine = r->me * piece;
  if (in + n_in * piece <= out || out + n_out * ((uintptr_t)out_count(r) * size) <= in)
    return STATUS_OK;
  bool in_place = in + (n_in > n_out ? mine : 0) == out + (n_out > n_in ? mine : 0);
  if (in_place && ir_comm_info_of(r->kind)->in_place) return STATUS_OK;
  return wrong(r, "input and output overlap");
}

status rt_comm_request_check(const rt_comm_request *r, uint32_t rank, uint32_t n_ranks) {
  if ((unsigned)r->kind >= IR_COMM_POSTED)
    return fail(STATUS_BAD_USAGE, "a communication of unknown kind %d", (int)r->kind);
  if (r->dtype <= IR_DTYPE_NONE || r->dtype >= IR_DTYPE_COUNT) return wrong(r, "no dtype");
  TRY(check_team(r, rank, n_ranks));
  return rt_comm_request_check_rest(r);
}

status rt_comm_request_check_rest(const rt_comm_request *r) {
  TRY(check_peers(r));
  int64_t limit = INT64_MAX / 8 / r->n_team;
  if (r->count < 0 || r->count > limit || out_count(r) < 0 || out_count(r) > limit)
    return wrong(r, "an impossible number of elements");
  if (ir_comm_combines(r->kind) &&
      ((unsigned)r->op >= IR_COMBINE_COUNT || !ir_combine_allows(r->op, r->dtype)))
    return wrong(r, "the reduction has no meaning on this dtype");
  TRY(check_given(r));
  return check_overlap(r);
}

bool rt_comm_posts_agree(bool is_pair, const rt_comm_request *a, const rt_comm_request *b) {
  if (is_pair) return a->count == b->count && a->dtype == b->dtype;
  return rt_comm_requests_agree(a, b);
}

rt_comm_line rt_comm_line_of(char *text, size_t size_bytes) {
  if (size_bytes > 0) text[0] = 0;
  return (rt_comm_line){text, 0, size_bytes};
}

void rt_comm_line_add(rt_comm_line *l, const char *fmt, ...) {
  if (l->used + 1 >= l->size_bytes) return;
  va_list args;
  va_start(args, fmt);
  int n = vsnprintf(l->text + l->used, l->size_bytes - l->used, fmt, args);
  va_end(args);
  if (n > 0) l->used += (size_t)n;
}

void rt_comm_line_add_team(rt_comm_line *l, const uint32_t *devices, uint32_t n) {
  for (uint32_t i = 0; i < n; i++) rt_comm_line_add(l, i ? " %u" : "(%u", devices[i]);
  rt_comm_line_add(l, ")");
}

bool rt_comm_party_agrees(rt_comm_party p, uint32_t a, const rt_comm_request *of_a, uint32_t b,
                          const rt_comm_request *of_b, char *text, size_t size_bytes) {
  if (rt_comm_posts_agree(p.is_pair, of_a, of_b)) return true;
  if (p.devices[a] > p.devices[b])
    return rt_comm_party_agrees(p, b, of_b, a, of_a, text, size_bytes);
  char left[256], right[256];
  rt_comm_request_text(of_a, left, sizeof left);
  rt_comm_request_text(of_b, right, sizeof right);
  rt_comm_line l = rt_comm_line_of(text, size_bytes);
  rt_comm_line_add(&l, "rank %u posts %s, but rank %u posts %s (%s ", p.devices[a], left,
                   p.devices[b], right, p.is_pair ? "message" : "on team");
  rt_comm_line_add_team(&l, p.devices, p.n);
  rt_comm_line_add(&l, ")");
  return false;
}
