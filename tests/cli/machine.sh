#!/bin/bash
# Choices go by figures that are kept: the same command gives the same bits, whatever the machine does.
. "$(dirname "$0")/kit"
export XDG_CACHE_HOME=$dir/cache

# A weight gradient with a stream along its reduction: with streams other sums than without.
program wgrad <<'END'
fusion wgrad {
  mesh d = [2]
  out : f32[m, n]
  in : f32[m, k]
  t = transpose(out)
  w = matmul(t, in)
  return w
  schedule {
    out, in, w on d
    out.outer_split(0, d);  out[0] = mesh.x
    in.outer_split(0, d);   in[0] = mesh.x
    w.outer_split(0, d);    w[0] = mesh.x
    w.outer_split(3, d);    w[3] = stream
  }
}
END

# bits MACHINE...: a line per set of bits of twelve runs under load, with other figures of the machine each time.
bits() {
  loads=
  for i in 1 2 3; do timeout 100 bash -c 'while :; do :; done' & loads="$loads $!"; done
  for i in 1 2 3 4 5 6 7 8 9 10 11 12; do
    "$weir" run "$dir/wgrad.weir" -D m=16 -D n=64 -D k=64 -q "$@" --output w="$dir/w.npy" || echo failed
    cksum <"$dir/w.npy"
  done | sort -u >"$dir/bits"
  kill $loads; wait $loads 2>/dev/null
  [ "$(wc -l <"$dir/bits")" = 1 ] && ! grep -q failed "$dir/bits"
}
holds "twelve runs of one command" bits
kept=$(echo "$dir"/cache/weir/machine-*)
holds "figures are kept" test -s "$kept"
holds "and used" grep -q f32_gflops "$kept"
cp "$dir/bits" "$dir/first"

# What is kept decides, not what is measured: a machine on which streams do not pay, and one on which they do.
for link in "link_gb_s = 1000" "link_gb_s = 0.001"; do
  printf 'f32_gflops = 1\nmemory_gb_s = 10\nlaunch_us = 0\n%s\n' "$link" >"$kept"
  chmod 600 "$kept"
  holds "twelve runs, $link" bits
  cat "$dir/bits" >>"$dir/all"
done
holds "choices followed the figures" test "$(sort -u "$dir/all" | wc -l)" = 2
cp "$kept" "$dir/slow"
holds "a machine that is given comes first" bits --machine "$dir/slow"
holds "and has its bits" cmp "$dir/bits" <(tail -n 1 "$dir/all")

# ---- weir machine ----
expect 0 'measured earlier' machine show
expect 0 'link_gb_s = 0.001' machine show
expect 0 '# measured, kept in' machine measure
holds "it was renewed" bash -c '! grep -q "link_gb_s = 0.001" "$1"' - "$kept"
expect 0 '"text"' machine show --json
echo nonsense >"$kept"
expect 0 'is not used' run "$dir/wgrad.weir" -D m=16 -D n=64 -D k=64
holds "what was damaged is measured anew" grep -q f32_gflops "$kept"
chmod 0777 "$dir/cache/weir"
expect 0 'built in: nothing can be kept' machine show
expect 0 '# measured: nothing can be kept' machine measure
XDG_CACHE_HOME=/dev/null expect 0 'built in: nothing can be kept in /dev/null/weir' machine show
XDG_CACHE_HOME= HOME= expect 0 'neither XDG_CACHE_HOME nor HOME' machine show
XDG_CACHE_HOME=/dev/null holds "twelve runs with nothing kept" bits
expect 2 'takes one word' machine
expect 2 'takes one word' machine shows
expect 2 'is not measured' machine show --device sim
expect 0 '' run "$dir/wgrad.weir" -D m=16 -D n=64 -D k=64 --deterministic
expect 2 "there is no machine" run "$dir/wgrad.weir" -D m=16 -D n=64 -D k=64 --machine "$dir/missing"
expect 2 "is no number" run "$dir/wgrad.weir" -D m=16 -D n=64 -D k=64 --machine <(echo 'f32_gflops = x')
finish
