"""What a call from Python costs above the C call: four small tensors, of NumPy and of PyTorch if it is there.

    PYTHONPATH=build/python python3 bench/call_cost.py [DEVICE]

us, medians of series that take turns in one process; the goal is 5 us above the C call. That is weir_run() of the same
program with the same tensors, called by ctypes, less what ctypes itself takes. On the device cuda tensors are PyTorch's, on
its current stream; else the device is null, on which calls are all there is.
"""

import ctypes as c
import statistics
import sys
import time

import weir

TEXT = "fusion f { a : f32[n]; b : f32[n]; c : f32[n]; y = a + b + c; return y }"
SERIES, ROUNDS, N = 50, 200, 1024


class Tensor(c.Structure):
    _fields_ = [("data", c.c_void_p), ("type", c.c_int32), ("gpu", c.c_int32), ("ndim", c.c_int32), ("code", c.c_uint8),
                ("bits", c.c_uint8), ("lanes", c.c_uint16), ("shape", c.POINTER(c.c_int64)), ("strides", c.c_void_p),
                ("offset", c.c_uint64)]


class Stream(c.Structure):
    _fields_ = [("type", c.c_int32), ("gpu", c.c_int32), ("handle", c.c_void_p)]


class Args(c.Structure):
    _fields_ = [("struct_size", c.c_size_t), ("inputs", c.c_void_p), ("n_inputs", c.c_size_t), ("outputs", c.c_void_p),
                ("n_outputs", c.c_size_t), ("seed", c.c_uint64), ("as_definition", c.c_bool), ("profile", c.c_void_p),
                ("input_shards", c.c_void_p), ("output_shards", c.c_void_p), ("shapes", c.c_void_p), ("streams", c.c_void_p),
                ("n_streams", c.c_size_t)]


class InC:
    """The same call by the C library."""

    def __init__(self, device, addresses, stream):
        self.lib = c.CDLL("libweir.so.0")
        module, fusion, options, self.program = (c.c_void_p() for _ in range(4))
        text = TEXT.encode()
        self.must(self.lib.weir_module_parse(b"f", text, c.c_size_t(len(text)), None, c.byref(module)))
        self.must(self.lib.weir_module_find(module, None, c.byref(fusion)))
        self.must(self.lib.weir_options_create(c.byref(options)))
        self.must(self.lib.weir_options_set(options, b"device", device.encode()))
        self.must(self.lib.weir_compile(fusion, options, None, c.byref(self.program)))
        self.shape, gpu = (c.c_int64 * 1)(N), device == "cuda"
        self.tensors = [Tensor(a, 2 if gpu else 1, 0, 1, 2, 32, 1, self.shape) for a in addresses]
        self.list = (c.c_void_p * 4)(*(c.addressof(t) for t in self.tensors))
        self.stream = Stream(2, 0, stream)
        start = c.addressof(self.list)
        self.args = Args(c.sizeof(Args), start, 3, start + 3 * c.sizeof(c.c_void_p), 1)
        if gpu:
            self.args.streams, self.args.n_streams = c.addressof(self.stream), 1
        self.run, self.at = self.lib.weir_run, c.byref(self.args)
        self.run.argtypes, self.run.restype = [c.c_void_p, c.c_void_p], c.c_int
        self.nothing = self.lib.weir_exit_code  # no work, and as many arguments are converted
        self.nothing.argtypes, self.nothing.restype = [c.c_int], c.c_int
        self.must(self.run(self.program, self.at))

    def must(self, status):
        if status != 0:
            self.lib.weir_error.restype = c.c_char_p
            raise RuntimeError(self.lib.weir_error().decode())


def series_us(call, settle) -> float:
    start = time.perf_counter()
    for _ in range(SERIES):
        call()
    us = (time.perf_counter() - start) / SERIES * 1e6
    settle()
    return us


def measure(name, device) -> tuple[float, float]:
    """From Python, and in C."""
    package, gpu = __import__(name), device == "cuda"
    arrays = [package.ones(N, dtype=package.float32, **({"device": "cuda"} if gpu else {})) for _ in range(4)]
    stream = package.cuda.current_stream().cuda_stream if gpu else None
    f, inputs, out = weir.compile(TEXT, device=device), arrays[:3], arrays[3]
    in_c = InC(device, [a.data_ptr() if name == "torch" else a.ctypes.data for a in arrays], stream)
    settle = package.cuda.synchronize if gpu else lambda: None
    calls = (lambda: f(*inputs, out=out), lambda: in_c.run(in_c.program, in_c.at), lambda: in_c.nothing(0))
    rounds = [[series_us(call, settle) for call in calls] for _ in range(ROUNDS)]
    python, ctypes_c, ctypes_alone = (statistics.median(column) for column in list(zip(*rounds[5:])))
    return python, ctypes_c - ctypes_alone


def main() -> int:
    device = sys.argv[1] if len(sys.argv) > 1 else "null"
    for name in ("torch",) if device == "cuda" else ("numpy", "torch"):
        try:
            python, in_c = measure(name, device)
        except ImportError:
            print(f"{name:10} is not here")
            continue
        word = "PASS" if python - in_c <= 5 else "MISS: more than 5 us"
        print(f"{name:10} call {python:8.2f} us, in C {in_c:8.2f} us, {python - in_c:6.2f} above  {word}")
    table = getattr(getattr(sys.modules.get("torch"), "Tensor", None), "__dlpack_c_exchange_api__", None)
    if "torch" in sys.modules:
        print("PyTorch's tensors have DLPack's table of functions" if table else "PyTorch's tensors have no table of functions")
    return 0


if __name__ == "__main__":
    sys.exit(main())
