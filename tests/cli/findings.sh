#!/bin/bash
# What was once found by using Weir from outside, and can be seen there (tests/findings.md has all of it).
. "$(dirname "$0")/kit"

# 1: the same command gives the same bits.
program gradient <<'END'
fusion gradient {
  mesh d = [2]
  out : f32[16, 64]
  inp : f32[16, 64]
  w = matmul(transpose(out), inp)
  return w
  schedule {
    out, inp on d
    out.outer_split(0, d); out[0] = mesh.x; out.outer_split(1, 4); out[1] = stream
    inp.outer_split(0, d); inp[0] = mesh.x; inp.outer_split(1, 4); inp[1] = stream
  }
}
END
for i in $(seq 8); do
  "$weir" run "$dir/gradient.weir" --output "w=$dir/w$i.npy" --quiet
done
holds 'eight runs' [ "$(cat "$dir"/w?.npy | wc -c)" -gt 100000 ]
holds 'give the same bits' [ "$(md5sum "$dir"/w?.npy | cut -d' ' -f1 | sort -u | wc -l)" = 1 ]

# 25: a stream over a unit dimension that is split by the mesh's size.
program unit <<'END'
fusion unit {
  mesh d = [2]
  x : f32[3]
  y = broadcast(x, [true, false])
  return y
  schedule {
    x, y on d
    x.outer_split(0, 3)
    x.outer_split(1, 2); x[1] = mesh.x
    y.outer_split(0, 2); y[0] = stream
  }
}
END
for p in auto collective p2p p2p-offset ring broadcast; do
  expect 0 'max_abs=0 max_rel=0 ok' run "$dir/unit.weir" --check --pipeline $p
done

# 26: extents that are made of extents, again and again.
grow() { # STEP: sixteen times
  echo 'fusion grow {'
  echo '  t0 : f32[n]'
  for i in $(seq 16); do echo "  t$i = $(sed "s/T/t$((i - 1))/g" <<<"$1")"; done
  echo '  return t16'
  echo '}'
}
for step in 'slice(T, starts=[1], stops=[-1])' 'pad(T, [ceildiv(T.0, 2), T.0 / 3])'; do
  grow "$step" | program grow
  holds "16 times $step" bash -c "ulimit -v 1000000; timeout 60 '$weir' lower '$dir/grow.weir'"
  holds "print 16 times $step" bash -c "ulimit -v 1000000; timeout 60 '$weir' opt '$dir/grow.weir'"
done

# 27: files. A planted link is not followed, permissions stay, a long name is no surprise, signals leave nothing.
program copy <<'END'
fusion copy { x : f32[n]; y = neg(x); return y }
END
victim=$dir/victim
echo precious >"$victim"
mkdir "$dir/traces"
for pid in $(seq $$ $(($$ + 400))); do ln -s "$victim" "$dir/traces/t.json.tmp.$pid"; done
expect 0 '' run "$dir/copy.weir" -D n=3 --trace "$dir/traces/t.json"
holds 'a planted link is not followed' grep -qx precious "$victim"
touch "$dir/private.npy" && chmod 600 "$dir/private.npy"
expect 0 '' run "$dir/copy.weir" -D n=3 --output "y=$dir/private.npy"
holds 'permissions stay' [ "$(stat -c %a "$dir/private.npy")" = 600 ]
long=$(printf 'y%.0s' $(seq 250)).npy
expect 0 '' run "$dir/copy.weir" -D n=3 --output "y=$dir/$long"
holds 'a long name' test -s "$dir/$long"
mkdir "$dir/signals"
for signal in INT TERM HUP; do
  for delay in 0.02 0.05 0.1 0.2; do
    timeout -s $signal $delay "$weir" run "$dir/copy.weir" -D n=20000000 --output "y=$dir/signals/y.npy" >/dev/null 2>&1
  done
done
holds 'signals leave nothing behind' bash -c "! ls -A '$dir/signals' | grep -v '^y.npy$'"

# 23: several extents at once; passes are dumped; what to write instead.
expect 0 'y: f32[3]' run "$dir/copy.weir" -D n=3
program two <<'END'
fusion two { mesh d = [2]; x : f32[n, m]; y = exp(x); return y; schedule { x on d; x.outer_split(0, d); x[0] = mesh.x } }
END
expect 0 'y: f32[4, 3]' run "$dir/two.weir" -D n=4,m=3
expect 0 'lower' run "$dir/two.weir" -D n=4,m=3 --dump passes

# 11: what nobody needs does not communicate, and nothing is computed twice.
program dead <<'END'
fusion dead {
  mesh d = [2]
  x : f32[8, 4]
  unused = sum(x, dims=[0])
  a = exp(x)
  b = exp(x)
  y = a + b
  return y
  schedule { x on d; x.outer_split(0, d); x[0] = mesh.x }
}
END
"$weir" lower "$dir/dead.weir" | sed -n '/^host/,$p' >"$dir/host"
holds 'no communication' bash -c "! grep -q allreduce '$dir/host'"
holds 'one exp' [ "$(grep -c 'exp(x)' "$dir/host")" = 1 ]

# 12: iterations count per device.
program loop <<'END'
fusion loop {
  mesh d = [2]
  x : f32[8, 4]
  y = exp(x)
  return y
  schedule { x on d; x.outer_split(0, d); x[0] = mesh.x; x.outer_split(1, 2); x[1] = stream }
}
END
expect 0 '' run "$dir/loop.weir" --pipeline collective --trace "$dir/loop.json"
holds 'iterations begin at 0 on every device' \
  [ "$(grep -o '"pid":[01].*"iteration":[0-9]*' "$dir/loop.json" | sed 's/,.*"iteration"/ /' | sort -u | wc -l)" -le 4 ]
program joined <<'END'
fusion joined { x : f32[8, 4]; w : f32[4, 4]; y = gelu(matmul(x, w)); return y }
END
expect 0 '' run "$dir/joined.weir" --trace "$dir/joined.json"
holds 'a kernel is named after what it joins' grep -q '"name":"matmul+gelu"' "$dir/joined.json"
finish
