/* The little of JSON that traces need. */
#ifndef WEIR_TRACE_JSON_H
#define WEIR_TRACE_JSON_H

#include "base/status.h"
#include "base/strbuf.h"

/* Text as a JSON string, quotes included. Safe inside a <script> too. */
void trace_json_string(strbuf *out, const char *text);

/* Is the text one JSON value? The error says where it is wrong. Values may be nested 64 deep. */
NODISCARD status trace_json_check(const char *text);

#endif
