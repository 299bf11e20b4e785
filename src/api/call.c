#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "api/api.h"
#include "base/log.h"
#include "text/fragment.h"

/* ---- statuses ---- */
#define STATUS(name, exit_code, text)                                                              \
  _Static_assert((int)STATUS_##name == (int)WEIR_##name, "statuses agree: " #name);
#include "base/status.def"
#undef STATUS

static bool is_status(weir_status s) { return (unsigned)s <= (unsigned)WEIR_CANCELLED; }
int weir_exit_code(weir_status s) { return is_status(s) ? status_exit_code((status)s) : 3; }
const char *weir_status_text(weir_status s) {
  return is_status(s) ? status_text((status)s) : "not a status";
}
const char *weir_version(void) { return WEIR_VERSION; }
void weir_string_free(char *text) { free(text); }

void weir_log_to(weir_log_fn *text, weir_progress_fn *progress, void *context) {
  log_to(text, progress, context);
}

/* ---- calls ---- */
void api_begin(void) {
  status_clear();
  api_error_show(NULL);
}

weir_status api_end(status st) {
  if (st != STATUS_OK && weir_error()[0] == '\0') (void)fail(st, "%s", status_text(st));
  return (weir_status)st;
}

weir_status api_refuse(const char *fmt, ...) {
  char text[512];
  va_list args;
  va_start(args, fmt);
  (void)vsnprintf(text, sizeof text, fmt, args);
  va_end(args);
  api_begin();
  return api_end(fail(STATUS_BAD_USAGE, "%s", text));
}

typedef struct call {
  api_body body;
  void *context;
  weir_module *edited; /* NULL: none */
  arena scratch;
} call;

status api_take_diags(ir_module *m, status st, arena *scratch) {
  if (m->errors.errors == 0) return st;
  strbuf text;
  strbuf_init(&text, scratch);
  diags_render(&m->errors, &text);
  api_set_diags(text.data, &m->errors);
  m->errors.errors = 0;
  m->errors.entries.len = 0;
  return st == STATUS_OK ? STATUS_BAD_PROGRAM : st;
}

static status run_call(void *context) {
  call *c = context;
  status st = c->body(&c->scratch, c->context);
  return c->edited ? api_take_diags(&c->edited->ir, st, &c->scratch) : st;
}

static weir_status make_call(call *c, const allocator *memory) {
  api_begin();
  arena_init(&c->scratch, memory);
  status st = memory_guard(run_call, c);
  arena_destroy(&c->scratch);
  return api_end(st);
}

weir_status api_call(const allocator *memory, api_body body, void *context) {
  call c = {.body = body, .context = context};
  return make_call(&c, memory);
}

weir_status api_edit(weir_module *m, api_body body, void *context) {
  if (m->broken)
    return api_refuse("memory ran out in an earlier call on this module; it can only be destroyed");
  call c = {.body = body, .context = context, .edited = m};
  weir_status st = make_call(&c, &m->memory);
  if (st == WEIR_OUT_OF_MEMORY) m->broken = true;
  return st;
}

/* ---- memory ---- */
allocator api_allocator(const weir_allocator *memory) {
  return memory ? (allocator){memory->alloc, memory->free, memory->context} : memory_default;
}

weir_status api_check_allocator(const weir_allocator *memory, const char *function) {
  if (!memory || (memory->alloc && memory->free)) return WEIR_OK;
  return api_refuse("%s: the allocator lacks a function; NULL in its place means malloc and free",
                    function);
}

weir_status api_check_size(size_t struct_size, const char *function) {
  if (struct_size >= sizeof struct_size) return WEIR_OK;
  return api_refuse("%s: struct_size is %zu; set it to the size of the struct", function,
                    struct_size);
}

void api_copy_sized(void *to, const void *from, size_t struct_size, size_t size_here) {
  memcpy(to, from, struct_size < size_here ? struct_size : size_here);
}

status api_string(const strbuf *text, char **result) {
  char *copy = malloc(text->len + 1);
  if (!copy) return fail(STATUS_OUT_OF_MEMORY, "cannot allocate %zu bytes", text->len + 1);
  memcpy(copy, text->data, text->len + 1);
  *result = copy;
  return STATUS_OK;
}

static status unreadable(const char *path) {
  return fail(STATUS_BAD_INPUT, "%s: error: cannot read: %s", path, strerror(errno));
}

enum { FIRST_BLOCK = 16384 };
#define LARGEST_FILE ((size_t)1 << 32) /* what the text room can take */

/* Reads to the end, doubling the block: the size a file system reports need not be true. */
static status read_all(FILE *file, const char *path, const allocator *memory, char **data,
                       size_t *length) {
  size_t cap = FIRST_BLOCK, len = 0;
  char *block = memory_alloc(memory, cap);
  if (!block) return STATUS_OUT_OF_MEMORY;
  for (;;) {
    len += fread(block + len, 1, cap - len, file);
    if (len < cap) break;
    bool fits = cap < LARGEST_FILE;
    char *larger = fits ? memory_alloc(memory, cap * 2) : NULL;
    if (larger) memcpy(larger, block, len);
    memory_free(memory, block);
    if (!fits) return fail(STATUS_BAD_INPUT, "%s: error: the file is too large", path);
    if (!larger) return STATUS_OUT_OF_MEMORY;
    block = larger;
    cap *= 2;
  }
  if (ferror(file)) {
    memory_free(memory, block);
    return unreadable(path);
  }
  *data = block;
  *length = len;
  return STATUS_OK;
}

status api_read_file(const char *path, const allocator *memory, char **data, size_t *length) {
  FILE *file = fopen(path, "rb");
  if (!file) return unreadable(path);
  struct stat info;
  status st = STATUS_OK;
  if (fstat(fileno(file), &info) == 0 && S_ISDIR(info.st_mode))
    st = fail(STATUS_BAD_INPUT, "%s: error: is a directory", path);
  if (st == STATUS_OK) st = read_all(file, path, memory, data, length);
  (void)fclose(file);
  return st;
}

/* ---- handles ---- */
static const char *known_name(const ir_func *f, uint32_t id) {
  return id > 0 && id < f->module->names.len ? ir_name_text(f, id) : "";
}

ir_tensor api_tensor(ir_func *f, weir_tensor t) {
  const char *name = known_name(f, t.id);
  ir_name_entry e = name[0] ? ir_func_lookup(f, t.id) : (ir_name_entry){0};
  if (e.kind == IR_NAME_TENSOR) return (ir_tensor){e.id};
  diag_error(&f->module->errors, api_nowhere, "the fusion has no tensor %s%s%s",
             name[0] ? "called '" : "with this handle", name, name[0] ? "'" : "");
  return (ir_tensor){0};
}

ir_mesh api_mesh(ir_func *f, weir_mesh m) {
  const char *name = known_name(f, m.id);
  ir_name_entry e = name[0] ? ir_func_lookup(f, m.id) : (ir_name_entry){0};
  if (e.kind == IR_NAME_MESH) return (ir_mesh){e.id};
  diag_error(&f->module->errors, api_nowhere, "the fusion has no mesh %s%s%s",
             name[0] ? "called '" : "with this handle", name, name[0] ? "'" : "");
  return (ir_mesh){0};
}

uint32_t api_name(ir_func *f, const char *name) {
  if (text_is_name(f->module, name)) return strings_intern(&f->module->names, name, strlen(name));
  diag_error(&f->module->errors, api_nowhere, "'%s' cannot be a name", name);
  return 0;
}
