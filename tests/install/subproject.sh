#!/usr/bin/env bash
# subproject.sh: Weir's sources as a part of another project, by add_subdirectory, as FetchContent does it too.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
launcher=
command -v ccache >/dev/null && launcher=-DCMAKE_C_COMPILER_LAUNCHER=ccache
cmake -S "$here/subproject" -B "$work" -DWEIR_SOURCE="$here/../.." -DSOURCE="$here/use_weir.c" \
  -DCMAKE_BUILD_TYPE=Debug $launcher >/dev/null
[ -z "$(ctest --test-dir "$work" -N | grep 'Test *#')" ] || { echo "it has tests of its own" >&2; exit 1; }
cmake --build "$work" --parallel 2 >"$work/log" 2>&1 || { tail -20 "$work/log"; exit 1; }
[ ! -e "$work/weir/weir" ] || { echo "it builds the command" >&2; exit 1; }
"$work/use_weir"
"$work/use_static"
