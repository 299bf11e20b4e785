/* Traces: what ran when, as JSON, a page or a picture.
 *
 * JSON is the trace event format that Perfetto and Chrome open: a process per device, a thread per
 * stream, an event per launch; where a plan communicates, one more thread per device with an event per
 * communication, or several where they are under way at once. Categories are compute, copy, communication
 * and wait: the time in which a communication waits for another rank to post its part. Arrows (flows) go
 * from the rank that was waited for to those that waited, from a sender to its receiver, and from a
 * communication to the launch that needed it. The member "weir" has what the page shows beside the spans:
 * the file, and by "origin" the text of each instruction, with its body.
 *
 * The page is one HTML file that needs nothing else (src/trace/page). */
#ifndef WEIR_TRACE_TRACE_H
#define WEIR_TRACE_TRACE_H

#include "base/status.h"
#include "base/strbuf.h"
#include "runtime/device.h"

/* One process's part of a run. */
typedef struct trace_part {
  const char *device; /* "cpu" */
  uint32_t rank;      /* the device id of the plan's first rank; others follow */
  const rt_plan *plan;
  const rt_span *spans; /* as rt_run() filled them; spans without a length are left out */
  uint32_t n_spans;
  const uint32_t *path; /* instructions on the critical path */
  size_t path_len;
  bool sparse; /* ranks of which no span is shown are left out */
  /* Writes an instruction of the plan's host program as text; NULL: texts are left out. */
  void (*describe)(const ir_func *host, ir_instr instr, strbuf *out);
} trace_part;

/* Is the text a trace? */
NODISCARD status trace_check(const char *json);

/* Both need a memory_guard(): `out` grows in its arena, which also holds scratch. */
void trace_json(const trace_part *traces, uint32_t n, strbuf *out);
void trace_html(const trace_part *traces, uint32_t n, const char *title, strbuf *out);
/* A picture of what the page shows. */
void trace_svg(const trace_part *trace, const char *title, strbuf *out);
/* The page of traces that were written as JSON earlier. Whatever is no JSON is refused. */
NODISCARD status trace_page(const char *const *json, uint32_t n, const char *title, strbuf *out);

#endif
