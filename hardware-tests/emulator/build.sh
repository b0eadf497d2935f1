#!/bin/sh
# Builds the emulator with the system's C compiler.
#
# usage: build.sh OUT [check]
#
#   OUT/2.30/{libnccl4j-emulator.so, libcudart.so.13, libcuda.so.1, libnccl.so.2}
#   OUT/2.18/{libnccl4j-emulator.so, libcudart.so.12, libcuda.so.1, libnccl.so.2}
#   OUT/stub/                        libraries that return at once, to measure the cost of a call
#   OUT/tests/{cudart_test, nccl_test}   the emulator's own tests, run by the word `check`
#
# Does nothing when OUT was built of these sources, with this compiler. Two builds at once are safe: each
# works in a folder of its own and moves whole files. Prints one line. Exit codes: 0 built or up to date,
# 1 a source does not compile or the check fails, 2 usage, 3 there is no C compiler.
set -eu

[ $# -ge 1 ] && [ $# -le 2 ] || { echo "usage: build.sh OUT [check]"; exit 2; }
out=$1
action=${2:-}
[ -z "$action" ] || [ "$action" = check ] || { echo "usage: build.sh OUT [check]"; exit 2; }
compiler=${CC:-cc}
# The first word is the command; before anything else, for without a compiler nothing else may be there.
if ! command -v "${compiler%% *}" >/dev/null 2>&1; then
    echo "emulator: no C compiler (\`$compiler\` is not on the PATH); install gcc or clang, or set CC"
    exit 3
fi

case $0 in */*) here=${0%/*} ;; *) here=. ;; esac
here=$(cd "$here" && pwd)
flags="-std=c17 -O2 -g -Wall -Wextra -Werror -fPIC -pthread ${EMU_CFLAGS:-}"
stamp="$compiler
$flags
$(cd "$here" && cat ./*.c ./*.h ./build.sh tests/*.c stub/*.c stub/*.h 2>/dev/null | cksum)"

run_check() {
    [ "$action" = check ] || return 0
    LD_LIBRARY_PATH="$out/2.30" "$out/tests/cudart_test"
    LD_LIBRARY_PATH="$out/2.30" "$out/tests/nccl_test"
    LD_LIBRARY_PATH="$out/2.18" "$out/tests/nccl_test"
}

if [ -f "$out/.built" ] && [ "$(cat "$out/.built")" = "$stamp" ]; then
    echo "emulator: up to date in $out"
    run_check
    exit 0
fi

mkdir -p "$out"
out=$(cd "$out" && pwd)
work=$(mktemp -d "$out/.building.XXXXXX")
trap 'rm -rf "$work"' EXIT
trap 'exit 1' HUP INT TERM
cd "$here"

# Which symbols a library shows, with the version that the real one gives them, if any.
exports() { # FILE VERSION PATTERN...
    file=$1 version=$2
    shift 2
    { echo "$version {"; echo "  global:"; for pattern; do echo "    $pattern;"; done; echo "  local: *;"; echo "};"; } >"$work/$file"
}
exports machine.map "" 'emu_*' 'nccl4j_emulator_*'
exports cudart13.map libcudart.so.13 'cuda*'
exports cudart12.map libcudart.so.12 'cuda*'
exports cuda.map "" 'cu*'
exports nccl.map "" 'nccl*' 'pnccl*'

library() { # FOLDER SONAME MAP SOURCES-AND-FLAGS...
    folder=$work/$1 soname=$2 map=$3
    shift 3
    # Device threads run until the process ends, so that no library may be unloaded. -Wl splits a path at commas.
    $compiler $flags -shared -Wl,-soname,"$soname" -Xlinker --version-script="$work/$map" -Wl,-z,nodelete -Wl,-z,defs \
        -Wl,-Bsymbolic-functions -Wl,-rpath,'$ORIGIN' -o "$folder/$soname" "$@"
}

mkdir "$work/2.30" "$work/2.18" "$work/stub" "$work/tests"
library 2.30 libnccl4j-emulator.so machine.map machine*.c
cp "$work/2.30/libnccl4j-emulator.so" "$work/2.18/"

# The rest at once; `wait` with each number, for a plain `wait` forgets failures.
jobs=
start() { "$@" & jobs="$jobs $!"; }
for pair in "2.30 13 13000 23007" "2.18 12 12040 21805"; do
    set -- $pair
    start library "$1" "libcudart.so.$2" "cudart$2.map" "-DEMU_CUDART_VERSION=$3" cudart.c -L"$work/$1" -lnccl4j-emulator
    start library "$1" libcuda.so.1 cuda.map cuda.c -L"$work/$1" -lnccl4j-emulator
    start library "$1" libnccl.so.2 nccl.map "-DEMU_NCCL_VERSION=$4" nccl*.c -L"$work/$1" -lnccl4j-emulator -lm
done
for source in stub/*.c; do
    case $source in
        stub/nccl.c) start library stub libnccl.so.2 nccl.map "$source" ;;
        stub/cudart.c) start library stub libcudart.so.13 cudart13.map "$source" ;;
        stub/cuda.c) start library stub libcuda.so.1 cuda.map "$source" ;;
        *) echo "emulator: $source: which library is it?"; exit 1 ;;
    esac
done
failed=0
finish() {
    for job in $jobs; do
        wait "$job" || failed=1
    done
    jobs=
}
finish
if [ $failed = 0 ]; then
    for source in tests/*_test.c; do
        test=${source##*/}
        start $compiler $flags -o "$work/tests/${test%.c}" "$source" -L"$work/2.30" -l:libnccl.so.2 -l:libcudart.so.13 \
            -l:libcuda.so.1 -l:libnccl4j-emulator.so -Wl,-rpath,'$ORIGIN/../2.30'
    done
    finish
fi
[ $failed = 0 ] || { echo "emulator: does not compile with \`$compiler\`"; exit 1; }

for folder in 2.30 2.18 stub tests; do
    mkdir -p "$out/$folder"
    for file in "$work/$folder"/*; do
        [ ! -f "$file" ] || mv -f "$file" "$out/$folder/"
    done
done
printf '%s' "$stamp" >"$work/.built"
mv -f "$work/.built" "$out/.built"
echo "emulator: built in $out"
run_check
