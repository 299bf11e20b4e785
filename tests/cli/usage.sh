#!/bin/bash
# Commands, options, help, exit codes.
. "$(dirname "$0")/kit"
program neg <<'END'
fusion first { x : f32[t]; y = neg(x); return y }
fusion second { x : f32[2]; z = exp(x); return z }
END
neg=$dir/neg.weir

expect 0 'weir 0.' --version
expect 0 'weir verify' --help
expect 0 '--print-after' opt --help
expect 0 '-D, --define' run --help
expect 2 'a command is missing'
expect 2 "did you mean 'verify'?" verfy "$neg"
expect 2 'no command' zzzzzz
expect 2 'did you mean --streams?' run "$neg" --stream 3
expect 2 "not 'gpu' (did you mean 'cuda'?)" run "$neg" --device gpu
expect 2 'has no option --passes' run "$neg" --passes dce
expect 2 'has no option -Q' run "$neg" -Q
expect 2 'needs a value' run "$neg" --streams
expect 2 'an integer' run "$neg" --streams=many
expect 2 'from 1 to' run "$neg" --streams 0
expect 2 'one of auto|marked|collective' run "$neg" --pipeline fast
expect 2 'needs a file' run
expect 2 'takes one file' run "$neg" "$neg"
expect 2 'cannot read' run "$dir/missing.weir"
expect 2 'directory' run "$dir"
expect 2 'say what' list
expect 2 'no list of' list colours
expect 2 "no fusion 'third'" run "$neg" --fusion third

# The same value in every spelling.
for spelling in '-D t=3' '-Dt=3' '--define t=3' '--define=t=3' '-D x=3'; do
  # shellcheck disable=SC2086
  expect 0 'y: f32[3]' run "$neg" $spelling
done
expect 0 'z: f32[2]' run "$neg" --fusion second
expect 0 'ok: first (extents not bound)' verify "$neg"
expect 0 'ok: second' verify "$neg"
expect 0 'ok: first' verify "$neg" -D t=3
WEIR_DEFINE=t=5 expect 0 'y: f32[5]' run "$neg"
WEIR_DEFINE=t=5 expect 0 'y: f32[3]' run "$neg" -D t=3
WEIR_STREAMS=x expect 2 "--streams takes an integer, not 'x' (from the environment: WEIR_STREAMS=x)" run "$neg"
expect 0 'weir run' help
expect 0 '--pipeline=' help run
expect 2 "did you mean 'run'?" help rnu
holds 'a program on standard input' \
  bash -c "echo 'fusion f { x : f32[3]; return x }' | '$weir' run - | grep -qF 'x: f32[3]'"

for what in ops passes devices options; do expect 0 '' list $what; done
expect 0 'matmul(a, b, [dtype=])' list ops
expect 0 'WEIR_PRINT_AFTER' list options
expect 0 'vector_gflops  simple operations' list machines
expect 0 'sdpa_backward   model' list ops
expect 0 'inproc    devices are threads' list comms
expect 0 'mpi       each device is a process' list comms
expect 0 'cuda-ipc  processes of --device cuda' list comms

# What the machine has.
expect 0 'instructions' doctor
expect 0 'GFLOP/s' doctor
expect 0 '"cores": "' doctor --json
WEIR_CPU_ISA=baseline expect 0 'instructions              baseline' doctor
expect 0 'compiled by' doctor
# What is missing, and the command that installs it: a command alone in a folder has no modules.
mkdir -p "$dir/alone" && cp "$weir" "$dir/alone/weir"
weir=$dir/alone/weir expect 0 'openmpi-bin libopenmpi-dev' doctor
weir=$dir/alone/weir expect 0 '"mpich to do": "sudo apt install' doctor --json
holds 'no launcher' bash -c "env PATH=/nowhere '$weir' doctor | grep -qF 'there is no mpirun'"
expect 2 'takes no operands' doctor now
expect 2 'has no option --streams' doctor --streams 2

# Pages of traces that were written before.
expect 2 'needs a trace' view
expect 2 'no.json: error: cannot read' view "$dir/no.json"
expect 0 '' run "$neg" -D t=3 --trace "$dir/t.json"
expect 0 "$dir/t.html" view "$dir/t.json"
holds 'a page of a trace' grep -q traceEvents "$dir/t.html"
expect 0 "$dir/two.html" view "$dir/t.json" "$dir/t.json" --page "$dir/two.html"
echo '{"traceEvents": [}' >"$dir/bad.json"
expect 2 'not JSON: line 1' view "$dir/bad.json"
echo '[1, 2]' >"$dir/bad.json"
expect 2 'it has no traceEvents' view "$dir/bad.json"
printf '{"traceEvents": "a\0"}' >"$dir/bad.json"
expect 2 'zero byte' view "$dir/bad.json"

# Passes: the program on standard output, the rest on standard error.
program dead <<'END'
fusion f {
  x : f32[2]
  y = neg(x)
  z = exp(x)
  return y
}
END
expect 0 'y = neg(x)' opt "$dir/dead.weir" --passes dce
holds 'dce drops z' bash -c "! '$weir' opt '$dir/dead.weir' --passes=dce | grep -q exp"
holds 'no pass is the identity' \
  bash -c "'$weir' opt '$dir/dead.weir' --passes '' | cmp - '$dir/dead.weir'"
holds 'logs stay off standard output' \
  bash -c "'$weir' opt '$dir/dead.weir' --passes '' --time --print-after all 2>/dev/null | cmp - '$dir/dead.weir'"
expect 0 'dce' opt "$dir/dead.weir" --passes dce --print-after changed
expect 2 'fly' opt "$dir/dead.weir" --passes dce,fly
holds 'no reproducer for a wrong name' test ! -e weir-reproducer.weir

# Output that cannot be written.
if [ -w /dev/full ]; then
  "$weir" list ops >/dev/full 2>"$dir/.err"
  holds 'a full standard output is exit 3' test $? = 3
  "$weir" run "$neg" -D t=3 --output "y=$dir/y.npy" >/dev/full 2>"$dir/.err"
  holds 'and then no file is written' test $? = 3 -a ! -e "$dir/y.npy"
fi
holds 'a reader that goes away is no crash' \
  bash -c "'$weir' list ops | head -1 >/dev/null; test \${PIPESTATUS[0]} = 0 -o \${PIPESTATUS[0]} = 3"
finish
