#!/usr/bin/env bash
# installed.sh BUILD [CUDA-HEADERS [standin|gpu]]: installs into a temporary DESTDIR and prefix, then uses it from there as
# others would. With CUDA's headers also from a program with memory and streams of a GPU: by default on the stand-ins of
# the build, with `gpu` on this machine's.
set -euo pipefail
build=$(cd "$1" && pwd)
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
unset CMAKE_C_COMPILER_LAUNCHER # tests have no cache folder, which such a launcher may want
say() { echo "installed: $*" >&2; exit 1; }

# Into DESTDIR, as packages are made; then moved to where the prefix says.
DESTDIR=$work/stage cmake --install "$build" --prefix "$work/opt/weir" >/dev/null
mkdir "$work/opt"
mv "$work/stage$work/opt/weir" "$work/opt/weir"
prefix=$work/opt/weir
[ -x "$prefix/bin/weir" ] || say "no command"
[ -s "$prefix/share/man/man1/weir.1" ] || say "no manual page"
for file in bash-completion/completions/weir zsh/site-functions/_weir fish/vendor_completions.d/weir.fish; do
  grep -q 'verify' "$prefix/share/$file" || say "no completion in $file"
done
[ "$("$prefix/bin/weir" --version)" = "$("$build/weir" --version)" ] || say "another command"

# From a folder with a space in its name: what was built is there, so only the install script is new.
mkdir "$work/a folder"
cmake -S "$here/../.." -B "$work/a folder/build" -DWEIR_TESTS=OFF >/dev/null
for file in "$build"/weir "$build"/libweir.* "$build"/weir-mpi-*.so; do # of the last, as many as there are MPIs
  [ ! -e "$file" ] || cp -P "$file" "$work/a folder/build" || say "$file was not copied"
done
cmake --install "$work/a folder/build" --prefix "$work/a folder/weir" >"$work/out" 2>&1 || { cat "$work/out"; say "a space"; }
diff <(cd "$prefix" && find . | sort) <(cd "$work/a folder/weir" && find . | sort) || say "a space in the path"

# Only names of the header are visible, and all of them are there.
names() { awk 'NF >= 3 { print $NF }' | sed 's/@.*//' | sort -u; }
grep -v '^typedef' "$prefix/include/weir/weir.h" | grep -oE '\bweir_[a-z0-9_]+\(' | tr -d '(' | sort -u >"$work/header"
nm -D --defined-only "$prefix/lib/libweir.so" | names >"$work/shared"
nm -g --defined-only "$prefix/lib/libweir.a" | names >"$work/static"
for kind in shared static; do
  diff "$work/header" "$work/$kind" || say "the $kind library has other names than the header"
done
readelf -d "$prefix/lib/libweir.so" | grep -q 'soname: \[libweir.so.0\]' || say "no soname"
readelf -d "$prefix/lib/libweir.so" | grep -q TEXTREL && say "not position independent"

# pkg-config: C, C++, and the static library.
sanitize=${WEIR_TEST_SANITIZE:+-fsanitize=$WEIR_TEST_SANITIZE}
export PKG_CONFIG_PATH=$prefix/lib/pkgconfig LD_LIBRARY_PATH=$prefix/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
if command -v pkg-config >/dev/null; then
  flags=$(pkg-config --cflags --libs weir)
  cc -Wall -Wextra -Werror $sanitize "$here/use_weir.c" $flags -o "$work/c"
  "$work/c"
  if command -v c++ >/dev/null; then
    c++ -x c++ -std=c++11 -Wall -Wextra -Wpedantic -Werror $sanitize "$here/use_weir.c" -x none $flags -o "$work/cpp"
    "$work/cpp"
    # A callback that may throw is refused.
    for may in '' noexcept; do
      printf '#include <weir/weir.h>\nstatic void told(void *, const char *) %s {}\nint main() { weir_log_to(told, 0, 0); }\n' \
        "$may" >"$work/told.cc"
      if c++ -std=c++17 -fsyntax-only $(pkg-config --cflags weir) "$work/told.cc" 2>"$work/out"; then
        [ -n "$may" ] || say "a callback that may throw is taken"
      else
        [ -z "$may" ] || { cat "$work/out"; say "a callback that is noexcept is refused"; }
      fi
    done
  else
    echo "skipped: C++, for there is no compiler"
  fi
  cc $sanitize "$here/use_weir.c" $(pkg-config --cflags weir) "$prefix/lib/libweir.a" -lm -lpthread -ldl -o "$work/s"
  env -u LD_LIBRARY_PATH "$work/s"
else
  echo "skipped: pkg-config is not here"
fi

# find_package.
cmake -S "$here/project" -B "$work/project" -DCMAKE_PREFIX_PATH="$prefix" -DSOURCE="$here/use_weir.c" \
  ${sanitize:+-DCMAKE_C_FLAGS="$sanitize"} >/dev/null
cmake --build "$work/project" >/dev/null
"$work/project/use_weir"
env -u LD_LIBRARY_PATH "$work/project/use_static"

# A program of a GPU's, by pkg-config as C and C++, and by find_package.
headers=${2:-} driver=$build/tests/standin/libcuda.so.1
[ "${3:-standin}" = standin ] || driver=$(ldconfig -p | awk '$1 == "libcuda.so.1" { print $NF; exit }')
where=$prefix/lib
[ "${3:-standin}" = gpu ] || where=$where:$build/tests/standin
with_gpu() { # COMMAND...
  env LD_LIBRARY_PATH="$where" XDG_CACHE_HOME="$build/tests/standin/cache" "$@"
}
if [ -z "$headers" ] || [ ! -e "$driver" ]; then
  echo "skipped: programs of GPUs, for there are no headers or no driver"
elif [ -z "$sanitize" ]; then
  if command -v pkg-config >/dev/null; then
    cc -Wall -Wextra -Werror -isystem "$headers" "$here/use_cuda.c" $flags "$driver" -o "$work/cuda_c"
    c++ -x c++ -std=c++11 -Wall -Wextra -Wpedantic -Werror -isystem "$headers" "$here/use_cuda.c" -x none $flags "$driver" \
      -o "$work/cuda_cpp"
    with_gpu "$work/cuda_c"
    with_gpu "$work/cuda_cpp"
  fi
  cmake -S "$here/project" -B "$work/cuda_project" -DCMAKE_PREFIX_PATH="$prefix" -DSOURCE="$here/use_cuda.c" \
    -DCUDA_HEADERS="$headers" -DCUDA_DRIVER="$driver" >/dev/null
  cmake --build "$work/cuda_project" >/dev/null
  with_gpu "$work/cuda_project/use_weir"
  with_gpu "$work/cuda_project/use_static"
fi

# Modules are found beside the library, from a program that is elsewhere.
for module in "$prefix"/lib/weir/weir-mpi-*.so; do
  [ -e "$module" ] || continue
  flavour=$(basename "$module" .so); flavour=${flavour#weir-mpi-}
  command -v "mpirun.$flavour" >/dev/null || continue
  [ -x "$work/c" ] && [ -z "$sanitize" ] || continue
  OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1 \
    env -u WEIR_MPI_MODULE "mpirun.$flavour" -n 2 "$work/c" >"$work/out" 2>&1 || { cat "$work/out"; say "mpirun.$flavour"; }
  mv "$module" "$work/module"
  if OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1 \
    env -u WEIR_MPI_MODULE "mpirun.$flavour" -n 2 "$work/c" >"$work/out" 2>&1; then say "runs without its module"; fi
  grep -q WEIR_MPI_MODULE "$work/out" || { cat "$work/out"; say "the message does not name WEIR_MPI_MODULE"; }
  mv "$work/module" "$module"
done
