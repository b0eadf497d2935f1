package org.nccl4j.bench;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.net.InetAddress;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.Arrays;
import java.util.List;
import java.util.Optional;
import java.util.concurrent.CompletionService;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ExecutorCompletionService;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.TimeUnit;
import java.util.stream.IntStream;
import org.nccl4j.collectives.Backend;
import org.nccl4j.collectives.Capabilities;
import org.nccl4j.collectives.CollectiveException;
import org.nccl4j.collectives.CollectiveTimeoutException;
import org.nccl4j.collectives.Communicator;
import org.nccl4j.collectives.CommunicatorConfig;
import org.nccl4j.collectives.DataType;
import org.nccl4j.collectives.Device;
import org.nccl4j.collectives.InvalidArgumentException;
import org.nccl4j.collectives.NativeCallException;
import org.nccl4j.collectives.NcclOption;
import org.nccl4j.collectives.NcclOptions;
import org.nccl4j.collectives.UnsupportedException;
import org.nccl4j.collectives.WaitInterruptedException;
import tools.jackson.core.JacksonException;

/**
 * One run of a program on a backend, from the first line to the exit code.
 *
 * <p>Thread safety: {@link #run} by one thread, once; {@link #interrupt} by any other at any time.
 */
final class BenchRun {

    /** How long a run that failed waits for its work to be given up, and for its threads. */
    private static final Duration GIVE_UP = Duration.ofSeconds(10);

    /** How long an interrupted run waits for its communicators to close, which ends a trace. */
    private static final Duration CLOSING = Duration.ofSeconds(2);

    /** Completion is given up after -T; an operation itself a little later, if nobody waits. */
    private static final Duration BEYOND_TIMEOUT = Duration.ofSeconds(5);

    private final Console console;
    private final BenchEnvironment environment;
    private final BenchOptions options;
    private final Backend backend;
    private final BackendFacts facts;
    private final Optional<Corruption> corruption;
    private final boolean terminal;
    private final CommunicatorConfig config;
    private final CountDownLatch over = new CountDownLatch(1);

    private volatile Thread runner;
    private volatile RunReport report;
    private volatile RankSet rankSet;

    /**
     * @param terminal whether standard error is one, for progress
     */
    BenchRun(
            Console console,
            BenchEnvironment environment,
            BenchOptions options,
            Backend backend,
            BackendFacts facts,
            Optional<Corruption> corruption,
            boolean terminal) {
        this.console = console;
        this.environment = environment;
        this.options = options;
        this.backend = backend;
        this.facts = facts;
        this.corruption = corruption;
        this.terminal = terminal;
        this.config = config(options, facts);
    }

    private static CommunicatorConfig config(BenchOptions options, BackendFacts facts) {
        CommunicatorConfig config =
                CommunicatorConfig.defaults()
                        .withBlocking(options.nccl().blocking())
                        .withNccl(ncclOptions(options, facts));
        int seconds = options.timing().timeoutSeconds();
        if (seconds > 0) {
            config = config.withOperationTimeout(Duration.ofSeconds(seconds).plus(BEYOND_TIMEOUT));
        }
        config = config.withAlgorithm(options.work().algorithm().orElse(null));
        return options.output().traceFile().map(Path::of).map(config::withTraceFile).orElse(config);
    }

    /** What nccl-tests sets, as far as the loaded library has it, and what -x asks for. */
    private static NcclOptions ncclOptions(BenchOptions options, BackendFacts facts) {
        NcclOptions nccl = NcclOptions.none();
        if (facts.ncclLibrary() >= NcclOption.NVLINK_CENTRIC_SCHED.sinceVersion()) {
            nccl = nccl.with(NcclOption.NVLINK_CENTRIC_SCHED, 1);
        }
        if (options.program() == Program.SENDRECV
                && facts.ncclLibrary() >= NcclOption.MAX_P2P_PEERS.sinceVersion()) {
            nccl = nccl.with(NcclOption.MAX_P2P_PEERS, 2);
        }
        return options.nccl().ctaPolicy().isPresent()
                ? nccl.with(NcclOption.CTA_POLICY, options.nccl().ctaPolicy().getAsInt())
                : nccl;
    }

    /**
     * Runs.
     *
     * @throws UncheckedIOException if standard output was closed
     */
    ExitCode run() {
        runner = Thread.currentThread();
        FailureReport failures =
                new FailureReport(console, hostname(), ProcessHandle.current().pid());
        try {
            ExitCode code = runToVerdict(failures);
            if (code == ExitCode.FAILED) {
                failures.where(here(new Throwable()));
            }
            return code;
        } catch (BenchFailure failed) {
            end();
            if (isInterrupted()) {
                return ExitCode.INTERRUPTED;
            }
            console.out(failed.getMessage());
            failures.where(here(failed));
            return failed.code();
        } catch (CollectiveException failed) {
            end();
            return isInterrupted() ? ExitCode.INTERRUPTED : failed(failures, failed);
        } catch (JacksonException unwritable) {
            end();
            if (isInterrupted()) {
                return ExitCode.INTERRUPTED;
            }
            report.unwritable(unwritable);
            failures.failed("JSON", unwritable.getOriginalMessage(), here(unwritable));
            return ExitCode.INTERNAL;
        } catch (InterruptedException interrupted) {
            return ExitCode.INTERRUPTED;
        } finally {
            end();
            over.countDown();
        }
    }

    /**
     * Ends the run at once: prints the footer of what has run and ends the JSON file, then makes
     * the run give up. For a shutdown hook: it does not wait for the run, except for a moment if a
     * trace is to be written to its end.
     *
     * @return false if the run had come to its own end already
     */
    boolean interrupt() throws InterruptedException {
        RunReport ending = report;
        if (ending != null && !ending.interrupt()) {
            return false;
        }
        Thread running = runner;
        if (running != null) {
            running.interrupt();
            if (options.output().traceFile().isPresent()
                    && !over.await(CLOSING.toMillis(), TimeUnit.MILLISECONDS)) {
                console.err("bench: interrupted; the trace may lack its last lines");
            }
        }
        return true;
    }

    /** Ends the report of a run that has no footer, if it has not ended. */
    private void end() {
        RunReport ending = report;
        if (ending != null) {
            ending.fail();
        }
    }

    private boolean isInterrupted() {
        RunReport ended = report;
        return ended != null && ended.isInterrupted();
    }

    private ExitCode failed(FailureReport failures, CollectiveException failed) {
        StackTraceElement at = here(failed);
        String during =
                Optional.ofNullable(report)
                        .flatMap(RunReport::current)
                        .map(cell -> " [" + cell + "]")
                        .orElse("");
        console.err("bench: " + failed.getMessage() + during);
        return switch (failed) {
            case CollectiveTimeoutException timeout -> {
                int seconds = options.timing().timeoutSeconds();
                int shown = seconds > 0 ? seconds : (int) config.operationTimeout().toSeconds();
                if (seconds > 0) {
                    console.err("bench: raise -T " + seconds + " if it is only slow");
                }
                failures.timedOut(shown, at);
                yield ExitCode.TIMEOUT;
            }
            case NativeCallException call when call.function().startsWith("cuda") -> {
                failures.failed("CUDA", call.getMessage(), at);
                yield ExitCode.CUDA;
            }
            case NativeCallException call -> {
                failures.failed("NCCL", call.getMessage() + " / " + call.lastErrorText(), at);
                yield ExitCode.BACKEND;
            }
            case UnsupportedException unsupported -> {
                failures.failed(backend.name(), unsupported.getMessage(), at);
                yield ExitCode.UNSUPPORTED;
            }
            case WaitInterruptedException interrupted -> ExitCode.INTERRUPTED;
            default -> {
                failures.failed(backend.name(), failed.getMessage(), at);
                yield ExitCode.BACKEND;
            }
        };
    }

    /** The innermost place in the benchmark that a failure came through. */
    private static StackTraceElement here(Throwable failed) {
        return Arrays.stream(failed.getStackTrace())
                .filter(frame -> frame.getClassName().startsWith(BenchRun.class.getPackageName()))
                .findFirst()
                .orElseGet(() -> new Throwable().getStackTrace()[0]);
    }

    private ExitCode runToVerdict(FailureReport failures) throws InterruptedException {
        Optional<String> misplaced = environment.refusal();
        if (misplaced.isPresent()) {
            console.err(misplaced.get());
            return ExitCode.ARGUMENTS;
        }
        int gpusPerThread = gpusPerThread();
        int first = environment.firstDevice().orElse(0);
        long rankCount = (long) options.layout().threads() * gpusPerThread;
        int devicesThere = backend.deviceLimit();
        boolean enough = first + rankCount <= devicesThere;
        List<Series> series = series(enough ? (int) rankCount : 1);
        if (enough && !isAlgorithmKnown((int) rankCount)) {
            return ExitCode.ARGUMENTS;
        }
        report =
                new RunReport(
                        console,
                        options,
                        environment.expectedBusBwGBps(),
                        () -> rankSet.memory(),
                        new Progress(
                                console,
                                terminal,
                                options.sweep(),
                                series.size(),
                                System::nanoTime));
        report.begin(facts, gpusPerThread, environment.reported());
        if (!enough) {
            end();
            long needed = Math.min(Integer.MAX_VALUE, first + rankCount);
            failures.tooFewDevices((int) needed, devicesThere);
            return ExitCode.UNSUPPORTED;
        }
        List<Device> devices =
                IntStream.range(first, first + (int) rankCount).mapToObj(backend::device).toList();
        report.devices(lines(devices), gpusPerThread);
        advise(devices.size());
        MemoryNeed need =
                new MemoryNeed(options.sweep(), options.work().unalignElements(), devices);
        Optional<String> refusal = need.refusal();
        if (refusal.isPresent()) {
            end();
            console.err(refusal.get());
            return ExitCode.UNSUPPORTED;
        }
        try (AllCores cores = new AllCores();
                RankSet set = new RankSet(backend, devices);
                BufferData data = new BufferData(cores, config.operationTimeout())) {
            rankSet = set;
            set.connect(config, options.layout().parallelInit());
            int timed = options.timing().perIteration() ? options.timing().iterations() : 0;
            report.allocating(need.totalBytes());
            List<BenchRank> ranks = set.allocate(need.bufferBytes(), timed, options.nccl());
            report.start();
            Sweep sweep =
                    new Sweep(
                            backend,
                            options,
                            series,
                            ranks,
                            traffic(devices.size()),
                            data,
                            corruption,
                            report);
            run(sweep);
            boolean checks = options.work().checkRounds() > 0;
            if (checks && corruption.isPresent() && !sweep.isCorrupted()) {
                end();
                console.err(
                        "bench: "
                                + Corruption.PROPERTY
                                + "="
                                + corruption.get()
                                + " changed nothing: no check saw such a row, cell, rank and"
                                + " element");
                return ExitCode.ARGUMENTS;
            }
            report.ran();
        }
        // Only now: what fails when the ranks leave, say the end of a trace, fails the run.
        return report.finish();
    }

    /**
     * Asks the backend before anything is printed; a name that does not exist is refused, and
     * standard error says so if what was named does not run.
     */
    private boolean isAlgorithmKnown(int ranks) {
        Optional<String> named = options.work().algorithm();
        if (named.isPresent() || options.output().algorithms()) {
            String operation = options.program().operation();
            long bytes = options.sweep().minBytes();
            try {
                String runs = backend.algorithm(operation, ranks, bytes, config);
                if (named.isPresent() && !isAmong(runs, named.get())) {
                    // It may be the number of ranks that is too much for it.
                    String one = backend.algorithm(operation, 1, bytes, config);
                    console.err(
                            "bench: "
                                    + named.get()
                                    + " does not do "
                                    + operation.replace('_', '-')
                                    + (isAmong(one, named.get()) ? " of " + ranks + " ranks" : "")
                                    + "; "
                                    + runs
                                    + " runs it");
                }
            } catch (InvalidArgumentException refused) {
                console.err("bench: --algo: " + refused.getMessage());
                return false;
            }
        }
        return true;
    }

    /** Whether what runs is one of the comma-separated names; auto is whatever it takes. */
    private static boolean isAmong(String runs, String names) {
        return names.equals("auto")
                || Arrays.stream(names.split(",", -1)).anyMatch(name -> name.strip().equals(runs));
    }

    private int gpusPerThread() {
        boolean launched = environment.launcherVariable().isPresent();
        return options.layout().gpusPerThread(backend.devices().size(), launched);
    }

    /** The sweeps; where all types or reductions were asked for, those that the backend has. */
    private List<Series> series(int ranks) {
        BenchOptions.Work work = options.work();
        List<Series> series =
                options.program().series(work.types(), work.ops(), work.root(), ranks);
        if (work.types().size() == 1 && work.ops().size() == 1) {
            return series;
        }
        Capabilities capabilities = backend.capabilities();
        return series.stream()
                .filter(each -> {
                    DataType type = each.type().dataType();
                    return options.program().reduces()
                            ? capabilities.supports(type, each.op().reduceOp(type, 0))
                            : capabilities.types().contains(type);
                })
                .toList();
    }

    private static List<DeviceLine> lines(List<Device> devices) {
        long pid = ProcessHandle.current().pid();
        String host = hostname();
        return IntStream.range(0, devices.size())
                .mapToObj(rank -> {
                    Device device = devices.get(rank);
                    return new DeviceLine(
                            rank, 0, pid, host, device.ordinal(), device.busId(), device.name());
                })
                .toList();
    }

    /** What a user may not expect, on standard error. */
    private void advise(int ranks) {
        environment
                .launcherVariable()
                .ifPresent(name ->
                        console.err(
                                "bench: "
                                        + name
                                        + " is set, but bench runs in one process: each process"
                                        + " that a launcher starts measures alone"));
        for (String name : List.of("NCCL_TESTS_SPLIT", "NCCL_TESTS_SPLIT_MASK")) {
            if (environment.variables().containsKey(name)) {
                console.err("bench: " + name + " splits processes, and there is one; ignored");
            }
        }
        Program program = options.program();
        if (ranks == 1 && (program.busFactor(1) == 0 || program == Program.HYPERCUBE)) {
            console.err("bench: with one rank no data crosses a link, so busbw is 0");
        }
    }

    private AllToAllVTraffic traffic(int ranks) {
        if (options.program() != Program.ALLTOALLV) {
            return null;
        }
        AllToAllVTraffic traffic = AllToAllVTraffic.of(environment.variables());
        traffic.check(ranks, options.sweep());
        return traffic;
    }

    /** Runs the threads of a sweep. The first failure stops all and is thrown. */
    private void run(Sweep sweep) throws InterruptedException {
        ExecutorService threads =
                Executors.newFixedThreadPool(
                        sweep.threads,
                        Thread.ofPlatform().daemon().name("nccl4j-bench-", 0).factory());
        try {
            CompletionService<Void> completion = new ExecutorCompletionService<>(threads);
            for (int number = 0; number < sweep.threads; number++) {
                SweepThread thread = new SweepThread(sweep, number);
                completion.submit(() -> {
                    thread.run();
                    return null;
                });
            }
            for (int number = 0; number < sweep.threads; number++) {
                completion.take().get();
            }
        } catch (ExecutionException failed) {
            giveUp(threads, failed.getCause());
            switch (failed.getCause()) {
                case RuntimeException cause -> throw cause;
                case Error cause -> throw cause;
                case InterruptedException cause -> throw cause;
                default -> throw new IllegalStateException(failed.getCause());
            }
        } catch (InterruptedException interrupted) {
            giveUp(threads, interrupted);
            throw interrupted;
        } finally {
            threads.shutdownNow();
        }
    }

    /** Stops threads that wait for each other or for work that will not end. */
    private void giveUp(ExecutorService threads, Throwable cause) {
        threads.shutdownNow();
        // Aborted before the threads are waited for: abort releases those inside the backend.
        for (Communicator communicator : rankSet.communicators()) {
            try {
                communicator.abort(GIVE_UP);
            } catch (CollectiveException aborting) {
                cause.addSuppressed(aborting);
            }
        }
        try {
            if (!threads.awaitTermination(GIVE_UP.toSeconds(), TimeUnit.SECONDS)) {
                console.err("bench: a thread is still inside the backend; exiting without it");
            }
        } catch (InterruptedException interrupted) {
            cause.addSuppressed(interrupted);
            Thread.currentThread().interrupt();
        }
    }

    /** The host's name without its domain. */
    private static String hostname() {
        String name;
        try {
            // Without the kernel's word a resolver is asked, which can take seconds.
            Path kernel = Path.of("/proc/sys/kernel/hostname");
            name =
                    Files.isReadable(kernel)
                            ? Files.readString(kernel).trim()
                            : InetAddress.getLocalHost().getHostName();
        } catch (IOException unknown) {
            name = "localhost";
        }
        int dot = name.indexOf('.');
        return dot > 0 ? name.substring(0, dot) : name;
    }
}
