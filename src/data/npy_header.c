#include <inttypes.h>
#include <string.h>

#include "data/npy.h"

static const bool host_is_little = __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__;

/* ---- types ---- */
static const struct {
  const char *code;
  ir_dtype dtype;
} types[] = {
    {"f8", IR_F64}, {"f4", IR_F32}, {"f2", IR_F16},  {"i8", IR_I64}, {"i4", IR_I32},
    {"i1", IR_I8},  {"u1", IR_U8},  {"b1", IR_BOOL}, {"?", IR_BOOL},
};
enum { N_TYPES = sizeof types / sizeof *types };

ir_dtype data_npy_stored_dtype(ir_dtype t) { return t == IR_BF16 ? IR_F32 : t; }

static const char *code_of(ir_dtype t) {
  for (size_t i = 0; i < N_TYPES; i++)
    if (types[i].dtype == t) return types[i].code;
  check_failed(__FILE__, __LINE__, "a dtype that .npy has");
}

/* ---- reading: a Python dictionary of literals ---- */
typedef struct reader {
  const char *path;
  const char *at, *end;
} reader;

static status broken(const reader *r, const char *what) {
  return fail(STATUS_BAD_INPUT, "%s: not a valid .npy file: %s", r->path, what);
}

static void skip_space(reader *r) {
  while (r->at < r->end && (*r->at == ' ' || *r->at == '\n' || *r->at == '\t' || *r->at == '\r'))
    r->at++;
}

/* Skips space, then takes `c` if it is next. */
static bool take(reader *r, char c) {
  skip_space(r);
  if (r->at == r->end || *r->at != c) return false;
  r->at++;
  return true;
}

static bool take_word(reader *r, const char *word) {
  skip_space(r);
  size_t n = strlen(word);
  if ((size_t)(r->end - r->at) < n || memcmp(r->at, word, n) != 0) return false;
  r->at += n;
  return true;
}

typedef struct span {
  const char *text;
  size_t length;
} span;

static bool span_is(span s, const char *text) {
  return s.length == strlen(text) && memcmp(s.text, text, s.length) == 0;
}

static bool take_string(reader *r, span *result) {
  skip_space(r);
  if (r->at == r->end || (*r->at != '\'' && *r->at != '"')) return false;
  char quote = *r->at;
  const char *start = r->at + 1;
  const char *stop = memchr(start, quote, (size_t)(r->end - start));
  if (!stop) return false;
  *result = (span){start, (size_t)(stop - start)};
  r->at = stop + 1;
  return true;
}

/* Sorts out what a foreign type is, so that the message can say what to do. */
static status foreign_type(const reader *r, span descr) {
  const char *hint = "supported are float64/32/16, int64/32/8, uint8 and bool";
  if (descr.length >= 2 && descr.text[1] == 'V')
    hint = "raw bytes; save bfloat16 values as float32";
  char shown[40] = "";
  for (size_t i = 0; i < descr.length && i + 1 < sizeof shown; i++)
    shown[i] = descr.text[i] > ' ' && descr.text[i] < 0x7f ? descr.text[i] : '?';
  return fail(STATUS_BAD_INPUT, "%s: elements of type '%s' cannot be read: %s", r->path, shown,
              hint);
}

static status read_descr(reader *r, data_npy_header *h) {
  span descr;
  skip_space(r);
  if (r->at < r->end && *r->at == '[')
    return fail(STATUS_BAD_INPUT, "%s: elements are structures; Weir reads plain numbers", r->path);
  if (!take_string(r, &descr)) return broken(r, "'descr' is not a string");
  span code = descr;
  char order = '=';
  if (code.length > 0 && strchr("<>=|", code.text[0])) {
    order = code.text[0];
    code = (span){code.text + 1, code.length - 1};
  }
  for (size_t i = 0; i < N_TYPES; i++) {
    if (!span_is(code, types[i].code)) continue;
    h->dtype = types[i].dtype;
    h->swapped = (order == '<' && !host_is_little) || (order == '>' && host_is_little);
    return STATUS_OK;
  }
  return foreign_type(r, descr);
}

static status read_order(reader *r, data_npy_header *h) {
  h->fortran = take_word(r, "True");
  if (h->fortran || take_word(r, "False")) return STATUS_OK;
  return broken(r, "'fortran_order' is neither True nor False");
}

static status read_extent(reader *r, int64_t *value) {
  skip_space(r);
  if (r->at < r->end && *r->at == '-') return broken(r, "an extent of the shape is negative");
  const char *start = r->at;
  int64_t n = 0;
  for (; r->at < r->end && *r->at >= '0' && *r->at <= '9'; r->at++) {
    if (__builtin_mul_overflow(n, 10, &n) || __builtin_add_overflow(n, *r->at - '0', &n))
      return broken(r, "an extent of the shape overflows 64 bits");
  }
  if (r->at == start) return broken(r, "'shape' is not a tuple of integers");
  (void)take(r, 'L'); /* Python 2 wrote long integers so */
  *value = n;
  return STATUS_OK;
}

static status read_shape(reader *r, data_npy_header *h) {
  if (!take(r, '(')) return broken(r, "'shape' is not a tuple");
  h->rank = 0;
  while (!take(r, ')')) {
    if (h->rank == IR_MAX_RANK)
      return fail(STATUS_BAD_INPUT, "%s: more than %d dimensions", r->path, IR_MAX_RANK);
    TRY(read_extent(r, &h->extents[h->rank++]));
    if (take(r, ',')) continue;
    if (!take(r, ')')) return broken(r, "'shape' does not end");
    break;
  }
  return STATUS_OK;
}

enum { KEY_DESCR = 1, KEY_ORDER = 2, KEY_SHAPE = 4, KEY_ALL = 7 };

/* One `key: value`; marks the key in *seen. */
static status read_entry(reader *r, data_npy_header *h, int *seen) {
  span key;
  if (!take_string(r, &key)) return broken(r, "the header is not a dictionary");
  int which = span_is(key, "descr")           ? KEY_DESCR
              : span_is(key, "fortran_order") ? KEY_ORDER
              : span_is(key, "shape")         ? KEY_SHAPE
                                              : 0;
  if (which == 0) return broken(r, "the header has an unknown key");
  if (*seen & which) return broken(r, "the header has a key twice");
  *seen |= which;
  if (!take(r, ':')) return broken(r, "the header is not a dictionary");
  if (which == KEY_DESCR) return read_descr(r, h);
  return which == KEY_ORDER ? read_order(r, h) : read_shape(r, h);
}

status data_npy_parse_header(const char *path, const char *text, size_t length,
                             data_npy_header *result) {
  reader r = {path, text, text + length};
  data_npy_header h = {0};
  int seen = 0;
  if (!take(&r, '{')) return broken(&r, "the header is not a dictionary");
  while (!take(&r, '}')) {
    TRY(read_entry(&r, &h, &seen));
    if (take(&r, ',')) continue;
    if (!take(&r, '}')) return broken(&r, "the header's dictionary does not end");
    break;
  }
  skip_space(&r);
  if (r.at != r.end) return broken(&r, "the header has more than a dictionary");
  if (seen != KEY_ALL) return broken(&r, "the header lacks 'descr', 'fortran_order' or 'shape'");
  *result = h;
  return STATUS_OK;
}

/* ---- writing ---- */
enum { MAGIC_BYTES = 10 };

size_t data_npy_format_header(ir_dtype dtype, const int64_t *extents, uint32_t rank,
                              char out[DATA_NPY_HEADER_MAX]) {
  char shape[IR_MAX_RANK * 24] = "";
  size_t used = 0;
  for (uint32_t i = 0; i < rank; i++)
    used += (size_t)snprintf(shape + used, sizeof shape - used, "%s%" PRId64, i ? ", " : "",
                             extents[i]);
  char order = ir_dtype_size_bytes(dtype) == 1 ? '|' : host_is_little ? '<' : '>';
  char *text = out + MAGIC_BYTES;
  int n = snprintf(text, DATA_NPY_HEADER_MAX - MAGIC_BYTES,
                   "{'descr': '%c%s', 'fortran_order': False, 'shape': (%s%s), }", order,
                   code_of(dtype), shape, rank == 1 ? "," : "");
  check(n > 0 && n < DATA_NPY_HEADER_MAX - MAGIC_BYTES - 64);
  size_t total = (MAGIC_BYTES + (size_t)n + 1 + 63) / 64 * 64;
  size_t length = total - MAGIC_BYTES;
  memset(text + n, ' ', length - (size_t)n - 1);
  text[length - 1] = '\n';
  const unsigned char magic[MAGIC_BYTES] = {0x93,
                                            'N',
                                            'U',
                                            'M',
                                            'P',
                                            'Y',
                                            1,
                                            0,
                                            (unsigned char)(length & 0xff),
                                            (unsigned char)(length >> 8)};
  memcpy(out, magic, sizeof magic);
  return total;
}
