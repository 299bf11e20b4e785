/* The pass manager: which passes run, what it prints, what it gives back when a pass breaks a program. */
#include <string.h>

#include "ir/host.h"
#include "pass/pass.h"
#include "schedule/schedule.h"
#include "test.h"
#include "text/text.h"

static const char program[] = "fusion f {\n"
                              "  mesh d = [2]\n"
                              "  x : f32[4, 8]\n"
                              "  w : f32[8, 8]\n"
                              "  dead = exp(x)\n"
                              "  y = matmul(x, w)\n"
                              "  return y\n"
                              "  schedule {\n"
                              "    x on d\n"
                              "    x.outer_split(1, 2)\n"
                              "    x[1] = mesh.x\n"
                              "  }\n"
                              "}\n";

typedef struct fixture {
  ir_module m;
  arena memory;
  strbuf log, reproducer;
  ir_func *f;
} fixture;

static void open(fixture *x) {
  *x = (fixture){0};
  ir_module_init(&x->m, &memory_default);
  arena_init(&x->memory, &memory_default);
  strbuf_init(&x->log, &x->memory);
  strbuf_init(&x->reproducer, &x->memory);
  EXPECT(text_parse(&x->m, "f.weir", program, strlen(program)) == STATUS_OK);
  x->f = x->m.funcs.data[0];
  EXPECT(schedule_apply(x->f));
}

static void shut(fixture *x) {
  ir_module_destroy(&x->m);
  arena_destroy(&x->memory);
  status_clear();
}

static const char *print(fixture *x, const ir_func *f) {
  strbuf out;
  strbuf_init(&out, &x->memory);
  text_print_func(f, &out);
  return out.data;
}

static status run(fixture *x, pass_request request) {
  return pass_run(&x->m, &request, &x->log, &x->reproducer);
}

/* ---- which passes ---- */
static void refuses(pass_request request, const char *message) {
  fixture x;
  pass_list list;
  open(&x);
  EXPECT(pass_select(&request, &x.memory, &list) == STATUS_BAD_USAGE);
  EXPECT_STR(status_message(), message);
  shut(&x);
}

static void test_refusals(void) {
  refuses((pass_request){.passes = "cse,nothing"},
          "there is no pass called 'nothing'; 'weir list passes' names them");
  refuses((pass_request){.passes = "cse,"}, "the list of passes ends in ','");
  refuses((pass_request){.disable = "decompose"},
          "pass 'decompose' cannot be disabled: 'pipelines' needs it");
  refuses((pass_request){.passes = "decompose,cse"},
          "pass 'cse' (definition) cannot run after 'decompose' (shard)");
  refuses((pass_request){.print_after = "x"},
          "--print-after takes all, changed or a pass, not 'x'");
}

static void test_selection(void) {
  fixture x;
  pass_list all, fewer, more;
  open(&x);
  EXPECT(pass_select(&(pass_request){0}, &x.memory, &all) == STATUS_OK);
  EXPECT(pass_select(&(pass_request){.disable = "cse,dce"}, &x.memory, &fewer) == STATUS_OK);
  EXPECT(pass_select(&(pass_request){.enable = "unstream"}, &x.memory, &more) == STATUS_OK);
  EXPECT_INT(fewer.len, all.len - 2);
  EXPECT_INT(more.len, all.len + 1);
  for (uint32_t i = 0; i < all.len; i++) EXPECT(all.data[i]->use == PASS_DEFAULT);
  for (uint32_t i = 1; i < more.len; i++) EXPECT(more.data[i - 1]->level <= more.data[i]->level);
  shut(&x);
}

/* ---- running ---- */
static void test_fusion_stays(void) {
  fixture x;
  ir_func *h = NULL;
  open(&x);
  const char *before = print(&x, x.f);
  pass_request request = {.verify = true};
  EXPECT(pass_run_fusion(x.f, &request, &x.log, NULL, &h) == STATUS_OK);
  EXPECT(h && h->host && h->host->fusion == x.f && h->host->lowered != x.f);
  EXPECT_STR(print(&x, x.f), before);
  EXPECT_INT(x.m.funcs.len, 1);
  shut(&x);
}

static void test_module(void) {
  fixture x;
  open(&x);
  EXPECT(run(&x, (pass_request){.passes = "default", .verify = true}) == STATUS_OK);
  EXPECT_INT(x.m.funcs.len, 2);
  EXPECT(x.m.funcs.data[1]->host && x.m.funcs.data[1]->host->fusion == x.m.funcs.data[0]);
  EXPECT(strstr(print(&x, x.f), "dead") == NULL);
  const char *lowered = print(&x, x.m.funcs.data[1]);
  EXPECT(run(&x, (pass_request){.passes = "lower,views,free", .verify = true}) == STATUS_OK);
  EXPECT_INT(x.m.funcs.len, 2); /* what is lowered already is not lowered again */
  EXPECT_STR(print(&x, x.m.funcs.data[1]), lowered);
  EXPECT_INT(x.reproducer.len, 0);
  shut(&x);
}

/* The view that decompose leaves is that of its statements. */
static void test_applies_again(void) {
  fixture x;
  open(&x);
  EXPECT(run(&x, (pass_request){.passes = "propagate,decompose", .verify = true}) == STATUS_OK);
  const char *before = print(&x, x.f);
  EXPECT(schedule_apply(x.f));
  EXPECT_STR(print(&x, x.f), before);
  EXPECT(run(&x, (pass_request){.passes = "lower,views,free", .verify = true}) == STATUS_OK);
  fixture y;
  open(&y);
  pass_request all = {.passes = "propagate,decompose,lower,views,free", .verify = true};
  EXPECT(run(&y, all) == STATUS_OK);
  EXPECT_STR(print(&x, x.m.funcs.data[1]), print(&y, y.m.funcs.data[1]));
  shut(&y);
  shut(&x);
}

/* ---- when a pass breaks the program ---- */
static void test_reproducer(void) {
  fixture x;
  open(&x);
  const char *before = print(&x, x.f);
  ir_tensor y = x.f->outputs.data[0];
  ir_tensor_at(x.f, y)->dtype = IR_I32; /* as if the pass had done that */
  pass_request request = {.passes = "propagate,decompose,lower", .verify = true};
  request.options.pipeline = HOST_RING;
  EXPECT(run(&x, request) == STATUS_BAD_PROGRAM);
  EXPECT_STR(status_message(), "the program is broken after pass 'propagate'");
  static const char head[] = "# weir opt FILE --passes propagate,decompose,lower --pipeline ring\n";
  EXPECT(x.reproducer.len > strlen(head) && memcmp(x.reproducer.data, head, strlen(head)) == 0);
  EXPECT_STR(x.reproducer.data + strlen(head), before);
  shut(&x);
}

static void test_no_reproducer_for_a_refusal(void) {
  fixture x;
  open(&x);
  EXPECT(run(&x, (pass_request){.passes = "lower", .verify = true}) == STATUS_BAD_PROGRAM);
  EXPECT_INT(x.m.errors.errors, 1);
  EXPECT_INT(x.reproducer.len, 0);
  shut(&x);
}

static void test_log(void) {
  fixture x;
  open(&x);
  pass_request request = {.passes = "cse,dce", .print_after = "changed", .time = true};
  EXPECT(run(&x, request) == STATUS_OK);
  EXPECT(strstr(x.log.data, "# after cse") == NULL);
  EXPECT(strstr(x.log.data, "# after dce\nfusion f {") != NULL);
  EXPECT(strstr(x.log.data, " ms  cse\n") != NULL && strstr(x.log.data, " ms  dce\n") != NULL);
  shut(&x);
}

int main(void) {
  test_refusals();
  test_selection();
  test_fusion_stays();
  test_module();
  test_applies_again();
  test_reproducer();
  test_no_reproducer_for_a_refusal();
  test_log();
  return test_finish();
}
