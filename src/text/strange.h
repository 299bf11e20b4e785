/* Bytes that begin no token, and files that are no text. */
#ifndef WEIR_TEXT_STRANGE_H
#define WEIR_TEXT_STRANGE_H

#include "base/diag.h"

/* Reports what is at the beginning of n bytes, and what to write instead where it looks like something. */
void text_report_strange(diags *errors, loc at, const char *text, uint32_t n);
/* A file that is no text, or whose lines do not end as they should, is reported once, as a whole. */
bool text_refuse_file(diags *errors, const char *text, uint32_t length);

#endif
