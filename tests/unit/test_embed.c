/* The library inside another program: errors as data, logs and progress, launchers. */
#include <netinet/in.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include <weir/weir.h>

#include "api/api.h"
#include "test.h"

#define EXPECT_OK(call)                                                                            \
  do {                                                                                             \
    if (!EXPECT_INT(call, WEIR_OK)) fprintf(stderr, "  %s\n", weir_error());                       \
  } while (0)

static weir_status parse(const char *text, weir_module **m) {
  return weir_module_parse("f.weir", text, strlen(text), NULL, m);
}

static void expect(size_t i, const char *file, int64_t line, int64_t column, const char *text,
                   const char *suggestion, int64_t rank) {
  weir_diagnostic d = {.struct_size = sizeof d};
  if (!EXPECT(weir_diagnostic_at(i, &d))) return;
  EXPECT_STR(d.file, file);
  EXPECT_INT(d.line, line);
  EXPECT_INT(d.column, column);
  EXPECT_CONTAINS(d.text, text);
  EXPECT_STR(d.suggestion, suggestion);
  EXPECT_INT(d.rank, rank);
}

/* ---- errors ---- */
static void test_program(void) {
  weir_module *m = NULL;
  EXPECT_INT(
      parse("fusion f {\n  x : f32[n]\n  y = matmull(x, x)\n  z = exp(q)\n  return y\n}", &m),
      WEIR_BAD_PROGRAM);
  EXPECT_INT(weir_diagnostic_count(), 2);
  expect(0, "f.weir", 3, 7, "unknown function 'matmull'", "matmul", -1);
  expect(1, "f.weir", 4, 11, "unknown name 'q'", "", -1);
  weir_diagnostic small = {.struct_size = offsetof(weir_diagnostic, text), .text = "untouched"};
  EXPECT(weir_diagnostic_at(1, &small)); /* of a caller that was compiled earlier */
  EXPECT_INT(small.line, 4);
  EXPECT_STR(small.text, "untouched");
  EXPECT(!weir_diagnostic_at(2, &small));
  EXPECT(!weir_diagnostic_at(0, NULL));
  EXPECT_CONTAINS(weir_error(), "f.weir:4:11: error:"); /* asking keeps it */
  EXPECT_OK(parse("fusion f { x : f32[n]; return x }", &m));
  EXPECT_INT(weir_diagnostic_count(), 0);
  weir_module_destroy(m);
}

/* What has no list of its own is read from its text. */
static void test_texts(void) {
  EXPECT_INT(weir_module_load("/nonexistent/x.weir", NULL, &(weir_module *){NULL}), WEIR_BAD_INPUT);
  EXPECT_INT(weir_diagnostic_count(), 1);
  expect(0, "/nonexistent/x.weir", 0, 0, "cannot read", "", -1);
  api_set_error("rank 3: f.weir:12: rank 0 waits for an allreduce\n    source\n    ^~~\n"
                "g.weir:7:9: note: posted here");
  EXPECT_INT(weir_diagnostic_count(), 2);
  expect(0, "f.weir", 12, 0, "rank 0 waits", "", 3);
  expect(1, "g.weir", 7, 9, "posted here", "", -1);
  api_set_error(
      "rank 2 (process 7) has died; rank 0 waits for allreduce of 8 f32 (sum) at f.weir:4");
  expect(0, "f.weir", 4, 0, "has died", "", 2);
  api_set_error("cuda: NCCL failed at rank 1's send of 8 f32 at a/b.weir:31 on team (0 1): remote");
  expect(0, "a/b.weir", 31, 0, "NCCL failed", "", 1);
  api_set_error("cuda: running the plan: failed (719), in the run that begins at f.weir:5");
  expect(0, "f.weir", 5, 0, "running the plan", "", -1);
  api_set_error("tcp: nobody listens at master.example:29500");
  expect(0, "", 0, 0, "nobody", "", -1);
  api_set_error("tcp: rank 1 does not reach rank 0 at 127.0.0.1:80: refused");
  expect(0, "", 0, 0, "does not reach", "", -1);
  api_set_error("rank 3: f.weir:12: rank 0 waits for an allreduce\n    source\n    ^~~\n"
                "g.weir:7:9: note: posted here");
  weir_diagnostic d = {.struct_size = sizeof d};
  EXPECT(weir_diagnostic_at(1, &d) && d.severity == WEIR_SEVERITY_NOTE);
  static const char *const odd[] = {"",
                                    ":",
                                    "rank",
                                    "rank x: y",
                                    "a:1",
                                    "a:1:",
                                    "a:1:2",
                                    "12:00: x",
                                    "error: ",
                                    "a: error: ",
                                    "rank 99999999999999999999: z",
                                    "(did you mean '",
                                    "\n\n\n",
                                    ": : :",
                                    "a:99999999999999999999: b"};
  for (size_t i = 0; i < sizeof odd / sizeof *odd; i++) {
    api_set_error(odd[i]);
    for (size_t k = 0; k < weir_diagnostic_count(); k++) EXPECT(weir_diagnostic_at(k, &d));
  }
}

/* ---- logs ---- */
typedef struct heard {
  char text[65536];
  int64_t done, total;
  int calls;
} heard;

static void hear(void *context, const char *text) {
  heard *h = context;
  size_t n = strlen(h->text);
  snprintf(h->text + n, sizeof h->text - n, "%s", text);
}

static void hear_progress(void *context, const char *what, int64_t done, int64_t total) {
  heard *h = context;
  if (strcmp(what, "binding ranks") != 0) return;
  EXPECT(done >= h->done && done <= total);
  h->calls++;
  h->done = done;
  h->total = total;
}

static const char two[] = "fusion f {\n  mesh d = [2]\n  x : f32[4]\n  y = exp(x)\n  return y\n"
                          "  schedule { x, y on d; x.outer_split(0, 2); x[0] = mesh.x }\n}\n";

static weir_program *compile(const char *option, const char *value, weir_status expected) {
  weir_module *m = NULL;
  weir_fusion *f = NULL;
  weir_options *o = NULL;
  weir_program *p = NULL;
  EXPECT_OK(parse(two, &m));
  EXPECT_OK(weir_module_find(m, NULL, &f));
  EXPECT_OK(weir_options_create(&o));
  EXPECT_OK(weir_options_set(o, option, value));
  EXPECT_INT(weir_compile(f, o, NULL, &p), expected);
  weir_options_destroy(o);
  weir_module_destroy(m);
  return p;
}

static void test_log(void) {
  static heard h;
  float x[4] = {0}, y[4];
  int64_t shape[] = {4};
  weir_dl_tensor in = {x, {1, 0}, 1, {2, 32, 1}, shape, NULL, 0}, out = in;
  const weir_dl_tensor *ins[] = {&in}, *outs[] = {&out};
  out.data = y;
  weir_run_args args = {.struct_size = sizeof args, .inputs = ins, .n_inputs = 1, .outputs = outs};
  args.n_outputs = 1;
  weir_log_to(hear, hear_progress, &h);
  weir_program *p = compile("dump", "host", WEIR_OK);
  EXPECT_CONTAINS(h.text, "host f(");
  EXPECT_OK(weir_run(p, &args));
  EXPECT(h.calls >= 3 && h.done == 2 && h.total == 2);
  weir_program_destroy(p);
  weir_log_to(NULL, NULL, NULL);
}

/* ---- launchers ---- */
/* A port that belongs to this process, and on which nobody listens. */
static int take_port(char text[16]) {
  struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  socklen_t size = sizeof a;
  int s = socket(AF_INET, SOCK_STREAM, 0);
  EXPECT(s >= 0 && bind(s, (struct sockaddr *)&a, size) == 0);
  EXPECT(getsockname(s, (struct sockaddr *)&a, &size) == 0);
  (void)snprintf(text, 16, "%d", ntohs(a.sin_port));
  return s;
}

static void test_torchrun(void) {
  char port[16];
  int taken = take_port(port);
  setenv("RANK", "1", 1);
  setenv("MASTER_PORT", port, 1);
  setenv("WORLD_SIZE", "2", 1);
  setenv("MASTER_ADDR", "127.0.0.1", 1);
  setenv("WEIR_MPI_START_SECONDS", "0.1", 1);
  EXPECT(compile("comm", "auto", WEIR_UNAVAILABLE) == NULL);
  EXPECT_CONTAINS(weir_error(), "rank 0 was not found at 127.0.0.1");
  weir_program_destroy(compile("comm", "inproc", WEIR_OK));
  setenv("WORLD_SIZE", "1", 1);
  EXPECT(compile("comm", "auto", WEIR_BAD_USAGE) == NULL);
  EXPECT_CONTAINS(weir_error(), "RANK is 1 and WORLD_SIZE is 1");
  setenv("RANK", "0", 1);
  weir_program_destroy(compile("comm", "auto", WEIR_OK));
  unsetenv("RANK");
  (void)close(taken);
}

int main(void) {
  test_program();
  test_texts();
  test_log();
  test_torchrun();
  return test_finish();
}
