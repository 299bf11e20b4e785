#!/bin/bash
# scripts/setup on machines that lack something, with commands that only pretend.
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
setup=$PWD/scripts/setup
mkdir "$work/bin" "$work/tree"
for tool in cc make cmake pkg-config mpicc.openmpi python3 clang-format; do
  printf '#!/bin/sh\nexit 0\n' >"$work/bin/$tool"
done
printf '#!/bin/sh\necho 1000\n' >"$work/bin/id"
printf '#!/bin/sh\necho "$@" >>"%s/asked"\ncase "$*" in *mpich*) exit 100 ;; esac\n' "$work" >"$work/bin/apt-get"
chmod +x "$work/bin"/*
for tool in cat mkdir mktemp rm tail env; do ln -s "$(command -v $tool)" "$work/bin/$tool"; done

# expect RC TEXT JOB: what it does here, in a tree of its own.
expect() {
  local rc=0
  rm -f "$work/asked"
  (cd "$work/tree" && PATH="$work/bin" /bin/sh "$setup" "$3") >"$work/out" 2>&1 || rc=$?
  [ $rc = "$1" ] && { [ -z "$2" ] || grep -q -- "$2" "$work/out"; } && return
  echo "setup $3: exit code $rc, expected $1 and '$2':"
  cat "$work/out"
  exit 1
}

silent() {
  expect 0 '' build
  [ ! -s "$work/out" ] || { echo "it is told twice, or for nothing:"; cat "$work/out"; exit 1; }
}

# Without mpich, as somebody who may not install anything: the build goes on, and is told so once.
expect 0 'neither root nor sudo; continuing without:.* mpich' build
silent
# What the job cannot do without ends it.
expect 1 'neither root nor sudo; please install: clang-tidy$' lint
rm -r "$work/tree/build" "$work/bin/cc"
expect 1 'please install: gcc$' build
# As root, where one package cannot be had: what is needed is installed alone.
printf '#!/bin/sh\necho 0\n' >"$work/bin/id"
expect 0 'apt-get failed; continuing without:.* mpich' build
tail -n 1 "$work/asked" | grep -q 'install.* gcc$' || { echo "gcc was not asked for:"; cat "$work/asked"; exit 1; }
# Not a Debian: cc, make and cmake are enough.
printf '#!/bin/sh\nexit 0\n' >"$work/bin/cc"
chmod +x "$work/bin/cc"
rm "$work/bin/apt-get"
silent
