package org.nccl4j.bench;

import java.util.List;
import java.util.Optional;
import java.util.OptionalInt;
import java.util.stream.LongStream;

/**
 * A command line, parsed and checked. Only {@link CommandLine} makes one; every value is usable as
 * it stands.
 *
 * @param program what to run
 * @param commandLine the program's {@link Program#executable} and the words behind it as typed
 * @param backend what --backend said; {@code auto} if nothing
 * @param sweep the sizes
 * @param layout how devices are driven
 * @param timing how often to run and how to time
 * @param work what to run and verify
 * @param output what to report where
 * @param nccl what NCCL alone has
 */
record BenchOptions(
        Program program,
        List<String> commandLine,
        String backend,
        Sweep sweep,
        Layout layout,
        Timing timing,
        Work work,
        Output output,
        Nccl nccl) {

    /** The backend name that leaves the choice to us. */
    static final String AUTO = "auto";

    /** The name of the backend that auto prefers. */
    static final String NCCL = "nccl";

    /** What --jit-warmup is if not given, unless there is a trace. */
    static final double JIT_WARMUP_SECONDS = 2;

    BenchOptions {
        commandLine = List.copyOf(commandLine);
    }

    /**
     * The sizes of a series.
     *
     * @param minBytes -b
     * @param maxBytes -e, at least minBytes
     * @param stepBytes -i; used if stepFactor is not above 1, and then positive
     * @param stepFactor -f; 2 if neither -i nor -f was given
     * @param runCycles -N; 0 or less repeats the sweep until the process is stopped
     */
    record Sweep(long minBytes, long maxBytes, long stepBytes, int stepFactor, int runCycles) {

        boolean multiplies() {
            return stepFactor > 1;
        }

        boolean endless() {
            return runCycles <= 0;
        }

        /** The sizes of one cycle, in order. */
        LongStream sizesBytes() {
            return LongStream.iterate(
                    minBytes,
                    size -> size <= maxBytes,
                    size -> multiplies() ? times(size, stepFactor) : plus(size, stepBytes));
        }

        /**
         * The sizes of the warm-up: doubling from the minimum whatever the step is. A sweep that
         * starts at 0, which doubling would never leave, warms up 0 and then doubles from its step.
         */
        LongStream warmupSizesBytes() {
            return LongStream.iterate(
                    minBytes,
                    size -> size <= maxBytes,
                    size -> size == 0 ? stepBytes : times(size, 2));
        }

        // A maximum never reaches Long.MAX_VALUE (sizes are doubles below 2^63), so saturating ends
        // it.
        private static long times(long size, int factor) {
            return size > Long.MAX_VALUE / factor ? Long.MAX_VALUE : size * factor;
        }

        private static long plus(long size, long step) {
            return size > Long.MAX_VALUE - step ? Long.MAX_VALUE : size + step;
        }
    }

    /**
     * How devices are driven.
     *
     * @param threads -t, at least 1
     * @param gpusPerThread -g, at least 1; empty if not given: the driver then takes {@link
     *     #gpusPerThread(int, boolean)}
     * @param parallelInit -p: each thread creates its own communicators
     */
    record Layout(int threads, OptionalInt gpusPerThread, boolean parallelInit) {

        /**
         * Devices per thread: -g; without it 1 if a launcher started this process or there are
         * several threads (as nccl-tests), else every device of the backend.
         */
        int gpusPerThread(int backendDevices, boolean launched) {
            return gpusPerThread.orElse(launched || threads > 1 ? 1 : Math.max(1, backendDevices));
        }
    }

    /**
     * How often to run and how to time.
     *
     * @param iterations -n, at least 1
     * @param aggregated -m: operations per iteration, in one group if more than 1; at least 1
     * @param warmupIterations -w; 0 or less for none
     * @param jitWarmupSeconds --jit-warmup, 0 or more; 0 for none
     * @param blocking -z: 0 no, 1 wait and barrier after each operation, 3 wait and barrier after
     *     each iteration with the barrier not timed, any other value waits after each operation
     * @param timeoutSeconds -T; 0 or less for none
     * @param graphLaunches -G; 0 or less for no graph
     * @param average -a
     * @param perIteration -I: time each iteration with events
     * @param perIterationSkip -K: samples left out of the summary of -I, in 0..iterations-1
     */
    record Timing(
            int iterations,
            int aggregated,
            int warmupIterations,
            double jitWarmupSeconds,
            int blocking,
            int timeoutSeconds,
            int graphLaunches,
            TimeAverage average,
            boolean perIteration,
            int perIterationSkip) {}

    /**
     * What to run and verify.
     *
     * @param types -d; more than one only if it said {@code all}
     * @param ops -o; more than one only if it said {@code all}
     * @param root -r; -1 for every root
     * @param checkRounds -c: rounds of verification per cell; 0 for none; negative values
     *     initialise the data and report 0 without comparing
     * @param unalignElements -u: elements by which both buffers are shifted
     * @param algorithm --algo; empty leaves it to the backend
     */
    record Work(
            List<ElementType> types,
            List<RedOp> ops,
            int root,
            int checkRounds,
            int unalignElements,
            Optional<String> algorithm) {

        Work {
            types = List.copyOf(types);
            ops = List.copyOf(ops);
        }
    }

    /**
     * What to report where.
     *
     * @param cpuTime -C: the time column shows the time to issue the work
     * @param timestamps -S
     * @param memory -M
     * @param algorithms --show-algo
     * @param jsonFile -J, if its name ends in {@code .json}
     * @param traceFile --trace
     */
    record Output(
            boolean cpuTime,
            boolean timestamps,
            boolean memory,
            boolean algorithms,
            Optional<String> jsonFile,
            Optional<String> traceFile) {}

    /**
     * What NCCL alone has; on other backends as if not given.
     *
     * @param nullStream -y: use the device's default stream
     * @param registersBuffers -R: register both buffers with each communicator
     * @param ctaPolicy -x, which the loaded library has; empty if unset
     * @param blocking --comm-blocking: whether communicators are in NCCL's blocking mode
     */
    record Nccl(
            boolean nullStream, boolean registersBuffers, OptionalInt ctaPolicy, boolean blocking) {

        /** Nothing that NCCL would not do anyhow. */
        static Nccl defaults() {
            return new Nccl(false, false, OptionalInt.empty(), true);
        }
    }
}
