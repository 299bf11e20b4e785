#!/bin/bash
# What people expect of a command: layout, completion, colours, silence, JSON.
. "$(dirname "$0")/kit"

# ---- weir fmt ----
program rough <<'END'
# what it is


fusion   f{x:f32[4,n] # a column
   y   : f32[4,n]



   # before a statement
	z=x+y*-1;w = sum( z,dims = [ -1 ] )
  v = where(x<y,
            x, y)
  return   z ,w,v

  schedule{ z.outer_split(0,2);  z[0]=stream }
}


END
cat >"$dir/smooth" <<'END'
# what it is

fusion f { x : f32[4, n]  # a column
  y   : f32[4, n]

  # before a statement
  z = x + y * -1; w = sum(z, dims = [-1])
  v = where(x<y,
            x, y)
  return z, w, v

  schedule { z.outer_split(0, 2);  z[0] = stream }
}
END
expect 0 '' fmt "$dir/rough.weir"
cp "$dir/.out" "$dir/once"
holds 'layout' diff "$dir/once" "$dir/smooth"
expect 0 '' fmt "$dir/rough.weir" --write
holds 'in place' diff "$dir/rough.weir" "$dir/smooth"
expect 2 'cannot read' fmt "$dir/missing.weir"
printf 'fusion f { x : f32[4]; y = ; return y }' >"$dir/bad.weir"
cp "$dir/bad.weir" "$dir/bad.copy"
expect 2 'bad.weir:1' fmt "$dir/bad.weir" --write
holds 'a file with errors is left alone' cmp "$dir/bad.weir" "$dir/bad.copy"
# All programs of the repository keep their comments, and what is laid out stays as it is.
for file in examples/*.weir tests/golden/*.weir; do
  "$weir" fmt "$file" >"$dir/once" 2>/dev/null || continue
  "$weir" fmt - <"$dir/once" >"$dir/twice" 2>"$dir/.err"
  holds "twice is as once: $file" cmp "$dir/once" "$dir/twice"
  holds "comments stay: $file" cmp <(grep -o '#.*' "$file" | sed 's/[ \t]*$//') <(grep -o '#.*' "$dir/once")
done
for file in examples/*.weir; do
  "$weir" fmt "$file" >"$dir/once"
  holds "$file is laid out" cmp "$file" "$dir/once"
done

# ---- completion ----
# shellcheck disable=SC2034
complete_words() { # WORD...: what bash would offer for the last of them
  COMP_WORDS=("$@") COMP_CWORD=$(($# - 1))
  _weir
  printf '%s ' "${COMPREPLY[@]}"
}
"$weir" completion bash >"$dir/completion"
# shellcheck disable=SC1091
. "$dir/completion"
holds 'commands' test "$(complete_words weir ver)" = 'verify '
holds 'options of a command' test "$(complete_words weir fmt --w)" = '--write '
holds 'options of another one' test "$(complete_words weir lower --styl)" = '--style '
holds 'values' test "$(complete_words weir run --device s)" = 'sim '
holds 'values after =' test "$(complete_words weir run --device = s)" = 'sim '
holds 'operands' test "$(complete_words weir list mach)" = 'machines '
for option in $("$weir" list options | awk '/^--/ { sub(/=.*/, "", $1); sub(/,.*/, "", $1); print $1 }'); do
  holds "$option is completed" grep -q -- "$option\\b" "$dir/completion"
done
if command -v shellcheck >/dev/null; then
  holds 'bash completion is clean' shellcheck -s bash -e SC2207,SC2034 "$dir/completion"
fi
"$weir" completion zsh >"$dir/zsh"
holds 'zsh knows the values' grep -q -- '--device=\[.*(cpu cuda sim null ref)' "$dir/zsh"
"$weir" completion vim >"$dir/vim"
holds 'vim knows the operations' grep -q 'syn keyword weirOperation.* softmax' "$dir/vim"
holds 'vim knows words of host programs' grep -q 'syn keyword weirKeyword.* extent .*kernel' "$dir/vim"
"$weir" completion fish >"$dir/fish"
holds 'fish knows the commands' grep -q "__fish_use_subcommand -f -a verify -d 'checks a program" "$dir/fish"
holds 'fish knows the values' grep -q -- "-l device -x -a 'cpu cuda sim null ref'" "$dir/fish"
for option in $("$weir" list options | awk '/^--/ { sub(/=.*/, "", $1); sub(/,.*/, "", $1); print substr($1, 3) }'); do
  holds "--$option is completed by fish" grep -q -- "-l $option\b" "$dir/fish"
done
if command -v fish >/dev/null; then
  holds 'fish reads it' fish --no-execute "$dir/fish"
fi
if command -v zsh >/dev/null; then
  holds 'zsh reads it' zsh -n "$dir/zsh"
fi
expect 2 'bash|zsh|fish|vim' completion csh

# ---- silence ----
program f <<'END'
fusion f { x : f32[3]; y = exp(x); return y }
END
f=$dir/f.weir
expect 0 '' run "$f" --quiet --check
holds 'nothing is said of what went well' test ! -s "$dir/.out" -a ! -s "$dir/.err"
expect 0 '' verify "$f" -q
holds 'verify says nothing' test ! -s "$dir/.out"
expect 1 'FAILED' run "$f" --quiet --check --rtol 1e-300

# ---- colours ----
if command -v script >/dev/null; then
  export TERM=xterm
  script -qec "'$weir' verify $dir/bad.weir" /dev/null >"$dir/coloured"
  holds 'errors on a terminal have a colour' grep -q $'\033\\[1;31merror:' "$dir/coloured"
  script -qec "'$weir' run $f --check" /dev/null >"$dir/progress"
  holds 'progress on a terminal' grep -q 'checking operations: 0 of 1' "$dir/progress"
  script -qec "'$weir' run $f --check --quiet" /dev/null >"$dir/progress"
  holds 'unless --quiet' test ! -s "$dir/progress"
  NO_COLOR=1 script -qec "'$weir' verify $dir/bad.weir" /dev/null >"$dir/plain"
  holds 'unless NO_COLOR is set' test -z "$(grep $'\033' "$dir/plain")"
fi
expect 2 'error: ' verify "$dir/bad.weir"
holds 'and never in a file' test -z "$(grep $'\033' "$dir/.err")"

# ---- JSON ----
if command -v python3 >/dev/null; then
  for command in "run $f --check --stats" "lower $f" "opt $f" "verify $f" "why $f y" "fmt $f" 'list ops'; do
    # shellcheck disable=SC2086
    holds "JSON of weir $command" bash -c '"$@" --json | python3 -m json.tool' - "$weir" $command
  done
fi
finish
