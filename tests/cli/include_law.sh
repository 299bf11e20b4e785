#!/bin/sh
# The include law holds in a small clean tree, and each planted violation is found at its place.
set -eu
tree=$(mktemp -d)
trap 'rm -rf "$tree"' EXIT
mkdir -p "$tree/docs" "$tree/include/weir" "$tree/tools" "$tree/examples" \
  "$tree/src/base" "$tree/src/ir" "$tree/src/api" "$tree/src/comm" "$tree/src/device/cpu" \
  "$tree/src/runtime" "$tree/src/session" "$tree/src/choose" "$tree/src/device/cuda/comm" "$tree/src/device/issue"
cp docs/architecture.md "$tree/docs"

plant() { printf '/* one */\n#include %s\n' "$2" >"$tree/$1"; }

plant src/ir/ok.c '"base/status.h"'
plant src/ir/self.c '"ir/ok.h"'
plant src/ir/near.c '"ok.h" /* and/or */'
plant src/base/ok.c '<sys/stat.h>'
plant src/api/ok.c '"device/cpu/cpu.h"'
plant src/comm/mpi.c '"comm/mpi.h"'
plant src/device/cpu/ok.c '"runtime/device.h"'
plant src/device/issue/ok.c '"runtime/plan.h"'
plant src/device/cuda/ok.c '"device/issue/order.h"'
plant src/device/cuda/vendor.h '<cuda.h>'
plant src/device/cuda/comm/ok.c '"device/cuda/device.h"'
plant tools/weir.c '<weir/weir.h>'
plant tools/run.c '"command.h"'
scripts/include-law "$tree"

# refused FILE INCLUDE: one violation, reported at line 2 of FILE.
refused() {
  plant "$1" "$2"
  if found=$(scripts/include-law "$tree"); then
    echo "not refused: $1 includes $2" && exit 1
  fi
  case $found in
  "$1:2: error: "*) ;;
  *) echo "wrong place for $1: $found" && exit 1 ;;
  esac
  rm "$tree/$1"
}

refused src/base/bad.c '"ir/ir.h"'
refused src/ir/bad.h '<text/parser.h>'
refused src/ir/bad.def '"../text/parser.h"'
refused src/ir/bad.c '"weir/weir.h"'
refused src/api/bad.c '"nowhere/at_all.h"'
refused src/comm/inproc.c '"comm/mpi.h"'
refused src/device/cpu/bad.c '"device/cuda/cuda.h"'
refused src/device/issue/bad.c '"device/cuda/device.h"'
refused src/device/issue/bad.h '"codegen/codegen.h"'
refused src/device/issue/bad.c '<cuda.h>'
refused src/device/cpu/bad.c '<nvtx3/nvToolsExt.h>'
refused src/runtime/bad.c '<mpi.h>'
refused src/session/bad.c '<weir/weir.h>'
refused src/session/bad.h '"api/program.h"'
refused src/choose/bad.c '"session/session.h"'
refused tools/bad.c '"api/api.h"'
refused examples/bad.c '"base/status.h"'

mkdir "$tree/src/attic"
plant src/attic/old.c '<stdio.h>'
if scripts/include-law "$tree" >/dev/null; then
  echo "a room without a row was accepted" && exit 1
fi
