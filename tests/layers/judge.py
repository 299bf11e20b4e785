"""What along.py and mixed.py share: a program for each seed, run and compared with the reference.

A program has text(), options() for the command, and the names of its outputs."""
import os
import subprocess
import sys
import tempfile

WEIR = os.path.abspath(sys.argv[1])
FIRST = int(sys.argv[2]) if len(sys.argv) > 2 else 0
COUNT = int(sys.argv[3]) if len(sys.argv) > 3 else 60


def weir(*args):
    return subprocess.run([WEIR, *args], capture_output=True, text=True, timeout=120)


def is_right(program, path, proven):
    with open(path, "w") as f:
        f.write(program.text())
    options = program.options()
    run = weir("run", path, "--check", *options)
    verify = weir("verify", path) if proven else None
    checks = [line for line in run.stdout.splitlines() if line.startswith("check:")]
    right = run.returncode == 0 and len(checks) == len(program.outputs) and all(c.endswith(" ok") for c in checks)
    right = right and (not proven or verify.returncode == 0)
    if not right:
        print(f"{' '.join(options)}\n{program.text()}{run.stdout}{run.stderr}{verify.stderr if proven else ''}")
    return right


def main(make, proven=False):
    """make(seed) is a program. proven: `weir verify` accepts each, too."""
    name, failed = os.path.basename(sys.argv[0]), []
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "program.weir")
        for seed in range(FIRST, FIRST + COUNT):
            if not is_right(make(seed), path, proven):
                failed.append(seed)
    if failed:
        print(f"replay: {name} build/weir SEED 1, SEED:", *failed)
    print(f"{COUNT - len(failed)} passed, {len(failed)} failed")
    return 1 if failed else 0
