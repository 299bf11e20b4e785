#!/bin/bash
# Several ranks on one GPU through the vendor's NCCL: tests/gpu/nccl_shared.sh BUILD [RANKS...]
#
# NCCL admits that from 2.30 on, with NCCL_MULTI_RANK_GPU_ENABLE=1. WEIR_NCCL_LIBRARY names such a library (by default
# that of Python's package nvidia-nccl, which PyTorch brings), which must have the kernels of all reductions and dtypes
# of the tests: f32, f64, f16, bf16, i8, u8, i32, i64 with sum, prod, min and max. Skips where it is missing, too old,
# or there is no GPU. In one process, under mpirun and from torchrun's variables, with 2, 4 and 8 ranks (or RANKS; 1
# among them is the conformance suite, with up to 8 ranks in one process). Says what fails, and in the end "N passed, N
# failed". LIMIT (240) seconds each. PARTS of "torchrun one_process one_random worlds random programs": the last three are
# under mpirun; COUNT (10) random programs; PROGRAMS: which of tests/gpu/programs (all).
#
# On one H200 making, connecting and ending a communicator takes about half a second in one process, and starting 8
# processes that load NCCL 17 s: each part is one launch, and all dtypes use the same communicators.
#
# A call of NCCL is a kernel that waits inside for the others. In one process all of them must be able to begin: there
# are as many hardware queues as the driver admits, or streams share one and wait for each other.
build=$(cd "${1:?the build folder}" && pwd) || exit 2
shift
ranks=${*:-1 2 4 8}
parts=${PARTS:-torchrun one_process one_random worlds random programs}
count=${COUNT:-10}
root=$(cd "$(dirname "$0")/../.." && pwd)
log=$(mktemp -d)
trap 'rm -rf "$log"' EXIT
export NCCL_MULTI_RANK_GPU_ENABLE=1 CUDA_DEVICE_MAX_CONNECTIONS=32
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
  local what=$1 start=$SECONDS
  shift
  if timeout "${LIMIT:-240}" "$@" >"$log/out" 2>&1; then
    passed=$((passed + 1))
    echo "ok $((SECONDS - start)) s: $what: $(tail -1 "$log/out" | cut -c1-60)"
  else
    failed=$((failed + 1))
    echo "failed after $((SECONDS - start)) s: $what"
    sed '/^mpirun/,$d' "$log/out" | tail -12 | cut -c1-300 | sed 's/^/    /'
  fi
}

# One program decides whether it can be done at all.
sed 's/@D/2/g' "$root/tests/gpu/programs/ar_matmul.weir" >"$log/first.weir"
if ! "$build/weir" run "$log/first.weir" --device cuda --comm nccl --check >"$log/out" 2>&1 &&
  grep -q 'share one\|no GPU\|cannot load\|invalid usage' "$log/out"; then
  skip "$(tail -1 "$log/out")"
fi

in_one_process() { # N
  local file
  for file in "$log/$1"-*.weir; do
    try "$(basename "$file") in one process" "$build/weir" run "$file" --device cuda --comm nccl --check
  done
}

under_mpirun() { # N PART
  local file launcher=(mpirun --allow-run-as-root --oversubscribe --bind-to none -n "$1" -x NCCL_MULTI_RANK_GPU_ENABLE
    -x WEIR_NCCL_LIBRARY -x LD_LIBRARY_PATH -x "WEIR_MPI_MODULE=$build/weir-mpi-openmpi.so")
  [ -e "$build/weir-mpi-openmpi.so" ] && command -v mpirun >/dev/null || return
  case $2 in
    worlds) try "worlds of $1 processes" "${launcher[@]}" "$build/tests/conform/test_cuda_ranks" 1 nccl ;;
    random)
      try "random programs of $1 processes" "${launcher[@]}" "$build/tests/fuzz/test_devices" "$count" --ranks --nccl
      ;;
    programs)
      for file in "$log/$1"-*.weir; do
        try "$(basename "$file") in $1 processes" "${launcher[@]}" "$build/weir" run "$file" --device cuda --comm nccl \
          --check
      done
      ;;
  esac
}

# Ranks that torchrun starts: over TCP, and with communicators that the program made.
from_torchrun() { # N
  local start=("$root/tests/mpi/torchrun.sh" -n "$1")
  try "torchrun of $1" "${start[@]}" "$build/weir" run "$log/torchrun-$1.weir" --device cuda --comm nccl --check
  try "communicators of the caller, $1" "${start[@]}" "$build/tests/gpu/test_nccl_world"
}

for n in $ranks; do
  if [ "$n" = 1 ]; then
    try 'every kind, dtype and reduction' "$build/tests/conform/test_nccl"
    continue
  fi
  for file in "$root"/tests/gpu/programs/${PROGRAMS:-*}.weir; do sed "s/@D/$n/g" "$file" >"$log/$n-$(basename "$file")"; done
  sed "s/@D/$n/g" "$root/tests/gpu/programs/ar_matmul.weir" >"$log/torchrun-$n.weir"
  for part in $parts; do
    case $part in
      torchrun) from_torchrun "$n" ;;
      one_process) in_one_process "$n" ;;
      one_random)
        try "random programs of $n in one process" "$build/tests/fuzz/test_devices" "$count" --nccl --devices "$n"
        ;;
      worlds | random | programs) under_mpirun "$n" "$part" ;;
      *) echo "there is no part '$part'" && failed=$((failed + 1)) ;;
    esac
  done
done
echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
