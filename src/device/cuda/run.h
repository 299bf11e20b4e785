/* Parts of a run, for runs that the host waits for (run.c) and runs on the caller's streams (stream.c). */
#ifndef WEIR_DEVICE_CUDA_RUN_H
#define WEIR_DEVICE_CUDA_RUN_H

#include "device/cuda/device.h"

/* The context of the rank's GPU. */
CUresult cuda_run_make_current(cuda_loaded *l, uint32_t rank);

/* ---- the caller's arrays (arrays.c) ---- */
/* Where they are, and what is used of them; memory for the rest. Then addresses may have moved. */
NODISCARD status cuda_run_find(cuda_loaded *l, void *const *inputs, void *const *outputs);
/* Is it copied from or to memory of the host that is not pinned? */
bool cuda_run_is_pageable(const cuda_loaded *l, const cuda_external *e);
/* On the main streams of ranks, all that has to be copied; *copied: something was. */
NODISCARD status cuda_run_copy_in(cuda_loaded *l, bool *copied);
/* Writes the seed of the run, if the ranks have another one, on their first streams. */
NODISCARD status cuda_run_set_seed(cuda_loaded *l, bool captured, bool *copied);
NODISCARD status cuda_run_copy_out(cuda_loaded *l, bool *copied);

/* ---- runs (run.c) ---- */
/* All streams go on after the first, and the first after all streams. */
NODISCARD status cuda_run_fork(cuda_loaded *l);
NODISCARD status cuda_run_join(cuda_loaded *l);
/* Does the device replay graphs of its plans? The graph on the first stream, captured on first use. */
bool cuda_run_replays(const cuda_loaded *l);
NODISCARD status cuda_run_replay(cuda_loaded *l);
/* Finds the arrays, and places the plan. */
NODISCARD status cuda_run_prepare(cuda_loaded *l, void *const *inputs, void *const *outputs);
/* Waits for the last run on the caller's streams. */
NODISCARD status cuda_run_settle(cuda_loaded *l);
/* Waits for whatever there is, after a failure. */
void cuda_run_drain(cuda_loaded *l);
/* What issuing met. */
NODISCARD status cuda_run_failure(cuda_loaded *l);
/* The driver's answer to a question about a run that is under way. */
NODISCARD status cuda_run_try(const cuda_loaded *l, CUresult r);

#endif
