/* Typed 32-bit handles into the dense tables of a module or function.
 *
 * Handle 0 means "none", so zeroed memory holds no handles. Each is a struct of its own: passing an
 * axis where a tensor is wanted does not compile. */
#ifndef WEIR_IR_HANDLE_H
#define WEIR_IR_HANDLE_H

#include <stdbool.h>
#include <stdint.h>

#define IR_HANDLE(name)                                                                            \
  typedef struct name {                                                                            \
    uint32_t id;                                                                                   \
  } name

IR_HANDLE(ir_scalar);    /* in ir_module.scalars */
IR_HANDLE(ir_axis);      /* in ir_func.axes */
IR_HANDLE(ir_transform); /* in ir_func.transforms */
IR_HANDLE(ir_mesh);      /* in ir_func.meshes */
IR_HANDLE(ir_tensor);    /* in ir_func.tensors */
IR_HANDLE(ir_op);        /* in ir_func.ops */

#define IR_SAME(a, b) ((a).id == (b).id)

#endif
