package org.nccl4j.collectives.spi;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Optional;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import org.junit.jupiter.api.Test;
import org.nccl4j.collectives.CollectiveTimeoutException;
import org.nccl4j.collectives.CommunicatorConfig;
import org.nccl4j.collectives.InMemoryStore;
import org.nccl4j.collectives.InvalidArgumentException;
import org.nccl4j.collectives.RankInfo;
import org.nccl4j.collectives.Rendezvous;
import org.nccl4j.collectives.Store;
import org.nccl4j.collectives.UniqueId;
import org.nccl4j.collectives.WaitInterruptedException;

final class RosterTest {
    private static final CommunicatorConfig PATIENT =
            CommunicatorConfig.defaults().withOperationTimeout(Duration.ofSeconds(50));
    private static final CommunicatorConfig IMPATIENT =
            CommunicatorConfig.defaults().withOperationTimeout(Duration.ofMillis(50));

    private final InMemoryStore store = new InMemoryStore();
    private final Rendezvous job = new Rendezvous(store, "job");

    private static RankInfo info(int rank, int size, String version) {
        return new RankInfo(rank, size, "host" + rank, 100 + rank, rank, version);
    }

    private static RankInfo info(int rank, int size) {
        return info(rank, size, "v1");
    }

    private static UniqueId id(int first) {
        byte[] bytes = new byte[UniqueId.SIZE_BYTES];
        bytes[0] = (byte) first;
        return new UniqueId(bytes);
    }

    @Test
    void allRanksSeeAllAndTheIdOfRank0() throws Exception {
        try (ExecutorService threads = Executors.newVirtualThreadPerTaskExecutor()) {
            List<Future<UniqueId>> ids = new ArrayList<>();
            for (int r = 0; r < 4; r++) {
                int rank = r;
                ids.add(
                        threads.submit(() -> {
                            Roster roster = Roster.meet(job, info(rank, 4), PATIENT);
                            assertThat(roster.ranks())
                                    .containsExactly(
                                            info(0, 4), info(1, 4), info(2, 4), info(3, 4));
                            return roster.id(() -> id(rank + 1));
                        }));
            }
            for (Future<UniqueId> id : ids) {
                assertThat(id.get()).isEqualTo(id(1));
            }
        }
    }

    @Test
    void missingRanksAreNamedAndMayStillCome() throws Exception {
        assertThatThrownBy(() -> Roster.meet(job, info(1, 4), IMPATIENT))
                .isInstanceOf(CollectiveTimeoutException.class)
                .hasMessage(
                        "create of communicator 'world' on rank 1/4 (job 'job'): rank 0, rank 2,"
                                + " rank 3 did not come within 0.05s; nothing was made, start the"
                                + " missing ranks and call create again");
        try (ExecutorService threads = Executors.newVirtualThreadPerTaskExecutor()) {
            List<Future<Roster>> meetings = new ArrayList<>();
            for (int r = 0; r < 4; r++) {
                RankInfo self = info(r, 4);
                meetings.add(threads.submit(() -> Roster.meet(job, self, PATIENT)));
            }
            for (Future<Roster> meeting : meetings) {
                assertThat(meeting.get().ranks()).hasSize(4);
            }
        }
    }

    @Test
    void aTakenRankIsRefusedWithBothCallers() {
        assertThatThrownBy(() -> Roster.meet(job, info(0, 2), IMPATIENT))
                .isInstanceOf(CollectiveTimeoutException.class);
        RankInfo other = new RankInfo(0, 2, "hostX", 7, 3, "v1");

        assertThatThrownBy(() -> Roster.meet(job, other, PATIENT))
                .isInstanceOf(InvalidArgumentException.class)
                .hasMessage(
                        lines(
                                "create of communicator 'world' on rank 0/2 (job 'job'): rank 0 is"
                                        + " taken; give each rank its own number and each job its"
                                        + " own name:",
                                "  rank 0/2, host host0, process 100, device 0, v1",
                                "  rank 0/2, host hostX, process 7, device 3, v1"));
    }

    /** Also by the rank that expects more ranks than there are: it would wait for them in vain. */
    @Test
    void aSizeThatDiffersIsRefusedBeforeTheDeadlineOnBothSides() {
        assertThatThrownBy(() -> Roster.meet(job, info(0, 2), IMPATIENT))
                .isInstanceOf(CollectiveTimeoutException.class);

        assertThatThrownBy(() -> Roster.meet(job, info(1, 3), PATIENT))
                .isInstanceOf(InvalidArgumentException.class)
                .hasMessage(
                        lines(
                                "create of communicator 'world' on rank 1/3 (job 'job'): ranks"
                                        + " disagree about the size; give all the same:",
                                "  rank 0/2, host host0, process 100, device 0, v1",
                                "  rank 1/3, host host1, process 101, device 1, v1"));
        assertThatThrownBy(() -> Roster.meet(job, info(0, 2), PATIENT))
                .isInstanceOf(InvalidArgumentException.class)
                .hasMessage(
                        lines(
                                "create of communicator 'world' on rank 0/2 (job 'job'): ranks"
                                        + " disagree about the size; give all the same:",
                                "  rank 0/2, host host0, process 100, device 0, v1",
                                "  rank 1/3, host host1, process 101, device 1, v1"));
    }

    @Test
    void versionsThatDifferAreRefused() {
        assertThatThrownBy(() -> Roster.meet(job, info(0, 2), IMPATIENT))
                .isInstanceOf(CollectiveTimeoutException.class);

        assertThatThrownBy(() -> Roster.meet(job, info(1, 2, "v2"), PATIENT))
                .isInstanceOf(InvalidArgumentException.class)
                .hasMessage(
                        lines(
                                "create of communicator 'world' on rank 1/2 (job 'job'): ranks use"
                                        + " different versions; install the same everywhere:",
                                "  rank 0/2, host host0, process 100, device 0, v1",
                                "  rank 1/2, host host1, process 101, device 1, v2"));
    }

    @Test
    void aBackendsOwnRefusalHasTheTable() {
        Roster alone = Roster.meet(job, info(0, 1), PATIENT);

        assertThat(alone.refusal("no"))
                .isEqualTo(
                        lines(
                                "create of communicator 'world' on rank 0/1 (job 'job'): no:",
                                "  rank 0/1, host host0, process 100, device 0, v1"));
    }

    @Test
    void anIdThatDoesNotComeIsATimeout() {
        store.setIfAbsent("nccl4j/job/rank/0", encoded(info(0, 2)));
        Roster roster = Roster.meet(job, info(1, 2), IMPATIENT);

        assertThatThrownBy(() ->
                        roster.id(() -> {
                            throw new AssertionError("rank 1 makes no id");
                        }))
                .isInstanceOf(CollectiveTimeoutException.class)
                .hasMessage(
                        "create of communicator 'world' on rank 1/2 (job 'job'): rank 0 gave no id"
                                + " within 0.05s; nothing was made, call create again");
    }

    @Test
    void whatNoRankHasWrittenIsRefused() {
        store.setIfAbsent("nccl4j/job/rank/1", new byte[3]);

        assertThatThrownBy(() -> Roster.meet(job, info(0, 2), PATIENT))
                .isInstanceOf(InvalidArgumentException.class)
                .hasMessage(
                        "the store holds 3 bytes under 'nccl4j/job/rank/1' where a rank of nccl4j"
                                + " should have told who it is; give the job a name of its own");
    }

    @Test
    void aStoreThatBreaksItsContractIsNamed() {
        assertThatThrownBy(() -> meetAt(null))
                .isInstanceOf(InvalidArgumentException.class)
                .hasMessageStartingWith(
                        "create of communicator 'world' on rank 0/2 (job 'job'): the store, a ")
                .hasMessageEndingWith(
                        ", returned null for 'nccl4j/job/rank/0'; get() must return an empty"
                                + " Optional when time has run out");
        assertThatThrownBy(() -> meetAt(Optional.empty()))
                .isInstanceOf(InvalidArgumentException.class)
                .hasMessageEndingWith(
                        ", refuses to set 'nccl4j/job/rank/0' and has no value for it; a key that"
                                + " is set must keep its value");
    }

    /** A store where each key is said to be set, and whose answer is always the same. */
    private static void meetAt(Optional<byte[]> answer) {
        Store broken =
                new Store() {
                    @Override
                    public boolean setIfAbsent(String key, byte[] value) {
                        return false;
                    }

                    @Override
                    public Optional<byte[]> get(String key, Duration timeout) {
                        return answer;
                    }
                };
        Roster.meet(new Rendezvous(broken, "job"), info(0, 2), PATIENT);
    }

    @Test
    void anInterruptEndsTheWait() {
        Thread.currentThread().interrupt();

        assertThatThrownBy(() -> Roster.meet(job, info(0, 2), PATIENT))
                .isInstanceOf(WaitInterruptedException.class);
        assertThat(Thread.interrupted()).isTrue();
    }

    @Test
    void aRankOfThisProcessKnowsItsProcess() {
        RankInfo info = RankInfo.ofThisProcess(1, 2, 5, "v1");

        assertThat(info.processId()).isEqualTo(ProcessHandle.current().pid());
        assertThat(info.host()).isNotBlank();
        assertThat(info.deviceOrdinal()).isEqualTo(5);
        assertThatThrownBy(() -> RankInfo.ofThisProcess(2, 2, 5, "v1"))
                .isInstanceOf(InvalidArgumentException.class)
                .hasMessage("rank 2 of 2; must be 0 to size - 1");
        assertThatThrownBy(() -> new RankInfo(0, 1, "h", 1, 0, null))
                .isInstanceOf(InvalidArgumentException.class)
                .hasMessage("rank 0 needs host and version, got h and null");
    }

    /** What a rank writes, taken from a store that it has written to. */
    private static byte[] encoded(RankInfo info) {
        InMemoryStore other = new InMemoryStore();
        assertThatThrownBy(() -> Roster.meet(new Rendezvous(other, "job"), info, IMPATIENT))
                .isInstanceOf(CollectiveTimeoutException.class);
        return other.get("nccl4j/job/rank/" + info.rank(), Duration.ZERO).orElseThrow();
    }

    private static String lines(String... lines) {
        return String.join(System.lineSeparator(), lines);
    }
}
