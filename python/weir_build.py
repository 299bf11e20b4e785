"""The build backend of `pip install .` (PEP 517), without dependencies: CMake makes the library, the C compiler the
extension, and a wheel is a zip file with a list of what is in it.

The wheel has the package, libweir and the modules that it loads; the extension uses Python's limited API, so one
wheel serves Python 3.10 and later.
"""

import base64
import hashlib
import os
import pathlib
import re
import shutil
import subprocess
import sysconfig
import tarfile
import tempfile
import zipfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
LIMITED_API = "0x030A0000"
SUMMARY = "Tensor programs whose communication overlaps with computation"


def version():
    header = (ROOT / "include/weir/weir.h").read_text()
    return re.search(r'WEIR_VERSION "([^"]+)"', header)[1]


def metadata():
    return "\n".join(["Metadata-Version: 2.1", "Name: weir", f"Version: {version()}", f"Summary: {SUMMARY}",
                      "Requires-Python: >=3.10", "Description-Content-Type: text/markdown", "",
                      (ROOT / "docs/python.md").read_text()])


def tag():
    platform = sysconfig.get_platform().replace("-", "_").replace(".", "_")
    return f"cp310-abi3-{platform}"


def call(*command):
    print("+", *command, flush=True)
    subprocess.run([str(c) for c in command], check=True)


def build_library(folder):
    """Builds libweir.so.0 and the modules for MPI under `folder`, or takes those in WEIR_LIBRARY_DIR."""
    if os.environ.get("WEIR_LIBRARY_DIR"):
        made = pathlib.Path(os.environ["WEIR_LIBRARY_DIR"])
        return [(made / "libweir.so.0").resolve(), *sorted(made.glob("weir-mpi-*.so"))]
    generator = ["-G", "Ninja"] if shutil.which("ninja") else []
    call("cmake", "-S", ROOT, "-B", folder, "-DWEIR_TESTS=OFF", "-DWEIR_INSTALL=OFF", *generator)
    call("cmake", "--build", folder, "--parallel", os.cpu_count() or 1, "--target", "libweir")
    return [(folder / "libweir.so.0").resolve(), *sorted(folder.glob("weir-mpi-*.so"))]


def build_extension(library, target):
    """Compiles the extension to `target`, _weir.abi3.so, which looks for the library beside it."""
    call(os.environ.get("CC", "cc"), "-O2", "-shared", "-fPIC", "-fvisibility=hidden", f"-DPy_LIMITED_API={LIMITED_API}",
         f"-I{sysconfig.get_path('include')}", f"-I{ROOT / 'include'}", *sorted((ROOT / "python/src").glob("*.c")),
         library, "-Wl,-rpath,$ORIGIN", "-o", target)


def digest(data):
    return "sha256=" + base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()


def write_wheel(path, files):
    """files: name in the wheel -> bytes and mode."""
    info = f"weir-{version()}.dist-info"
    files = dict(files)
    files[f"{info}/METADATA"] = (metadata().encode(), 0o644)
    files[f"{info}/WHEEL"] = (f"Wheel-Version: 1.0\nGenerator: weir_build\nRoot-Is-Purelib: false\nTag: {tag()}\n".encode(),
                              0o644)
    record = [f"{name},{digest(data)},{len(data)}" for name, (data, _) in files.items()]
    files[f"{info}/RECORD"] = ("\n".join([*record, f"{info}/RECORD,,", ""]).encode(), 0o644)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as wheel:
        for name, (data, mode) in files.items():
            entry = zipfile.ZipInfo(name, (2020, 1, 1, 0, 0, 0))
            entry.external_attr = (0o100000 | mode) << 16
            entry.compress_type = zipfile.ZIP_DEFLATED
            wheel.writestr(entry, data)


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    with tempfile.TemporaryDirectory() as scratch:
        scratch = pathlib.Path(scratch)
        libraries = build_library(scratch / "build")
        stage = scratch / "weir"
        stage.mkdir()
        shutil.copy2(libraries[0], stage / "libweir.so.0")
        for module in libraries[1:]:
            shutil.copy2(module, stage)
        build_extension(stage / "libweir.so.0", stage / "_weir.abi3.so")
        if shutil.which("strip"):
            for file in stage.iterdir():
                call("strip", "--strip-unneeded", file)
        for file in (ROOT / "python/weir").iterdir():
            if file.suffix in (".py", ".pyi", ".typed") or file.name == "py.typed":
                shutil.copy2(file, stage)
        files = {f"weir/{f.name}": (f.read_bytes(), 0o755 if ".so" in f.name else 0o644) for f in sorted(stage.iterdir())}
        name = f"weir-{version()}-{tag()}.whl"
        write_wheel(pathlib.Path(wheel_directory) / name, files)
    return name


def build_sdist(sdist_directory, config_settings=None):
    name = f"weir-{version()}"
    try:
        listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        raise RuntimeError(f"a source archive has the files that git tracks, and {ROOT} is not a git checkout") from None
    with tarfile.open(pathlib.Path(sdist_directory) / f"{name}.tar.gz", "w:gz") as archive:
        for file in listed.splitlines():
            archive.add(ROOT / file, f"{name}/{file}", recursive=False)
    return f"{name}.tar.gz"

