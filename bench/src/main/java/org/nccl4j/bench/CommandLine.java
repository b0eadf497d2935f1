package org.nccl4j.bench;

import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Optional;
import java.util.OptionalDouble;
import java.util.OptionalInt;
import java.util.function.Function;
import java.util.stream.Stream;
import org.nccl4j.collectives.NcclOption;

/**
 * From the words of a command line to {@link BenchOptions}, or to the end of the run. Messages
 * appear on the console in the order in which nccl-tests prints them, with its texts and streams;
 * what is our own goes to standard error.
 */
final class CommandLine {

    /** What a command line comes to. */
    sealed interface Outcome {}

    /** A run. */
    record Run(BenchOptions options) implements Outcome {}

    /**
     * A report about backends and machine.
     *
     * @param json whether as JSON
     */
    record Info(boolean json) implements Outcome {}

    /** An algorithm to be shown. */
    record Explain(ExplainOptions options) implements Outcome {}

    /**
     * The machine to be measured.
     *
     * @param backend whose choice of algorithms is to rest on it
     * @param file where it goes; empty for where the backend looks
     */
    record Calibrate(String backend, Optional<Path> file) implements Outcome {}

    /** Nothing to run: help was given or something was refused; all is said already. */
    record Exit(ExitCode code) implements Outcome {}

    /** Ends the interpretation; caught in {@link #parse} alone. */
    private static final class Refusal extends Exception {
        private static final long serialVersionUID = 1L;

        private final ExitCode code;

        Refusal(String line) {
            this(ExitCode.ARGUMENTS, line);
        }

        Refusal(ExitCode code, String line) {
            super(line, null, false, false);
            this.code = code;
        }
    }

    /** The first word that asks for a report instead of a run. */
    private static final String INFO = "info";

    /** The first word that asks for the picture of an algorithm. */
    private static final String EXPLAIN = "explain";

    /** The first word that asks for a measurement of the machine. */
    private static final String CALIBRATE = "calibrate";

    /** NCCL's -x 2 came later than the field. */
    private static final int ZERO_CTA_POLICY_SINCE = 22800;

    private static final int DEVICE_API_SINCE = 22800;

    private static final int WINDOWS_SINCE = 22700;

    private final Program program;
    private final List<String> words;
    private final List<GetOpt.Event> events;
    private final Function<String, BackendFacts> backends;
    private final Console console;

    private String backend = BenchOptions.AUTO;
    private BackendFacts facts;
    private int threads = 1;
    private OptionalInt gpusPerThread = OptionalInt.empty();
    private long minBytes = 32L << 20;
    private long maxBytes = 32L << 20;
    private Optional<String> minTyped = Optional.empty();
    private Optional<String> maxTyped = Optional.empty();
    private long stepBytes = 1L << 20;
    private int stepFactor = 1;
    private boolean stepGiven;
    private int iterations = 20;
    private int aggregated = 1;
    private int warmupIterations = 1;
    private OptionalDouble jitWarmupSeconds = OptionalDouble.empty();
    private int runCycles = 1;
    private boolean parallelInit;
    private int checkRounds = 1;
    private List<RedOp> ops = List.of(RedOp.SUM);
    private List<ElementType> types = List.of(ElementType.FLOAT);
    private int root;
    private int blocking;
    private int timeoutSeconds;
    private int graphLaunches;
    private boolean cpuTime;
    private boolean timestamps;
    private Optional<String> jsonFile = Optional.empty();
    private Optional<String> traceFile = Optional.empty();
    private TimeAverage average = TimeAverage.MEAN;
    private boolean memory;
    private int unalignElements;
    private int perIteration;
    private int perIterationSkip;
    private boolean nullStream;
    private int registration;
    private OptionalInt ctaPolicy = OptionalInt.empty();
    private int deviceImplementation;
    private boolean commBlocking = true;
    private Optional<String> algorithm = Optional.empty();
    private boolean showsAlgorithms;

    private CommandLine(
            Program program,
            List<String> words,
            Function<String, BackendFacts> backends,
            Console console) {
        this.program = program;
        this.words = words;
        this.events = GetOpt.scan(program.executable(), words);
        this.backends = backends;
        this.console = console;
    }

    /**
     * Parses a command line.
     *
     * @param arguments the program's name and its options
     * @param backends the facts of the backend that a value of --backend stands for ({@code auto}
     *     included); asked once at most, and only if an option's meaning depends on the backend.
     *     What it throws (say, that the backend is not available) passes through
     * @param console where messages go
     */
    static Outcome parse(
            List<String> arguments, Function<String, BackendFacts> backends, Console console) {
        if (arguments.isEmpty()) {
            Help.called(Help.LAUNCHER, Help.overview()).forEach(console::err);
            return new Exit(ExitCode.ARGUMENTS);
        }
        String word = arguments.getFirst();
        if (word.equals("-h") || word.equals("--help")) {
            Help.called(Help.LAUNCHER, Help.overview()).forEach(console::out);
            return new Exit(ExitCode.OK);
        }
        if (word.equals(INFO)) {
            return info(arguments.subList(1, arguments.size()), console);
        }
        if (word.equals(EXPLAIN)) {
            return explain(arguments.subList(1, arguments.size()), console);
        }
        if (word.equals(CALIBRATE)) {
            return calibrate(arguments.subList(1, arguments.size()), console);
        }
        Optional<Program> program = Program.named(word);
        if (program.isEmpty()) {
            console.err("bench: " + unknownProgram(word));
            return new Exit(ExitCode.ARGUMENTS);
        }
        List<String> options = arguments.subList(1, arguments.size());
        return new CommandLine(program.get(), options, backends, console).interpret();
    }

    private static Outcome info(List<String> words, Console console) {
        boolean json = false;
        for (String word : words) {
            switch (word) {
                case "--json" -> json = true;
                case "-h", "--help" -> {
                    Help.called(Help.LAUNCHER, Help.info()).forEach(console::out);
                    return new Exit(ExitCode.OK);
                }
                default -> {
                    // The launcher has read it.
                    if (!word.matches("--emulator(=.*)?")) {
                        String question =
                                Nearest.question(
                                        Nearest.to(
                                                word, List.of("--json", "--emulator", "--help")));
                        console.err(
                                "bench: info takes --json, --emulator and --help, not "
                                        + word
                                        + (question.isEmpty() ? "" : "." + question));
                        return new Exit(ExitCode.ARGUMENTS);
                    }
                }
            }
        }
        return new Info(json);
    }

    private static Outcome explain(List<String> words, Console console) {
        if (words.contains("-h") || words.contains("--help")) {
            Help.called(Help.LAUNCHER, Help.explain()).forEach(console::out);
            return new Exit(ExitCode.OK);
        }
        try {
            return new Explain(ExplainOptions.parse(words));
        } catch (ExplainOptions.Refusal refusal) {
            console.err(refusal.getMessage());
            return new Exit(ExitCode.ARGUMENTS);
        }
    }

    private static Outcome calibrate(List<String> words, Console console) {
        if (words.contains("-h") || words.contains("--help")) {
            Help.called(Help.LAUNCHER, Help.calibrate()).forEach(console::out);
            return new Exit(ExitCode.OK);
        }
        String backend = "cpu";
        Optional<Path> file = Optional.empty();
        for (int i = 0; i < words.size(); i++) {
            String word = words.get(i);
            int equals = word.indexOf('=');
            String option = equals < 0 ? word : word.substring(0, equals);
            if (!option.equals("--out") && !option.equals("--backend")) {
                console.err(
                        "bench: calibrate takes --out FILE, --backend NAME and --help, not "
                                + word
                                + "."
                                + Nearest.question(
                                        Nearest.to(option, List.of("--out", "--backend"))));
                return new Exit(ExitCode.ARGUMENTS);
            }
            if (equals < 0 && i + 1 == words.size()) {
                console.err("bench: calibrate: " + option + " needs a value");
                return new Exit(ExitCode.ARGUMENTS);
            }
            String value = equals < 0 ? words.get(++i) : word.substring(equals + 1);
            if (option.equals("--out")) {
                file = Optional.of(Path.of(value));
            } else {
                backend = value;
            }
        }
        return new Calibrate(backend, file);
    }

    private static String unknownProgram(String word) {
        String programs =
                String.join(" ", Arrays.stream(Program.values()).map(Program::label).toList())
                        + " "
                        + INFO
                        + " "
                        + EXPLAIN
                        + " "
                        + CALIBRATE;
        if (word.startsWith("-")) {
            return "the first word must be a program, before any option; got '"
                    + word
                    + "'. Programs: "
                    + programs
                    + ". See --help.";
        }
        List<String> names =
                Arrays.stream(Program.values())
                        .flatMap(p -> Stream.of(p.label(), p.executable()))
                        .toList();
        List<String> near =
                Nearest.to(word, names).stream()
                        .map(name -> Program.named(name).orElseThrow().label())
                        .distinct()
                        .toList();
        return "unknown program '"
                + word
                + "'."
                + Nearest.question(near)
                + " Programs: "
                + programs
                + ". See --help.";
    }

    private Outcome interpret() {
        for (GetOpt.Event event : events) {
            if (event instanceof GetOpt.Option(Flag flag, String value) && flag == Flag.BACKEND) {
                backend = value;
            }
        }
        try {
            for (GetOpt.Event event : events) {
                switch (event) {
                    case GetOpt.Rejected rejected -> {
                        return reject(rejected);
                    }
                    case GetOpt.Stray(String word) ->
                            console.err("bench: '" + word + "' is no option; ignored");
                    case GetOpt.Option(Flag flag, String value) -> {
                        if (flag == Flag.HELP) {
                            Help.called(Help.LAUNCHER, Help.usage(program)).forEach(console::out);
                            return new Exit(ExitCode.OK);
                        }
                        take(flag, value);
                    }
                }
            }
            check();
        } catch (Refusal refusal) {
            console.err(refusal.getMessage());
            return new Exit(refusal.code);
        }
        return new Run(options());
    }

    private Outcome reject(GetOpt.Rejected rejected) {
        console.err(rejected.message());
        console.out("invalid option '?'");
        Help.called(Help.LAUNCHER, Help.usage(program)).forEach(console::out);
        // Once more below the usage, where it is still on the screen.
        String reason = rejected.message().substring(program.executable().length() + 2);
        String question = Nearest.question(rejected.suggestions());
        console.err("bench: " + reason + (question.isEmpty() ? "" : "." + question));
        // nccl-tests exits 0 here, which hides a mistyped option from every script.
        return new Exit(ExitCode.ARGUMENTS);
    }

    private void take(Flag flag, String value) throws Refusal {
        switch (flag) {
            case THREADS -> threads = integer(flag, value);
            case GPUS -> gpusPerThread = OptionalInt.of(integer(flag, value));
            case MIN_BYTES -> {
                minBytes = size(flag, "minbytes", value);
                minTyped = Optional.of(value);
            }
            case MAX_BYTES -> {
                maxBytes = size(flag, "maxbytes", value);
                maxTyped = Optional.of(value);
            }
            case STEP_BYTES -> {
                stepBytes = size(flag, "stepBytes", value);
                stepGiven = true;
            }
            case STEP_FACTOR -> {
                stepFactor = integer(flag, value);
                stepGiven = true;
            }
            case ITERATIONS -> iterations = integer(flag, value);
            case AGGREGATED -> aggregated = integer(flag, value);
            case WARMUP -> warmupIterations = integer(flag, value);
            case RUN_CYCLES -> runCycles = integer(flag, value);
            case PARALLEL_INIT -> parallelInit = integer(flag, value) != 0;
            case CHECK -> checkRounds = integer(flag, value);
            case OP -> ops = ops(value);
            case DATATYPE -> types = types(value);
            case ROOT -> root = value.equals("all") ? -1 : integer(flag, value);
            case BLOCKING -> blocking = integer(flag, value);
            case STREAM_NULL -> {
                nullStream = integer(flag, value) != 0;
                ignoredWithoutNccl(flag, "default stream", nullStream);
            }
            case TIMEOUT -> timeoutSeconds = integer(flag, value);
            case CUDAGRAPH -> graphLaunches = graphLaunches(integer(flag, value));
            case REPORT_CPUTIME -> cpuTime = integer(flag, value) != 0;
            case REPORT_TIMESTAMPS -> timestamps = integer(flag, value) != 0;
            case OUTPUT_FILE -> jsonFile = jsonFile(value);
            case AVERAGE -> average = average(value);
            case LOCAL_REGISTER -> registration = registration(integer(flag, value));
            case CTA_POLICY -> ctaPolicy = ctaPolicy(integer(flag, value));
            case DEVICE_IMPLEMENTATION -> {
                deviceImplementation = integer(flag, value);
                needsDeviceApi("Option -D (device implementation)");
                ignoredWithoutNccl(flag, "device implementation", deviceImplementation != 0);
            }
            case DEVICE_CTA_COUNT -> {
                int ctas = integer(flag, value);
                needsDeviceApi("Option -V (device CTA count)");
                if (ctas < 1 || ctas > 128) {
                    console.err(
                            "device_cta_count (-V) must be positive and less than 128, got "
                                    + ctas
                                    + ". Using default value 16.");
                }
                ignored(flag, "device CTA count", true);
            }
            case EMULATOR -> {} // the launcher has pointed the loader to it
            case COMM_BLOCKING -> {
                commBlocking = integer(flag, value) != 0;
                ignoredWithoutNccl(flag, "NCCL's blocking mode", !commBlocking);
            }
            case MEMORY -> memory = integer(flag, value) != 0;
            case UNALIGN -> unalignElements = integer(flag, value);
            case PER_ITER_TIMING -> perIteration = integer(flag, value);
            case PER_ITER_SKIP -> perIterationSkip = integer(flag, value);
            case BACKEND -> {} // known since before the first option was interpreted
            case ALGORITHM -> algorithm = Optional.of(value);
            case SHOW_ALGORITHM -> showsAlgorithms = value.isEmpty() || integer(flag, value) != 0;
            case TRACE -> traceFile = Optional.of(value);
            case JIT_WARMUP -> jitWarmupSeconds = OptionalDouble.of(seconds(flag, value));
            case HELP -> throw new IllegalStateException("help ends the interpretation");
        }
    }

    private int integer(Flag flag, String value) throws Refusal {
        // nccl-tests keeps the low 32 bits, which turns a large number into any other.
        OptionalInt number = CNumber.parseInt(value);
        if (number.isEmpty()) {
            throw new Refusal(
                    "bench: "
                            + flag.typed()
                            + " "
                            + value
                            + ": the number does not fit in 32 bits");
        }
        if (!CNumber.isInteger(value)) {
            console.err(
                    "bench: " + flag.typed() + " " + value + " is read as " + number.getAsInt());
        }
        return number.getAsInt();
    }

    private long size(Flag flag, String nameInMessage, String value) throws Refusal {
        long sizeBytes = CNumber.parseSizeBytes(value);
        if (sizeBytes == Long.MAX_VALUE) {
            console.err("invalid size specified for '" + nameInMessage + "'");
            throw new Refusal(
                    "bench: "
                            + flag.typed()
                            + " "
                            + value
                            + " is too large: sizes are below 8589934592G (2^63 bytes)");
        }
        if (sizeBytes < 0) {
            console.err("invalid size specified for '" + nameInMessage + "'");
            throw new Refusal(
                    "bench: "
                            + flag.typed()
                            + " takes bytes: a number, then K, M or G or nothing (powers of 1024);"
                            + " got '"
                            + value
                            + "'");
        }
        return sizeBytes;
    }

    private static double seconds(Flag flag, String value) throws Refusal {
        double seconds = CNumber.parseWholeDouble(value).orElse(-1);
        if (!(seconds >= 0)) {
            throw new Refusal(
                    "bench: " + flag.typed() + " takes seconds, 0 or more; got '" + value + "'");
        }
        return seconds;
    }

    private List<RedOp> ops(String value) {
        if (value.equals("all")) {
            return List.of(RedOp.values());
        }
        for (RedOp op : RedOp.values()) {
            if (op.label().equals(value)) {
                return List.of(op);
            }
        }
        console.out("invalid op " + value + ", defaulting to sum .. ");
        List<String> near =
                Arrays.stream(RedOp.values())
                        .filter(op -> op.isElsewhereCalled(value))
                        .map(RedOp::label)
                        .toList();
        List<String> labels = Arrays.stream(RedOp.values()).map(RedOp::label).toList();
        suggest("-o", value, near, labels);
        return List.of(RedOp.SUM);
    }

    private List<ElementType> types(String value) {
        if (value.equals("all")) {
            return List.of(ElementType.values());
        }
        for (ElementType type : ElementType.values()) {
            if (type.label().equals(value)) {
                return List.of(type);
            }
        }
        console.out("invalid type " + value + ", defaulting to float .. ");
        List<String> near =
                Arrays.stream(ElementType.values())
                        .filter(t -> t.isElsewhereCalled(value))
                        .map(ElementType::label)
                        .toList();
        List<String> labels = Arrays.stream(ElementType.values()).map(ElementType::label).toList();
        suggest("-d", value, near, labels);
        return List.of(ElementType.FLOAT);
    }

    private void suggest(String flag, String value, List<String> near, List<String> labels) {
        List<String> candidates = near.isEmpty() ? Nearest.to(value, labels) : near;
        console.err(
                "bench: "
                        + flag
                        + " "
                        + value
                        + " is not known."
                        + Nearest.question(candidates)
                        + " Known: "
                        + String.join(" ", labels)
                        + " all.");
    }

    private int graphLaunches(int value) throws Refusal {
        if (value > 0 && !facts().captures()) {
            if (facts().isNccl()) {
                throw notThere(Flag.CUDAGRAPH, value, "cannot capture operations in a graph");
            }
            ignored(Flag.CUDAGRAPH, "graph launches", true);
            return 0;
        }
        return value;
    }

    private int registration(int value) {
        ignoredWithoutNccl(Flag.LOCAL_REGISTER, "buffer registration", value != 0);
        if (value == 2 && facts().isNccl() && facts().ncclLibrary() < WINDOWS_SINCE) {
            console.out(
                    "Option -R 2 (symmetric) is not supported before NCCL 2.27. Defaulting to local"
                            + " registration");
            return 1;
        }
        return value;
    }

    private OptionalInt ctaPolicy(int value) throws Refusal {
        ignoredWithoutNccl(Flag.CTA_POLICY, "CTA policy", value >= 0);
        if (value < 0 || !facts().isNccl()) {
            return OptionalInt.empty();
        }
        if (value > 1 && facts().ncclLibrary() < ZERO_CTA_POLICY_SINCE) {
            console.out(
                    "Option -x (cta_policy) "
                            + value
                            + " is not supported before NCCL 2.28. Ignoring");
            return OptionalInt.empty();
        }
        if (value > NcclOption.CTA_POLICY.maximum()) {
            throw new Refusal(
                    "bench: -x "
                            + value
                            + ": must be 0 (default), 1 (efficiency) or 2 (zero), or negative for"
                            + " unset");
        }
        if (facts().ncclLibrary() < NcclOption.CTA_POLICY.sinceVersion()) {
            console.err(
                    "bench: -x "
                            + value
                            + ": NCCL "
                            + facts().ncclVersion()
                            + " has no CTA policy, which came with 2.27.3; ignored");
            return OptionalInt.empty();
        }
        return OptionalInt.of(value);
    }

    private void needsDeviceApi(String option) throws Refusal {
        if (facts().isNccl() && facts().ncclLibrary() < DEVICE_API_SINCE) {
            throw new Refusal(option + " requires NCCL >= 2.28.0");
        }
    }

    private Refusal notThere(Flag flag, int value, String what) {
        return new Refusal(
                ExitCode.UNSUPPORTED,
                "bench: "
                        + flag.typed()
                        + " "
                        + value
                        + ": this version's "
                        + facts().name()
                        + " backend "
                        + what
                        + "; leave the option out");
    }

    private void refuseWhatTheBackendLacks() throws Refusal {
        if ((algorithm.isPresent() || showsAlgorithms) && facts().isNccl()) {
            throw new Refusal(
                    ExitCode.UNSUPPORTED,
                    "bench: "
                            + (algorithm.isPresent() ? Flag.ALGORITHM : Flag.SHOW_ALGORITHM).typed()
                            + ": NCCL chooses its algorithms itself and does not tell which; leave"
                            + " the option out, steer NCCL by its variable NCCL_ALGO, or take"
                            + " --backend cpu");
        }
        if (facts == null || !facts.isNccl()) {
            return;
        }
        if (deviceImplementation > 0 && registration != 2) {
            throw new Refusal(
                    "device implementation (-D > 0) requires enabling symmetric memory registration"
                            + " (-R 2)");
        }
        if (deviceImplementation > 0) {
            throw notThere(
                    Flag.DEVICE_IMPLEMENTATION,
                    deviceImplementation,
                    "has no device-side kernels, which are CUDA code of nccl-tests");
        }
        if (registration == 2) {
            throw notThere(Flag.LOCAL_REGISTER, registration, "has no symmetric windows");
        }
        if (registration != 0 && !facts.registers()) {
            throw notThere(Flag.LOCAL_REGISTER, registration, "cannot register buffers");
        }
    }

    private Optional<String> jsonFile(String value) {
        String name = value.substring(value.lastIndexOf('/') + 1);
        int dot = name.lastIndexOf('.');
        if (dot >= 0 && name.substring(dot + 1).equalsIgnoreCase("json")) {
            return Optional.of(value);
        }
        console.err("bench: -J " + value + ": no file is written, its name must end in .json");
        return Optional.empty();
    }

    private TimeAverage average(String value) throws Refusal {
        int number = integer(Flag.AVERAGE, value);
        TimeAverage[] averages = TimeAverage.values();
        if (number < 0 || number >= averages.length) {
            throw new Refusal(
                    "bench: -a " + value + ": must be 0 (rank 0), 1 (mean), 2 (min) or 3 (max)");
        }
        return averages[number];
    }

    private BackendFacts facts() {
        if (facts == null) {
            facts = backends.apply(backend);
        }
        return facts;
    }

    /** As {@link #ignored}, where it is not NCCL that runs the operations. */
    private void ignoredWithoutNccl(Flag flag, String what, boolean asksForSomething) {
        ignored(flag, what, asksForSomething && !facts().isNccl());
    }

    /** Says that an option changes nothing, if its value asks for a change. */
    private void ignored(Flag flag, String what, boolean asksForSomething) {
        if (asksForSomething) {
            console.err(
                    "bench: "
                            + flag.typed()
                            + " ("
                            + what
                            + ") has no effect on the "
                            + facts().name()
                            + " backend; ignored");
        }
    }

    /** The checks after parsing, in nccl-tests' order; ours come right behind the first. */
    private void check() throws Refusal {
        if (minBytes > maxBytes) {
            String line =
                    "invalid sizes for 'minbytes' and 'maxbytes': " + minBytes + " > " + maxBytes;
            if (minTyped.isPresent() && maxTyped.isPresent()) {
                throw new Refusal(line);
            }
            console.err(line);
            throw new Refusal(
                    minTyped.isEmpty()
                            ? "bench: -b is 32M unless given; give -b as well, "
                                    + maxTyped.orElseThrow()
                                    + " or less"
                            : "bench: -e is 32M unless given; give -e as well, "
                                    + minTyped.orElseThrow()
                                    + " or more");
        }
        if (!stepGiven) {
            stepFactor = 2;
        }
        refuseWhatTheBackendLacks();
        refuseWhatCannotRun();
        if (perIteration != 0 && perIteration != 1) {
            console.err("per-iteration timing (-I) only supports 0=off or 1=on. Disabling.");
            perIteration = 0;
        }
        if (perIteration != 0 && graphLaunches > 0) {
            console.err(
                    "per-iteration timing (-I) is incompatible with CUDA graph mode (-G). Disabling.");
            perIteration = 0;
        }
        if (blocking == 3 && graphLaunches > 0) {
            console.err(
                    "blocking mode (-z 3) is incompatible with CUDA graph mode (-G). Disabling.");
            blocking = 0;
        }
        if (perIterationSkip < 0 || perIterationSkip >= iterations) {
            console.err(
                    "per-iteration skip (-K) must be between 0 and "
                            + (iterations - 1)
                            + ". Disabling.");
            perIterationSkip = 0;
        }
        if (perIterationSkip > 0 && perIteration == 0) {
            console.err("per-iteration skip (-K) requires per-iteration timing (-I 1). Disabling.");
            perIterationSkip = 0;
        }
    }

    /** What makes nccl-tests crash, loop for ever or divide by zero. */
    private void refuseWhatCannotRun() throws Refusal {
        atLeastOne(Flag.THREADS, threads, "thread");
        if (gpusPerThread.isPresent()) {
            atLeastOne(Flag.GPUS, gpusPerThread.getAsInt(), "device per thread");
        }
        atLeastOne(Flag.ITERATIONS, iterations, "timed iteration");
        atLeastOne(Flag.AGGREGATED, aggregated, "operation per iteration");
        if (unalignElements < 0) {
            throw new Refusal(
                    "bench: -u "
                            + unalignElements
                            + ": buffers can only be shifted forward, by 0 or more");
        }
        if (stepFactor > 1 && minBytes == 0) {
            throw new Refusal(
                    "bench: -b 0 times a factor of "
                            + stepFactor
                            + " stays 0 for ever: start at 1 or more, or step with -i");
        }
        if (stepFactor <= 1 && stepBytes == 0) {
            throw new Refusal(
                    "bench: -i 0 repeats "
                            + minBytes
                            + " bytes for ever: step by 1 or more, multiply with -f, or repeat with -N");
        }
    }

    private static void atLeastOne(Flag flag, int value, String unit) throws Refusal {
        if (value < 1) {
            throw new Refusal(
                    "bench: " + flag.typed() + " " + value + ": at least 1 " + unit + " is needed");
        }
    }

    private BenchOptions options() {
        List<String> commandLine = new ArrayList<>(words.size() + 1);
        commandLine.add(program.executable());
        commandLine.addAll(words);
        return new BenchOptions(
                program,
                commandLine,
                backend,
                new BenchOptions.Sweep(minBytes, maxBytes, stepBytes, stepFactor, runCycles),
                new BenchOptions.Layout(threads, gpusPerThread, parallelInit),
                new BenchOptions.Timing(
                        iterations,
                        aggregated,
                        warmupIterations,
                        // A trace is for its steps, and none should be of rows that nobody sees.
                        jitWarmupSeconds.orElse(
                                traceFile.isPresent() ? 0 : BenchOptions.JIT_WARMUP_SECONDS),
                        blocking,
                        timeoutSeconds,
                        graphLaunches,
                        average,
                        perIteration == 1,
                        perIterationSkip),
                new BenchOptions.Work(types, ops, root, checkRounds, unalignElements, algorithm),
                new BenchOptions.Output(
                        cpuTime, timestamps, memory, showsAlgorithms, jsonFile, traceFile),
                facts == null || !facts.isNccl()
                        ? BenchOptions.Nccl.defaults()
                        : new BenchOptions.Nccl(
                                nullStream, registration != 0, ctaPolicy, commBlocking));
    }
}
