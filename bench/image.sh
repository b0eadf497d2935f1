#!/bin/sh
# The image is what bench/bench runs: the jars of bench, the backends and their libraries, in a
# folder named after a fingerprint of the sources they were built from:
#
#   bench/target/image/<fingerprint>/*.jar
#
# A changed, added or removed source file gives another fingerprint, so a stale image is never run,
# and a running bench never has its jars replaced. Used in three ways:
#
#   . bench/image.sh            image_fingerprint, for bench/bench
#   bench/image.sh mark DIR     the build begins: note the fingerprint in DIR
#   bench/image.sh pack DIR JAR CLASSPATH_FILE
#                               bench has its jar: make the image, if DIR's fingerprint still holds

# Sources are few and small: their checksums take less time than starting a JVM takes.
image_fingerprint() { # root folder
    (
        CDPATH='' cd -- "$1" || exit
        find pom.xml .mvn mvnw bench/image.sh ./*/pom.xml ./*/src \
            \( -path './*/src/test' -o -path './*/src/jmh' \) -prune -o -type f -print0 |
            LC_ALL=C sort -z | xargs -0 cksum | cksum | tr ' ' '-'
    )
}

pack() { # folder of the mark, jar of bench, file with the class path of what bench needs
    marked=$(cat "$1/fingerprint")
    # Sources that changed while the build ran: what was built has no name.
    [ "$marked" = "$(image_fingerprint "$root")" ] || return 0
    images=$root/bench/target/image
    [ ! -d "$images/$marked" ] || return 0
    mkdir -p "$images"
    new=$(mktemp -d "$images/.new.XXXXXX")
    { tr ':' '\n' <"$3" && echo; } | while read -r jar; do
        [ -z "$jar" ] || cp "$jar" "$new"
    done
    cp "$2" "$new"
    chmod 755 "$new"
    mv "$new" "$images/$marked"
    find "$images" -mindepth 1 -maxdepth 1 ! -name "$marked" -mtime +0 -exec rm -rf {} +
}

case ${0##*/} in
image.sh)
    set -eu
    root=$(CDPATH='' cd -P -- "$(dirname -- "$0")/.." && pwd)
    case $1 in
    mark)
        mkdir -p "$2"
        image_fingerprint "$root" >"$2/fingerprint"
        ;;
    pack) pack "$2" "$3" "$4" ;;
    esac
    ;;
esac
