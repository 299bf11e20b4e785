#!/bin/bash
# The CUDA device where something fails: what is not there, and every call of every function.
#
#   failures.sh STANDINS      the folder of the stand-ins; $WEIR is the command
. "$(dirname "$0")/../cli/kit"
standins=$1
program two <<'END'
fusion two {
  mesh d = [2]
  a : f32[2, 8, 16]
  b : f32[12, 16]
  e : f32[12]
  f : f32[2, 12, 3]
  g : f32[4, 3, 5]
  i : i32[5]
  c = linear(a, b, e)
  h = matmul(c, f)
  k = matmul(reshape(h, [4, 4, 3]), g)
  s = sum(c, dims=[0])
  t = index_select(s, i, dim=0)
  return k, t
  schedule {
    a, b, e, f, g, i, c on d
    a[0] = mesh.x
  }
}
END
two=$dir/two.weir
# One kernel: what is joined to others is tried again alone.
program one <<'END'
fusion one {
  a : f32[8]
  b = exp(a)
  return b
}
END
# Slices that begin nowhere in particular, as operands of products.
program slices <<'END'
fusion slices {
  g : f32[4, 3, 5]
  h : f32[4, 5, 7]
  k = matmul(g, h)
  return k
  schedule {
    k[0] = stream
  }
}
END

# Lines of Weir; a sanitizer warns of the fibers that kernels run on.
messages() { grep -vc '^==[0-9]*==WARNING: ASan' "$dir/err"; }

# ends CODE WORDS VARIABLE=value... -- OPTION...: the run ends with the code and one message.
ends() {
  local code=$1 words=$2 variables=() got
  shift 2
  while [ "$1" != -- ]; do
    variables+=("$1")
    shift
  done
  shift
  env "${variables[@]}" "$weir" run "$two" --device cuda --check "$@" >"$dir/out" 2>"$dir/err"
  got=$?
  holds "exit code $got instead of $code: ${variables[*]} $*" test $got = "$code"
  [ "$code" = 0 ] && return
  holds "one message: ${variables[*]} $* $(cat "$dir/err")" test "$(messages)" = 1
  holds "'$words' in $(cat "$dir/err")" grep -q "^weir: error: cuda: .*$words" "$dir/err"
}

# ---- what is not there ----
ends 0 '' LD_LIBRARY_PATH="$standins" --
ends 3 'no GPU' WEIR_STANDIN_GPUS=0 --
expect 0 'check: k max_abs=' run "$dir/slices.weir" --device cuda --check
mkdir "$dir/old"
echo 'int cuInit(unsigned flags) { return (int)flags; }' >"$dir/old/old.c"
cc -shared -fPIC -o "$dir/old/libcuda.so.1" "$dir/old/old.c"
ends 3 'libcuda.so.1 has no cuGetErrorString: it is too old' LD_LIBRARY_PATH="$dir/old" --
mkdir "$dir/broken"
for library in libcuda.so.1 libnvrtc.so.13 libcublasLt.so.13; do
  cp "$standins"/lib* "$dir/broken"
  echo 'int nothing;' >"$dir/old/nothing.c"
  cc -shared -fPIC -o "$dir/broken/$library" "$dir/old/nothing.c"
  ends 3 'has no cu\|has no nvrtc' LD_LIBRARY_PATH="$dir/broken" --
done

# ---- every call ----
echo 'fusion f { y = uniform([6]); return y }' >"$dir/draws.weir"
# fails FUNCTION OPTION...: call 1, 2, 4, ... of the function fails, until none does.
fails() {
  local function=$1 n=1 file=${file:-$two}
  shift
  while [ $n -lt 5000 ]; do
    WEIR_STANDIN_FAIL=$function:$n "$weir" run "$file" --device cuda "$@" >"$dir/out" 2>"$dir/err"
    code=$?
    [ $code = 0 ] && break
    holds "$function:$n $*: exit code $code: $(cat "$dir/err")" test $code = 3
    holds "$function:$n $*: $(cat "$dir/err")" grep -q '^weir: error: .' "$dir/err"
    holds "$function:$n $*: one message: $(cat "$dir/err")" test "$(messages)" = 1
    n=$((n * 4))
  done
  [ $n -gt 1 ] || echo "$function $*" >>"$dir/unused"
}

export WEIR_STANDIN_GPUS=2 WEIR_STANDIN_ORDER=lazy # what a failure leaves behind is still there
src=$(dirname "$0")/../../src/device/cuda
# No kernels are kept under what is no folder. What gives things back, or asks for a better message or for what
# the caller had, may fail unseen.
functions=$(sed -n 's/^SYMBOL(\(.*\))$/\1/p' "$src"/{driver,nvrtc,cublaslt}.def |
  grep -v 'Destroy\|Free\|Release\|Unload\|String\|Log\|cuMemGetInfo\|cuCtxGetCurrent')
for function in $functions kernel; do
  case $function in
    *Capture | cuGraph*) fails "$function" --graph --repeat 2 ;;
    cuStreamQuery) fails "$function" --comm nccl ;;
    cuEventQuery) ;; # asked only of runs that take long; one that says nothing has passed
    cuEvent*) fails "$function" --stats ;;
    cuMemHostAlloc | cuMemcpyHtoDAsync | cuMemcpyDtoHAsync) fails "$function" --link host ;;
    cuMemsetD32Async) file=$dir/draws.weir fails "$function" ;;
    cuMemsetD8Async) fails "$function" --adversary 3 ;;
    nvrtc*)
      XDG_CACHE_HOME=$dir/out fails "$function"
      XDG_CACHE_HOME=$dir/out file=$dir/one.weir fails "$function"
      ;;
    *) fails "$function" ;;
  esac
done
cat "$dir/unused"
finish
