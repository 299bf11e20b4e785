/* Parts of a run, for runs that the host waits for (run.c) and runs on the caller's streams (stream.c). */
#ifndef WEIR_DEVICE_CUDA_RUN_H
#define WEIR_DEVICE_CUDA_RUN_H

#include "device/cuda/device.h"

/* Makes the context of the rank's GPU current. */
CUresult cuda_run_make_current(cuda_loaded *l, uint32_t rank);

/* ---- the caller's arrays (arrays.c) ---- */
/* Finds where they are, and which can be used there; allocates memory for the others. Addresses may change. */
NODISCARD status cuda_run_find(cuda_loaded *l, void *const *inputs, void *const *outputs);
/* Is it copied from or to memory of the host that is not pinned? */
bool cuda_run_is_pageable(const cuda_loaded *l, const cuda_external *e);
/* Copies what has to be copied, on the main streams of ranks; *copied: there was something. */
NODISCARD status cuda_run_copy_in(cuda_loaded *l, bool *copied);
/* Writes the seed of the run on the first streams of ranks, if they have another one. */
NODISCARD status cuda_run_set_seed(cuda_loaded *l, bool captured, bool *copied);
NODISCARD status cuda_run_copy_out(cuda_loaded *l, bool *copied);

/* ---- runs (run.c) ---- */
/* Lets all streams wait for the first; and the first for all others. */
NODISCARD status cuda_run_fork(cuda_loaded *l);
NODISCARD status cuda_run_join(cuda_loaded *l);
/* Does the device replay graphs of its plans? Launches the graph on the first stream; it is captured on first use. */
bool cuda_run_replays(const cuda_loaded *l);
NODISCARD status cuda_run_replay(cuda_loaded *l);
/* Finds the arrays, and places the plan. */
NODISCARD status cuda_run_prepare(cuda_loaded *l, void *const *inputs, void *const *outputs);
/* Waits for the last run on the caller's streams. */
NODISCARD status cuda_run_settle(cuda_loaded *l);
/* Waits for everything that is under way, after a failure. */
void cuda_run_drain(cuda_loaded *l);
/* The failure of issuing the run, as a status. */
NODISCARD status cuda_run_failure(cuda_loaded *l);
/* A result of the driver about a run that is under way, as a status. */
NODISCARD status cuda_run_try(const cuda_loaded *l, CUresult r);

#endif
