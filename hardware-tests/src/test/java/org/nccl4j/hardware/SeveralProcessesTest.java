package org.nccl4j.hardware;

import static org.assertj.core.api.Assertions.assertThat;

import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import org.awaitility.Awaitility;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** A rank a process, over the emulator's shared memory. Case L2 among them. */
final class SeveralProcessesTest {
    private static final Duration DEADLINE = Duration.ofSeconds(40);
    private static final Duration OPERATION_TIMEOUT = Duration.ofSeconds(4);

    private static EmulatorLibraries libraries;

    @TempDir Path folder;
    private final List<ChildJvm> children = new ArrayList<>();

    @BeforeAll
    static void needEmulator() {
        libraries = EmulatorLibraries.of("2.30");
    }

    @AfterEach
    void endChildren() {
        children.forEach(ChildJvm::close);
    }

    private void start(String what, int ranks) {
        for (int rank = 0; rank < ranks; rank++) {
            children.add(
                    ChildJvm.start(
                            folder,
                            "rank-" + rank,
                            libraries,
                            Map.of(),
                            RankProcess.class,
                            folder.toString(),
                            what,
                            Integer.toString(rank),
                            Integer.toString(ranks),
                            Long.toString(OPERATION_TIMEOUT.toMillis())));
        }
    }

    @Test
    void ranksOfSeveralProcessesSum() {
        start("sum", 3);

        children.forEach(child -> child.awaitSuccess(DEADLINE));

        for (int rank = 0; rank < 3; rank++) {
            assertThat(folder.resolve("world-sum-" + rank)).hasContent("6");
        }
    }

    /** L2: the others learn of it in time, their abort returns, and they can go on without it. */
    @Test
    void aKilledRankFailsTheOthersWhichGoOnWithoutIt() throws Exception {
        start("loop", 3);
        for (int rank = 0; rank < 3; rank++) {
            awaitFile("loops-" + rank, children.get(rank));
        }

        children.get(1).kill();

        for (int rank : new int[] {0, 2}) {
            children.get(rank).awaitSuccess(DEADLINE);
            List<String> failure = Files.readAllLines(folder.resolve("failure-" + rank));
            assertThat(Duration.ofMillis(Long.parseLong(failure.getFirst())))
                    .as("how long rank %d waited: %s", rank, failure)
                    .isLessThan(OPERATION_TIMEOUT.plusSeconds(2));
            assertThat(String.join(" ", failure.subList(1, failure.size())))
                    .contains("allReduce")
                    .contains("rank " + rank + "/3");
        }
        for (int survivor = 0; survivor < 2; survivor++) {
            assertThat(folder.resolve("survivors-sum-" + survivor)).hasContent("3");
        }
    }

    private void awaitFile(String name, ChildJvm child) {
        Awaitility.await()
                .atMost(DEADLINE)
                .pollInterval(Duration.ofMillis(5))
                .failFast(() -> {
                    if (!child.process().isAlive()) {
                        throw new AssertionError("a child has ended" + child.said());
                    }
                })
                .until(() -> Files.exists(folder.resolve(name)));
    }
}
