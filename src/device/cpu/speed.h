/* How fast one compute thread of this machine is. */
#ifndef WEIR_DEVICE_CPU_SPEED_H
#define WEIR_DEVICE_CPU_SPEED_H

typedef struct cpu_speed {
  double flops_per_ns;  /* f32 matrix products */
  double copied_per_ns; /* bytes read and written by copying a few megabytes */
  /* Bytes that an elementwise operation reads and writes: of more than caches hold, and of what the inner ones hold. */
  double memory_bytes_per_ns, cache_bytes_per_ns;
  double function_ns; /* exp of one f32 */
} cpu_speed;

/* The best of some tries, which take about 100 ms; 0: there was no memory for it. */
cpu_speed cpu_speed_measure(void);

#endif
