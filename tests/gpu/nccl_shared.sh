#!/bin/bash
# Several ranks on one GPU through the vendor's NCCL: tests/gpu/nccl_shared.sh BUILD
#
# NCCL admits that from 2.30 on, with NCCL_MULTI_RANK_GPU_ENABLE=1. WEIR_NCCL_LIBRARY names such a library (by default
# that of Python's package nvidia-nccl, which PyTorch brings), which must
# have the kernels of all reductions and dtypes of the tests: f32, f64, f16, bf16, i8, u8, i32, i64 with sum, prod, min
# and max. Skips where it is missing, too old, or there is no GPU. In one process and under mpirun, with 2, 4 and 8
# ranks; ends with "N passed, N failed".
build=$(cd "${1:?the build folder}" && pwd) || exit 2
root=$(cd "$(dirname "$0")/../.." && pwd)
log=$(mktemp -d)
trap 'rm -rf "$log"' EXIT
export NCCL_MULTI_RANK_GPU_ENABLE=1
passed=0 failed=0

skip() {
  echo "skipped: $1"
  exit 0
}
if [ -z "${WEIR_NCCL_LIBRARY:-}" ]; then
  WEIR_NCCL_LIBRARY=$(python3 -c 'import os, nvidia.nccl as n; print(os.path.join(list(n.__path__)[0], "lib/libnccl.so.2"))' 2>/dev/null)
  export WEIR_NCCL_LIBRARY
fi
[ -n "$WEIR_NCCL_LIBRARY" ] || skip 'WEIR_NCCL_LIBRARY names no NCCL of 2.30 or later'
[ -e "$WEIR_NCCL_LIBRARY" ] || skip "there is no $WEIR_NCCL_LIBRARY"

try() { # WHAT COMMAND...
  local what=$1
  shift
  if timeout 240 "$@" >"$log/out" 2>&1; then
    passed=$((passed + 1))
  else
    failed=$((failed + 1))
    echo "failed: $what"
    tail -5 "$log/out" | sed 's/^/    /'
  fi
}

# One program decides whether it can be done at all.
sed 's/@D/2/g' "$root/tests/gpu/programs/ar_matmul.weir" >"$log/first.weir"
if ! "$build/weir" run "$log/first.weir" --device cuda --comm nccl --check >"$log/out" 2>&1 &&
  grep -q 'share one\|no GPU\|cannot load\|invalid usage' "$log/out"; then
  skip "$(tail -1 "$log/out")"
fi

try 'every kind, dtype and reduction' "$build/tests/conform/test_nccl"
for n in 2 4 8; do
  for file in "$root"/tests/gpu/programs/*.weir; do
    name=$n-$(basename "$file")
    sed "s/@D/$n/g" "$file" >"$log/$name"
    try "$name in one process" "$build/weir" run "$log/$name" --device cuda --comm nccl --check
  done
  try "random programs of $n in one process" "$build/tests/fuzz/test_devices" 30 --nccl --devices "$n"
  if [ -e "$build/weir-mpi-openmpi.so" ] && command -v mpirun >/dev/null; then
    launcher=(mpirun --allow-run-as-root --oversubscribe --bind-to none -n "$n" -x NCCL_MULTI_RANK_GPU_ENABLE
      -x WEIR_NCCL_LIBRARY -x "WEIR_MPI_MODULE=$build/weir-mpi-openmpi.so")
    for file in "$root"/tests/gpu/programs/*.weir; do
      name=$n-$(basename "$file")
      try "$name in $n processes" "${launcher[@]}" "$build/weir" run "$log/$name" --device cuda --comm nccl --check
    done
    try "worlds of $n processes" "${launcher[@]}" "$build/tests/conform/test_cuda_ranks" 12 nccl
  fi
done
# Ranks that torchrun starts: over TCP, and with communicators that the program made.
for n in 2 4 8; do
  sed "s/@D/$n/g" "$root/tests/gpu/programs/ar_matmul.weir" >"$log/tcp-$n.weir"
  try "torchrun of $n" "$root/tests/mpi/torchrun.sh" -n "$n" "$build/weir" run "$log/tcp-$n.weir" --device cuda --comm nccl --check
  try "communicators of the caller, $n" "$root/tests/mpi/torchrun.sh" -n "$n" "$build/tests/gpu/test_nccl_world"
done
echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
