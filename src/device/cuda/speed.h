/* How fast the GPUs are: measured once per process, when a choice between programs first needs it.
 *
 * Ranks are virtual devices: those on one GPU share its products, its memory and its link, so a rank's
 * rates are what was measured over the number of ranks on its GPU. */
#ifndef WEIR_DEVICE_CUDA_SPEED_H
#define WEIR_DEVICE_CUDA_SPEED_H

#include "runtime/device.h"

/* Times on the GPU; 0: not measured. Products are square, and timed without their launch. */
typedef struct cuda_measured {
  double launch_ns;                /* of a task among others on its stream */
  double f32_flops, f32_ns;        /* a product */
  double bf16_flops, bf16_ns;      /* a product */
  double copy_bytes, copy_ns;      /* within the GPU's memory: bytes read plus bytes written */
  double host_bytes, host_ns;      /* to the host and from it at once: bytes each way */
  double peer_bytes, peer_ns;      /* from another GPU's memory */
  double host_hop_ns, peer_hop_ns; /* for a few bytes to another rank */
} cuda_measured;

/* How a program's ranks share GPUs. */
typedef struct cuda_sharing {
  uint32_t ranks, gpus; /* all ranks; the GPUs of the machine */
  uint32_t issued;      /* how many ranks one thread of this process issues; 0: all */
  bool through_host;    /* communications go by way of the host's memory */
} cuda_sharing;

/* The speed that a rank of such a program gets. What was not measured is assumed to be that of a large GPU. Knows no
 * CUDA (speed_model.c). */
rt_speed cuda_speed_model(const cuda_measured *m, const cuda_sharing *s);
/* Measured times as the rates that a machine file holds, and back; the link is that of a rank per GPU. */
rt_speed cuda_speed_rates(const cuda_measured *m);
cuda_measured cuda_speed_figures(const rt_speed *machine);

typedef struct cuda_device cuda_device;
/* Measures, unless that was done before. What fails stays 0: choices can be made without it. */
const cuda_measured *cuda_speed_measure(cuda_device *d);

#endif
