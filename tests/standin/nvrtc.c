/* The stand-in for the run-time compiler: CUDA's text becomes C with cuda_shim.h before it, and the
 * system's compiler makes a shared library of it, which is the "machine code" (image.h).
 *
 * Of C++ only what kernels here use is turned into C: extern "C", names of structs as types, and
 * asm("cvt.f32.f16 %0, %1;" : "=f"(y) : "h"(x)), which becomes ptx_cvt_f32_f16(&(y), x). */
#include <ctype.h>
#include <nvrtc.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "standin/image.h"
#include "standin/standin.h"

/* STANDIN_SHIM: where cuda_shim.h lies, from the build. */
struct _nvrtcProgram {
  char *source, *image, *log;
  size_t image_bytes;
};

#define SYMBOL(name) (void (*)(void)) name,
__attribute__((used)) static void (*const all[])(void) = {
#include "device/cuda/nvrtc.def"
};
#undef SYMBOL

/* ---- text ---- */
static bool is_word(char c) { return isalnum((unsigned char)c) || c == '_'; }

static const char *skip_space(const char *at) {
  while (isspace((unsigned char)*at)) at++;
  return at;
}

static size_t word_length(const char *at) {
  size_t n = 0;
  while (is_word(at[n])) n++;
  return n;
}

/* Behind the bracket that closes the one at `at`. */
static const char *behind(const char *at) {
  int depth = 0;
  for (; *at; at++) {
    if (*at == '(') depth++;
    else if (*at == ')' && --depth == 0) return at + 1;
  }
  return at;
}

static bool starts(const char *at, const char *word) {
  size_t n = strlen(word);
  return strncmp(at, word, n) == 0 && !is_word(at[n]);
}

/* struct NAME { and struct __align__(16) NAME { may be written NAME later. */
static void put_types(FILE *f, const char *text) {
  for (const char *at = text; (at = strstr(at, "struct ")) != NULL; at++) {
    const char *name = skip_space(at + 7);
    if (starts(name, "__align__")) name = skip_space(behind(name));
    size_t n = word_length(name);
    if (n && *skip_space(name + n) == '{')
      (void)fprintf(f, "typedef struct %.*s %.*s;\n", (int)n, name, (int)n, name);
  }
}

/* asm [volatile]("NAME operands;" : "=c"(out) : "c"(in), ...); returns what follows. */
static const char *put_asm(FILE *f, const char *at) {
  const char *open = strchr(at, '('), *end = behind(open), *part = strchr(open, '"') + 1;
  (void)fputs("ptx_", f);
  for (; *part && *part != ' '; part++) (void)fputc(*part == '.' ? '_' : *part, f);
  part = strchr(part, '"') + 1;
  char before = '(';
  while (part < end && (part = strchr(part, '"')) != NULL && part < end) {
    bool is_output = part[1] == '=';
    const char *value = strchr(part, '('), *next = behind(value);
    (void)fprintf(f, "%c%s%.*s", before, is_output ? "&" : "", (int)(next - value), value);
    before = ',';
    part = next;
  }
  (void)fputc(')', f);
  return end;
}

static void put_text(FILE *f, const char *text) {
  bool in_word = false;
  for (const char *at = text; *at;) {
    if (!in_word && starts(at, "asm") && strchr(at, '(')) {
      at = put_asm(f, at);
      continue;
    }
    if (!in_word && strncmp(at, "extern \"C\"", 10) == 0) {
      at += 10;
      continue;
    }
    in_word = is_word(*at);
    (void)fputc(*at++, f);
  }
}

/* ---- kernels ---- */
/* The type of the parameter that ends before `end`: all but its name. */
static size_t type_length(const char *at, const char *end) {
  while (end > at && isspace((unsigned char)end[-1])) end--;
  while (end > at && is_word(end[-1])) end--;
  return (size_t)(end - at);
}

static const char *parameter_end(const char *at) {
  int depth = 0;
  for (; *at; at++) {
    if (*at == '(') depth++;
    if (*at == ')' && depth-- == 0) break;
    if (*at == ',' && depth == 0) break;
  }
  return at;
}

/* call_NAME(params), and how large each parameter is. */
static void put_entry(FILE *f, const char *name, size_t n, const char *params, bool barriers) {
  char sizes[4096] = "";
  size_t used = 0, i = 0;
  (void)fprintf(f, "void call_%.*s(void *const *params) {\n  %.*s(", (int)n, name, (int)n, name);
  for (const char *at = params, *end; *skip_space(at) != ')'; at = end + (*end == ','), i++) {
    at = skip_space(at);
    end = parameter_end(at);
    int type = (int)type_length(at, end);
    (void)fprintf(f, "%s*(%.*s *)params[%zu]", i ? ", " : "", type, at, i);
    used += (size_t)snprintf(sizes + used, sizeof sizes - used, "sizeof(%.*s), ", type, at);
    if (*end == '\0' || used >= sizeof sizes) break;
  }
  (void)fprintf(f, ");\n}\nconst unsigned sizes_%.*s[] = {%s0};\n", (int)n, name, sizes);
  (void)fprintf(f, "const int barriers_%.*s = %d;\n", (int)n, name, barriers);
}

/* Does the kernel whose name is at `at` have barriers? It ends where the next one is announced. */
static bool has_barriers(const char *at) {
  static const char *const words[] = {"__syncthreads();", "__shfl_xor_sync(WEIR"};
  const char *next = strstr(at, "WEIR_ENTRY");
  for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
    const char *found = strstr(at, words[i]);
    if (found && (!next || found < next)) return true;
  }
  return false;
}

static void put_entries(FILE *f, const char *text) {
  for (const char *at = text; *at; at++) {
    if (at > text && is_word(at[-1])) continue;
    const char *name = NULL;
    if (starts(at, "__global__")) name = skip_space(skip_space(at + 10) + 4);
    else if (starts(at, "WEIR_ENTRY")) name = skip_space(at + 10);
    if (!name) continue;
    if (starts(name, "__launch_bounds__")) name = skip_space(behind(name));
    size_t n = word_length(name);
    if (n && *skip_space(name + n) == '(')
      put_entry(f, name, n, skip_space(name + n) + 1, has_barriers(name));
  }
}

/* ---- compiling ---- */
static char *read_whole(const char *path, size_t head, size_t *size) {
  FILE *f = fopen(path, "rb");
  char *bytes = NULL;
  *size = 0;
  if (!f) return NULL;
  if (fseek(f, 0, SEEK_END) == 0 && ftell(f) >= 0) {
    size_t n = (size_t)ftell(f);
    rewind(f);
    bytes = calloc(1, head + n + 1);
    if (bytes) *size = fread(bytes + head, 1, n, f);
  }
  (void)fclose(f);
  return bytes;
}

/* A GPU faults where an access is not aligned; so does this, by an instruction that is none. */
static const char flags[] = "-std=gnu17 -O1 -w -ffp-contract=off -fwrapv -fno-strict-aliasing "
                            "-fsanitize=alignment -fsanitize-undefined-trap-on-error -shared -fPIC";

static bool run_compiler(const char *source, const char *folder) {
  char command[2048];
  (void)snprintf(command, sizeof command, "cc %s -x c -include '%s' - -o '%s/k.so' -lm 2>'%s/log'",
                 flags, STANDIN_SHIM, folder, folder);
  FILE *f = popen(command, "w");
  if (!f) return false;
  put_types(f, source);
  put_text(f, source);
  put_entries(f, source);
  return pclose(f) == 0;
}

static void take(nvrtcProgram p, const char *folder) {
  char path[1024];
  size_t size;
  (void)snprintf(path, sizeof path, "%s/log", folder);
  p->log = read_whole(path, 0, &size);
  (void)unlink(path);
  (void)snprintf(path, sizeof path, "%s/k.so", folder);
  p->image = read_whole(path, sizeof(image_head), &size);
  (void)unlink(path);
  if (!p->image) return;
  image_head head = {.size_bytes = size};
  memcpy(head.magic, image_magic, sizeof head.magic);
  memcpy(p->image, &head, sizeof head);
  p->image_bytes = sizeof head + size;
}

nvrtcResult nvrtcCompileProgram(nvrtcProgram p, int n, const char *const *options) {
  const char *tmp = getenv("TMPDIR");
  char folder[512];
  (void)n, (void)options;
  if (standin_fails("nvrtcCompileProgram")) {
    p->log = strdup("kernel.cu(1): error: the stand-in was told to fail\n");
    return NVRTC_ERROR_COMPILATION;
  }
  (void)snprintf(folder, sizeof folder, "%s/weir-standin-XXXXXX", tmp ? tmp : "/tmp");
  if (!mkdtemp(folder)) return NVRTC_ERROR_INTERNAL_ERROR;
  bool ok = run_compiler(p->source, folder);
  take(p, folder);
  (void)rmdir(folder);
  if (ok && p->image) return NVRTC_SUCCESS;
  (void)fprintf(stderr, "standin: the C compiler refuses a kernel:\n%s\n", p->log ? p->log : "");
  return NVRTC_ERROR_COMPILATION;
}

/* ---- the rest ---- */
static unsigned hash_text(unsigned hash, const char *text) {
  for (; text && *text; text++) hash = hash * 31 + (unsigned char)*text;
  return hash;
}

/* What was kept on disk is of no use once the shim or the flags are others: they are the version. */
nvrtcResult nvrtcVersion(int *major, int *minor) {
  size_t size;
  char *text = read_whole(STANDIN_SHIM, 0, &size);
  unsigned hash = hash_text(hash_text(1, flags), text);
  free(text);
  *major = 0;
  *minor = (int)(hash % 1000000);
  return standin_fails("nvrtcVersion") ? NVRTC_ERROR_INTERNAL_ERROR : NVRTC_SUCCESS;
}

const char *nvrtcGetErrorString(nvrtcResult r) {
  return r == NVRTC_SUCCESS ? "NVRTC_SUCCESS" : "NVRTC_ERROR";
}

nvrtcResult nvrtcCreateProgram(nvrtcProgram *result, const char *source, const char *name,
                               int n_headers, const char *const *headers,
                               const char *const *names) {
  (void)name, (void)headers, (void)names;
  if (n_headers || standin_fails("nvrtcCreateProgram")) return NVRTC_ERROR_PROGRAM_CREATION_FAILURE;
  nvrtcProgram p = calloc(1, sizeof *p);
  if (!p) return NVRTC_ERROR_OUT_OF_MEMORY;
  p->source = strdup(source);
  if (!p->source) abort();
  *result = p;
  return NVRTC_SUCCESS;
}

nvrtcResult nvrtcDestroyProgram(nvrtcProgram *p) {
  free((*p)->source);
  free((*p)->image);
  free((*p)->log);
  free(*p);
  *p = NULL;
  return NVRTC_SUCCESS;
}

nvrtcResult nvrtcGetProgramLogSize(nvrtcProgram p, size_t *size) {
  *size = (p->log ? strlen(p->log) : 0) + 1;
  return NVRTC_SUCCESS;
}

nvrtcResult nvrtcGetProgramLog(nvrtcProgram p, char *log) {
  memcpy(log, p->log ? p->log : "", (p->log ? strlen(p->log) : 0) + 1);
  return NVRTC_SUCCESS;
}

nvrtcResult nvrtcGetCUBINSize(nvrtcProgram p, size_t *size) {
  *size = p->image_bytes;
  return standin_fails("nvrtcGetCUBINSize") ? NVRTC_ERROR_INTERNAL_ERROR : NVRTC_SUCCESS;
}

nvrtcResult nvrtcGetCUBIN(nvrtcProgram p, char *to) {
  memcpy(to, p->image, p->image_bytes);
  return standin_fails("nvrtcGetCUBIN") ? NVRTC_ERROR_INTERNAL_ERROR : NVRTC_SUCCESS;
}
