#!/usr/bin/env bash
# wheel.sh PYTHON LIBRARIES: `pip install .` into a virtual environment, with libraries that were built before; then the
# demo and the tests with what is installed.
set -euo pipefail
python=$1
export WEIR_LIBRARY_DIR=$2
root=$(cd "$(dirname "$0")/../.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
if ! "$python" -m venv --system-site-packages "$work/env" >"$work/log" 2>&1; then
  echo "skipped: $python cannot make a virtual environment (Debian: python3-venv)"
  exit 0
fi
cp -r "$root/python" "$root/pyproject.toml" "$root/include" "$root/docs" "$work" # builds leave nothing in the tree
(cd "$work" && "$work/env/bin/pip" wheel --no-index --disable-pip-version-check --no-deps . >"$work/log" 2>&1) || { cat "$work/log"; exit 1; }
"$work/env/bin/pip" install --no-index --disable-pip-version-check "$work"/*.whl >"$work/log" 2>&1 || { cat "$work/log"; exit 1; }
# A source archive is made of what git tracks; elsewhere that is said.
if (cd "$work" && "$python" -c 'import sys; sys.path.insert(0, "python"); import weir_build; weir_build.build_sdist(".")') \
  >"$work/log" 2>&1 || ! grep -q 'is not a git checkout$' "$work/log"; then cat "$work/log"; exit 1; fi
cd "$work/env"
bin/python -c 'import weir, sys; assert weir.__file__.startswith(sys.prefix), weir.__file__'
bin/python -m weir demo | tail -1
# A clean environment, without NumPy: nothing else is needed.
"$python" -m venv "$work/clean"
"$work/clean/bin/pip" install --no-index --disable-pip-version-check --no-deps "$work"/*.whl >"$work/log" 2>&1 || { cat "$work/log"; exit 1; }
(cd "$work/clean" && bin/python -c 'import importlib.util as u; assert u.find_spec("numpy") is None' && bin/python -m weir demo | tail -1)
WEIR_EXAMPLES=$root/examples bin/python "$root/tests/python/test_weir.py" 2>&1 | tail -3
[ -e lib/python3*/site-packages/weir/libweir.so.0 ] && [ -e lib/python3*/site-packages/weir/py.typed ]
