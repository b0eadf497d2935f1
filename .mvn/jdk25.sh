# shellcheck shell=sh
# Sourced by ./mvnw, bench/bench and examples/run, so that all run on the same JDK.
#
# use_jdk25 exports JAVA_HOME as the first JDK 25 among: JAVA_HOME, the java on the PATH, and the
# folders below where package managers and installers put JDKs. A JDK says what it is in its
# "release" file, so nothing is started to find out. NCCL4J_JVM_DIRS (separated by colons) replaces
# the list of folders; empty it counts as unset. Without a JDK 25 it prints one line on stderr and fails.
#
# vector_option prints the option for the module that the CPU backend's sums are faster with, where the
# JDK of JAVA_HOME has it. The JVM warns of the module on stderr.
#
# use_utf8 lets a JVM open every file: it reads and writes names in the encoding of the locale, and
# under LC_ALL=C cannot even find its jars in a folder with an accent.

use_utf8() {
    case $(locale charmap 2>/dev/null) in
    UTF-8) ;;
    *) export LC_ALL=C.UTF-8 ;;
    esac
}

vector_option() {
    ! grep -q 'jdk\.incubator\.vector' "$JAVA_HOME/release" || echo --add-modules=jdk.incubator.vector
}

is_jdk25() {
    [ -x "$1/bin/javac" ] && grep -q '^JAVA_VERSION="25[".]' "$1/release" 2>/dev/null
}

use_jdk25() {
    # A service or a cron job may have no HOME.
    jdk25_own=${HOME:+:$HOME/.sdkman/candidates/java:$HOME/.jdks:$HOME/Library/Java/JavaVirtualMachines}
    jdk25_dirs=${NCCL4J_JVM_DIRS:-/usr/lib/jvm:/usr/java:/opt/java:/opt:/Library/Java/JavaVirtualMachines$jdk25_own}
    if [ -n "${JAVA_HOME-}" ] && is_jdk25 "$JAVA_HOME"; then
        export JAVA_HOME
        return 0
    fi
    if jdk25_java=$(command -v java) && jdk25_java=$(readlink -f "$jdk25_java" 2>/dev/null); then
        jdk25_home=${jdk25_java%/bin/java}
        if is_jdk25 "$jdk25_home"; then
            export JAVA_HOME="$jdk25_home"
            return 0
        fi
    fi
    jdk25_rest=$jdk25_dirs:
    while [ -n "$jdk25_rest" ]; do
        jdk25_dir=${jdk25_rest%%:*}
        jdk25_rest=${jdk25_rest#*:}
        for jdk25_home in "$jdk25_dir" "$jdk25_dir"/* "$jdk25_dir"/*/Contents/Home; do
            if is_jdk25 "$jdk25_home"; then
                export JAVA_HOME="$jdk25_home"
                return 0
            fi
        done
    done
    echo "nccl4j needs a JDK 25, and there is none in JAVA_HOME, on the PATH or under $jdk25_dirs: install one (package temurin-25-jdk or openjdk-25-jdk), or set JAVA_HOME to it." >&2
    return 1
}
