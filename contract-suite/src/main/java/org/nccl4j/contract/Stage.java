package org.nccl4j.contract;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Deque;
import java.util.List;
import org.nccl4j.collectives.Backend;
import org.nccl4j.collectives.Capabilities;
import org.nccl4j.collectives.CommunicatorConfig;
import org.nccl4j.collectives.DataType;
import org.opentest4j.TestAbortedException;

/** Where a scenario takes place: the backend, its ranks, and the seed. */
final class Stage implements AutoCloseable {
    private final BackendUnderTest underTest;
    private final Ledger ledger;
    private final long seed;
    private final CapturedLog log;
    private final Deque<AutoCloseable> opened = new ArrayDeque<>();

    Stage(BackendUnderTest underTest, Ledger ledger, long seed, CapturedLog log) {
        this.underTest = underTest;
        this.ledger = ledger;
        this.seed = seed;
        this.log = log;
    }

    BackendUnderTest underTest() {
        return underTest;
    }

    Backend backend() {
        return underTest.backend();
    }

    Capabilities capabilities() {
        return underTest.backend().capabilities();
    }

    boolean detectsMismatches() {
        return underTest.detectsMismatches();
    }

    boolean detectsOverlap() {
        return underTest.detectsOverlap();
    }

    long seed() {
        return seed;
    }

    /** What has been logged since the scenario began. */
    CapturedLog log() {
        return log;
    }

    /** Ranks that wait long for each other; closed with the scenario. */
    RankSet ranks(int size) {
        return ranks(size, Duration.ofSeconds(20));
    }

    /** Ranks whose operations have a deadline; closed with the scenario. */
    RankSet ranks(int size, Duration operationTimeout) {
        return ranks(size, CommunicatorConfig.defaults().withOperationTimeout(operationTimeout));
    }

    RankSet ranks(int size, CommunicatorConfig config) {
        needsDevices(size);
        RankSet ranks = closing(RankSet.local(backend(), size, underTest.configured(config)));
        if (capabilities().firstUseMayWait()) {
            connect(ranks);
        }
        return ranks;
    }

    /** Uses everything once, so that no later call waits for a connection. */
    private void connect(RankSet ranks) {
        List<OperationProgram> programs = new ArrayList<>();
        for (Collective collective : Collective.values()) {
            Reduction reduction = collective.reduces() ? Reduction.SUM : null;
            programs.add(
                    OperationProgram.exact(
                            new TierCases(seed)
                                    .operation(
                                            collective,
                                            DataType.INT32,
                                            reduction,
                                            ranks.size(),
                                            5)));
        }
        run(new RankRunner.ThreadPerRank(0), ranks, programs);
        ranks.onEvery(rank -> {
            rank.communicator().barrier(rank.stream());
            rank.synchronize();
        });
    }

    /** Has something closed at the end of the scenario, the last first. */
    <T extends AutoCloseable> T closing(T resource) {
        opened.push(resource);
        return resource;
    }

    /** An empty file, deleted at the end of the scenario. */
    Path newFile() {
        try {
            Path file = Files.createTempFile("nccl4j-contract-", null);
            closing(() -> Files.delete(file));
            return file;
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        }
    }

    void needsDevices(int size) {
        if (backend().deviceLimit() < size) {
            throw unsupported(size + " ranks need " + size + " devices");
        }
    }

    /** An end that is neither a pass nor a failure. */
    TestAbortedException unsupported(String why) {
        return new TestAbortedException("unsupported: " + why);
    }

    /** Counts cases that a scenario checks beyond itself. */
    void counts(int cases) {
        ledger.ran(cases, 0);
    }

    /** Runs programs and fails with all that went wrong. */
    void run(RankRunner runner, RankSet ranks, List<? extends RankProgram> programs) {
        List<RankRunner.Failure> failures = runner.run(ranks, programs);
        ledger.ran(programs.size(), Failures.programs(failures));
        Failures.throwIfAny(failures, programs.size(), runner, seed);
    }

    /** Gives up what is under way, so that closing need not wait for ranks that will not come. */
    void abandon() {
        for (AutoCloseable resource : opened) {
            if (resource instanceof RankSet ranks) {
                ranks.abandon();
            }
        }
    }

    @Override
    public void close() {
        RuntimeException first = null;
        while (!opened.isEmpty()) {
            try {
                opened.pop().close();
            } catch (Exception e) {
                if (first == null) {
                    first = new IllegalStateException("cannot close what a scenario used", e);
                } else {
                    first.addSuppressed(e);
                }
            }
        }
        if (first != null) {
            throw first;
        }
    }
}
