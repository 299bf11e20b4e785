/* How fast one compute thread of this machine is; measured on first use, in about a millisecond. */
#ifndef WEIR_DEVICE_CPU_SPEED_H
#define WEIR_DEVICE_CPU_SPEED_H

typedef struct cpu_speed {
  double flops_per_ns; /* f32 matrix products */
  double bytes_per_ns; /* copied: read and written bytes */
} cpu_speed;

cpu_speed cpu_speed_of_machine(void);

#endif
