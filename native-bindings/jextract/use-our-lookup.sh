#!/bin/sh
# usage: use-our-lookup.sh ROOT HEADER=LIBRARY...
#   ROOT             the folder of the generated packages
#   HEADER=LIBRARY   a header class below it, and the NativeLibrary whose functions it calls,
#                    for example org/nccl4j/bindings/nccl/Nccl.java=NCCL
# The last step of regenerate.sh: jextract makes a header class look in the libraries that the class loader knows; ours
# are loaded by org.nccl4j.bindings.NativeLibrary. Replaces exactly that one place of each header class. Anything else
# than one place in a header class, or a look-up in any other file, means that jextract generates other code than this
# step knows: it says so, changes nothing and exits with 1.
set -eu
[ $# -ge 2 ] || { sed -n '2,5s/^# //p' "$0" >&2; exit 2; }
root=$1; shift
[ -d "$root" ] || { echo "$0: no folder $root" >&2; exit 2; }

# The whole generated statement, two lines. "place" lines print its line number; with -v lookup=... it is replaced.
places='
  function flush() { if (held != "") print held; held = "" }
  $0 == "    static final SymbolLookup SYMBOL_LOOKUP = SymbolLookup.loaderLookup()" { if (!count) flush(); held = $0; next }
  held != "" && $0 == "            .or(Linker.nativeLinker().defaultLookup());" {
    held = ""; n++; if (!count) print "    static final SymbolLookup SYMBOL_LOOKUP = " lookup ";"; next }
  { if (!count) { flush(); print } else held = "" }
  END { if (count) print n + 0; else flush() }'

tmp=$(mktemp -d); trap 'rm -rf "$tmp"' EXIT
wrong=0
complain() { echo "$0: $*" >&2; wrong=1; }

# First all checks, then all changes: a refusal leaves every file as jextract wrote it.
: > "$tmp/headers"
for pair in "$@"; do
  header=${pair%%=*}; file=$root/$header
  echo "$file" >> "$tmp/headers"
  if [ ! -f "$file" ]; then complain "no header class $file"; continue; fi
  n=$(awk -v count=1 "$places" "$file")
  [ "$n" -eq 1 ] || { complain "$file has $n places with the generated symbol lookup, expected 1"; continue; }
  # a second look-up in other words would stay and find nothing
  n=$(grep -c 'loaderLookup\|libraryLookup\|defaultLookup()' "$file" || :)
  [ "$n" -eq 2 ] || complain "$file has $n lines with a symbol lookup, expected the 2 of the one generated statement"
done
find "$root" -type f -name '*.java' > "$tmp/all"
while IFS= read -r file; do
  grep -qxF -- "$file" "$tmp/headers" || ! grep -q 'loaderLookup\|libraryLookup\|defaultLookup()' "$file" ||
    complain "$file has a symbol lookup and is no header class given here"
done < "$tmp/all"
[ "$wrong" -eq 0 ] || { echo "$0: nothing is changed; compare jextract's version with the one in regenerate.sh" >&2; exit 1; }

for pair in "$@"; do
  file=$root/${pair%%=*}
  awk -v lookup="org.nccl4j.bindings.NativeLibrary.${pair#*=}.symbols()" "$places" "$file" > "$tmp/new"
  cat "$tmp/new" > "$file"
done
