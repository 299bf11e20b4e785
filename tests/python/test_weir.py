"""The package weir with NumPy: values, arrays of all kinds, messages, threads; what it does with PyTorch and JAX if they
are there."""

import ctypes
import functools
import importlib.util
import json
import os
import pathlib
import pickle
import signal
import subprocess
import sys
import tempfile
import threading
import time
import unittest
from unittest import mock

import numpy as np

import weir

SUM = "fusion f { x : f32[n, 4]; w : f32[4]; y = x * w; z = sum(y, dims=[1]); return y, z }"
EXAMPLES = pathlib.Path(os.environ.get("WEIR_EXAMPLES") or pathlib.Path(__file__).resolve().parents[2] / "examples")


class Run(unittest.TestCase):
    def setUp(self):
        self.f = weir.compile(SUM)
        self.x = np.arange(12, dtype="f4").reshape(3, 4)
        self.w = np.array([1, 2, 3, 4], "f4")

    def check(self, x, w):
        y, z = self.f(x, w)
        np.testing.assert_array_equal(y, np.asarray(x) * np.asarray(w))
        np.testing.assert_array_equal(z, (np.asarray(x) * np.asarray(w)).sum(1))

    def test_values(self):
        self.check(self.x, self.w)
        self.check(np.arange(20, dtype="f4").reshape(5, 4), self.w)
        self.check(np.empty((0, 4), "f4"), self.w)

    def test_strides(self):
        self.check(self.x.T.copy().T, self.w)
        self.check(self.x[::-1, ::-1], self.w[::-1])
        self.check(np.broadcast_to(self.w, (3, 4)).copy(), self.w)

    def test_read_only(self):
        self.x.flags.writeable = False
        self.check(self.x, self.w)
        with self.assertRaises((ValueError, BufferError, TypeError)):
            self.f(np.ones((3, 4), "f4"), self.w, out=(self.x, np.empty(3, "f4")))

    def test_raw_arrays(self):
        """bf16 goes in and comes out by RawArray; elements that are not as wide as their dtype are refused."""
        f = weir.compile("fusion f { x : bf16[n]; y = x * 2; return y }")
        ones = np.full(3, 0x3f80, "u2")
        y = f(weir.RawArray(ones))
        self.assertIsInstance(y, weir.RawArray)
        np.testing.assert_array_equal(y.bits, np.full(3, 0x4000, "u2"))
        wide = weir.compile("fusion f { x : f64[n]; y = x * 2; return y }")
        for program, array, words in ((wide, weir.RawArray(np.ones(3, "u1"), "f64"), "input x: elements of 8 bits cannot be f64"),
                                      (f, weir.RawArray(np.ones(3, "u4")), "input x: elements of 32 bits cannot be bf16"),
                                      (f, weir.RawArray(ones, "b16"), "input x: there is no dtype 'b16'")):
            with self.assertRaisesRegex(ValueError, words):
                program(array)
            with self.assertRaisesRegex(ValueError, words):
                program.run_async(array)

    def test_messages_name_arrays(self):
        """What a package refuses to export is said with the name of the input or output."""
        odd = [np.ones(3, np.dtype("f4").newbyteorder()), np.array([1, None, 2]), memoryview(np.ones(3, "f4"))]
        f = weir.compile("fusion f { w : f32; x : f32[n]; y = x * w; return y }")
        for a in odd:
            with self.assertRaisesRegex((BufferError, TypeError), "^input x: "):
                f(1, a)
            with self.assertRaisesRegex((BufferError, TypeError), "^output y: "):
                f.run_async(1, np.ones(3, "f4"), out=a)
        with self.assertRaisesRegex(ValueError, "w has 17 dimensions, and at most 16"):
            f(np.ones((1,) * 17, "f4"), np.ones(3, "f4"))
        with self.assertRaisesRegex(TypeError, "the shape of w is a tuple of integers, not 3"):
            f.verify(3, 4)

    def test_outputs_of_the_caller(self):
        whole = np.full((3, 8), -1, "f4")
        z = np.empty(3, "f4")
        y, z2 = self.f(self.x, self.w, out=(whole[:, ::2], z))
        self.assertIs(z2, z)
        np.testing.assert_array_equal(whole[:, ::2], self.x * self.w)
        self.assertTrue((whole[:, 1::2] == -1).all())

    def test_dtypes(self):
        for name, dtype in {"f64": "f8", "f32": "f4", "f16": "f2", "i64": "i8", "i32": "i4", "i8": "i1", "u8": "u1",
                            "bool": "?"}.items():
            f = weir.compile(f"fusion f {{ x : {name}[n]; y = cat(x, x, dim=0); return y }}")
            x = np.array([0, 1, 1], dtype)
            y = f(x)
            self.assertEqual(y.dtype, x.dtype)
            np.testing.assert_array_equal(y, np.concatenate([x, x]))

    def test_numbers(self):
        f = weir.compile("fusion f { lr : f32; x : f32[n]; k : i32; y = x * lr + cast(k, f32); return y }")
        x = np.arange(3, dtype="f4")
        for lr, k in ((0.5, 2), (1, 2), (np.float32(0.5), np.int32(2)), (np.array(0.5, "f4"), True),
                      (np.float64(0.5), np.int64(2)), (np.int8(1), np.bool_(True))):
            y = f(lr, x, k)
            self.assertIsInstance(y, np.ndarray)
            np.testing.assert_array_equal(y, x * np.float32(lr) + np.float32(k))
        np.testing.assert_array_equal(f.run_async(2.0, x, 1).wait(), x * 2 + 1)
        scalar = weir.compile("fusion f { x : f64; y = x * 2; return y }")
        self.assertEqual(scalar(1.5), 3.0)
        self.assertIsInstance(scalar(1.5), np.ndarray)
        for wrong, kind, text in ((("a", x, 1), TypeError, "lr is given as str"), ((1, [1.0], 1), TypeError, "x is given as list"),
                                  ((1, 2.0, 1), TypeError, "x is given as float"), ((1, None, 1), TypeError, "x is given as NoneType"),
                                  ((1, x, 0.5), TypeError, "k is i32"), ((1, x, np.float64(1)), TypeError, "k is i32"), ((1, x, 1 << 31), OverflowError, "cannot hold 2147483648")):
            with self.assertRaisesRegex(kind, text):
                f(*wrong)
        fixed = np.empty(3, "f4")
        fixed.flags.writeable = False
        with self.assertRaises((ValueError, BufferError, TypeError)):  # the number's capsule is freed on the way
            f(1, x, 1, out=fixed)

    def test_several_devices(self):
        f = weir.load(EXAMPLES / "ag_matmul.weir").compile()
        random = np.random.default_rng(3)
        a = random.integers(-3, 4, (4, 2, 32, 128)).astype("f4")
        b = random.integers(-3, 4, (128, 96)).astype("f4")
        np.testing.assert_array_equal(f(a, b), a @ b)
        np.testing.assert_array_equal(f.definition(a, b), a @ b)
        self.assertEqual(f.devices, (0, 2, 2))

    def test_seed(self):
        f = weir.compile("fusion f { x : f32[n]; u = uniform([x.0]); y = u + x; return y }")
        x = np.zeros(8, "f4")
        np.testing.assert_array_equal(f(x, seed=1), f(x, seed=1))
        self.assertFalse((f(x, seed=1) == f(x, seed=2)).all())
        np.testing.assert_array_equal(f(x, seed=np.int32(1)), f(x, seed=1))
        f(x, seed=2**64 - 1)
        y = np.empty_like(x)
        calls = (lambda s: f(x, seed=s), lambda s: f(x, seed=s, out=y), lambda s: f.definition(x, seed=s),
                 lambda s: f.run_async(x, seed=s))
        for call in calls:
            for seed in (-1, 2**64, np.int64(-1)):
                with self.assertRaisesRegex(ValueError, "seed is from 0 to"):
                    call(seed)
            with self.assertRaisesRegex(TypeError, "seed is an integer, not 1.5"):
                call(1.5)

    def test_threads(self):
        wrong = []

        def work(k):
            x = np.full((3, 4), k, "f4")
            for _ in range(50):
                if not (self.f(x, self.w)[0] == x * self.w).all():
                    wrong.append(k)

        threads = [threading.Thread(target=work, args=(k,)) for k in range(8)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        self.assertEqual(wrong, [])

    def test_nothing_is_leaked(self):
        before = sys.getrefcount(self.x)
        for _ in range(100):
            self.f(self.x, self.w)
            with self.assertRaises(weir.ProgramError):
                self.f(self.x, self.x)
        self.assertLessEqual(sys.getrefcount(self.x), before + 1)


class Plain(unittest.TestCase):
    """Without NumPy."""

    def test_values(self):
        f = weir.compile(SUM)
        y, z = f(weir.PlainArray((2, 4), "f32", range(8)), weir.PlainArray((4,), "f32", [1, 2, 3, 4]))
        self.assertEqual(y.tolist(), [[0, 2, 6, 12], [4, 10, 18, 28]])
        self.assertEqual(z.shape, (2,))
        self.assertEqual(np.asarray(f(np.ones((2, 4), "f4"), weir.PlainArray((4,)))[0]).sum(), 0)

    def test_dtypes(self):
        for dtype in ("f64", "i64", "i32", "i8", "u8", "bool"):
            f = weir.compile(f"fusion f {{ x : {dtype}[n]; y = set(x); return y }}")
            self.assertEqual(f(weir.PlainArray((3,), dtype, [1, 0, 1])).tolist(), [1, 0, 1], dtype)
        empty = weir.compile("fusion f { x : f32[n, m]; y = x * 2; return y }")(weir.PlainArray((0, 3)))
        self.assertEqual((empty.shape, empty.tolist()), ((0, 3), []))

    def test_lives_as_long_as_the_run(self):
        f = weir.compile(SUM)
        runs = [f.run_async(weir.PlainArray((2, 4), "f32", [k] * 8), weir.PlainArray((4,), "f32", [1] * 4)) for k in range(20)]
        self.assertEqual([r.wait()[0].values()[0] for r in runs], list(range(20)))
        import gc
        from weir import plain
        del runs
        gc.collect()
        self.assertEqual(len(plain._held), 0)

    def test_wrong(self):
        with self.assertRaisesRegex(TypeError, "not bf16"):
            weir.PlainArray((2,), "bf16")
        with self.assertRaisesRegex(ValueError, "3 values are given for a shape of 4"):
            weir.PlainArray((2, 2), "f32", [1, 2, 3])


class Ask(unittest.TestCase):
    def setUp(self):
        self.f = weir.load(EXAMPLES / "row_parallel_linear.weir").compile()

    def test_signature(self):
        self.assertEqual([t.name for t in self.f.inputs], ["inp", "weight", "scale"])
        self.assertEqual(self.f.inputs[0], ("inp", "bf16", 2, "bf16[t, 32]"))
        self.assertEqual(self.f.device, os.environ.get("WEIR_DEVICE", "cpu"))
        self.assertEqual(self.f.shapes((6, 32), (8, 32), ()), [(6, 8)])

    def test_texts(self):
        self.assertIn("allreduce", self.f.lower())
        self.assertIn("because", self.f.why("c0", t=6))
        self.assertIn("ordered", self.f.verify(t=6))
        self.assertIn("ordered", self.f.verify((6, 32), (8, 32), ()))
        self.assertIn("fusion", str(self.f.module))
        self.assertIn("matmul", weir.list_of("ops"))
        weir.load(self.f.lower())

    def test_profile(self):
        f = weir.compile(SUM)
        self.assertIsNone(f.stats)
        f(np.ones((3, 4), "f4"), np.ones(4, "f4"), profile=True)
        self.assertGreater(f.stats["launches"], 0)
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "t.json"
            f.trace(path)
            self.assertGreater(path.stat().st_size, 100)

    def test_prepare(self):
        f = weir.compile("fusion f { x : f32[n, 8]; y = x + 1; return y }")
        f.prepare(n=4)
        f.prepare((4, 8))
        f.settle()
        self.assertTrue((f(np.ones((4, 8), np.float32)) == 2).all())
        with self.assertRaises(weir.Error):
            f.prepare((4, 9))

    def test_shapes_and_extents(self):
        f = weir.compile("fusion f { x : f32[n, 8]; y = x + 1; return y }")
        for ask in f.prepare, f.verify, f.bound:
            ask((4, 8), n=4)
            with self.assertRaisesRegex(weir.Error, "extent n is 5 .* and 4"):
                ask((4, 8), n=5)
        with self.assertRaisesRegex(weir.Error, "no value: n"):
            f.verify()
        self.assertIn("ordered", weir.compile("fusion f { x : f32[4]; y = x + 1; return y }").verify())

    def test_bound(self):
        f = weir.compile("""fusion f { mesh d = [2]; x : f32[n, 8]; w : f32[8, 4]; y = matmul(x, w); return y
          schedule { x, w on d; x.outer_split(1, d); x[1] = mesh.x; w.outer_split(0, d); w[0] = mesh.x } }""")
        b = f.bound(n=4096, machine="hosts-1g")
        self.assertGreater(b["bound_s"], 0)
        self.assertGreaterEqual(b["predicted_s"], b["bound_s"])
        self.assertEqual(b["program"], "marked")
        self.assertEqual(len(b["exposed"]), 1)
        self.assertIn("allreduce", b["exposed"][0][1])
        self.assertLess(f.bound((4096, 8), (8, 4), machine="dgx-h100")["bound_s"], b["bound_s"])
        with self.assertRaises(weir.Error):
            f.bound(n=4096, machine="no such machine")


class Wrong(unittest.TestCase):
    def test_diagnostics(self):
        with self.assertRaises(weir.ProgramError) as caught:
            weir.load("fusion f {\n  x : f32[n]\n  y = nope(x)\n  z = matmul(x)\n  return y\n}", name="bad.weir")
        e = caught.exception
        self.assertEqual(e.status, "BAD_PROGRAM")
        self.assertEqual([(d.file, d.line, d.severity) for d in e.diagnostics],
                         [("bad.weir", 3, "error"), ("bad.weir", 4, "error")])
        self.assertIn("nope", e.diagnostics[0].text)
        self.assertEqual(e.diagnostics[0].column, 7)
        again = pickle.loads(pickle.dumps(e))
        self.assertEqual(again.diagnostics, e.diagnostics)

    def test_arguments(self):
        f = weir.compile(SUM)
        x, w = np.ones((3, 4), "f4"), np.ones(4, "f4")
        for arrays, kind, message in [((x,), TypeError, "takes 2 arrays"), ((x, w.astype("f8")), weir.ProgramError, "f64"),
                                      ((x, np.ones(5, "f4")), weir.ProgramError, "the shape given gives 5"),
                                      ((x[0], w), weir.ProgramError, "'x' has rank 2, but the shape given has rank 1"),
                                      ((x, w.astype("i2")), weir.ProgramError, "input w holds int16")]:
            with self.assertRaisesRegex(kind, message):
                f(*arrays)
        with self.assertRaisesRegex(weir.ProgramError, "overlaps"):
            f(x, w, out=(x, np.empty(3, "f4")))
        with self.assertRaisesRegex(weir.Error, "nodevice"):
            weir.compile(SUM, device="nodevice")
        with self.assertRaisesRegex(weir.Error, "no-option"):
            weir.compile(SUM, no_option=1)
        for one in ("nope", ["cse", "nope"], ("nope", "cse")):
            with self.assertRaisesRegex(weir.Error, "no pass called 'nope'"):
                weir.compile(SUM, disable=one)
        weir.compile(SUM, disable=["cse", "order"], machine=None)(x, w)
        with self.assertRaises(FileNotFoundError):
            weir.load("nofile.weir")
        for wrong, words in ((lambda: weir.compile(SUM, seed=3), r"program\(..., seed=…\) is for that"),
                             (lambda: weir.compile(SUM, world=3), "world is a weir.World, not 3"),
                             (lambda: weir.compile(SUM, device_memory=(1, 2)), "a pair of functions"),
                             (lambda: f(x, w, donate=3), "the name of an input, several"),
                             (lambda: f(x, w, extents=[3]), "extents are given by name"),
                             (lambda: f.run_async(x, w, callback=3), "callback is a function")):
            with self.assertRaisesRegex(TypeError, words):
                wrong()

    def test_constraints_of_every_run(self):
        """What held for the extents of one run says nothing about others."""
        f = weir.compile("fusion f { x : f32[n]; w : f32[m]; y = x + w; return y }")
        a, b = np.ones(4, "f4"), np.ones(3, "f4")
        for x, w, good in [(a, a, True), (a, b, False), (a, b, False), (b, b, True), (a, a, True), (b, a, False), (a, a, True)]:
            if good:
                np.testing.assert_array_equal(f(x, w), x + w)
                continue
            with self.assertRaisesRegex(weir.ProgramError, "n.*m|m.*n"):
                f(x, w)

    def test_suggestions(self):
        with self.assertRaises(weir.ProgramError) as caught:
            weir.load("fusion f {\n  x : f32[n]\n  y = matmull(x, x)\n  return y\n}")
        self.assertEqual(caught.exception.diagnostics[0].suggestion, "matmul")
        self.assertEqual(caught.exception.diagnostics[0].rank, -1)

    def test_device_memory(self):
        """On a GPU, or a stand-in for one (tests/standin): plans use memory of the caller's allocator."""
        code = ("import ctypes, numpy as np, weir\n"
                "cu = ctypes.CDLL('libcuda.so.1')\nlive = []\n"
                "def alloc(gpu, n):\n  p = ctypes.c_uint64()\n  assert cu.cuMemAlloc_v2(ctypes.byref(p), ctypes.c_size_t(n)) == 0\n"
                "  live.append(p.value); return p.value\n"
                "def free(gpu, p):\n  live.remove(p); cu.cuMemFree_v2(ctypes.c_uint64(p))\n"
                "f = weir.compile('fusion f { x : f32[n]; i : i64[2]; y = index_select(x, i, dim=0); return y }', "
                "device='cuda', device_memory=(alloc, free))\n"
                "assert f(np.arange(4, dtype='f4'), np.array([2, 1])).tolist() == [2, 1]\n"
                "assert live\ndel f\nassert not live\n"
                "import sys\nseen = []\nsys.unraisablehook = lambda u: seen.append(u.exc_type)\n"
                "f = weir.compile('fusion f { x : f32[n]; y = exp(cumsum(x * 2, dim=0)) + 1; return y }', device='cuda', "
                "device_memory=(lambda gpu, n: 1 / 0, free))\n"
                "try:\n  f(np.ones(4, 'f4'))\nexcept weir.Error as why:\n  assert why.status == 'OUT_OF_MEMORY', why\n"
                "else:\n  raise AssertionError('it ran without memory')\n"
                "assert seen == [ZeroDivisionError] * len(seen) and seen\n")
        try:
            weir.compile(SUM, device="cuda")
        except weir.Error as why:
            self.skipTest(why.message)
        r = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
        self.assertEqual(r.returncode, 0, r.stderr)


LOOKUP = "fusion f { x : f32[n]; i : i64[m]; y = index_select(x, i, dim=0); return y }"
LONG = ("fusion f {\n mesh d = [2]\n x : f32[64, 100000]\n y = set(exp(tanh(exp(tanh(exp(tanh(x)))))))\n return y\n"
        " schedule { x, y on d; x.outer_split(0, 2); x[0] = mesh.x; y.outer_split(1, 32); y[1] = stream }\n}")


class Async(unittest.TestCase):
    def test_order_and_values(self):
        f = weir.compile(SUM)
        w = np.arange(4, dtype="f4")
        called = []
        runs = [f.run_async(np.full((3, 4), k, "f4"), w, callback=lambda k=k: called.append(k)) for k in range(50)]
        for k, r in enumerate(runs):
            y, z = r.wait()
            np.testing.assert_array_equal(y, np.full((3, 4), k) * w)
            self.assertTrue(r.done())
        self.assertEqual(called, list(range(50)))

    def test_arrays_live_as_long_as_the_run(self):
        f = weir.compile(SUM)
        for _ in range(20):
            f.run_async(np.ones((3, 4), "f4"), np.ones(4, "f4"))  # nobody keeps anything

    def test_failure(self):
        f = weir.compile(LOOKUP)
        x, i = np.arange(4, dtype="f4"), np.array([0, 99])
        r = f.run_async(x, i)
        for _ in range(2):
            with self.assertRaisesRegex(weir.ProgramError, "99") as caught:
                r.wait()
        self.assertIn("99", caught.exception.diagnostics[0].text)
        np.testing.assert_array_equal(f(x, np.array([2])), [2])

    def test_callback_that_raises(self):
        seen, hook = [], sys.unraisablehook
        sys.unraisablehook = lambda u: seen.append(u.exc_type)
        try:
            weir.compile(SUM).run_async(np.ones((3, 4), "f4"), np.ones(4, "f4"), callback=lambda: 1 / 0).wait()
        finally:
            sys.unraisablehook = hook
        self.assertEqual(seen, [ZeroDivisionError])

    def test_callbacks_begin_runs(self):
        """A callback begins the next run and keeps nothing; it cannot wait for it."""
        f, x, w = weir.compile(SUM), np.ones((3, 4), "f4"), np.ones(4, "f4")
        ended, messages = threading.Event(), []

        def again(left=20):
            if left == 0:
                later = f.run_async(x, w)
                for wait in (later.wait, lambda: later.wait(60)):
                    try:
                        wait()
                    except weir.ProgramError as e:
                        messages.append(str(e))
                ended.set()
            else:
                f.run_async(x, w, callback=lambda: again(left - 1))

        again()
        self.assertTrue(ended.wait(60))
        self.assertEqual(len([m for m in messages if "waits for a later run" in m]), 2, messages)
        np.testing.assert_array_equal(f(x, w)[1], np.full(3, 4))

    def test_logs_that_raise(self):
        """What callbacks of the log raise is told, and the call goes on."""
        seen, hook = [], sys.unraisablehook
        sys.unraisablehook = lambda u: seen.append(u.exc_type)
        try:
            weir.log_to(lambda text: 1 / 0, lambda what, done, total: {}[what])
            y, _ = weir.compile(SUM, dump="host")(np.ones((3, 4), "f4"), np.ones(4, "f4"))
        finally:
            weir.log_to()
            sys.unraisablehook = hook
        np.testing.assert_array_equal(y, np.ones((3, 4)))
        self.assertIn(ZeroDivisionError, seen)

    def test_cancel(self):
        f = weir.compile(LONG)
        x = np.zeros((64, 100000), "f4")
        expected = f(x)
        opened = threading.Event()
        first, second = f.run_async(x, callback=opened.wait), f.run_async(x)  # it begins after the callback
        second.cancel()
        opened.set()
        with self.assertRaises(weir.Cancelled):
            second.wait()
        np.testing.assert_array_equal(first.wait(), expected)
        np.testing.assert_array_equal(f(x), expected)

    def test_wait_with_timeout(self):
        f = weir.compile(SUM)
        opened = threading.Event()
        held = f.run_async(np.ones((3, 4), "f4"), np.ones(4, "f4"), callback=opened.wait)
        later = f.run_async(np.ones((3, 4), "f4"), np.ones(4, "f4"))  # not before the callback has returned
        with self.assertRaises(TimeoutError):
            later.wait(timeout=1e-6)
        opened.set()
        held.wait()
        np.testing.assert_array_equal(later.wait(timeout=60)[1], np.full(3, 4))

    def test_await(self):
        import asyncio
        f = weir.compile(SUM)

        async def several():
            runs = [f.run_async(np.full((3, 4), k, "f4"), np.ones(4, "f4")) for k in range(5)]
            return [(await r)[1][0] for r in runs]

        self.assertEqual(asyncio.run(several()), [0, 4, 8, 12, 16])

    def test_interrupt(self):
        """Ctrl-C cancels the run that is waited for."""
        code = (f"import numpy as np, weir\nf = weir.compile('''{LONG}''', threads=1)\nx = np.zeros((64, 100000), 'f4')\n"
                "out = f(x)\nruns = [f.run_async(x, out=out) for _ in range(1000)]\ntry:\n  print('ready', flush=True)\n"
                "  runs[-1].wait()\nexcept KeyboardInterrupt:\n  print('interrupted', flush=True)\n"
                "  for r in runs: r.cancel()\n  print('stopped')\n")
        p = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
        self.assertEqual(p.stdout.readline(), "ready\n")
        time.sleep(0.3)
        p.send_signal(signal.SIGINT)
        self.assertEqual(p.communicate(timeout=60)[0], "interrupted\nstopped\n")
        self.assertEqual(p.returncode, 0)


def save(path, **tensors):
    """A safetensors file; (dtype, array) for dtypes that NumPy lacks."""
    import json
    table, data = {}, b""
    for name, array in tensors.items():
        dtype, array = array if isinstance(array, tuple) else ({"f": "F32", "i": "I64"}[array.dtype.kind], array)
        table[name] = {"dtype": dtype, "shape": array.shape, "data_offsets": [len(data), len(data) + array.nbytes]}
        data += array.tobytes()
    header = json.dumps(table).encode()
    header += b" " * (-len(header) % 8)
    path.write_bytes(len(header).to_bytes(8, "little") + header + data)


class WeightFiles(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.w = np.arange(12, dtype="f4").reshape(3, 4)

    def test_files(self):
        half = np.array([0x3F80, 0x4000, 0x4040, 0], "u2")  # 1, 2, 3
        save(self.folder / "a.safetensors", w=self.w, h=("BF16", half))
        save(self.folder / "b.safetensors", i=np.array([1, 0]))
        weights = weir.load_weights(self.folder)
        self.assertEqual(sorted(weights), ["h", "i", "w"])
        np.testing.assert_array_equal(weights["w"], self.w)
        self.assertEqual(weights.shape("w"), (3, 4))
        np.testing.assert_array_equal(weights.slice("w", 0, 1, 2), self.w[1:])
        for axis, begin, length in ((0, -1, 1), (0, 1, len(self.w)), (5, 0, 1), (0, 2, -1)):
            with self.assertRaisesRegex(IndexError, "w has shape"):
                weights.slice("w", axis, begin, length)
        self.assertIsNotNone(weights["w"].base)
        f = weir.compile("fusion f { w : f32[3, 4]; i : i64[2]; y = index_select(w, i, dim=0); return y }")
        np.testing.assert_array_equal(f(weights["w"], weights["i"]), self.w[[1, 0]])
        g = weir.compile("fusion f { h : bf16[n]; y = cast(h, f32) * 2; return y }")
        np.testing.assert_array_equal(g(weights["h"]), [2, 4, 6, 0])
        (self.folder / "m.json").write_text('{"weight_map": {"w": "a.safetensors", "h": "a.safetensors"}}')
        self.assertEqual(sorted(weir.load_weights(self.folder / "m.json")), ["h", "w"])

    def test_mapped(self):
        """Nothing is read that nobody touches: the file may be larger than the memory."""
        path = self.folder / "large.safetensors"
        n = 1 << 40
        table = b'{"w":{"dtype":"F32","shape":[%d],"data_offsets":[0,%d]}}' % (n // 4, n)
        table += b" " * (-len(table) % 8)
        try:
            with open(path, "wb") as file:
                file.write(len(table).to_bytes(8, "little") + table)
                file.truncate(8 + len(table) + n)
            part = weir.load_weights(path).slice("w", 0, 1 << 36, 4)
        except OSError as why:
            self.skipTest(f"no sparse file of this size can be made or mapped here: {why}")
        np.testing.assert_array_equal(weir.compile("fusion f { x : f32[n]; y = x + 1; return y }")(part), np.ones(4))

    def test_wrong_files(self):
        path = self.folder / "w.safetensors"
        for data, message in [(b"", "cut off"), (b"\xff" * 20, "cut off"), ((9).to_bytes(8, "little") + b"not json!", "JSON")]:
            path.write_bytes(data)
            with self.assertRaisesRegex(ValueError, message):
                weir.load_weights(path)
        save(path, w=self.w)
        path.write_bytes(path.read_bytes()[:-4])
        with self.assertRaisesRegex(ValueError, "do not fit"):
            weir.load_weights(path)
        entry = {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}
        for header in ([1], {"w": "x"}, {"w": {"dtype": "F32"}}, {"w": {**entry, "shape": [1.0]}}, {"w": {**entry, "shape": [-1]}},
                       {"w": {**entry, "data_offsets": [0]}}, {"w": {**entry, "data_offsets": None}}):
            text = json.dumps(header).encode()
            path.write_bytes(len(text).to_bytes(8, "little") + text + bytes(4))
            with self.assertRaisesRegex(ValueError, "no table of tensors|w has no dtype, shape and data_offsets"):
                weir.load_weights(path)
        with self.assertRaises(FileNotFoundError):
            weir.load_weights(self.folder / "none.safetensors")


class Traced(unittest.TestCase):
    def test_function(self):
        @weir.fusion(meshes={"d": [2]}, schedule="x, w on d\nx.outer_split(0, 2)\nx[0] = mesh.x")
        def g(x: "f32[n, 8]", w: "f32[8, 6]"):
            h = x @ w
            return 2 * weir.ops.relu(h) - 1, -h

        random = np.random.default_rng(5)
        x, w = random.integers(-3, 4, (4, 8)).astype("f4"), random.integers(-3, 4, (8, 6)).astype("f4")
        y, h = g.compile()(x, w)
        np.testing.assert_array_equal(y, 2 * np.maximum(x @ w, 0) - 1)
        np.testing.assert_array_equal(h, -(x @ w))

    def results(self, function, *arrays):
        return weir.fusion(function).compile()(*arrays)

    def test_operators(self):
        def f(x: "f32[n, 4]", i: "i64[n, 4]"):
            m = (x < 1) & (x != 0) | ~(x >= -2)
            return abs(x) ** 2 / 4 - 1 % (abs(x) + 2), weir.ops.where(m, x, -x), i % 3 == 1

        x, i = np.arange(-6, 6, dtype="f4").reshape(3, 4), np.arange(12).reshape(3, 4)
        y, z, b = self.results(f, x, i)
        np.testing.assert_array_equal(y, np.abs(x) ** 2 / 4 - 1 % (np.abs(x) + 2))
        np.testing.assert_array_equal(z, np.where((x < 1) & (x != 0) | ~(x >= -2), x, -x))
        np.testing.assert_array_equal(b, i % 3 == 1)

    def test_indices(self):
        x = np.arange(120, dtype="f4").reshape(4, 5, 6)
        for index in [np.s_[1:3], np.s_[:, -2:], np.s_[..., 0], np.s_[2], np.s_[-1, 1:-1, ::2], np.s_[:, None, 3],
                      np.s_[..., None], np.s_[1:, ..., 5], np.s_[:]]:
            def f(x: "f32[a, b, 6]"):
                return x[index] * 1

            with self.subTest(index=index):
                np.testing.assert_array_equal(self.results(f, x), x[index])
        with self.assertRaisesRegex(IndexError, "3 dimensions, and 4"):
            @weir.fusion
            def g(x: "f32[a, b, 6]"):
                return x[0, 0, 0, 0]

    def test_indices_before_the_first(self):
        x = np.arange(2, dtype="f4")
        for index in [np.s_[-3:], np.s_[:-3], np.s_[-2], np.s_[-5:-1], np.s_[1:-1]]:
            for kind in "f32[n]", "f32[2]":
                with self.subTest(index=index, kind=kind):
                    f = weir.fusion(lambda x: x[index] * 1, types={"x": kind})
                    np.testing.assert_array_equal(f.compile()(x), x[index])
        for index in -3, -4, 2:
            for kind in "f32[n]", "f32[2]":
                with self.subTest(index=index, kind=kind), self.assertRaisesRegex(weir.Error, "squeeze"):
                    weir.fusion(lambda x: x[index], types={"x": kind}).compile()(x)

    def test_extents_called_like_results(self):
        @weir.fusion
        def f(x: "f32[t1, t2]"):
            return x * 2 + 1

        np.testing.assert_array_equal(f.compile()(np.ones((2, 3), "f4")), np.full((2, 3), 3))

    def test_shapes(self):
        def f(x: "f32[b, s, 8]"):
            b, s, e = x.shape
            assert (x.ndim, x.dtype, (x > 0).dtype) == (3, "f32", "bool")
            y = x.reshape(b * s, e).T.sum(dims=[1]).cast(np.float64)
            return y / s, x.permute(0, 2, 1).reshape(b, e // 2, 2 * s)[:, :, : s + 1]

        x = np.arange(48, dtype="f4").reshape(2, 3, 8)
        y, z = self.results(f, x)
        np.testing.assert_array_equal(y, x.reshape(6, 8).sum(0).astype("f8") / 3)
        np.testing.assert_array_equal(z, x.transpose(0, 2, 1).reshape(2, 4, 6)[:, :, :4])

    def test_fixed_extents(self):
        """Integers where types and operations fix them; others cannot be compared, and say so."""
        def f(x: "f32[n, 64]"):
            y = x.reshape(x.shape[0], 8, -1)
            assert y.shape[1:] == (8, 8) and x.T.shape[0] == 64 and list(range(y.shape[2]))[-1] == 7
            assert x.shape[0] == x.shape[0] and len({x.shape[0], x.shape[0]}) == 1
            return x * x.shape[1] ** -0.5

        x = np.ones((2, 64), "f4")
        y = self.results(f, x)
        np.testing.assert_array_equal(y, x * np.float32(0.125))
        self.assertEqual(weir.fusion(f).compile().inputs[0].type, "f32[n, 64]")
        for uses in (lambda n: n == 8, lambda n: n != 8, lambda n: n in (1, 2), lambda n: n > 3, range, float, lambda n: n ** 0.5):
            with self.assertRaisesRegex(TypeError, "extent x.0 is known when the program runs"):
                weir.fusion(lambda x: x * uses(x.shape[0]), types={"x": "f32[n]"})
        with self.assertRaisesRegex(TypeError, "is an integer: // divides it"):
            weir.fusion(lambda x: x * (1 / x.shape[0]), types={"x": "f32[n]"})

    def test_operations_say_how_they_are_called(self):
        self.assertIn("topk", dir(weir.ops))
        self.assertTrue(weir.ops.topk.__doc__.startswith("topk(x, "))
        self.assertIsNone(weir.ops.arange.__doc__)  # unknown: the call says what to write

    def test_looks_at_each_statement_once(self):
        """Shapes that are asked for on the way do not have the whole program parsed again."""
        def f(x: "f32[b, s, 64]", k: "i64[?, 3]"):
            b, s, e = x.shape
            y = x.reshape(b * s, e).reshape(b, s, 8, -1)
            assert y.shape[3] == 8
            v, i = weir.ops.topk(y[..., None], k=2, dim=-2)
            assert v.shape[3:] == (2, 1) and i.dtype == "i64" and k[:, 0].ndim == 1
            for _ in range(100):
                x = x[:, :, :32].exp() * x.shape[2] + x[..., 32:].cast("f64").cast("f32")
                x = weir.ops.cat([x, x], dim=2)
            return x

        with mock.patch("weir.tracing._parse", wraps=weir.tracing._parse) as parse:
            weir.fusion(f)
        self.assertEqual(parse.call_count, 1)

    def test_names_that_others_have(self):
        """A result that is called t3 by itself gives the name up."""
        def f(x: "f32[n]", t1: "f32[n]"):
            y = x * 2 + t1
            return (y + 1).named("t3"), (y.exp() * 0).named("t7"), y.named("t4")

        x = np.arange(3, dtype="f4")
        text = weir.fusion(f).text
        self.assertIn("return t3, t7, t4", text)
        for got, want in zip(self.results(f, x, x), (x * 3 + 1, x * 0, x * 3)):
            np.testing.assert_array_equal(got, want)

    def test_habits(self):
        """Of PyTorch and NumPy."""
        def f(x: "f32[n, 4]", w: "f32[2, 4]", bias=None):
            y = weir.ops.linear(np.float32(2) * x + np.array(1.0), w, bias)
            return weir.ops.cat([x, x], 0), weir.ops.linear(y, y, bias=None)

        x = np.arange(8, dtype="f4").reshape(2, 4)
        g = weir.fusion(functools.partial(f, bias=None), types={"x": "f32[n, 4]", "w": "f32[2, 4]"}, meshes={"d": 2}).compile()
        twice, y = g(x, x)
        np.testing.assert_array_equal(twice, np.concatenate([x, x]))
        z = (2 * x + 1) @ x.T
        np.testing.assert_array_equal(y, z @ z.T)

    def test_names(self):
        """At any time, of results and of tensors that were used."""
        @weir.fusion(types={"x": "f32[n, 4]", "k": "f32[n, 4]"}, capacities={"n": 8})
        def f(x, k):
            v, i = weir.ops.topk(x + k, k=2)
            y = v.reshape(v.shape[0], 2) * v
            v.named("best"), i.named("where")
            return y, i

        self.assertIn("  best, where = topk(t3, k=2)\n  t5 = reshape(best, [best.0, 2])\n  t6 = t5 * best\n", f.text)
        self.assertIn("  extent n <= 8\n", f.text)
        self.assertEqual(f.compile().bucket("n", 3), 8)
        self.assertEqual([t.name for t in f.compile().outputs], ["t6", "where"])

    def test_several_results(self):
        def f(x: "f32[n, 6]"):
            v, i = weir.ops.topk(x, k=2)
            m = weir.ops.var_mean(x, dims=[1])
            return v, i, m, weir.ops.cat([v, v], dim=1), weir.ops.iota(x.shape[0])

        x = np.array([[3, 1, 4, 1, 5, 9], [2, 6, 5, 3, 5, 8]], "f4")
        v, i, m, c, n = self.results(f, x)
        np.testing.assert_array_equal(v, [[9, 5], [8, 6]])
        np.testing.assert_array_equal(i, [[5, 4], [5, 1]])
        np.testing.assert_allclose(m, x.var(1), rtol=1e-6)
        np.testing.assert_array_equal(c, [[9, 5, 9, 5], [8, 6, 8, 6]])
        np.testing.assert_array_equal(n, [0, 1])

    def test_schedules(self):
        """Every statement, as an object and as text."""
        g, e = weir.Mesh("g", 2, 3), weir.Mesh("e", 2, devices=[3, 1])

        @weir.fusion
        def f(x: "f32[n, 12]", w: "f32[12, 4]", v: "f32[4]"):
            return (x @ w).named("h").sum(dims=[0]) * v

        s = weir.Schedule()
        s["x"].on(g).outer_split(0, g.y).mark(0, g.y).outer_split(2, g.x).mark(2, g.x).outer_split(1, 2)
        s["x"].mark(1, weir.stream.ring).reorder({0: 1, 1: 0}).mark(0, weir.serial).merge(0)
        s["w"].outer_split(0, [5, 7]).split(2, 2).swizzle(0, g.x).on(g).memory("symmetric").contiguity([True, False])
        s["v"].shard(0, e.x).allocate([0]).allocate_as_loop()
        s["h"].split(2, 4).rfactor([2], "part")
        self.assertEqual(str(s).splitlines(), [
            "x on g", "x.outer_split(0, g.y)", "x[0] = mesh.y", "x.outer_split(2, g.x)", "x[2] = mesh.x",
            "x.outer_split(1, 2)", "x[1] = stream.ring", "x.reorder(0 -> 1, 1 -> 0)", "x[0] = serial", "x.merge(0)",
            "w.outer_split(0, [5, 7])", "w.split(2, 2)", "w.swizzle(0, mesh.x)", "w on g", "w.memory(symmetric)",
            "w.contiguity([true, false])", "v on e", "v.outer_split(0, e)", "v[0] = mesh.x", "v.allocate([0])",
            "v.allocate_as_loop()", "h.split(2, 4)", "part = h.rfactor([2])"])
        self.assertEqual([str(m) for m in s.meshes.values()], ["mesh g = [2, 3]", "mesh e = [2] of {3, 1}"])

    def test_mesh_as_axis(self):
        d, g = weir.Mesh("d", 2), weir.Mesh("g", 2, 3)
        s = weir.Schedule()
        s["x"].shard(0, d).swizzle(1, d)
        s["w"].on(d).outer_split(1, d).mark(1, d)
        self.assertEqual(str(s).splitlines(), ["x on d", "x.outer_split(0, d)", "x[0] = mesh.x", "x.swizzle(1, mesh.x)",
                                               "w on d", "w.outer_split(1, d)", "w[1] = mesh.x"])
        for axis in (g, "d.x", 0):
            with self.assertRaisesRegex(TypeError, "not an axis of a mesh"):
                s["x"].shard(0, axis)
        with self.assertRaisesRegex(TypeError, "not an axis of a mesh"):
            s["x"].mark(0, g)

    def test_scheduled(self):
        d = weir.Mesh("d", 2)

        @weir.fusion
        def f(x: "f32[n, 8]", w: "f32[6, 8]"):
            return weir.ops.linear(x, w)

        s = weir.Schedule()
        s["w"].shard(0, d.x)
        s["x"].outer_split(0, 3).mark(0, weir.stream)
        x, w = np.arange(48, dtype="f4").reshape(6, 8), np.ones((6, 8), "f4")
        self.assertEqual(f.compile().devices, (0, 1, 1))
        program = f.scheduled(s).compile()
        self.assertEqual(program.devices, (0, 2, 2))
        np.testing.assert_array_equal(program(x, w), x @ w.T)

    def place(self, make):
        """The line of the mistake, counted from the function that is traced."""
        with self.assertRaises(weir.ProgramError) as caught:
            make()
        (d,) = caught.exception.diagnostics
        self.assertEqual(d.file, __file__)
        self.assertIn(f"{__file__}:{d.line}: error:", str(caught.exception))
        return d.line - make.__code__.co_firstlineno

    def test_places(self):
        """A mistake is where Python wrote it."""
        def wrong_shape():
            @weir.fusion
            def f(x: "f32[n, 8]", w: "f32[9, 4]"):
                h = x * 2
                return h @ w

        def wrong_op():
            @weir.fusion
            def f(x: "f32[n]"):
                return weir.ops.softmaxx(x)

        def wrong_statement():
            s = weir.Schedule()
            s["x"].split(0, 2)
            s["x"].split(7, 2)
            weir.fusion(twice).scheduled(s)

        def twice(x: "f32[n]"):
            return x * 2

        self.assertEqual(self.place(wrong_shape), 4)
        self.assertEqual(self.place(wrong_op), 3)
        self.assertEqual(self.place(wrong_statement), 3)

    def test_mistakes(self):
        def fails(error, words, function):
            with self.assertRaisesRegex(error, words):
                weir.fusion(function)

        other = []

        def keeps(x: "f32[n]"):
            other.append(x)
            return x * 2

        def decides(x: "f32[n]"):
            return x if x else -x

        def takes_other(x: "f32[n]"):
            return x + other[0]

        def unpacks(x: "f32[n]"):
            a, b = x * 2
            return a

        def names_twice(x: "f32[n]"):
            return (x * 2).named("x")

        def names_again(x: "f32[n]"):
            return (x * 2).named("h").named("g")

        def returns_number(x: "f32[n]"):
            return 2

        def returns_nothing(x: "f32[n]"):
            x * 2

        def returns_array(x: "f32[n]"):
            return np.ones(3) * 2

        def names_word(x: "f32[n]"):
            return (x * 2).named("stream")

        def takes_array(x: "f32[n]"):
            return np.ones(3) * x

        def writes(x: "f32[n]"):
            x[0] = 1
            return x

        def floors(x: "i64[n]"):
            return x // 2

        def asks_truth(x: "f32[n]"):
            return x[True]

        def reduces(x: "f32[n, m]"):
            return x.max(-1)

        def calls(x: "f32[n]"):
            return weir.fusion(keeps)(x)

        fails(TypeError, "annotate", lambda x: x)
        fails(TypeError, "no values", decides)
        fails(ValueError, "'stream' cannot be the name", names_word)
        fails(TypeError, "make the array a parameter", takes_array)
        fails(TypeError, "never changed: weir.ops.update", writes)
        fails(TypeError, "True cannot be an index", asks_truth)
        fails(TypeError, r"weir.ops.floor\(x / y\)", floors)
        fails(TypeError, "written without weir.fusion", calls)
        fails(TypeError, r"x.amax\(dims=\[-1\]\) reduces", reduces)
        for types in (["f32[n]"], {"x": 3}):
            with self.assertRaisesRegex(TypeError, "f32"):
                weir.fusion(lambda x: x * 2, types=types)
        weir.fusion(keeps)
        fails(ValueError, "another function", takes_other)
        fails(TypeError, "taken apart", unpacks)
        fails(ValueError, "two tensors", names_twice)
        fails(ValueError, "has a name", names_again)
        with self.assertRaisesRegex(TypeError, "keeps is not compiled"):
            weir.fusion(keeps)(np.ones(2, "f4"))
        fails(TypeError, "must return traced tensors, not 2", returns_number)
        fails(TypeError, "is its return missing", returns_nothing)
        fails(TypeError, "arrays are used as parameters", returns_array)
        with self.assertRaisesRegex(RuntimeError, "weir.fusion traces"):
            weir.ops.zeros([2])
        with self.assertRaisesRegex(ValueError, "two meshes"):
            s = weir.Schedule()
            s.on(weir.Mesh("d", 2), "x").on(weir.Mesh("d", 3), "y")
        for wrong in [lambda: weir.Mesh("d"), lambda: weir.Mesh("d", 0), lambda: weir.Mesh("d d", 2), lambda: weir.Mesh("d", 2).y]:
            self.assertRaises(ValueError, wrong)


ROWS = """fusion f {
  mesh d = [2]
  x : f32[n, 8]; w : f32[6, 8]
  y = linear(x, w)
  return y
  schedule { w, y on d; w.outer_split(0, d); w[0] = mesh.x; y.outer_split(1, d); y[1] = mesh.x }
}"""


class Sharded(unittest.TestCase):
    def setUp(self):
        self.f = weir.compile(ROWS)
        self.x, self.w = np.arange(16, dtype="f4").reshape(2, 8), np.arange(48, dtype="f4").reshape(6, 8)

    def test_parts(self):
        part = self.f.shard("w", device=1)  # its own extents are enough
        self.assertEqual((part.begin, part.extents, part.whole, part.owner, part.scattered), ((3, 0), (3, 8), (6, 8), 1, False))
        self.assertEqual(self.f.shard("y", n=2, device=1).begin, (0, 3))
        self.assertEqual(self.f.shard("y", (2, 8), None, device=1).whole, (2, 6))
        with self.assertRaisesRegex(weir.ProgramError, "not all of its extents are known"):
            self.f.shard("x")
        with self.assertRaisesRegex(ValueError, "it has x, w"):
            self.f.cut("z", self.w)

    def test_runs(self):
        w = self.f.cut("w", self.w)
        self.assertEqual([p.shape for p in w], [(3, 8), (3, 8)])
        self.assertTrue(np.shares_memory(w[1], self.w))
        y = self.x @ self.w.T
        np.testing.assert_array_equal(self.f(self.x, w), y)
        parts = self.f(self.x, w, whole=False)
        self.assertIsInstance(parts, weir.Shards)
        np.testing.assert_array_equal(np.concatenate(parts, 1), y)
        np.testing.assert_array_equal(np.concatenate(self.f.run_async(self.x, w, whole=False).wait(), 1), y)
        out = weir.Shards(np.empty((2, 3), "f4"), np.empty((2, 3), "f4"))
        self.assertIs(self.f(self.x, self.w, out=out), out)
        np.testing.assert_array_equal(np.concatenate(out, 1), y)

    def test_extents(self):
        """What no array tells is given."""
        text = ROWS.replace("x : f32[n, 8]", "x : f32[n, k]").replace("w : f32[6, 8]", "w : f32[m, k]")
        f = weir.compile(text)
        np.testing.assert_array_equal(f(self.x, f.cut("w", self.w), extents={"m": 6}), self.x @ self.w.T)
        with self.assertRaisesRegex(weir.ProgramError, "no value: m"):
            f(self.x, f.cut("w", self.w))

    def test_wrong(self):
        with self.assertRaisesRegex(weir.ProgramError, r"has shape \[2, 8\], but needs \[3, 8\]"):
            self.f(self.x, weir.Shards(self.w[:2], self.w[3:]))
        with self.assertRaisesRegex(weir.ProgramError, "no shard is given"):
            self.f(self.x, weir.Shards(self.w[:3], None))
        with self.assertRaises(weir.ProgramError):
            self.f(self.x, weir.Shards(self.w[:3]))
        for device in (-1, 2):
            with self.assertRaisesRegex(ValueError, f"f has 2 devices, and no device {device}"):
                self.f.shard("w", device=device)
        with self.assertRaisesRegex(TypeError, "w is given as list"):
            self.f.cut("w", [1])

    def test_scattered(self):
        f = weir.compile("fusion f { mesh d = [2]; x : f32[8]; y = x * 2; return y; schedule { x on d; x.split(0, 2); "
                         "x[1] = mesh.x } }")
        with self.assertRaisesRegex(ValueError, "scattered"):
            f.cut("x", np.ones(8, "f4"))


class Donated(unittest.TestCase):
    STEP = "fusion f { w : f32[n]; g : f32[n]; s : f32[]; new = w - g * s; norm = sum(g * g); return new, norm }"

    def setUp(self):
        self.w, self.g, self.s = np.arange(4, dtype="f4"), np.ones(4, "f4"), np.array(0.5, "f4")

    def test_donated(self):
        f = weir.compile(self.STEP)
        for how in [{"w": "new"}, "w", ["w"]]:
            w = self.w.copy()
            new, norm = f(w, self.g, self.s, donate=how)
            self.assertIs(new, w)
            np.testing.assert_array_equal(w, self.w - 0.5)
            self.assertEqual(norm, 4)
        pending = f.run_async(w, self.g, self.s, donate="w")
        self.assertIs(pending.wait()[0], w)
        np.testing.assert_array_equal(w, self.w - 1)

    def test_shards(self):
        f = weir.compile(self.STEP.replace("w : f32[n]", "mesh d = [2]; w : f32[n]").replace(
            "return new, norm", "return new, norm; schedule { w, g on d; w.outer_split(0, d); w[0] = mesh.x; "
            "g.outer_split(0, d); g[0] = mesh.x }"))
        w = weir.Shards(*(part.copy() for part in f.cut("w", self.w)))
        new, norm = f(w, f.cut("g", self.g), self.s, donate="w", extents={"n": 4})
        self.assertIs(new, w)
        np.testing.assert_array_equal(np.concatenate(w), self.w - 0.5)

    def test_evicted(self):
        f = weir.compile(self.STEP, plan_cache=0)
        for n in (4, 5, 4):
            f(np.ones(n, "f4"), np.ones(n, "f4"), self.s)
        counts = f.counts
        self.assertEqual((counts["bindings"], counts["evicted"], counts["plans"]), (3, 2, 1))
        self.assertGreater(counts["plan_bytes"], 0)

    def test_wrong(self):
        f = weir.compile(self.STEP)
        for how, words in [({"v": "new"}, "no input called 'v'"), ({"w": "old"}, "no output called 'old'"),
                           ({"w": "new", "g": "new"}, "two inputs"), ({"w": "norm"}, "norm")]:
            with self.assertRaisesRegex(ValueError, words):
                f(self.w, self.g, self.s, donate=how)
        two = weir.compile("fusion f { w : f32[n]; a = w + 1; b = w + 2; return a, b }")
        with self.assertRaisesRegex(ValueError, "2 outputs have the dtype and shape of w"):
            two(self.w, donate="w")


class Process(unittest.TestCase):
    def test_fork(self):
        """A child that was forked between runs ends by itself, and cannot run what its parent compiled."""
        code = """if True:
            import os, sys, numpy as np, weir
            f = weir.compile("fusion f { x : f32[n]; y = x * 2; return y }")
            f.run_async(np.ones(3, "f4")).wait()
            pid = os.fork()
            if pid:
                sys.exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
            try:
                f(np.ones(3, "f4"))
            except weir.ProgramError as error:
                sys.exit("compiled before fork()" not in str(error))
            sys.exit(2)"""
        subprocess.run([sys.executable, "-c", code], check=True, timeout=60)

    def test_demo(self):
        r = subprocess.run([sys.executable, "-m", "weir", "demo"], capture_output=True, text=True)
        self.assertEqual(r.returncode, 0, r.stderr)
        self.assertIn("ok", r.stdout)

    def test_examples(self):
        for command in [["seeds.py"], ["llama.py"], ["tp_mlp.py"]]:
            if command == ["tp_mlp.py"] and importlib.util.find_spec("torch") is None:
                continue
            r = subprocess.run([sys.executable, EXAMPLES / "python" / command[0]], capture_output=True, text=True)
            self.assertEqual(r.returncode, 0, r.stdout + r.stderr)

    def test_interrupt(self):
        """Ctrl-C ends a loop of runs, and the process is well afterwards."""
        code = (f"import numpy as np, weir\nf = weir.compile('''{SUM}''')\nx, w = np.ones((3, 4), 'f4'), np.ones(4, 'f4')\n"
                "try:\n  print('ready', flush=True)\n  while True: f(x, w)\nexcept KeyboardInterrupt:\n"
                "  f(x, w); print('interrupted')\n")
        p = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
        self.assertEqual(p.stdout.readline(), "ready\n")
        time.sleep(0.3)
        p.send_signal(signal.SIGINT)
        self.assertEqual(p.communicate(timeout=60)[0], "interrupted\n")


class Table:
    """A package that has DLPack's table of functions, with tensors of one dimension in f32."""

    class DL(ctypes.Structure):
        _fields_ = [("data", ctypes.c_void_p), ("type", ctypes.c_int32), ("gpu", ctypes.c_int32), ("ndim", ctypes.c_int32),
                    ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16),
                    ("shape", ctypes.POINTER(ctypes.c_int64)), ("strides", ctypes.c_void_p), ("offset", ctypes.c_uint64)]

    View = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.POINTER(DL))
    Stream = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_int, ctypes.c_int32, ctypes.POINTER(ctypes.c_void_p))

    def __init__(self):
        self.asked, self.handle = [], 0
        fields = [("major", ctypes.c_uint32), ("minor", ctypes.c_uint32), ("older", ctypes.c_void_p),
                  ("unused", ctypes.c_void_p * 3), ("view", self.View), ("stream", self.Stream)]
        self.api = type("Api", (ctypes.Structure,), {"_fields_": fields})(major=1, view=self.View(self.view), stream=self.Stream(self.stream))
        capsule = ctypes.pythonapi.PyCapsule_New
        capsule.restype, capsule.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
        self.name = b"dlpack_exchange_api"
        self.Tensor = type("Tensor", (), {"__dlpack_c_exchange_api__": capsule(ctypes.addressof(self.api), self.name, None)})
        weir.arrays.DIRECT.add(self.Tensor)

    def tensor(self, data, n, device=(1, 0)):
        t = self.Tensor()
        t.data, t.extents, t.device, t.refuses = data, (ctypes.c_int64 * 1)(n), device, False
        return t

    @staticmethod
    def view(t, result):
        r = result.contents
        r.data, (r.type, r.gpu), r.ndim, r.code, r.bits, r.lanes = t.data, t.device, 1, 2, 32, 1
        r.shape, r.strides, r.offset = ctypes.cast(t.extents, ctypes.POINTER(ctypes.c_int64)), None, 0
        return -1 if t.refuses else 0

    def stream(self, kind, gpu, result):
        self.asked.append((kind, gpu))
        result[0] = self.handle
        return 0


class Direct(unittest.TestCase):
    """Calls whose tensors, and streams, are asked for by a package's table of functions."""

    TEXT = "fusion f { x : f32[n]; w : f32[n]; y = x * w; z = x + w; return y, z }"

    def test_host(self):
        table, f = Table(), weir.compile(self.TEXT)
        host = [np.arange(4, dtype="f4") + i for i in range(4)]
        x, w, y, z = (table.tensor(a.ctypes.data, 4) for a in host)
        self.assertEqual(f(x, w, out=(y, z)), (y, z))
        np.testing.assert_array_equal(host[2], host[0] * host[1])
        np.testing.assert_array_equal(host[3], host[0] + host[1])
        one = weir.compile("fusion f { x : f32[n]; y = x + 1; return y }")
        self.assertIs(one(x, out=y), y)
        self.assertIs(one(x, out=(y,)), y)
        self.assertEqual(table.asked, [])
        with self.assertRaisesRegex(weir.ProgramError, "extent 0 is 3"):
            one(x, out=table.tensor(host[2].ctypes.data, 3))
        with self.assertRaisesRegex(TypeError, "takes 1 arrays"):
            one(x, w, out=y)
        with self.assertRaises(TypeError):
            one(x, out=y, seed="a")
        x.refuses = True
        with self.assertRaisesRegex(TypeError, "__dlpack__"):
            one(x, out=y)

    def test_streams(self):
        try:
            f = weir.compile(self.TEXT, device="cuda")
        except weir.Error as why:
            self.skipTest(why.message)
        table, cu, n = Table(), ctypes.CDLL("libcuda.so.1"), 1000
        data = [np.arange(n, dtype="f4"), np.arange(n, dtype="f4") * 2, np.zeros(n, "f4"), np.zeros(n, "f4")]
        f(*data[:2])  # and a context is current
        context, own = ctypes.c_void_p(), ctypes.c_void_p()
        self.assertEqual(cu.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0), 0)
        self.assertEqual(cu.cuCtxSetCurrent(context), 0)
        self.assertEqual(cu.cuStreamCreate(ctypes.byref(own), 1), 0)
        blocks = []
        for a in data:
            p = ctypes.c_uint64()
            self.assertEqual(cu.cuMemAlloc_v2(ctypes.byref(p), ctypes.c_size_t(4 * n)), 0)
            self.assertEqual(cu.cuMemcpyHtoD_v2(p, a.ctypes.data_as(ctypes.c_void_p), ctypes.c_size_t(4 * n)), 0)
            blocks.append(p)
        x, w, y, z = (table.tensor(p.value, n, (2, 0)) for p in blocks)
        table.handle = own.value
        for given, asked in [({}, [(2, 0)]), ({"stream": own.value}, [])]:
            table.asked.clear()
            f(x, w, out=(y, z), **given)
            self.assertEqual(table.asked, asked)
            self.assertEqual(cu.cuStreamSynchronize(own), 0)
            for p, a in zip(blocks[2:], (data[0] * data[1], data[0] + data[1])):
                got = np.zeros(n, "f4")
                self.assertEqual(cu.cuMemcpyDtoH_v2(got.ctypes.data_as(ctypes.c_void_p), p, ctypes.c_size_t(4 * n)), 0)
                np.testing.assert_array_equal(got, a)
        for p in blocks:
            cu.cuMemFree_v2(p)
        cu.cuStreamDestroy_v2(own)
        cu.cuCtxSetCurrent(None)
        cu.cuDevicePrimaryCtxRelease_v2(0)


class Torch(unittest.TestCase):
    def test_torch(self):
        try:
            import torch
        except ImportError:
            self.skipTest("PyTorch is not here")
        f = weir.compile("fusion f { x : bf16[n, 4]; y = x * 2; return y }")
        x = torch.arange(8, dtype=torch.bfloat16).reshape(2, 4)
        y = f(x)
        self.assertIsInstance(y, torch.Tensor)
        self.assertTrue(torch.equal(y, x * 2))
        self.assertTrue(torch.equal(f(x.t().contiguous().t()), x * 2))
        out = torch.empty_like(x)
        self.assertIs(f(x, out=out), out)
        self.assertTrue(torch.equal(out, x * 2))
        if not torch.cuda.is_available():
            return
        f = weir.compile("fusion f { x : bf16[n, 4]; y = x * 2; return y }", device="cuda")
        s = torch.cuda.Stream()
        with torch.cuda.stream(s):
            a = torch.ones(256, 4, dtype=torch.bfloat16, device="cuda")
            for _ in range(5):
                a = f(a)
            self.assertTrue(torch.equal(a, torch.full_like(a, 32)))

    def test_operation(self):
        """A program within nn.Module, under torch.compile, with gradients."""
        try:
            import torch
            from torch.library import custom_op  # noqa: F401
        except ImportError:
            self.skipTest("there is no PyTorch with torch.library.custom_op")
        with self.assertRaisesRegex(ValueError, "called namespace::name, not 'mm'"):
            weir.torch_op(weir.compile(SUM), "mm")
        forward = weir.compile("fusion f { x : f32[n, k]; w : f32[k, m]; y = tanh(matmul(x, w)); return y }")
        backward = weir.compile(
            "fusion b { x : f32[n, k]; w : f32[k, m]; g : f32[n, m]; y = tanh(matmul(x, w)); h = g * (1 - y * y)\n"
            "  dx = matmul(h, transpose(w)); dw = matmul(transpose(x), h); return dx, dw }")
        op = weir.torch_op(forward, "weirtest::layer", backward=backward)

        class Layer(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.w = torch.nn.Parameter(torch.randn(8, 5))

            def forward(self, x):
                return op(x * 2, self.w) + 1

        torch.manual_seed(1)
        layer = Layer()
        x = torch.randn(3, 8, requires_grad=True)
        expected = torch.tanh((x * 2) @ layer.w) + 1
        grads = torch.autograd.grad(expected.sum(), [x, layer.w])
        for f in (layer, torch.compile(layer, backend="aot_eager", fullgraph=True)):
            y = f(x)
            torch.testing.assert_close(y, expected)
            for a, b in zip(torch.autograd.grad(y.sum(), [x, layer.w]), grads):
                torch.testing.assert_close(a, b)
        torch.library.opcheck(op, (x, layer.w), test_utils=("test_schema", "test_faketensor"))
        with self.assertRaisesRegex(TypeError, "must take 3 arrays"):
            weir.torch_op(forward, "weirtest::wrong", backward=forward)

    def test_jax(self):
        try:
            import jax.numpy as jnp
        except ImportError:
            self.skipTest("JAX is not here")
        f = weir.compile(SUM)
        x, w = jnp.ones((3, 4), "float32"), jnp.arange(4, dtype="float32")
        y, z = f(x, w)
        self.assertTrue((y == x * w).all())
        self.assertEqual(type(y), type(x))
        with self.assertRaisesRegex(TypeError, "output y: a JAX array cannot be written to"):
            f(np.asarray(x), np.asarray(w), out=(x, z))
        double = weir.compile("fusion f { x : bf16[n]; y = x * 2; return y }")
        b = jnp.arange(6, dtype=jnp.bfloat16)
        for y in (double(b), double.run_async(b).wait()):
            self.assertEqual((type(y), y.dtype), (type(b), b.dtype))
            self.assertTrue((y == b * 2).all())
        y = double(np.asarray(b)[::2])  # NumPy's, of ml_dtypes
        np.testing.assert_array_equal(y.bits, np.asarray(b * 2).view("u2")[::2])


if __name__ == "__main__":
    unittest.main()
