"""What a call from Python costs above the C call: four small tensors, of NumPy and of PyTorch if it is there.

    PYTHONPATH=build/python python3 bench/call_cost.py build/bench/call_cost [DEVICE]
    PYTHONPATH=build/python python3 bench/call_cost.py build/bench/gpu/call_cost cuda

us, medians; the goal is 5 us above the C call, which is measured before and after: its smaller median counts. With
DEVICE cuda the tensors are PyTorch's, on its current stream, and the C call is that of the second command, which does the
same.
"""

import statistics
import subprocess
import sys
import time

import weir

TEXT = "fusion f { a : f32[n]; b : f32[n]; c : f32[n]; y = a + b + c; return y }"
ON_GPU = "fusion f { a : f32[n]; b : f32[n]; c : f32[n]; y = cat(a, b, c, dim=0); return y }"  # that of the command


SERIES = 50


def median_us(call, settle) -> float:
    times = []
    for _ in range(200):
        start = time.perf_counter()
        for _ in range(SERIES):
            call()
        times.append((time.perf_counter() - start) / SERIES * 1e6)
        settle()
    return statistics.median(times[5:])


def c_call_us(device) -> float:
    args = [sys.argv[1], *([] if device == "cuda" else [device])]
    printed = subprocess.run(args, capture_output=True, text=True, check=True).stdout
    return next(float(line.split()[1]) for line in printed.splitlines() if line.startswith("4 "))


def call_us(module, device) -> float:
    on_gpu = device == "cuda"
    n, where = (1024, {"device": "cuda"}) if on_gpu else (16, {})
    f = weir.compile(ON_GPU if on_gpu else TEXT, device=device)
    arrays = [module.ones(n, dtype=module.float32, **where) for _ in range(3)]
    out = module.ones(3 * n if on_gpu else n, dtype=module.float32, **where)
    return median_us(lambda: f(*arrays, out=out), module.cuda.synchronize if on_gpu else lambda: None)


def main() -> int:
    device = sys.argv[2] if len(sys.argv) > 2 else "null"
    in_c, in_python = [c_call_us(device)], {}
    for package in ("numpy", "torch"):
        if package == "numpy" and device == "cuda":
            continue
        try:
            in_python[package] = call_us(__import__(package), device)
        except ImportError:
            print(f"{package:10} is not here")
    in_c.append(c_call_us(device))
    print(f"C call                 {min(in_c):8.2f} us   ({in_c[0]:.2f} before, {in_c[1]:.2f} after)")
    for package, us in in_python.items():
        above = us - min(in_c)
        print(f"{package:10} call        {us:8.2f} us, {above:6.2f} above", "PASS" if above <= 5 else "MISS: more than 5 us")
    return 0


if __name__ == "__main__":
    sys.exit(main())
