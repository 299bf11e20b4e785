/* The text form: parsing and printing.
 *
 * What text_print_* writes parses back to the same thing, and printing that gives the same bytes.
 * The grammar is in docs/language.md. */
#ifndef WEIR_TEXT_TEXT_H
#define WEIR_TEXT_TEXT_H

#include "ir/host.h"

enum { TEXT_MAX_NESTING = 1000 };

/* Parses `text` into `m`, which must be empty. The text is copied into the module. Schedule statements
 * are recorded, not applied. Returns STATUS_BAD_PROGRAM when there were errors; they are in m->errors,
 * and the fusions that could be built are in m->funcs. */
NODISCARD status text_parse(ir_module *m, const char *name, const char *text, size_t length);

/* Lays the text out: tokens, comments and lines stay, blanks and indentation change. The text must be free of
 * errors. Needs a memory_guard(). */
void text_format(const char *text, size_t length, arena *memory, strbuf *out);

void text_print_module(const ir_module *m, strbuf *out);
void text_print_func(const ir_func *f, strbuf *out); /* a fusion or a host program */
/* Prints a fusion that was built by calls, and makes the places of its operations and statements those in
 * this text, so that messages about it can show a line. `out` must be empty. */
void text_print_placed(ir_func *f, strbuf *out);
void text_print_host(const ir_func *h, strbuf *out);
/* A host program in the notation of nvFuser's dumps, as the device `rank` runs it. It does not parse
 * back. */
void text_print_nvfuser(const ir_func *h, int64_t rank, strbuf *out);

/* A caller's notes about instructions: write() adds one line without its newline, or nothing. */
typedef struct text_notes {
  void (*write)(void *context, const ir_func *h, ir_instr i, strbuf *out);
  void *context;
} text_notes;
/* The same with notes as comments, after the lines of a host program (`#`; it parses back to the same)
 * or above those of the other style. */
void text_print_host_noted(const ir_func *h, const text_notes *notes, strbuf *out);
void text_print_nvfuser_noted(const ir_func *h, int64_t rank, const text_notes *notes, strbuf *out);
/* One instruction, without its body, indentation and newline. */
void text_print_instr(const ir_func *h, ir_instr i, strbuf *out);
/* The same with the body, if the instruction is a launch. */
void text_print_kernel(const ir_func *h, ir_instr i, strbuf *out);
/* One schedule statement, without indentation and newline. */
void text_print_stmt(const ir_func *f, const ir_stmt *s, strbuf *out);
/* "mesh d = [2] of {5, 2}" */
void text_print_mesh(const ir_func *f, ir_mesh m, strbuf *out);
/* How an operation is called: "var(x, [dims=], keepdim=false, correction=0)". What may be left out
 * is in brackets or shows its default. */
void text_print_signature(const ir_op_info *info, strbuf *out);

#endif
