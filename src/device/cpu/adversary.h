/* The adversary: runs a loaded plan on the calling thread, in an order that plan order and waits
 * allow and that is meant to do harm. The order and the poison follow from the seed alone.
 *
 * Policies, with n streams:
 *   even seed 2v   starve: stream v mod n runs only when nothing else can. Among the others a fixed
 *                  order of priority, drawn from the seed, decides. If a and b are unordered in the
 *                  plan, b runs before a when a's stream is starved: seeds 0, 2, … 2n - 2 reverse
 *                  every unordered pair of instructions at least once.
 *   odd seed       in turn: random (any runnable stream), latest (the one whose next instruction is
 *                  last in the plan), burst (a random one, for as long as it can run).
 *
 * Communications are late (begun and moved only when no stream can run), eager (before anything else), or
 * mixed: when a post is handed over, and when its data move, is drawn. Starving takes late and eager in
 * turn, so that seeds 0, 2, … 4n - 2 try both with every victim; its rank's other streams come next to
 * last. random is mixed, latest late, burst eager. What a communication receives is poisoned when it is
 * posted, unless another one under way uses the same memory.
 *
 * Poison: before a run the pool and the outputs are filled with bytes that depend on the seed (NaN in
 * most patterns). A pool buffer is filled again just before its first access, and after its last one
 * if the plan frees it, so that a value which was never written, or read after its buffer was
 * reused, does not look right by luck. */
#ifndef WEIR_DEVICE_CPU_ADVERSARY_H
#define WEIR_DEVICE_CPU_ADVERSARY_H

#include "runtime/device.h"

extern const rt_device_ops cpu_adversary; /* opened through "cpu" with options.adversarial */

/* The seed of the next runs, instead of the device's: loading is not cheap, and tests try many. */
void cpu_adversary_reseed(rt_loaded *loaded, uint64_t seed);
/* "starve", "random", "latest" or "burst", and the starved stream (else UINT32_MAX). */
const char *cpu_adversary_policy(uint64_t seed, uint32_t n_streams, uint32_t *victim);

#endif
