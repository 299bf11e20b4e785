"""Worlds from Python: ranks that are processes, started as torchrun and mpirun start them, and by an exchange."""

import itertools
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import textwrap
import time
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
EXAMPLES = pathlib.Path(os.environ.get("WEIR_EXAMPLES", ROOT / "examples"))

# What every rank begins with. `meet` is an exchange by files in a folder, which all ranks reach.
PREAMBLE = textwrap.dedent("""
    import os, pathlib, sys, time
    import numpy as np
    import weir
    folder = pathlib.Path(os.environ["FOLDER"])
    rank, size = int(os.environ.get("ME", "0")), int(os.environ.get("ALL", "1"))

    class Meet:
        def __init__(self, rank, size, name="a"):
            self.rank, self.size, self.name, self.turn = rank, size, name, 0

        def __call__(self, mine):
            self.turn += 1
            place = lambda r: folder / f"{self.name}.{self.turn}.{r}"
            (folder / f"{self.name}.tmp.{self.rank}").write_bytes(mine)
            (folder / f"{self.name}.tmp.{self.rank}").rename(place(self.rank))
            end = time.monotonic() + 60
            while not all(place(r).exists() for r in range(self.size)):
                if time.monotonic() > end:
                    raise TimeoutError("somebody did not come")
                time.sleep(0.002)
            return [place(r).read_bytes() for r in range(self.size)]

    SUM = '''fusion f {
      mesh d = [2]
      x : f32[n, 8]
      w : f32[8, 4]
      y = matmul(x, w)
      return y
      schedule { x, w on d;  x.outer_split(1, d); x[1] = mesh.x;  w.outer_split(0, d); w[0] = mesh.x }
    }'''
    x = np.arange(48, dtype="f4").reshape(6, 8)
    w = np.arange(32, dtype="f4").reshape(8, 4)

    def check(f):
        assert (f(x, w) == x @ w).all()
        return f.devices
    """)


ports = itertools.count(os.getpid(), 1009)


def free_port():
    """A port of this process: below those that the system gives to connections, and nobody listens on it."""
    for number in ports:
        with socket.socket() as s:
            if s.connect_ex(("127.0.0.1", 20000 + number % 12000)) != 0:
                return 20000 + number % 12000


class Ranks:
    """Processes that run `text`, each with its own environment; their outputs."""

    def __init__(self, test, text, n, environment=lambda rank: {}, prefix=lambda rank: []):
        self.folder = tempfile.TemporaryDirectory()
        test.addCleanup(self.folder.cleanup)
        (pathlib.Path(self.folder.name) / "rank.py").write_text(PREAMBLE + textwrap.dedent(text))
        self.processes = []
        for r in range(n):
            e = dict(os.environ, FOLDER=self.folder.name, ME=str(r), ALL=str(n), **environment(r))
            command = [*prefix(r), sys.executable, os.path.join(self.folder.name, "rank.py")]
            self.processes.append(subprocess.Popen(command, env=e, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                                   text=True, cwd=ROOT))

    def wait(self, seconds=120):
        results = []
        for p in self.processes:
            try:
                out, _ = p.communicate(timeout=seconds)
            except subprocess.TimeoutExpired:
                p.kill()
                out, _ = p.communicate()
                out += "\ntook too long"
            results.append((p.returncode, out))
        return results


def torchrun(n, address="127.0.0.1"):
    port = str(free_port())
    return lambda r: {"RANK": str(r), "WORLD_SIZE": str(n), "LOCAL_RANK": str(r), "MASTER_ADDR": address,
                      "MASTER_PORT": port}


class Worlds(unittest.TestCase):
    def all_end(self, ranks, seconds=120):
        for code, out in ranks.wait(seconds):
            self.assertEqual(code, 0, out)

    def test_torchrun(self):
        """One line: nothing names the ranks but the environment."""
        self.all_end(Ranks(self, "assert check(weir.compile(SUM)) == (int(os.environ['RANK']), 1, 2)", 2, torchrun(2)))

    def test_shards(self):
        """Each rank has its own part of the weights and of the result, and no more."""
        text = """
            f = weir.compile(SUM.replace(
                "w[0] = mesh.x }", "w[0] = mesh.x;  y on d;  y.outer_split(0, d);  y[0] = mesh.x }"))
            me = int(os.environ["RANK"])
            mine = [np.ascontiguousarray(part) for part in (x[:, 4 * me:4 * me + 4], w[4 * me:4 * me + 4])]
            assert f.shard("w").begin == (4 * me, 0) and f.shard("x", n=6).extents == (6, 4)
            (y,) = f(*map(weir.Shards, mine), whole=False, extents={"n": 6})
            assert (y == (x @ w)[3 * me:3 * me + 3]).all(), y
            for given in [(x, w), tuple(map(weir.Shards, mine))]:  # no rank has all of y
                try:
                    f(*given, extents={"n": 6})
                except ValueError as why:
                    assert "y is cut over the ranks" in str(why), why
                else:
                    assert False
        """
        self.all_end(Ranks(self, text, 2, torchrun(2)))

    def test_llama(self):
        """Decoding on two ranks, each with its part of the weights and caches."""
        text = f"""
            import runpy
            runpy.run_path({str(EXAMPLES / "python" / "llama.py")!r}, run_name="__main__")
        """
        self.all_end(Ranks(self, text, 2, torchrun(2)))

    def test_environment(self):
        text = """
            world = weir.World()
            assert (world.rank, world.size, world.carrier) == (rank, size, "tcp"), world
            check(weir.compile(SUM, world=world))
            check(weir.compile(SUM))
            assert weir.launch_rank() == rank
            try:
                weir.compile(SUM, devices=3)
            except weir.Error as error:
                assert "torchrun started 2 ranks" in error.message, error
            """
        self.all_end(Ranks(self, text, 2, torchrun(2)))

    def test_exchange(self):
        """Two worlds at a time, programs that outlive them, runs that go on meanwhile."""
        text = """
            first = weir.World(Meet(rank, size), rank=rank, size=size)
            second = weir.World(Meet(rank, size, "b"), rank=rank, size=size)
            f, g = weir.compile(SUM, world=first), weir.compile(SUM, world=second)
            del first, second
            assert check(f) == (rank, 1, 2)
            runs = [p.run_async(x, w) for _ in range(20) for p in (f, g)]
            assert all((r.wait() == x @ w).all() for r in runs)
            """
        self.all_end(Ranks(self, text, 2))

    def test_refused(self):
        text = """
            def refused(text, kind, **arguments):
                try:
                    weir.World(**arguments)
                except kind as error:
                    assert text in str(error), error
                else:
                    raise AssertionError(text)

            def broken(mine):
                raise OSError("no network")

            refused("no network", OSError, exchange=broken, rank=0, size=2)
            refused("2 items for 3 ranks", ValueError, exchange=lambda mine: [mine] * 2, rank=0, size=3)
            refused("0 bytes of rank 0", ValueError, exchange=lambda mine: [b""] * 2, rank=0, size=2)
            refused("in the place of rank 1", weir.Error, exchange=lambda mine: [mine] * 2, rank=0, size=2)
            refused("is not what a rank", weir.Error, exchange=lambda mine: [bytes(len(mine))] * 2, rank=0, size=2)
            refused("rank 2 of 2", weir.Error, exchange=lambda mine: [mine] * 2, rank=2, size=2)
            refused("names no ranks", weir.Error)
            try:
                weir.compile(SUM, world=3)
            except (TypeError, AttributeError):
                pass
            # a world of one runs programs of one device
            alone = weir.World(lambda mine: [mine], rank=0, size=1)
            try:
                weir.compile(SUM, world=alone)
            except weir.Error as error:
                assert "needs 2 devices, but there are 1" in error.message, error
            f = weir.compile("fusion f { x : f32[n]; y = x + 1; return y }", world=alone)
            assert (f(np.ones(3, "f4")) == 2).all()
            """
        self.all_end(Ranks(self, text, 1))

    def test_sizes_that_differ(self):
        """Rank 1 thinks that there are three."""
        text = """
            try:
                weir.World()
            except weir.Error as error:
                assert "has a world of 3 ranks, rank 0 one of 2" in error.message, error
            else:
                raise AssertionError("made")
            """
        launch = torchrun(2)
        self.all_end(Ranks(self, text, 2, lambda r: dict(launch(r), WORLD_SIZE=str(2 + r))))

    def test_absent(self):
        text = """
            try:
                weir.compile(SUM)
            except weir.Error as error:
                assert "rank 1 has not come within 1 s" in error.message, error
            """
        self.all_end(Ranks(self, text, 1, lambda r: dict(torchrun(2)(r), WEIR_MPI_START_SECONDS="1")))

    def test_death(self):
        """Rank 2 dies in the middle of runs; the others are told who, and go on in a new world."""
        text = """
            import signal
            three = SUM.replace("[2]", "[3]").replace("[n, 8]", "[n, 6]").replace("[8, 4]", "[6, 4]")
            a, b = np.ones((5, 6), "f4"), np.ones((6, 4), "f4")
            world = weir.World(Meet(rank, 3), rank=rank, size=3)
            f = weir.compile(three, world=world, timeout=60)
            assert (f(a, b) == 6).all()
            start, message = None, None
            for i in range(100000):
                if i == 50:
                    start = time.monotonic()
                    if rank == 2:
                        os.kill(os.getpid(), signal.SIGKILL)
                try:
                    assert (f.run_async(a, b).wait() if i % 2 else f(a, b)).sum() == 120
                except weir.Error as error:
                    message = error.message
                    assert error.diagnostics[0].rank == 2 and error.diagnostics[0].line == 5, error.diagnostics
                    break
            assert "rank 2 (process" in message and "has died" in message, message
            assert time.monotonic() - start < 50  # not by the timeout
            try:
                f(a, b)
            except weir.Error as error:
                assert "has died" in error.message, error
            del f, world
            world = weir.World(Meet(rank, 2, "again"), rank=rank, size=2)
            check(weir.compile(SUM, world=world))
            """
        results = Ranks(self, text, 3).wait()
        self.assertEqual([code for code, _ in results], [0, 0, -signal.SIGKILL], results)

    def test_log(self):
        text = """
            texts, steps = [], []
            weir.log_to(texts.append, lambda *step: steps.append(step))
            f = weir.compile(SUM, dump="host")
            check(f)
            assert any("host f(" in t for t in texts), texts
            assert ("binding ranks", 2, 2) in steps, steps
            n = len(texts)
            weir.log_to()
            weir.compile(SUM)
            assert len(texts) == n
            """
        self.all_end(Ranks(self, text, 1))

    def test_launchers(self):
        """What the environment of each launcher says."""
        said = [({"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "3"}, 1), ({"PMIX_RANK": "2", "SLURM_NTASKS": "4"}, 2),
                ({"PMIX_RANK": "2"}, -1), ({"PMI_RANK": "0", "PMI_SIZE": "2"}, 0), (torchrun(2)(1), 1),
                ({"RANK": "5", "WORLD_SIZE": "4", "MASTER_ADDR": "127.0.0.1"}, -1), ({}, -1)]
        for environment, rank in said:
            r = subprocess.run([sys.executable, "-c", "import weir; print(weir.launch_rank())"], capture_output=True, text=True,
                               env={**os.environ, **environment})
            self.assertEqual((r.stdout.strip(), r.stderr), (str(rank), ""), environment)

    def test_mpirun(self):
        """By the variables of OpenMPI's mpirun, and by those of PMIx as Slurm sets them."""
        mpirun = shutil.which("mpirun.openmpi") or shutil.which("mpirun")
        if not mpirun:
            self.skipTest("there is no mpirun")
        by_pmix = ("here=$OMPI_COMM_WORLD_RANK; unset $(env | grep -o '^OMPI_COMM_WORLD[A-Z_]*'); "
                   "SLURM_NTASKS=2 SLURM_LOCALID=$here exec \"$@\"")
        for how in ([], ["bash", "-c", by_pmix, "bash"]):
            with tempfile.TemporaryDirectory() as folder:
                script = os.path.join(folder, "rank.py")
                pathlib.Path(script).write_text(PREAMBLE + "assert check(weir.compile(SUM))[1:] == (1, 2)\nprint('well')\n")
                e = dict(os.environ, FOLDER=folder, OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")
                result = subprocess.run([mpirun, "--oversubscribe", "--bind-to", "none", "-n", "2", *how, sys.executable, script],
                                        env=e, capture_output=True, text=True, timeout=120, cwd=ROOT)
            if "no MPI" in result.stderr or "weir-mpi-" in result.stderr:
                self.skipTest("there is no module for this MPI")
            self.assertEqual(result.stdout.count("well"), 2, result.stderr)

    def test_torch(self):
        """torchrun itself, and a world of torch.distributed."""
        try:
            import torch.distributed  # noqa: F401
        except ImportError:
            self.skipTest("PyTorch is not here")
        run = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2"]
        result = subprocess.run([*run, EXAMPLES / "python/tp_mlp.py"], capture_output=True, text=True, timeout=120)
        self.assertEqual(result.stdout.count("largest difference"), 2, result.stderr)
        text = """
            import torch.distributed as dist
            dist.init_process_group("gloo")
            world = weir.World.of_torch()
            check(weir.compile(SUM, world=world))
            dist.destroy_process_group()
            """
        self.all_end(Ranks(self, text, 2, torchrun(2)))

    def test_two_networks(self):
        """Ranks in two network namespaces, as on two machines."""
        names = [f"weir{os.getpid()}{side}" for side in "ab"]
        lines = [f"netns add {names[0]}", f"netns add {names[1]}",
                 f"link add {names[0]} netns {names[0]} type veth peer name {names[1]} netns {names[1]}"]
        for i, name in enumerate(names):
            lines += [f"-n {name} addr add 10.213.7.{i + 1}/24 dev {name}", f"-n {name} link set {name} up",
                      f"-n {name} link set lo up"]
        ip = shutil.which("ip", path=os.environ.get("PATH", "") + ":/usr/sbin:/sbin")
        if not ip:
            self.skipTest("there is no ip")
        try:
            for line in lines:
                made = subprocess.run([ip, *line.split()], capture_output=True, text=True)
                if made.returncode != 0:
                    self.skipTest(f"no network namespaces can be made here: {made.stderr.strip()}")
            text = """
                world = weir.World()
                assert world.local == rank % 2 and world.size == 4, world
                four = SUM.replace("[2]", "[4]")
                check(weir.compile(four, world=world))
                big = np.ones((2000, 8), "f4")
                f = weir.compile(four)
                assert (f(big, w) == big @ w).all()
                """
            launch = torchrun(4, "10.213.7.1")
            self.all_end(Ranks(self, text, 4, launch, lambda r: [ip, "netns", "exec", names[r // 2]]))
        finally:
            for name in names:
                subprocess.run([ip, "netns", "del", name], capture_output=True)


if __name__ == "__main__":
    unittest.main()
