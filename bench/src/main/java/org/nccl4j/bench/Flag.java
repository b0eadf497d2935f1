package org.nccl4j.bench;

/**
 * The options, in the order of nccl-tests' usage text, which is also the order in which getopt
 * lists the candidates of an ambiguous prefix. Those without a letter are ours.
 */
enum Flag {
    THREADS('t', "nthreads", "threads per process", "1"),
    GPUS('g', "ngpus", "devices per thread", "all"),
    MIN_BYTES('b', "minbytes", "first size in bytes, K M G allowed", "32M"),
    MAX_BYTES('e', "maxbytes", "last size in bytes, K M G allowed", "32M"),
    STEP_BYTES('i', "stepbytes", "bytes added from size to size", "1M"),
    STEP_FACTOR('f', "stepfactor", "factor from size to size; goes before -i if above 1", "2"),
    ITERATIONS('n', "iters", "timed iterations", "20"),
    AGGREGATED('m', "agg_iters", "operations per iteration, in one group", "1"),
    WARMUP('w', "warmup_iters", "warm-up operations per warm-up size", "1"),
    RUN_CYCLES('N', "run_cycles", "repetitions of the sweep; 0 until stopped", "1"),
    PARALLEL_INIT('p', "parallel_init", "0/1 each thread creates its communicators", "0"),
    CHECK('c', "check", "rounds of verification per cell; 0 for none", "1"),
    OP('o', "op", "sum/prod/max/min/avg/mulsum/all", "sum"),
    DATATYPE(
            'd',
            "datatype",
            "int8/uint8/int32/uint32/int64/uint64/half/float/double/bfloat16/f8e4m3/f8e5m2/all",
            "float"),
    ROOT('r', "root", "root rank; all or -1 for every rank", "0"),
    BLOCKING(
            'z',
            "blocking",
            "0 no/1 wait and barrier per operation/2 wait per operation/3 wait per iteration,"
                    + " barrier not timed",
            "0"),
    STREAM_NULL('y', "stream_null", "0/1 use the device's default stream", "0"),
    TIMEOUT('T', "timeout", "seconds until waiting work counts as hung; 0 for ever", "0"),
    CUDAGRAPH('G', "cudagraph", "launches of the captured iterations; 0 for no graph", "0"),
    REPORT_CPUTIME('C', "report_cputime", "0/1 show the time to issue the work", "0"),
    REPORT_TIMESTAMPS('S', "report_timestamps", "0/1 add the local time to each row", "0"),
    OUTPUT_FILE('J', "output_file", "file for the results, its name ending in .json", "none"),
    AVERAGE('a', "average", "time shown: 0 rank 0/1 mean/2 min/3 max", "1"),
    LOCAL_REGISTER('R', "local_register", "0 no/1 register buffers/2 symmetric windows", "0"),
    CTA_POLICY('x', "cta_policy", "0 default/1 efficiency/2 zero", "unset"),
    DEVICE_IMPLEMENTATION('D', "device_implementation", "number of a device-side kernel", "0"),
    DEVICE_CTA_COUNT('V', "device_cta_count", "1..128 CTAs of that kernel", "16"),
    MEMORY('M', "memory", "0/1 report device memory", "0"),
    UNALIGN('u', "unalign", "elements by which buffers are shifted", "0"),
    PER_ITER_TIMING('I', "per_iter_timing", "0/1 time each iteration", "0"),
    PER_ITER_SKIP('K', "per_iter_skip", "samples left out of the summary of -I", "0"),
    HELP('h', "help", "", ""),
    BACKEND((char) 0, "backend", "cpu/nccl/auto", "auto"),
    EMULATOR((char) 0, "emulator", "2.30 or 2.18", "none; 2.30 if no version is given"),
    COMM_BLOCKING((char) 0, "comm-blocking", "0/1 NCCL's blocking mode", "1"),
    ALGORITHM(
            (char) 0,
            "algo",
            "auto/direct/reference/algorithms: see below",
            "NCCL4J_CPU_ALGORITHM, or auto"),
    SHOW_ALGORITHM((char) 0, "show-algo", "0/1 add what ran to each row", "0; 1 without a value"),
    TRACE(
            (char) 0,
            "trace",
            "file, overwritten, for every step of the CPU backend, as JSON lines",
            "none"),
    JIT_WARMUP(
            (char) 0,
            "jit-warmup",
            "seconds at most for the JVM to compile; 0 for none",
            "2; 0 with --trace");

    /** The letter of an option that has none. */
    static final char NO_LETTER = 0;

    private final char letter;
    private final String longName;
    private final String hint;
    private final String defaultText;

    Flag(char letter, String longName, String hint, String defaultText) {
        this.letter = letter;
        this.longName = longName;
        this.hint = hint;
        this.defaultText = defaultText;
    }

    char letter() {
        return letter;
    }

    /** The long name without dashes. */
    String longName() {
        return longName;
    }

    /** What value the option takes; empty for the one that takes none. */
    String hint() {
        return hint;
    }

    /** The value that applies when the option is not given. */
    String defaultText() {
        return defaultText;
    }

    boolean takesValue() {
        return this != HELP;
    }

    /** True if the value may be left out, and if not is attached by an equals sign. */
    boolean valueIsOptional() {
        return this == EMULATOR || this == SHOW_ALGORITHM;
    }

    /** True if nccl-tests has no such option. */
    boolean isOurs() {
        return letter == NO_LETTER;
    }

    /** As it is typed: {@code -b}, or {@code --trace} where there is no letter. */
    String typed() {
        return isOurs() ? "--" + longName : "-" + letter;
    }
}
