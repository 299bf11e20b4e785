"""What a call from Python costs above the C call: four small tensors, of NumPy and of PyTorch if it is there.

    PYTHONPATH=build/python python3 bench/call_cost.py build/bench/call_cost [DEVICE]
    PYTHONPATH=build/python python3 bench/call_cost.py build/bench/gpu/call_cost cuda

us, medians; the goal is 5 us above the C call. With DEVICE cuda the tensors are PyTorch's, on its current stream, and the
C call is that of the second command, which does the same.
"""

import statistics
import subprocess
import sys
import time

import weir

TEXT = "fusion f { a : f32[n]; b : f32[n]; c : f32[n]; y = a + b + c; return y }"


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


def main() -> int:
    device = sys.argv[2] if len(sys.argv) > 2 else "null"
    in_c = subprocess.run([sys.argv[1], *([] if device == "cuda" else [device])], capture_output=True, text=True, check=True)
    c_us = next(float(line.split()[1]) for line in in_c.stdout.splitlines() if line.startswith("4 "))
    f = weir.compile(TEXT, device=device)
    print(f"C call                 {c_us:8.2f} us")
    for package in ("numpy", "torch"):
        try:
            module = __import__(package)
        except ImportError:
            print(f"{package:10} is not here")
            continue
        if package == "numpy" and device == "cuda":
            continue
        where = {"device": "cuda"} if device == "cuda" else {}
        arrays = [module.ones(16 if device != "cuda" else 1024, dtype=module.float32, **where) for _ in range(4)]
        settle = module.cuda.synchronize if where else lambda: None
        us = median_us(lambda: f(*arrays[:3], out=arrays[3]), settle)
        print(f"{package:10} call        {us:8.2f} us, {us - c_us:6.2f} above", "PASS" if us - c_us <= 5 else "MISS: more than 5 us")
    return 0


if __name__ == "__main__":
    sys.exit(main())
