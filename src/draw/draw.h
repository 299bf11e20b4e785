/* Pictures of a lowered program, as SVG: docs/cli.md, "weir draw".
 *
 * First the meshes and the tensors, each as the pieces that devices hold, then the host program: a
 * lane for each stream and one for communications, statements in program order, loops as frames. A
 * communication goes from where it is posted to where it is waited for. All functions need a
 * memory_guard(). */
#ifndef WEIR_DRAW_DRAW_H
#define WEIR_DRAW_DRAW_H

#include "base/strbuf.h"
#include "ir/bind.h"
#include "ir/host.h"

/* `env` has the extents of `host`; NULL: they are not known, and tensors are left out. */
void draw_program(const ir_func *host, const ir_env *env, arena *scratch, strbuf *out);

#endif
