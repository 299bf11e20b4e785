"""Times of calls on a GPU."""
import torch


def median_us(call, windows=7, window_ms=20.0):
    """The median over windows of calls that follow one another."""
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    for _ in range(3):
        call()
    times, n = [], 1
    for _ in range(windows + 1):
        begin.record()
        for _ in range(n):
            call()
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end) / n)
        n = max(1, min(2000, int(window_ms / max(times[-1], 1e-3))))
    return sorted(times[1:])[windows // 2] * 1e3
