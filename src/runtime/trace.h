/* Traces: what ran when, for people.
 *
 * JSON is the trace event format that Perfetto and Chrome open: a process per device, a thread per
 * stream, an event per launch; where a plan communicates, one more thread per device with an event per
 * communication, or several where they are under way at once. The page is one HTML file that needs nothing else: lanes per stream,
 * wheel to zoom, drag to move, hover for details. */
#ifndef WEIR_RUNTIME_TRACE_H
#define WEIR_RUNTIME_TRACE_H

#include "base/strbuf.h"
#include "runtime/device.h"

/* One process's part of a run. */
typedef struct rt_trace {
  const char *device; /* "cpu" */
  uint32_t rank;      /* the device id of the plan's first rank; others follow */
  const rt_plan *plan;
  const rt_span *spans; /* as rt_run() filled them; spans without a length are left out */
  uint32_t n_spans;
} rt_trace;

/* Both need a memory_guard(): `out` grows in its arena, which also holds scratch. */
void rt_trace_json(const rt_trace *traces, uint32_t n, strbuf *out);
void rt_trace_html(const rt_trace *traces, uint32_t n, const char *title, strbuf *out);

/* Text as a JSON string, quotes included. Safe inside a <script> too. */
void rt_json_string(strbuf *out, const char *text);

#endif
