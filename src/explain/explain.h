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

/* What is called `name`: a tensor of the fusion, a tensor of the host program, or a communication. False
 * after a diagnostic that says what there is to ask about. */
bool explain_why(const explain_subject *s, const char *name, strbuf *out);

/* The host program with its reasons as comments: first the marks that propagation added, where operands
 * do not lie as they are needed, and preferred forms of communication that did not apply. */
void explain_host(const explain_subject *s, host_pipeline asked, strbuf *out);
/* The same in the other style, as the device `rank` runs it. */
void explain_nvfuser(const explain_subject *s, host_pipeline asked, int64_t rank, strbuf *out);

/* What a user may want to change, a line each: marks of streams that no loop came of, and movements
 * of many bytes (MiB, with the extents of `env`) that another mark would avoid. */
void explain_notes(const explain_subject *s, strbuf *out);

#endif
