"""Programs as operations of PyTorch, for nn.Modules and torch.compile.

    mlp = weir.torch_op(program, "mymodel::mlp", backward=gradients)
    y = mlp(x, w)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from . import Program


def torch_op(program: Program, name: str, backward: Program | None = None) -> Any:
    """Registers `program` as the operation `name` ("namespace::name") of torch.library, and returns it.

    `backward` is a program that takes the inputs of `program` and then a gradient for each of its outputs, and returns a
    gradient for each input that has a floating dtype. Without it the operation has no gradient.
    """
    import torch

    if not isinstance(name, str) or name.count("::") != 1:
        raise ValueError(f"an operation of torch.library is called namespace::name, not {name!r}")
    inputs = ", ".join(f"Tensor {t.name}" for t in program.inputs)
    n = len(program.outputs)
    schema = f"({inputs}) -> " + ("Tensor" if n == 1 else "(" + ", ".join(["Tensor"] * n) + ")")

    def compute(*arrays):
        return program(*(a.detach() for a in arrays))

    op = torch.library.custom_op(name, compute, mutates_args=(), schema=schema)

    @op.register_fake
    def _(*arrays):
        shapes = program.shapes(*(tuple(int(d) for d in a.shape) for a in arrays))
        made = [torch.empty(s, dtype=_dtype(torch, t.dtype), device=arrays[0].device)
                for s, t in zip(shapes, program.outputs)]
        return made[0] if n == 1 else tuple(made)

    if backward is not None:
        _add_backward(torch, op, name, program, backward)
    return op


_NAMES = {"f64": "float64", "f32": "float32", "f16": "float16", "bf16": "bfloat16", "i64": "int64", "i32": "int32",
          "i8": "int8", "u8": "uint8", "bool": "bool"}
_FLOATS = ("f64", "f32", "f16", "bf16")


def _dtype(torch, name):
    return getattr(torch, _NAMES[name])


def _add_backward(torch, op, name, program, backward):
    floats = [i for i, t in enumerate(program.inputs) if t.dtype in _FLOATS]
    wanted = len(program.inputs) + len(program.outputs)
    if len(backward.inputs) != wanted or len(backward.outputs) != len(floats):
        raise TypeError(f"the backward program of {name} must take {wanted} arrays, the inputs and a gradient per output, and "
                        f"return {len(floats)}, a gradient per input with a floating dtype; it takes "
                        f"{len(backward.inputs)} and returns {len(backward.outputs)}")
    gradients = torch_op(backward, name + "_backward")

    def keep(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    def differentiate(ctx, *given):
        found = gradients(*ctx.saved_tensors, *(g.contiguous() for g in given))
        found = iter([found] if len(floats) == 1 else found)
        return tuple(next(found) if i in floats else None for i in range(len(program.inputs)))

    op.register_autograd(differentiate, setup_context=keep)
