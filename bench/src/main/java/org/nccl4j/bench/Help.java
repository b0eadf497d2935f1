package org.nccl4j.bench;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Locale;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import java.util.stream.Collectors;

/** The texts of --help, line by line. */
final class Help {

    /** How the command was called, so that what is shown can be pasted. */
    static final String LAUNCHER = System.getProperty("nccl4j.bench.launcher", "bench");

    private static final Pattern COMMAND =
            Pattern.compile(
                    "(?<![\\w/-])bench (?=<program>|allreduce|info|explain|calibrate|"
                            + Arrays.stream(Program.values())
                                    .map(Program::label)
                                    .collect(Collectors.joining("|"))
                            + ")");

    private static final Pattern GAP = Pattern.compile("(?<=\\S {2}) +(?=\\S)");

    private Help() {}

    /**
     * Lines with the launcher where they say {@code bench}. A gap behind it gives the room, so that
     * columns stay where they are.
     */
    static List<String> called(String launcher, List<String> lines) {
        return lines.stream().map(line -> called(launcher, line)).toList();
    }

    private static String called(String launcher, String line) {
        Matcher command = COMMAND.matcher(line);
        if (!command.find()) {
            return line;
        }
        int start = command.start();
        String called = command.replaceAll(Matcher.quoteReplacement(launcher + " "));
        int longer = called.length() - line.length();
        Matcher gap = GAP.matcher(called);
        if (longer <= 0 || !gap.find(start)) {
            return called;
        }
        int cut = Math.min(longer, gap.end() - gap.start());
        return called.substring(0, gap.start()) + called.substring(gap.start() + cut);
    }

    /** The help of {@code bench} without a program. */
    static List<String> overview() {
        List<String> lines = new ArrayList<>();
        lines.add(
                "bench: times and verifies collectives, with nccl-tests' options, table and JSON");
        lines.add("");
        lines.add(
                "Usage: bench <program> [options]     options of a program: bench <program> --help");
        lines.add("");
        lines.add(
                "       bench info [--json]           backends, libraries, devices and machine, for a bug"
                        + " report");
        lines.add(
                "       bench explain <collective>    who sends what to whom in which step, as a table"
                        + " and SVG");
        lines.add(
                "       bench calibrate               measures this machine for the choice of"
                        + " algorithms");
        lines.add("");
        lines.add("Programs (all_reduce may be written all_reduce_perf or allreduce, and so on):");
        for (Program program : Program.values()) {
            lines.add(String.format(Locale.ROOT, "  %-15s %s", program.label(), program.summary()));
        }
        lines.add("");
        lines.addAll(
                """
                Examples:
                  bench allreduce -b 1K -e 1G             1 KiB to 1 GiB, doubling, all devices
                  bench allreduce -b 1K -e 1G -g 2        the same on two devices
                  bench reduce_scatter -d all -o all -b 1M -e 1M
                                                          every type and reduction at 1 MiB
                  bench alltoall -b 1M -e 64M -J out.json results to a file as well
                  bench broadcast -r all -c 2             every root, each cell verified twice
                  bench allreduce --backend nccl --emulator -g 8 -b 1K -e 64M
                                                          NCCL's backend without a GPU, on the
                                                          emulator: its times mean nothing
                  bench allreduce --backend cpu --algo two-shot --show-algo
                                                          one algorithm, named in each row
                  bench explain allreduce --algo ring -g 4 -b 4K
                                                          the steps of an algorithm
                  bench calibrate                         measures; --algo auto then chooses by it

                Beside bench, in the same folder:
                  check-selector   whether --algo auto takes about the fastest
                  peers/compare    the same tables for other libraries on this machine
                  peers/growth     time against bytes and against ranks
                  jmh              microbenchmarks

                """
                        .lines()
                        .toList());
        lines.addAll(legend());
        return lines;
    }

    /** The help of {@code bench info}. */
    static List<String> info() {
        return """
        USAGE: bench info [--json] [--emulator[=2.30 or 2.18]]

        Prints what one pastes into a bug report: the backends and why one is not available, the
        libraries with versions and paths, or what was tried, devices, driver, JDK and its flags,
        machine, limits, /dev/shm, network and InfiniBand, NCCL's files, and the variables NCCL*,
        CUDA* and NCCL4J*. What looks like a secret is masked; read it before you publish it.
        A probe that fails or hangs is a line that says so; the exit code is 0 all the same.

        Examples:
          bench info                  what this machine has
          bench info --json > i.json  the same for a program, or to compare two machines
          bench info --emulator       with the emulator of NCCL 2.30 in place of a GPU
        """
                .lines()
                .toList();
    }

    /** The help of {@code bench explain}. */
    static List<String> explain() {
        return """
        USAGE: bench explain <collective> [options]

        Prints how a collective is carried out: a line per step with what each rank sends, and the
        bytes of each rank and of each pair. Runs nothing.

        Collectives and their algorithms:
          all_reduce       ring, tree, halving-doubling, double-tree, hierarchical, hierarchical-3,
                           torus-2d, torus-3d, star, one-shot, two-shot
          reduce_scatter   ring
          all_gather       ring
          reduce           tree
          broadcast        tree
          alltoall         pairwise, bruck, hierarchical-exchange
        direct, reference and auto, which programs take as well, have no steps to show.

          --algo NAME      the algorithm; default the first in the list above, which is not what
                           runs by default: that is told by --show-algo of a program
          -g,--ngpus N     ranks, default 4
          -b,--minbytes N  bytes of the full buffer, such as 4096, 4K, 1M; default 4K
          -d,--datatype T  element type, default float: chunks are whole elements
          --svg FILE       a picture as well
          --backend NAME   whose algorithms, default cpu

        Examples:
          bench explain allreduce --algo ring -g 4 -b 4K
          bench explain allreduce --algo double-tree -g 8 -b 1M --svg tree.svg
          bench explain alltoall --algo bruck -g 6

        Any program runs an algorithm with --algo NAME, and any use of the CPU backend with
        NCCL4J_CPU_ALGORITHM=NAME; docs/algorithms.md says which to use when.
        """
                .lines()
                .toList();
    }

    /** The help of {@code bench calibrate}. */
    static List<String> calibrate() {
        return """
        USAGE: bench calibrate [--out FILE]

        Measures what operations cost on this machine, for about half a minute, and writes it to a
        file that the CPU backend reads when it first chooses an algorithm. Without the
        file it takes figures that nccl4j comes with. Let nothing else run meanwhile. Prints the
        rates that were found, how well they predict what was measured, and from which size on
        which algorithm is chosen.

          --out FILE       default calibration-<processor>-<number>-<kernels>.properties in
                           ${XDG_CACHE_HOME:-~/.cache}/nccl4j, where it is found by itself. Any
                           other file is read with NCCL4J_CPU_CALIBRATION=FILE, or
                           -Dnccl4j.cpu.calibration=FILE
          --backend NAME   default cpu, which is the only one that has a choice

        Examples:
          bench calibrate
          bench calibrate --out rates.properties
          NCCL4J_CPU_CALIBRATION=rates.properties bench allreduce --algo auto --show-algo

        Exit code: 0 the file is written; 5 it is not, and an earlier one is as before: it cannot be
        written, or predictions miss the measured times by more than 50 % in the median, which is
        what a busy machine does: repeat with nothing else running.

        To go back to what nccl4j comes with, delete the file. A file of another processor, number
        of processors, kernels or version is not used, and the log says so.
        """
                .lines()
                .toList();
    }

    /** The help of a program: nccl-tests' usage, then what is ours. */
    static List<String> usage(Program program) {
        List<String> lines = new ArrayList<>();
        lines.add("USAGE: " + program.executable() + " ");
        for (Flag flag : Flag.values()) {
            if (!flag.isOurs()) {
                String hint = flag.takesValue() ? " <" + flag.hint() + ">" : "";
                lines.add("\t[-" + flag.letter() + ",--" + flag.longName() + hint + "] ");
            }
        }
        lines.add("");
        lines.add("Only in bench:");
        for (Flag flag : Flag.values()) {
            if (flag.isOurs()) {
                lines.add(
                        "\t[--"
                                + flag.longName()
                                + (flag.valueIsOptional() ? "[=" : " <")
                                + flag.hint()
                                + (flag.valueIsOptional() ? "]" : ">")
                                + "] default "
                                + flag.defaultText());
            }
        }
        lines.add("");
        lines.add("Defaults:");
        lines.addAll(defaults());
        lines.add("");
        lines.addAll(
                """
                Different from nccl-tests:
                  Neither -i nor -f given: sizes double (-f 2) instead of growing by 1M.
                  -g not given: all devices of the backend; 1 if a launcher started the process or
                    -t is above 1.
                  -r all: every root, as -r -1.
                  Refused with exit code 255: an unknown option; -b 0 with a factor; -i 0 without
                    one; -t, -g, -n or -m below 1; -a above 3; -u below 0; numbers beyond 32 bits.
                  An option without effect on the CPU is accepted, and standard error says so: -y, -R,
                    -x, -D, -V and, where nothing captures, -G. On NCCL they act as in nccl-tests; what
                    this version cannot do there is refused and ends with 5.
                  --algo takes one of these names for what the CPU backend runs:
                      auto        chooses by size, by what bench calibrate has measured; the default
                      direct      shared memory, one pass
                      reference   the textbook's rings, chains and exchanges
                    or algorithms that bench explain --help lists by collective: one, such as tree,
                    or several with commas between, such as double-tree,bruck, none twice and no two
                    for one collective. What they cannot do is run by reference; standard error says
                    so.
                  Each process of a launcher measures alone; standard error says so.
                  Too little memory is refused before the table instead of lowering -e.
                  Before the first row of each type and reduction, rows that nobody sees run until
                    the JVM has compiled what they need, for at most --jit-warmup seconds.
                  The second cell of alltoall, alltoallv and sendrecv uses two buffers, as the first.
                  alltoallv's summary is printed in its own lines, before the row.
                  hypercube runs a group per step over all devices of a thread.
                  -z 1 and -z 2 with -m above 1 wait once, behind the group.
                  A failure with -t above 1 exits with its own code, not with 134.
                  Ctrl-C prints the footer, closes the JSON file and exits with 130; a closed
                    standard output ends the run with 141.
                  JSON: all devices are listed; env holds NCCL* and CUDA* variables only.

                Environment:
                  NCCL_TESTS_DEVICE   ordinal of the first device
                  NCCL_TESTS_MIN_BW   expected average busbw in GB/s; below 90 % of it the run fails
                  NCCL4J_JAVA_OPTS    further options of the JVM, such as -Xmx4G
                  NCCL4J_CPU_ALGORITHM
                                      what the CPU backend runs without --algo; the same names
                  NCCL4J_CPU_REPRODUCIBLE
                                      1: the CPU backend adds in one order whatever the size; refuses
                                      an algorithm with another order
                  NCCL4J_CPU_KERNELS  plain or vector: what the CPU backend's direct engine adds with
                  NCCL4J_CPU_CALIBRATION
                                      file of bench calibrate that --algo auto chooses by
                  NCCL4J_LIBRARY_PATH folder of libnccl, libcudart and libcuda; single files by
                                      NCCL4J_NCCL_LIBRARY, _CUDART_LIBRARY and _CUDA_LIBRARY
                  One of NCCL4J_* that is empty counts as unset.
                """
                        .lines()
                        .toList());
        if (program == Program.ALLTOALLV) {
            lines.addAll(
                    """
                      NCCL_TESTS_ALLTOALLV_SPREAD         0 equal blocks .. 1 none to oneself (default)
                      NCCL_TESTS_ALLTOALLV_MATRIX_FILE    bytes from rank (row) to rank (column)
                      NCCL_TESTS_ALLTOALLV_MATRIX_SCALE   factor on the matrix (default 1)
                      NCCL_TESTS_ALLTOALLV_PRINT_SUMMARY  1 for a line per rank with each row
                    """
                            .lines()
                            .map(line -> "  " + line)
                            .toList());
        }
        lines.add("");
        lines.add("Examples:");
        lines.add(
                "  bench "
                        + program.label()
                        + " -b 1K -e 1G -g 2     1 KiB to 1 GiB, doubling, two devices");
        lines.add("  bench " + program.label() + " -b 8 -e 64K -n 1000  latency of small messages");
        lines.add("  bench " + program.label() + " -d all -J out.json   all types; JSON as well");
        lines.add(
                "  bench "
                        + program.label()
                        + " --backend cpu --algo direct --show-algo     one algorithm, named in each row");
        lines.add("");
        lines.addAll(legend());
        lines.add("");
        lines.add("Exit codes:");
        for (ExitCode code : ExitCode.values()) {
            lines.add(String.format(Locale.ROOT, "  %3d  %s", code.status(), code.meaning()));
        }
        return lines;
    }

    private static List<String> defaults() {
        List<String> lines = new ArrayList<>();
        StringBuilder line = new StringBuilder(" ");
        for (Flag flag : Arrays.asList(Flag.values())) {
            if (flag.isOurs() || !flag.takesValue()) {
                continue;
            }
            String entry = " -" + flag.letter() + " " + flag.defaultText();
            if (line.length() + entry.length() > 90) {
                lines.add(line.toString());
                line = new StringBuilder(" ");
            }
            line.append(entry);
        }
        lines.add(line.toString());
        return lines;
    }

    private static List<String> legend() {
        return """
        Columns:
          size    bytes of the larger buffer of one rank, after rounding to whole elements
                  (programs with a chunk per rank: to 16 bytes per chunk)
          count   elements: the count that the collective is called with
          time    microseconds per operation, averaged over -n iterations
          algbw   data divided by time, in 10^9 bytes per second
          busbw   algbw scaled to what each link carries in an optimal algorithm: comparable
                  between numbers of ranks, and with a link's speed
          #wrong  elements that differ from the right result; N/A where nothing is compared
          Out-of-place uses two buffers; in-place sends from the receive buffer.
        """
                .lines()
                .toList();
    }
}
