/* From what was measured on a GPU to what a rank gets, and what a model makes of it. */
#include "cost/cost.h"
#include "device/cuda/speed.h"
#include "runtime/machine.h"
#include "test.h"

static const cuda_measured m = {
    .launch_ns = 2000,
    .f32_flops = 1e9,
    .f32_ns = 2e4,
    .bf16_flops = 1e9,
    .bf16_ns = 2e3,
    .copy_bytes = 8e6,
    .copy_ns = 2e3,
    .host_bytes = 5e6,
    .host_ns = 1e5,
    .peer_bytes = 4e6,
    .peer_ns = 1e4,
    .host_hop_ns = 12e3,
    .peer_hop_ns = 3e3,
};

static bool near(double a, double b) { return a > b * 0.999999 && a < b * 1.000001; }

/* ---- sharing ---- */
static void one_rank(void) {
  rt_speed s = cuda_speed_model(&m, &(cuda_sharing){.ranks = 1, .gpus = 1});
  (void)EXPECT(near(s.flops_per_ns, 5e4) && near(s.narrow_flops_per_ns, 5e5));
  (void)EXPECT(near(s.bytes_per_ns, 4000) && near(s.launch_ns, 2000));
  (void)EXPECT(s.threads == 1 && s.reads_ahead);
}

/* Ranks on one GPU share everything, its link too; one more than GPUs already shares. */
static void shared(void) {
  rt_speed one = cuda_speed_model(&m, &(cuda_sharing){.ranks = 1, .gpus = 1});
  rt_speed four = cuda_speed_model(&m, &(cuda_sharing){.ranks = 4, .gpus = 1});
  rt_speed five = cuda_speed_model(&m, &(cuda_sharing){.ranks = 5, .gpus = 4});
  rt_speed eight = cuda_speed_model(&m, &(cuda_sharing){.ranks = 8, .gpus = 4});
  (void)EXPECT(near(four.flops_per_ns, one.flops_per_ns / 4));
  (void)EXPECT(near(four.narrow_flops_per_ns, one.narrow_flops_per_ns / 4));
  (void)EXPECT(near(four.bytes_per_ns, one.bytes_per_ns / 4));
  (void)EXPECT(near(four.link_bytes_per_ns, one.link_bytes_per_ns / 4));
  (void)EXPECT(near(four.launch_ns, one.launch_ns));
  /* one thread issues for all ranks of a process, each process for itself */
  rt_speed apart = cuda_speed_model(&m, &(cuda_sharing){.ranks = 4, .gpus = 1, .issued = 1});
  (void)EXPECT(near(four.issue_ns, 4 * one.issue_ns) && near(four.call_ns, 4 * one.call_ns));
  (void)EXPECT(one.call_ns > 0 && near(apart.issue_ns, one.issue_ns));
  (void)EXPECT(near(five.flops_per_ns, one.flops_per_ns / 2));
  (void)EXPECT(near(eight.flops_per_ns, five.flops_per_ns));
}

/* ---- links ---- */
static void links(void) {
  cuda_sharing s = {.ranks = 2, .gpus = 1};
  rt_speed within = cuda_speed_model(&m, &s);
  s.through_host = true;
  rt_speed host = cuda_speed_model(&m, &s);
  rt_speed peers = cuda_speed_model(&m, &(cuda_sharing){.ranks = 2, .gpus = 2});
  /* a message within a GPU reads and writes its memory */
  (void)EXPECT(near(within.link_bytes_per_ns, 4000.0 / 2 / 2) && near(within.link_latency_ns, 3e3));
  (void)EXPECT(near(host.link_bytes_per_ns, 50.0 / 2) && near(host.link_latency_ns, 12e3));
  (void)EXPECT(near(peers.link_bytes_per_ns, 400) && near(peers.link_latency_ns, 3e3));
}

/* ---- without numbers ---- */
/* Whatever could not be measured, or came out as nonsense, is replaced by something above 0. */
static void assumed(void) {
  cuda_measured none = {.launch_ns = 0}, bad = m;
  bad.f32_ns = -5;
  bad.host_ns = 0;
  for (int i = 0; i < 4; i++) {
    cuda_sharing s = {.ranks = i < 2 ? 2 : 0, .gpus = 1, .through_host = i % 2};
    rt_speed x = cuda_speed_model(&none, &s), y = cuda_speed_model(&bad, &s);
    (void)EXPECT(x.flops_per_ns > 0 && x.narrow_flops_per_ns > x.flops_per_ns);
    (void)EXPECT(x.bytes_per_ns > 0 && x.launch_ns > 0 && x.threads == 1);
    (void)EXPECT(x.link_bytes_per_ns > 0 && x.link_latency_ns > 0 && x.post_ns > 0);
    (void)EXPECT(near(y.flops_per_ns, x.flops_per_ns) && y.link_bytes_per_ns > 0);
    (void)EXPECT(near(y.narrow_flops_per_ns, i < 2 ? 2.5e5 : 5e5));
  }
}

/* What is kept in a machine file says the same as what was measured. */
static void kept(void) {
  rt_speed machine = cuda_speed_rates(&m);
  cuda_measured again = cuda_speed_figures(&machine);
  for (int i = 0; i < 4; i++) {
    cuda_sharing s = {.ranks = 2, .gpus = i < 2 ? 1 : 2, .through_host = i % 2};
    rt_speed x = cuda_speed_model(&m, &s), y = cuda_speed_model(&again, &s);
    (void)EXPECT(near(x.flops_per_ns, y.flops_per_ns) && near(x.bytes_per_ns, y.bytes_per_ns));
    (void)EXPECT(near(x.narrow_flops_per_ns, y.narrow_flops_per_ns));
    (void)EXPECT(near(x.link_bytes_per_ns, y.link_bytes_per_ns));
    (void)EXPECT(near(x.link_latency_ns, y.link_latency_ns) && near(x.launch_ns, y.launch_ns));
  }
}

/* ---- tasks ---- */
/* The product [64, 256] x [256, 32] of a dtype: 1048576 operations. */
static double product_ns(ir_dtype t, const rt_speed *machine) {
  static const int64_t extents[3][2] = {{64, 32}, {64, 256}, {256, 32}};
  static const int64_t strides[3][2] = {{32, 1}, {256, 1}, {32, 1}};
  rt_view views[3];
  rt_operand operands[2] = {{.kind = RT_OPERAND_VIEW, .view = 1},
                            {.kind = RT_OPERAND_VIEW, .view = 2}};
  for (uint32_t i = 0; i < 3; i++)
    views[i] = (rt_view){.dtype = t, .rank = 2, .extents = extents[i], .strides = strides[i]};
  rt_plan plan = {.views = views, .n_views = 3};
  rt_task task = {.code = IR_OP_MATMUL, .result = 0, .n_operands = 2, .operands = operands};
  return rt_task_ns(&plan, &task, machine);
}

static void tasks(void) {
  const double flops = 2.0 * 64 * 32 * 256, elements = 64 * 32 + 64 * 256 + 256 * 32;
  rt_speed x = {.flops_per_ns = 100, .bytes_per_ns = 10, .launch_ns = 5, .threads = 1};
  (void)EXPECT(near(product_ns(IR_F32, &x), 5 + flops / 100 + elements * 4 / 10));
  (void)EXPECT(near(product_ns(IR_BF16, &x), 5 + flops / 100 + elements * 2 / 10));
  x.narrow_flops_per_ns = 1000;
  x.reads_ahead = true;
  (void)EXPECT(near(product_ns(IR_F32, &x), 5 + elements * 4 / 10));
  x.bytes_per_ns = 1000;
  (void)EXPECT(near(product_ns(IR_F32, &x), 5 + flops / 100));
  (void)EXPECT(near(product_ns(IR_F16, &x), 5 + flops / 1000));
  (void)EXPECT(near(product_ns(IR_BF16, &x), 5 + flops / 1000));
  x.bf16_flops_per_ns = 200;
  (void)EXPECT(near(product_ns(IR_F16, &x), 5 + flops / 1000));
  (void)EXPECT(near(product_ns(IR_BF16, &x), 5 + flops / 200));
  x.narrow_flops_per_ns = 0; /* as on a processor that multiplies pairs of bf16 */
  (void)EXPECT(near(product_ns(IR_F16, &x), 5 + flops / 100));
  (void)EXPECT(near(product_ns(IR_BF16, &x), 5 + flops / 200));
}

int main(void) {
  one_rank();
  shared();
  links();
  assumed();
  kept();
  tasks();
  return test_finish();
}
