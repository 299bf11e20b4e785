/* .npy files: round trips, foreign layouts, and files that lie. */
#include "data/npy.h"

#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "data/compare.h"
#include "data/fill.h"
#include "test.h"

static char folder[] = "/tmp/weir-npy-XXXXXX";

static const char *path_of(const char *name) {
  static char path[256];
  (void)snprintf(path, sizeof path, "%s/%s", folder, name);
  return path;
}

static void write_bytes(const char *path, const void *data, size_t n) {
  FILE *file = fopen(path, "wb");
  if (!EXPECT(file != NULL)) return;
  EXPECT(fwrite(data, 1, n, file) == n);
  EXPECT(fclose(file) == 0);
}

/* A file of the given version with a header text and data behind it. */
static const char *make_file(int version, const char *header, const void *data, size_t n) {
  unsigned char bytes[4096];
  size_t length = strlen(header), at = 8;
  memcpy(bytes, "\x93NUMPY", 6);
  bytes[6] = (unsigned char)version;
  bytes[7] = 0;
  for (int i = 0; i < (version == 1 ? 2 : 4); i++) bytes[at++] = (unsigned char)(length >> (8 * i));
  memcpy(bytes + at, header, length);
  memcpy(bytes + at + length, data, n);
  const char *path = path_of("case.npy");
  write_bytes(path, bytes, at + length + n);
  return path;
}

static void expect_bad(const char *path, const char *message) {
  ir_array a;
  status_clear();
  EXPECT_INT(data_npy_load(path, &memory_default, &a), STATUS_BAD_INPUT);
  EXPECT_CONTAINS(status_message(), message);
  EXPECT_CONTAINS(status_message(), path);
}

static void expect_bad_header(const char *header, const char *message) {
  expect_bad(make_file(1, header, "", 0), message);
}

/* ---- round trips ---- */
static void round_trip(ir_dtype dtype, uint32_t rank, const int64_t *extents) {
  ir_array a = {.dtype = dtype, .rank = rank}, b;
  if (rank) memcpy(a.extents, extents, rank * sizeof *extents);
  EXPECT_INT(ir_array_alloc(&a, &memory_default), STATUS_OK);
  data_fill(&a, DATA_FILL_NORMAL, 7, "x");
  const char *path = path_of("trip.npy");
  EXPECT_INT(data_npy_save(&(const ir_array *){&a}, &path, 1, &memory_default), STATUS_OK);
  if (!EXPECT_INT(data_npy_load(path, &memory_default, &b), STATUS_OK)) return;
  EXPECT_INT(b.dtype, data_npy_stored_dtype(dtype));
  EXPECT_INT(b.rank, rank);
  ir_array back = a;
  EXPECT_INT(ir_array_alloc(&back, &memory_default), STATUS_OK);
  ir_array_copy(&back, &b);
  int64_t bytes = 0;
  EXPECT(ir_array_size_bytes(&a, &bytes));
  EXPECT(memcmp(a.data, back.data, (size_t)bytes) == 0);
  free(a.data);
  free(b.data);
  free(back.data);
}

static void test_round_trips(void) {
  for (int t = IR_F64; t < IR_DTYPE_COUNT; t++) {
    round_trip((ir_dtype)t, 0, NULL);
    round_trip((ir_dtype)t, 1, (int64_t[]){5});
    round_trip((ir_dtype)t, 3, (int64_t[]){2, 0, 3});
    round_trip((ir_dtype)t, 3, (int64_t[]){17, 31, 13});
  }
  int64_t ones[IR_MAX_RANK];
  for (int i = 0; i < IR_MAX_RANK; i++) ones[i] = 1;
  round_trip(IR_I64, IR_MAX_RANK, ones);
}

static void test_strided_save(void) {
  float data[6] = {1, 2, 3, 4, 5, 6};
  ir_array a = {IR_F32, 2, {3, 2}, {1, 3}, data, 0}, b;
  const char *path = path_of("strided.npy");
  EXPECT_INT(data_npy_save(&(const ir_array *){&a}, &path, 1, &memory_default), STATUS_OK);
  EXPECT_INT(data_npy_load(path, &memory_default, &b), STATUS_OK);
  const float want[6] = {1, 4, 2, 5, 3, 6};
  EXPECT(memcmp(b.data, want, sizeof want) == 0);
  free(b.data);
}

/* ---- what NumPy may write ---- */
static double element(const ir_array *a, int64_t i, int64_t j) {
  return ir_element_as_f64(a->dtype, ir_array_at(a, (int64_t[]){i, j}));
}

static void test_layouts(void) {
  const float values[6] = {0, 1, 2, 3, 4, 5};
  ir_array a;
  for (int version = 1; version <= 3; version++) {
    const char *path =
        make_file(version, "{'descr': '<f4', 'fortran_order': True, 'shape': (2, 3), }\n", values,
                  sizeof values);
    if (!EXPECT_INT(data_npy_load(path, &memory_default, &a), STATUS_OK)) continue;
    EXPECT(element(&a, 0, 1) == 2 && element(&a, 1, 0) == 1 && element(&a, 1, 2) == 5);
    free(a.data);
  }
}

static void test_byte_order(void) {
  const unsigned char big[4] = {0x3f, 0x80, 0, 0};
  ir_array a;
  const char *path =
      make_file(1, "{\"descr\": \">f4\", 'shape': (1,), 'fortran_order': False}", big, sizeof big);
  if (!EXPECT_INT(data_npy_load(path, &memory_default, &a), STATUS_OK)) return;
  EXPECT(ir_element_as_f64(IR_F32, a.data) == 1.0);
  free(a.data);
}

static void test_bools(void) {
  const unsigned char bytes[3] = {0, 7, 255};
  ir_array a;
  const char *path =
      make_file(1, "{'descr': '|b1', 'fortran_order': False, 'shape': (3L,)}", bytes, 3);
  if (!EXPECT_INT(data_npy_load(path, &memory_default, &a), STATUS_OK)) return;
  const unsigned char want[3] = {0, 1, 1};
  EXPECT(memcmp(a.data, want, 3) == 0);
  free(a.data);
}

/* ---- hostile files ---- */
#define DICT(descr, order, shape)                                                                  \
  "{'descr': " descr ", 'fortran_order': " order ", 'shape': " shape "}"

static void test_bad_headers(void) {
  expect_bad_header("", "not a dictionary");
  expect_bad_header("[]", "not a dictionary");
  expect_bad_header("{'descr': '<f4'", "does not end");
  expect_bad_header("{'descr'", "not a dictionary");
  expect_bad_header("{'descr", "not a dictionary");
  expect_bad_header("{'descr': '<f4', 'shape': ()}", "lacks");
  expect_bad_header("{'descr': '<f4', 'descr': '<f4'}", "twice");
  expect_bad_header("{'colour': 3}", "unknown key");
  expect_bad_header(DICT("'<f4'", "False", "(1,)") " x", "more than a dictionary");
  expect_bad_header(DICT("'<f4'", "Maybe", "()"), "fortran_order");
  expect_bad_header(DICT("3", "False", "()"), "descr");
  expect_bad_header(DICT("'<f4'", "False", "[2]"), "not a tuple");
  expect_bad_header(DICT("'<f4'", "False", "(2"), "does not end");
  expect_bad_header(DICT("'<f4'", "False", "(-2,)"), "negative");
  expect_bad_header(DICT("'<f4'", "False", "(1.5,)"), "does not end");
  expect_bad_header(DICT("'<f4'", "False", "(None,)"), "tuple of integers");
  expect_bad_header(DICT("'<f4'", "False", "(99999999999999999999,)"), "overflows");
  expect_bad_header(DICT("'<f4'", "False", "(4611686018427387904, 4)"), "overflows");
  expect_bad_header(DICT("'<f4'", "False", "(1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1)"), "dimensions");
}

static void test_bad_types(void) {
  expect_bad_header(DICT("'<c16'", "False", "()"), "'<c16'");
  expect_bad_header(DICT("'<U5'", "False", "()"), "'<U5'");
  expect_bad_header(DICT("'|O'", "False", "()"), "'|O'");
  expect_bad_header(DICT("'<V2'", "False", "()"), "bfloat16");
  expect_bad_header(DICT("'<i2'", "False", "()"), "'<i2'");
  expect_bad_header(DICT("''", "False", "()"), "cannot be read");
  expect_bad_header(DICT("[('x', '<f4')]", "False", "()"), "structures");
}

static void test_bad_data(void) {
  const float values[3] = {1, 2, 3};
  expect_bad(make_file(1, DICT("'<f4'", "False", "(4,)"), values, 12), "truncated");
  expect_bad(make_file(1, DICT("'<f4'", "False", "(2,)"), values, 12), "8 bytes");
  /* Absurd but not overflowing: refused by the file's size, before anything is allocated. */
  expect_bad(make_file(1, DICT("'<f4'", "False", "(1000000000000000,)"), values, 12), "truncated");
}

static void test_bad_files(void) {
  const char *path = path_of("raw.npy");
  expect_bad(path_of("missing.npy"), "cannot open");
  expect_bad(folder, "directory");
  write_bytes(path, "", 0);
  expect_bad(path, "ends inside");
  write_bytes(path, "PK\3\4 a zip", 10);
  expect_bad(path, "not a .npy");
  write_bytes(path, "\x93NUMPY\4\0\2\0{}", 12);
  expect_bad(path, "version 4");
  write_bytes(path, "\x93NUMPY\1\0\xff\xff{}", 12);
  expect_bad(path, "ends inside its header");
  write_bytes(path, "\x93NUMPY\2\0\xff\xff\xff\xff{}", 14);
  expect_bad(path, "too long");
  if (geteuid() == 0) return; /* may read anything */
  (void)chmod(path, 0);
  expect_bad(path, "cannot open");
}

/* Every prefix of a good file is an error, never a crash. */
static void test_prefixes(void) {
  unsigned char bytes[512];
  const float values[4] = {1, 2, 3, 4};
  const char *path = make_file(2, DICT("'<f4'", "False", "(2, 2)") "\n", values, sizeof values);
  FILE *file = fopen(path, "rb");
  if (!EXPECT(file != NULL)) return;
  size_t n = fread(bytes, 1, sizeof bytes, file);
  (void)fclose(file);
  for (size_t i = 0; i < n; i++) {
    ir_array a;
    status_clear();
    write_bytes(path, bytes, i);
    EXPECT_INT(data_npy_load(path, &memory_default, &a), STATUS_BAD_INPUT);
  }
}

/* ---- saving that fails ---- */
static void expect_unsaved(const char *path, status want, const char *message) {
  float one = 1;
  ir_array a = {.dtype = IR_F32, .data = &one};
  status_clear();
  EXPECT_INT(data_npy_save(&(const ir_array *){&a}, &path, 1, &memory_default), want);
  EXPECT_CONTAINS(status_message(), message);
}

static void test_bad_saves(void) {
  expect_unsaved(path_of("no/such/folder.npy"), STATUS_BAD_INPUT, "cannot write");
  expect_unsaved(folder, STATUS_BAD_INPUT, "directory");
  expect_unsaved("", STATUS_BAD_INPUT, "empty");
  if (access("/dev/full", W_OK) == 0) expect_unsaved("/dev/full", STATUS_SYSTEM, "writing failed");
}

/* Two files, the second of which cannot be written: neither appears. */
static void test_all_or_none(void) {
  float one = 1;
  ir_array a = {.dtype = IR_F32, .data = &one};
  char first[256], second[256];
  (void)snprintf(first, sizeof first, "%s/first.npy", folder);
  (void)snprintf(second, sizeof second, "%s/none/second.npy", folder);
  status_clear();
  EXPECT_INT(data_npy_save((const ir_array *[]){&a, &a}, (const char *[]){first, second}, 2,
                           &memory_default),
             STATUS_BAD_INPUT);
  EXPECT(access(first, F_OK) != 0);
}

static void test_link_is_followed(void) {
  float one = 1;
  ir_array a = {.dtype = IR_F32, .data = &one};
  char link[256], real[256];
  struct stat info;
  (void)snprintf(link, sizeof link, "%s/link.npy", folder);
  (void)snprintf(real, sizeof real, "%s/real.npy", folder);
  write_bytes(real, "old", 3);
  EXPECT(symlink(real, link) == 0);
  const char *path = link;
  EXPECT_INT(data_npy_save(&(const ir_array *){&a}, &path, 1, &memory_default), STATUS_OK);
  EXPECT(lstat(link, &info) == 0 && S_ISLNK(info.st_mode));
  EXPECT(stat(real, &info) == 0 && info.st_size > 3);
}

/* ---- fill and compare ---- */
static void test_fill(void) {
  int64_t values[100];
  ir_array a = {.dtype = IR_I64, .rank = 1, .extents = {100}, .strides = {1}, .data = values};
  data_fill(&a, DATA_FILL_INT, 1, "x");
  bool low = false, high = false, inside = true;
  for (int i = 0; i < 100; i++) {
    inside = inside && values[i] >= -3 && values[i] <= 3;
    low = low || values[i] == -3;
    high = high || values[i] == 3;
  }
  EXPECT(low && high && inside);
  data_fill(&a, DATA_FILL_IOTA, 1, "x");
  EXPECT(values[0] == 0 && values[99] == 99);
  EXPECT_INT(data_fill_index(&a, 4, 1, "x"), STATUS_OK);
  for (int i = 0; i < 100; i++) inside = inside && values[i] >= 0 && values[i] < 4;
  EXPECT(inside);
  status_clear();
  EXPECT_INT(data_fill_index(&a, 0, 1, "x"), STATUS_BAD_USAGE);
  unsigned char small[100];
  a = (ir_array){.dtype = IR_U8, .rank = 1, .extents = {100}, .strides = {1}, .data = small};
  data_fill(&a, DATA_FILL_NORMAL, 1, "x");
  for (int i = 0; i < 100; i++) inside = inside && small[i] <= 3;
  EXPECT(inside);
}

/* The value at a position does not depend on the strides or on what else is filled. */
static void test_fill_depends_on_position(void) {
  float rows[6], columns[6];
  ir_array a = {IR_F32, 2, {2, 3}, {3, 1}, rows, 0}, b = {IR_F32, 2, {2, 3}, {1, 2}, columns, 0};
  data_fill(&a, DATA_FILL_NORMAL, 5, "x");
  data_fill(&b, DATA_FILL_NORMAL, 5, "x");
  for (int i = 0; i < 2; i++)
    for (int j = 0; j < 3; j++) EXPECT(rows[3 * i + j] == columns[i + 2 * j]);
  data_fill(&b, DATA_FILL_NORMAL, 5, "y");
  EXPECT(rows[0] != columns[0]);
  data_fill(&b, DATA_FILL_NORMAL, 6, "x");
  EXPECT(rows[0] != columns[0]);
}

static data_comparison compare(double a0, double a1, double b0, double b1, ir_dtype least) {
  double a[2] = {a0, a1}, b[2] = {b0, b1};
  ir_array x = {IR_F64, 1, {2}, {1}, a, 0}, y = {IR_F64, 1, {2}, {1}, b, 0};
  return data_compare(&x, &y, least);
}

static void test_compare(void) {
  double nan = strtod("nan", NULL), inf = strtod("inf", NULL);
  EXPECT(compare(1, 2, 1, 2, IR_F64).ok);
  EXPECT(compare(1, 2.00001, 1, 2, IR_F32).ok);
  EXPECT(!compare(1, 2.00003, 1, 2, IR_F32).ok);
  EXPECT(compare(1, 2.00003, 1, 2, IR_BF16).ok);
  EXPECT(compare(nan, inf, nan, inf, IR_F64).ok);
  EXPECT(!compare(nan, 1, 1, 1, IR_BF16).ok);
  EXPECT(!compare(1, 1, 1, inf, IR_BF16).ok);
  EXPECT(!compare(-inf, 1, inf, 1, IR_BF16).ok);
  EXPECT(!compare(1e-30, 0, 0, 0, IR_BF16).ok);
  EXPECT(compare(1, 2.5, 1, 2, IR_F64).max_abs == 0.5);
  EXPECT(compare(1, 2.5, 1, 2, IR_F64).max_rel == 0.25);
  int64_t a = INT64_MIN, b = INT64_MAX;
  ir_array x = {.dtype = IR_I64, .data = &a}, y = {.dtype = IR_I64, .data = &b};
  EXPECT(!data_compare(&x, &y, IR_BF16).ok);
  EXPECT(data_compare(&x, &x, IR_BF16).ok);
}

static void remove_folder(void) {
  char command[128];
  (void)snprintf(command, sizeof command, "rm -rf '%s'", folder);
  EXPECT(system(command) == 0); /* NOLINT: a name of our own making */
}

int main(void) {
  if (!EXPECT(mkdtemp(folder) != NULL)) return test_finish();
  test_round_trips();
  test_strided_save();
  test_layouts();
  test_byte_order();
  test_bools();
  test_bad_headers();
  test_bad_types();
  test_bad_data();
  test_bad_files();
  test_prefixes();
  test_bad_saves();
  test_all_or_none();
  test_link_is_followed();
  test_fill();
  test_fill_depends_on_position();
  test_compare();
  remove_folder();
  return test_finish();
}
