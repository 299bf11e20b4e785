/* How fast one compute thread of this machine is. */
#ifndef WEIR_DEVICE_CPU_SPEED_H
#define WEIR_DEVICE_CPU_SPEED_H

typedef struct cpu_speed {
  double flops_per_ns; /* f32 matrix products */
  double bytes_per_ns; /* copied: read and written bytes */
} cpu_speed;

/* The best of some tries, which take about 30 ms; 0: there was no memory for it. */
cpu_speed cpu_speed_measure(void);

#endif
