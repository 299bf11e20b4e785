#!/bin/bash
# extension.sh BUILD: the Python package in BUILD/python for the python3 of this machine. Made here if the build had no
# Python with headers and NumPy, or another one; says why not, and exits 1, where that cannot be done.
build=$(cd "$1" && pwd) || exit 2
root=$(cd "$(dirname "$0")/../.." && pwd)
package=$build/python/weir
PYTHONPATH=$build/python python3 -c 'import weir' 2>/dev/null && exit 0
include=$(python3 -c 'import sysconfig; print(sysconfig.get_path("include"))')
if [ ! -e "$include/Python.h" ]; then
  echo "there is no Python package: there are no headers in $include (python3-dev)"
  exit 1
fi
mkdir -p "$package" && cp -f --remove-destination "$root"/python/weir/*.py* "$package" &&
  ${CC:-cc} -O2 -shared -fPIC -fvisibility=hidden -DPy_LIMITED_API=0x030A0000 "-I$include" "-I$root/include" \
    "$root"/python/src/*.c "$build/libweir.so.0" "-Wl,-rpath,$build" -o "$package/_weir.abi3.so" &&
  PYTHONPATH=$build/python python3 -c 'import weir'
