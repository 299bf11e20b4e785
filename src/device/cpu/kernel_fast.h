/* Included last by files whose loops are worth vectorizing: gcc's -O2 leaves most loops of unknown
 * length scalar, clang's does not. */
#ifndef WEIR_DEVICE_CPU_KERNEL_FAST_H
#define WEIR_DEVICE_CPU_KERNEL_FAST_H

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC optimize("O3")
#endif

#endif
