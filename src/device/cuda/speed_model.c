/* Turns measured times into the numbers of a model: pure, and without CUDA. */
#include "device/cuda/speed.h"

/* A large GPU of 2024, where nothing was measured. */
static const cuda_measured assumed = {
    .launch_ns = 3e3,
    .f32_flops = 45e3,
    .f32_ns = 1,
    .bf16_flops = 600e3,
    .bf16_ns = 1,
    .copy_bytes = 3000,
    .copy_ns = 1,
    .host_bytes = 45,
    .host_ns = 1,
    .peer_bytes = 300,
    .peer_ns = 1,
    .host_hop_ns = 15e3,
    .peer_hop_ns = 5e3,
};

/* How many calls of the driver take the host as long as issuing a small product does. */
enum { CALLS = 4 };

static double rate(double amount, double ns, double otherwise) {
  return amount > 0 && ns > 0 ? amount / ns : otherwise;
}

static double known(double x, double otherwise) { return x > 0 ? x : otherwise; }

/* Ranks are dealt out to the GPUs in turn: the GPU with most ranks counts. */
static double ranks_per_gpu(const cuda_sharing *s) {
  uint32_t ranks = s->ranks ? s->ranks : 1, gpus = s->gpus ? s->gpus : 1;
  uint32_t most = (ranks + gpus - 1) / gpus;
  return most;
}

/* Within one GPU a message is a copy: it reads and writes the memory once. */
static void model_link(const cuda_measured *m, const cuda_sharing *s, rt_speed *out) {
  bool alone = s->gpus <= 1 || s->ranks <= 1;
  if (s->through_host) {
    out->link_bytes_per_ns = rate(m->host_bytes, m->host_ns, assumed.host_bytes);
    out->link_latency_ns = known(m->host_hop_ns, assumed.host_hop_ns);
  } else {
    out->link_bytes_per_ns = alone ? rate(m->copy_bytes, m->copy_ns, assumed.copy_bytes) / 2
                                   : rate(m->peer_bytes, m->peer_ns, assumed.peer_bytes);
    out->link_latency_ns = known(m->peer_hop_ns, assumed.peer_hop_ns);
  }
  out->link_bytes_per_ns /= ranks_per_gpu(s);
  out->post_ns = known(m->launch_ns, assumed.launch_ns);
}

rt_speed cuda_speed_model(const cuda_measured *m, const cuda_sharing *s) {
  double share = ranks_per_gpu(s);
  rt_speed out = {
      .flops_per_ns = rate(m->f32_flops, m->f32_ns, assumed.f32_flops) / share,
      .narrow_flops_per_ns = rate(m->bf16_flops, m->bf16_ns, assumed.bf16_flops) / share,
      .bytes_per_ns = rate(m->copy_bytes, m->copy_ns, assumed.copy_bytes) / share,
      .launch_ns = known(m->launch_ns, assumed.launch_ns),
      .threads = 1,
      .reads_ahead = true,
      .reads_peers = !s->through_host,
  };
  out.issue_ns = out.launch_ns * (s->issued ? s->issued : s->ranks);
  out.call_ns = out.issue_ns / CALLS;
  model_link(m, s, &out);
  return out;
}

rt_speed cuda_speed_rates(const cuda_measured *m) {
  rt_speed r = cuda_speed_model(m, &(cuda_sharing){.ranks = 1, .gpus = 1});
  r.host_bytes_per_ns = rate(m->host_bytes, m->host_ns, 0);
  r.host_latency_ns = known(m->host_hop_ns, 0);
  r.peer_bytes_per_ns = rate(m->peer_bytes, m->peer_ns, 0);
  r.peer_latency_ns = known(m->peer_hop_ns, 0);
  r.post_ns = 0; /* the launch again */
  return r;
}

/* A machine that was not measured here has figures of one link only. */
cuda_measured cuda_speed_figures(const rt_speed *r) {
  bool measured = r->host_bytes_per_ns > 0 || r->peer_bytes_per_ns > 0;
  return (cuda_measured){
      .launch_ns = r->launch_ns,
      .f32_flops = r->flops_per_ns,
      .f32_ns = 1,
      .bf16_flops = r->narrow_flops_per_ns > 0 ? r->narrow_flops_per_ns : r->flops_per_ns,
      .bf16_ns = 1,
      .copy_bytes = r->bytes_per_ns,
      .copy_ns = 1,
      .host_bytes = measured ? r->host_bytes_per_ns : r->link_bytes_per_ns,
      .host_ns = 1,
      .peer_bytes = measured ? r->peer_bytes_per_ns : r->link_bytes_per_ns,
      .peer_ns = 1,
      .host_hop_ns = measured ? r->host_latency_ns : r->link_latency_ns,
      .peer_hop_ns = measured ? r->peer_latency_ns : r->link_latency_ns,
  };
}
