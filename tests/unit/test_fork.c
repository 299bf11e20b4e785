/* Programs and runs in a child of fork(), which has none of the threads: they are refused, and nothing waits. */
#include <sys/wait.h>
#include <unistd.h>
#include <weir/weir.h>

#include "../test.h"

static const char *const text = "fusion f { x : f32[n]; y = x * 2; return y }";

typedef struct fixture {
  weir_module *module;
  weir_program *program;
  float x[4], y[4];
  int64_t extent;
  weir_dl_tensor in, out;
  const weir_dl_tensor *ins[1], *outs[1];
  weir_run_args args;
} fixture;

static void make(fixture *e) {
  weir_fusion *f = NULL;
  *e = (fixture){.x = {1, 2, 3, 4}, .extent = 4};
  e->in = (weir_dl_tensor){.data = e->x, .device = {1, 0}, .ndim = 1, .shape = &e->extent};
  e->in.dtype = weir_dtype_to_dl(WEIR_F32);
  e->out = e->in;
  e->out.data = e->y;
  e->ins[0] = &e->in;
  e->outs[0] = &e->out;
  e->args = (weir_run_args){.struct_size = sizeof e->args, .inputs = e->ins, .n_inputs = 1};
  e->args.outputs = e->outs;
  e->args.n_outputs = 1;
  EXPECT_INT(weir_module_parse("f", text, strlen(text), NULL, &e->module), WEIR_OK);
  EXPECT_INT(weir_module_find(e->module, "f", &f), WEIR_OK);
  EXPECT_INT(weir_compile(f, NULL, NULL, &e->program), WEIR_OK);
}

static bool is_refused(weir_status st, const char *words) {
  return st == WEIR_BAD_USAGE && strstr(weir_error(), words);
}

/* 0, or the number of what is wrong. */
static int child(fixture *e, weir_pending *ended) {
  weir_pending *r = NULL;
  weir_counts counts = {.struct_size = sizeof counts};
  (void)alarm(30);
  if (!is_refused(weir_run(e->program, &e->args), "compiled before fork()")) return 1;
  if (!is_refused(weir_run_async(e->program, &e->args, NULL, NULL, &r), "before fork()")) return 2;
  if (!is_refused(weir_program_counts(e->program, &counts), "before fork()")) return 3;
  if (!is_refused(weir_pending_wait(ended), "begun before fork()")) return 4;
  if (!weir_pending_poll(ended, -1)) return 5;
  weir_pending_cancel(ended);
  weir_pending_destroy(ended);
  weir_program_destroy(e->program);
  if (SANITIZED) return 0; /* those for threads do not start any in a child */
  fixture own;
  make(&own);
  if (weir_run_async(own.program, &own.args, NULL, NULL, &r) != WEIR_OK) return 6;
  if (weir_pending_wait(r) != WEIR_OK || own.y[3] != 8) return 7;
  weir_pending_destroy(r);
  weir_program_destroy(own.program);
  weir_module_destroy(own.module);
  return 0;
}

static void test_programs(void) {
  fixture e;
  weir_pending *r = NULL;
  make(&e);
  EXPECT_INT(weir_run_async(e.program, &e.args, NULL, NULL, &r), WEIR_OK);
  EXPECT_INT(weir_pending_wait(r), WEIR_OK); /* the thread of the queue waits for another run */
  pid_t pid = fork();
  if (pid == 0) _exit(child(&e, r));
  int code = -1;
  EXPECT(waitpid(pid, &code, 0) == pid);
  EXPECT_INT(code, 0);
  EXPECT_INT(weir_run(e.program, &e.args), WEIR_OK); /* the parent goes on */
  EXPECT(e.y[3] == 8);
  weir_pending_destroy(r);
  weir_program_destroy(e.program);
  weir_module_destroy(e.module);
}

static weir_status alone(void *context, const void *mine, void *all, size_t size_bytes) {
  (void)context;
  memcpy(all, mine, size_bytes);
  return WEIR_OK;
}

static void test_worlds(void) {
  weir_world *w = NULL;
  weir_options *o = NULL;
  weir_world_args args = {.struct_size = sizeof args, .exchange = alone, .size = 1};
  EXPECT_INT(weir_world_create(&args, &w), WEIR_OK);
  EXPECT_INT(weir_options_create(&o), WEIR_OK);
  pid_t pid = fork();
  if (pid == 0) {
    int wrong = !is_refused(weir_options_set_world(o, w), "the world was made before fork()");
    weir_world_destroy(w);
    _exit(wrong);
  }
  int code = -1;
  EXPECT(waitpid(pid, &code, 0) == pid);
  EXPECT_INT(code, 0);
  EXPECT_INT(weir_options_set_world(o, w), WEIR_OK);
  weir_options_destroy(o);
  weir_world_destroy(w);
}

int main(void) {
  test_programs();
  test_worlds();
  return test_finish();
}
