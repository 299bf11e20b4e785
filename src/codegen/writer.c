/* Writes the text of a kernel and its arguments, which become a launch. */
#include <ctype.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/table.h"
#include "codegen/internal.h"

void cg_kernel_init(cg_kernel *k, arena *memory, const cg_gpu *gpu) {
  *k = (cg_kernel){.memory = memory, .gpu = *gpu};
}

void cg_kernel_add(cg_kernel *k, const cg_launch *launch) {
  if (k->n_launches == k->cap_launches)
    k->launches = vec_grow(k->memory, k->launches, &k->cap_launches, sizeof *k->launches);
  k->launches[k->n_launches++] = *launch;
}

void cg_begin(cg_writer *w, arena *memory, bool wide, uint32_t block) {
  *w = (cg_writer){.memory = memory, .wide = wide, .block = block};
  strbuf_init(&w->body, memory);
}

/* ---- arguments ---- */
uint32_t cg_number(cg_writer *w, int64_t value) {
  vec_push(w->memory, &w->numbers, value);
  return w->numbers.len - 1;
}

static uint32_t number_f64(cg_writer *w, double value) {
  int64_t bits;
  memcpy(&bits, &value, sizeof bits);
  return cg_number(w, bits);
}

static uint32_t add_pointer(cg_writer *w, cg_pointer pointer) {
  vec_push(w->memory, &w->pointers, pointer);
  return w->pointers.len - 1;
}

uint32_t cg_address(cg_writer *w, const cg_view *v) {
  return add_pointer(w, (cg_pointer){v->start, v->offset_bytes});
}

uint32_t cg_error_record(cg_writer *w, uint32_t record) {
  return add_pointer(w, (cg_pointer){CG_START_ERROR, (int64_t)(record * sizeof(cg_error))});
}

uint32_t cg_error_address(cg_writer *w) { return cg_error_record(w, 0); }

/* ---- text ---- */
void cg_set(cg_writer *w, const char *name, const char *value) {
  for (uint32_t i = 0; i < w->names.len; i++)
    if (strcmp(w->names.data[i].name, name) == 0) {
      w->names.data[i].value = value;
      return;
    }
  vec_push(w->memory, &w->names, ((cg_pair){name, value}));
}

void cg_set_int(cg_writer *w, const char *name, int64_t value) {
  cg_set(w, name, cg_text(w, "%lld", (long long)value));
}

void cg_set_number(cg_writer *w, const char *name, int64_t value) {
  cg_set(w, name, cg_number_text(w, value));
}

void cg_set_place(cg_writer *w, const char *name, int64_t value) {
  cg_set_int(w, name, cg_number(w, value));
}

void cg_set_address(cg_writer *w, const char *name, const cg_view *v) {
  cg_set_int(w, name, cg_address(w, v));
}

static const char *value_of(const cg_writer *w, const char *name, size_t length) {
  for (uint32_t i = 0; i < w->names.len; i++) {
    const cg_pair *p = &w->names.data[i];
    if (strlen(p->name) == length && memcmp(p->name, name, length) == 0) return p->value;
  }
  check_failed(__FILE__, __LINE__, name);
}

/* A name is letters only: $t_of_d is t, followed by something. */
void cg_put(cg_writer *w, const char *template) {
  while (*template) {
    size_t plain = strcspn(template, "$"), length = 0;
    strbuf_add(&w->body, template, plain);
    template += plain;
    if (!*template) return;
    template ++;
    while (isalpha((unsigned char)template[length])) length++;
    strbuf_puts(&w->body, value_of(w, template, length));
    template += length;
  }
}

strbuf cg_apart_begin(cg_writer *w) {
  strbuf body = w->body;
  strbuf_init(&w->body, w->memory);
  return body;
}

const char *cg_apart_end(cg_writer *w, strbuf body) {
  const char *text = w->body.len ? w->body.data : "";
  w->body = body;
  return text;
}

const char *cg_filled(cg_writer *w, const char *template) {
  strbuf body = cg_apart_begin(w);
  cg_put(w, template);
  return cg_apart_end(w, body);
}

const char *cg_text(cg_writer *w, const char *fmt, ...) {
  char text[1024];
  va_list args;
  va_start(args, fmt);
  int n = vsnprintf(text, sizeof text, fmt, args);
  va_end(args);
  check(n >= 0 && (size_t)n < sizeof text);
  return arena_string(w->memory, text, (size_t)n);
}

const char *cg_number_text(cg_writer *w, int64_t value) {
  return cg_text(w, "((ix)n.at[%u])", cg_number(w, value));
}

const char *cg_f64_text(cg_writer *w, double value) {
  return cg_text(w, "__longlong_as_double(n.at[%u])", number_f64(w, value));
}

const char *cg_key_text(cg_writer *w, int64_t number) {
  uint32_t seed = add_pointer(w, (cg_pointer){CG_START_SEED, 0});
  return cg_text(
      w, "weir_stream((long long)weir_drawn(weir_stream(*(const long long *)p.at[%u]), n.at[%u]))",
      seed, cg_number(w, number));
}

/* ---- the launch ---- */
/* $entry is the name of the kernel, which contains the hash of the rest of the text. */
static const char frame[] = "typedef struct { char *at[$pointers]; } $entry_p;\n"
                            "typedef struct { long long at[$numbers]; } $entry_n;\n"
                            "WEIR_ENTRY __launch_bounds__($bounds)\n"
                            "$entry(const $entry_p p, const $entry_n n) {\n"
                            "  typedef $ix ix;\n"
                            "$body"
                            "}\n";

static void put_frame(cg_writer *w, const char *entry, const char *body) {
  cg_put(w, "#ifndef WEIR_ENTRY\n#define WEIR_ENTRY extern \"C\" __global__ void\n#endif\n");
  cg_put_prelude(w, body);
  cg_set_int(w, "pointers", w->pointers.len);
  cg_set_int(w, "numbers", w->numbers.len);
  cg_set(w, "entry", entry);
  cg_set(w, "bounds",
         w->resident ? cg_text(w, "%u, %u", w->block, w->resident) : cg_text(w, "%u", w->block));
  cg_set(w, "ix", w->wide ? "long long" : "int");
  cg_set(w, "body", body);
  cg_put(w, frame);
}

static uint64_t hash_of(const cg_writer *w, const char *name) {
  uint64_t hash = hash_mix(hash_bytes(w->body.data, w->body.len), hash_bytes(name, strlen(name)));
  return hash_mix(hash, (uint64_t)w->resident << 32 | (uint64_t)w->block << 1 | w->wide);
}

void cg_end(cg_writer *w, cg_kernel *k, const char *name, int64_t grid_x, int64_t grid_y) {
  const char *body = w->body.data;
  if (w->numbers.len == 0) (void)cg_number(w, 0);
  check(grid_x > 0 && grid_y > 0);
  check(grid_x <= INT32_MAX && grid_y <= UINT16_MAX);
  const char *entry = cg_text(w, "weir_%s_%016llx", name, (unsigned long long)hash_of(w, name));
  strbuf_init(&w->body, w->memory);
  put_frame(w, entry, body);
  cg_launch launch = {.source = w->body.data,
                      .source_bytes = w->body.len,
                      .entry = entry,
                      .joins = true,
                      .grid = {(uint32_t)grid_x, (uint32_t)grid_y, 1},
                      .block = w->block,
                      .shared_bytes = w->shared_bytes,
                      .n_pointers = w->pointers.len,
                      .n_numbers = w->numbers.len,
                      .pointers = w->pointers.data,
                      .numbers = w->numbers.data};
  cg_kernel_add(k, &launch);
}
