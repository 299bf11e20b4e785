/* Communications carried out by NCCL (`--comm nccl`), on streams.
 *
 * The order of a plan leaves communications as they were posted (order.h). Each circle, a team or a sender
 * and its receiver, has a communicator of its own. So communications of different circles never wait for one
 * another, even if a send blocks its stream until it is received. Communicators are made when a plan that
 * needs them is loaded, and kept with the device for later plans. If all ranks are in one process, the
 * members of one communication are issued as one group, as NCCL requires of a single thread. If ranks are
 * processes, each issues its own part of the order that all have made (split.h): as in one process, every
 * step comes after what it waits for.
 *
 * NCCL moves everything as bytes and reduces what it can: sum, prod, min and max of numbers; for bool
 * everything except xor. Other reductions, and those whose root has no input, are collected by sends and
 * receives and folded by our own kernels.
 *
 * Errors. A call that fails, an error that a communicator reports later, or a timeout ends the run with
 * UNAVAILABLE. All communicators of the device are then aborted, which ends the streams that wait in them,
 * and the next run makes new ones.
 *
 * This header knows no type of NCCL: without its header at build time nccl_missing.c is used. */
#ifndef WEIR_DEVICE_CUDA_COMM_NCCL_H
#define WEIR_DEVICE_CUDA_COMM_NCCL_H

#include "base/memory.h"
#include "device/cuda/vendor.h"
#include "device/issue/order.h"

typedef struct cuda_loaded cuda_loaded;
typedef struct cuda_nccl cuda_nccl; /* the library, and the communicators of a device */

typedef struct cuda_nccl_group cuda_nccl_group; /* the communicators of a circle */

/* The communicators of a loaded plan. */
typedef struct cuda_nccl_plan {
  cuda_nccl_group **groups; /* by circle; NULL: a rank that sends to itself needs none */
  uint64_t generation;      /* of the communicators; they are made again after an abort */
} cuda_nccl_plan;

/* A call that failed. */
typedef struct cuda_nccl_error {
  int result;    /* ncclResult_t; 0: none */
  uint32_t comm; /* the communication, by its number in the order */
} cuda_nccl_error;

/* Loads libnccl.so.2, or what WEIR_NCCL_LIBRARY names. UNAVAILABLE says what is missing. */
NODISCARD status cuda_nccl_open(const allocator *memory, cuda_nccl **result);
void cuda_nccl_close(cuda_nccl *n); /* accepts NULL */

/* For issue_order_options. */
bool cuda_nccl_reduces(const rt_post *post, bool all_give);
/* Makes the communicators that the plan needs and that do not exist yet; if ranks are processes, all of them
 * call it at the same time. Two members on one GPU are UNAVAILABLE. */
NODISCARD status cuda_nccl_prepare(cuda_loaded *l);
/* Were they aborted since they were made? */
bool cuda_nccl_is_stale(const cuda_loaded *l);
/* Issues one member's part; with the last part of a communication all of them are launched. False:
 * l->failed_nccl says why, and nothing more may be issued. */
bool cuda_nccl_issue(cuda_loaded *l, uint32_t comm, CUstream stream);
/* Has a communicator of the plan reported an error? *circle says which, *result what. */
bool cuda_nccl_has_failed(const cuda_loaded *l, uint32_t *circle, int *result);
/* Aborts all communicators of the device. */
void cuda_nccl_abort(cuda_nccl *n);
/* Destroys the communicators between processes: the device gets another world. */
void cuda_nccl_leave(cuda_nccl *n);
/* Did the host give up while a call of NCCL was under way? Then other members have not come, or failed. */
bool cuda_nccl_is_waiting(int result);
/* "unhandled system error (2)", and what the library says about it. */
void cuda_nccl_error_text(const cuda_nccl *n, int result, char *text, size_t size_bytes);

#endif
