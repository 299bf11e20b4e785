#!/usr/bin/env bash
# With fewer threads than devices in one process, ready work is picked by how far its device has come, so that others do not
# wait for it: on one thread, where the order of tasks is that of the picks, no device begins its k-th product before all
# have begun the one two before it. Nothing here depends on times.
set -u
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
passed=0 failed=0

# program DEVICES PRODUCTS: a chain of products, and an allreduce of the first and of the last result.
program() {
  echo "fusion chain { mesh d = [$1]"
  echo "x : f32[$1, 32, 32]; w : f32[32, 32]"
  echo "a1 = matmul(x, w); s1 = sum(a1, dims=[0])"
  for k in $(seq 2 "$2"); do echo "a$k = matmul(a$((k - 1)), w)"; done
  echo "s2 = sum(a$2, dims=[0]); y = s1 + s2; return y"
  echo "schedule { x, w on d; x[0] = mesh.x } }"
}

# order FILE: the device of each product, in the order in which they began.
order() {
  tr '\n' ' ' <"$1" | grep -o '"name":"matmul","pid":[0-9]*,"tid":[0-9]*,"ts":[0-9.]*' |
    sed 's/.*"pid":\([0-9]*\),.*"ts":\([0-9.]*\)/\2 \1/' | sort -g | cut -d' ' -f2
}

for devices in 2 3 4 7; do
  program $devices 6 >"$dir/chain.weir"
  if ! "$WEIR" run "$dir/chain.weir" --threads 1 --pipeline marked --check --trace "$dir/trace.json" -q >"$dir/out" 2>&1; then
    cat "$dir/out"
    failed=$((failed + 1))
    continue
  fi
  if order "$dir/trace.json" | awk -v devices=$devices '
    { begun[$1]++; all++
      for (d = 0; d < devices; d++) if (begun[$1] > begun[d] + 2) { print "device " $1 " begins product " begun[$1] " before " d; bad = 1 } }
    END { if (all != 6 * devices) { print all " products"; bad = 1 }; exit bad }'; then
    passed=$((passed + 1))
  else
    echo "$devices devices: $(order "$dir/trace.json" | tr '\n' ' ')"
    failed=$((failed + 1))
  fi
done
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
