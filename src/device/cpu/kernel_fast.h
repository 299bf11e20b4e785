/* Included last by files whose loops are worth vectorizing. gcc's -O2 leaves most loops of unknown
 * length scalar, and without the second option those with a float operation under a condition too,
 * for fear of floating point traps, which are not enabled here. clang does neither. */
#ifndef WEIR_DEVICE_CPU_KERNEL_FAST_H
#define WEIR_DEVICE_CPU_KERNEL_FAST_H

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC optimize("O3", "no-trapping-math")
#endif

#endif
