/* Why a lowered program is as it is, in words: docs/why.md.
 *
 * Everything is read from the host program, the copy of the fusion it was made from (ir_host.lowered),
 * and the reasons there (ir/why.h). All functions need a memory_guard(). */
#ifndef WEIR_EXPLAIN_EXPLAIN_H
#define WEIR_EXPLAIN_EXPLAIN_H

#include "host/host.h"
#include "ir/bind.h"

/* What is asked about. `h` was lowered from a fusion. */
typedef struct explain_subject {
  ir_func *h;
  const ir_env *env; /* values of extents, where they are known; NULL: none */
  arena *scratch;
} explain_subject;

/* Explains `name`: a tensor of the fusion, a tensor of the host program, or a communication. False if there is
 * none; the diagnostic lists the names that can be asked about. */
bool explain_why(const explain_subject *s, const char *name, strbuf *out);

/* The host program with its reasons as comments. Before it: the marks that propagation added, operands that are
 * placed differently than an operation needs them, and preferred forms of communication that did not apply. */
void explain_host(const explain_subject *s, host_pipeline asked, strbuf *out);
/* The same in nvFuser's notation, as the device `rank` runs it. */
void explain_nvfuser(const explain_subject *s, host_pipeline asked, int64_t rank, strbuf *out);

/* What a user may want to change, a line each: stream marks that led to no loop, and movements of many bytes
 * (MiB, with the extents of `env`) that another mark would avoid. */
void explain_notes(const explain_subject *s, strbuf *out);

#endif
