#!/bin/sh
# Has the emulator compiled into the folder $1; where there is no compiler, or no Linux, leaves the reason in
# $1/unsupported.txt, which the tests that need the emulator then give, and is content.
set -eu

sources=$(CDPATH='' cd -P -- "$(dirname -- "$0")" && pwd)/emulator
target=$1
compiler=${CC:-cc}

unsupported() {
    rm -rf "$target"
    mkdir -p "$target"
    echo "$1" >"$target/unsupported.txt"
    echo "The emulator is not built: $1"
    exit 0
}

[ "$(uname -s)" = Linux ] || unsupported "the emulator of CUDA and NCCL needs Linux, this is $(uname -s)"
status=0
said=$("$sources/build.sh" "$target") || status=$?
case $status in
0) rm -f "$target/unsupported.txt" ;;
3) unsupported "no C compiler ($compiler) on the PATH: install gcc or clang, or name one by CC, to build the emulator of CUDA and NCCL" ;;
esac
echo "$said"
exit $status
