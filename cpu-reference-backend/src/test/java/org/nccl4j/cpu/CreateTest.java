package org.nccl4j.cpu;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import java.io.ByteArrayOutputStream;
import java.io.DataOutputStream;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Optional;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import org.awaitility.Awaitility;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import org.nccl4j.collectives.Bootstrap;
import org.nccl4j.collectives.CollectiveTimeoutException;
import org.nccl4j.collectives.Communicator;
import org.nccl4j.collectives.CommunicatorConfig;
import org.nccl4j.collectives.DataType;
import org.nccl4j.collectives.DeviceBuffer;
import org.nccl4j.collectives.DeviceStream;
import org.nccl4j.collectives.InMemoryStore;
import org.nccl4j.collectives.InvalidArgumentException;
import org.nccl4j.collectives.ReduceOp;
import org.nccl4j.collectives.Rendezvous;
import org.nccl4j.collectives.UniqueId;
import org.nccl4j.collectives.UnsupportedException;
import org.nccl4j.collectives.WaitInterruptedException;

/** Ranks that find each other by id or by store, and those that cannot. */
final class CreateTest {
    private final CpuBackend backend =
            new CpuBackend(
                    new ReferenceEngine(), new CpuDevices(new Scheduler(2, new RecordingLog())));
    private final CommunicatorConfig config =
            CommunicatorConfig.defaults().withOperationTimeout(World.LONG);
    private final CommunicatorConfig impatient =
            config.withOperationTimeout(Duration.ofMillis(200));

    private CompletableFuture<Communicator> create(
            Bootstrap bootstrap, int rank, int size, CommunicatorConfig with) {
        CompletableFuture<Communicator> made = new CompletableFuture<>();
        Thread.startVirtualThread(() -> {
            try {
                made.complete(backend.create(bootstrap, rank, size, with));
            } catch (RuntimeException e) {
                made.completeExceptionally(e);
            }
        });
        return made;
    }

    private static Communicator get(CompletableFuture<Communicator> made) throws Exception {
        return made.get(20, TimeUnit.SECONDS);
    }

    @Test
    void ranksWithOneIdMeet() throws Exception {
        UniqueId id = backend.newUniqueId();
        assertThat(backend.newUniqueId()).isNotEqualTo(id);
        CompletableFuture<Communicator> first = create(id, 1, 2, config.withDevice(7));
        Communicator second = backend.create(id, 0, 2, config);
        assertThat(get(first).rank()).isEqualTo(1);
        assertThat(get(first).device().ordinal()).isEqualTo(7);
        assertThat(second.size()).isEqualTo(2);
        assertThatThrownBy(() -> backend.create(id, 0, 2, config))
                .isInstanceOf(InvalidArgumentException.class)
                .hasMessage(
                        "create of communicator 'world' on rank 0/2: another caller with "
                                + id
                                + " is rank 0 already, on device 0; give each rank its own number");
        backend.closeAll(List.of(second, get(first)));
    }

    @Test
    void aRankThatStaysAwayIsNamedAndTheOthersMayComeAgain() throws Exception {
        UniqueId id = backend.newUniqueId();
        long start = System.nanoTime();
        assertThatThrownBy(() -> backend.create(id, 0, 3, impatient))
                .isInstanceOf(CollectiveTimeoutException.class)
                .hasMessage(
                        "create of communicator 'world' on rank 0/3: rank 1, rank 2 did not come"
                                + " within 0.2s; nothing was made, start the missing ranks and call"
                                + " create again");
        assertThat(Duration.ofNanos(System.nanoTime() - start))
                .isBetween(Duration.ofMillis(200), Duration.ofSeconds(5));
        List<CompletableFuture<Communicator>> made =
                List.of(
                        create(id, 0, 3, config),
                        create(id, 1, 3, config),
                        create(id, 2, 3, config));
        backend.closeAll(List.of(get(made.get(0)), get(made.get(1)), get(made.get(2))));
    }

    @Test
    void sizesThatDifferAreRefusedAtOnce() throws Exception {
        UniqueId id = backend.newUniqueId();
        CompletableFuture<Communicator> first = create(id, 1, 2, config);
        Awaitility.await()
                .untilAsserted(() ->
                        assertThatThrownBy(() -> backend.create(id, 2, 3, impatient))
                                .isInstanceOf(InvalidArgumentException.class)
                                .hasMessage(
                                        "create of communicator 'world' on rank 2/3: the"
                                                + " other ranks with "
                                                + id
                                                + " have come with size 2, this one with 3;"
                                                + " give all the same size"));
        backend.closeAll(List.of(backend.create(id, 0, 2, config), get(first)));
    }

    @Test
    void ranksOutOfRangeAreRefused() {
        assertThatThrownBy(() -> backend.create(backend.newUniqueId(), 2, 2, config))
                .isInstanceOf(InvalidArgumentException.class)
                .hasMessage(
                        "create of communicator 'world': rank 2 of 2; the size must be 1 to 1024"
                                + " and the rank 0 to size - 1");
        assertThatThrownBy(() -> backend.createLocal(0, config))
                .hasMessage("createLocal: 0 ranks, must be 1 to 1024");
        assertThatThrownBy(() -> backend.createLocal(2, config.withDevice(3)))
                .hasMessage(
                        "createLocal: rank i is on device i, so the configuration cannot name"
                                + " device 3; leave it out, or use create() per rank");
    }

    @Test
    void anInterruptedCreateHasNotJoined() throws Exception {
        UniqueId id = backend.newUniqueId();
        CompletableFuture<Throwable> thrown = new CompletableFuture<>();
        Thread thread =
                Thread.ofPlatform()
                        .start(() -> {
                            try {
                                backend.create(id, 0, 2, config);
                            } catch (WaitInterruptedException e) {
                                thrown.complete(e);
                            }
                        });
        Awaitility.await().until(() -> thread.getState() == Thread.State.TIMED_WAITING);
        thread.interrupt();
        assertThat(thrown.get(10, TimeUnit.SECONDS))
                .hasMessage(
                        "create of communicator 'world' on rank 0/2: interrupted while waiting for"
                                + " rank 1; nothing was made, call create again");
        CompletableFuture<Communicator> again = create(id, 0, 2, config);
        backend.closeAll(List.of(backend.create(id, 1, 2, config), get(again)));
    }

    @Test
    void ranksMeetThroughAStore() throws Exception {
        Rendezvous rendezvous = new Rendezvous(new InMemoryStore(), "job");
        CompletableFuture<Communicator> first = create(rendezvous, 1, 2, config);
        Communicator second = backend.create(rendezvous, 0, 2, config);
        assertThat(get(first).size()).isEqualTo(2);
        assertThatThrownBy(() -> backend.create(rendezvous, 1, 2, config.withDevice(5)))
                .isInstanceOf(InvalidArgumentException.class)
                .hasMessageStartingWith(
                        "create of communicator 'world' on rank 1/2 (job 'job'): rank 1 is taken;"
                                + " give each rank its own number and each job its own name:")
                .hasMessageContaining("rank 1/2, host ")
                .hasMessageContaining("device 5");
        backend.closeAll(List.of(second, get(first)));
    }

    @Test
    void aStoreTellsWhoIsMissingAndWhoDisagrees() throws Exception {
        InMemoryStore store = new InMemoryStore();
        assertThatThrownBy(() -> backend.create(new Rendezvous(store, "a"), 0, 3, impatient))
                .isInstanceOf(CollectiveTimeoutException.class)
                .hasMessage(
                        "create of communicator 'world' on rank 0/3 (job 'a'): rank 1, rank 2 did"
                                + " not come within 0.2s; nothing was made, start the missing ranks"
                                + " and call create again");
        store.setIfAbsent("nccl4j/a/rank/1", info(1, 2, "here", 1));
        store.setIfAbsent("nccl4j/a/rank/2", info(2, 3, "here", 1));
        assertThatThrownBy(() -> backend.create(new Rendezvous(store, "a"), 0, 3, config))
                .isInstanceOf(InvalidArgumentException.class)
                .hasMessageContaining("ranks disagree about the size; give all the same:")
                .hasMessageContaining("rank 1/2, host here, process 1, device 1, nccl4j cpu");
        store.setIfAbsent("nccl4j/b/rank/1", info(1, 2, "elsewhere", 5));
        assertThatThrownBy(() -> backend.create(new Rendezvous(store, "b"), 0, 2, config))
                .isInstanceOf(UnsupportedException.class)
                .hasMessageContaining("so far connects ranks of one process only")
                .hasMessageContaining("host elsewhere, process 5");
        store.setIfAbsent("nccl4j/c/rank/1", new byte[3]);
        assertThatThrownBy(() -> backend.create(new Rendezvous(store, "c"), 0, 2, config))
                .isInstanceOf(InvalidArgumentException.class)
                .hasMessage(
                        "the store holds 3 bytes under 'nccl4j/c/rank/1' where a rank of nccl4j should"
                                + " have told who it is; give the job a name of its own");
    }

    private static byte[] info(int rank, int size, String host, long process) throws IOException {
        ByteArrayOutputStream bytes = new ByteArrayOutputStream();
        try (DataOutputStream out = new DataOutputStream(bytes)) {
            out.writeInt(rank);
            out.writeInt(size);
            out.writeUTF(host);
            out.writeLong(process);
            out.writeInt(rank);
            out.writeUTF("nccl4j cpu");
        }
        return bytes.toByteArray();
    }

    @Test
    void aRankWhoseTraceCannotBeWrittenMayComeAgain(@TempDir Path folder) throws Exception {
        UniqueId id = backend.newUniqueId();
        CompletableFuture<Communicator> first = create(id, 0, 2, config);
        Path absent = folder.resolve("absent").resolve("trace.jsonl");
        assertThatThrownBy(() -> backend.create(id, 1, 2, config.withTraceFile(absent)))
                .isInstanceOf(UnsupportedException.class)
                .hasMessageStartingWith(
                        "communicator 'world': trace file " + absent + " cannot be written: ");
        backend.closeAll(List.of(backend.create(id, 1, 2, config), get(first)));
    }

    @Test
    void eachRankKeepsItsConfigurationAndWritesItsOwnTrace(@TempDir Path folder) throws Exception {
        UniqueId id = backend.newUniqueId();
        List<CommunicatorConfig> configs = new ArrayList<>();
        List<CompletableFuture<Communicator>> made = new ArrayList<>();
        for (int rank = 0; rank < 3; rank++) {
            CommunicatorConfig given = config.withDevice(5 + rank);
            // The last one wants no trace.
            configs.add(rank == 2 ? given : given.withTraceFile(folder.resolve(rank + ".jsonl")));
            made.add(create(id, rank, 3, configs.get(rank)));
        }
        List<Communicator> ranks = new ArrayList<>();
        for (int rank = 0; rank < 3; rank++) {
            ranks.add(get(made.get(rank)));
            assertThat(ranks.get(rank).config()).isEqualTo(configs.get(rank));
            assertThat(ranks.get(rank).device().ordinal()).isEqualTo(5 + rank);
        }
        allReduce(ranks);
        List<Communicator> children = new ArrayList<>();
        for (Optional<Communicator> child :
                backend.split(ranks, new int[3], new int[] {2, 1, 0}).await(World.LONG)) {
            children.add(child.orElseThrow());
        }
        assertThat(children.get(0).config()).isEqualTo(configs.get(0));
        allReduce(children);
        // What a part writes is kept when the whole is closed first.
        backend.closeAll(ranks);
        backend.closeAll(children);
        for (int rank = 0; rank < 2; rank++) {
            List<String> lines = Files.readAllLines(folder.resolve(rank + ".jsonl"));
            String own = "\"rank\":" + rank + ",";
            assertThat(lines)
                    .anyMatch(line -> line.contains("\"comm\":\"world\"") && line.contains(own))
                    .anyMatch(line -> line.contains("\"comm\":\"world/1.0\""));
            String inPart = "\"rank\":" + (2 - rank) + ",";
            assertThat(lines)
                    .allMatch(line -> line.contains(line.contains("world/1.0") ? inPart : own));
        }
        assertThat(folder.resolve("2.jsonl")).doesNotExist();
    }

    @Test
    void configurationsThatDisagreeAreRefused() throws Exception {
        UniqueId id = backend.newUniqueId();
        CompletableFuture<Communicator> first = create(id, 0, 2, config);
        // Only the one that comes second can know.
        Awaitility.await()
                .until(() -> {
                    try {
                        backend.create(id, 1, 2, impatient);
                        throw new AssertionError("it was made");
                    } catch (InvalidArgumentException e) {
                        return true;
                    } catch (CollectiveTimeoutException e) {
                        return false;
                    }
                });
        for (CommunicatorConfig other :
                List.of(
                        config.withName("other"),
                        config.withOperationTimeout(Duration.ofSeconds(21)),
                        config.withAbortOnFailure(false),
                        config.withAlgorithm("tree"))) {
            assertThatThrownBy(() -> backend.create(id, 1, 2, other))
                    .isInstanceOf(InvalidArgumentException.class)
                    .message()
                    .isEqualToNormalizingNewlines(
                            "create of communicator '"
                                    + other.name()
                                    + "' on rank 1/2: ranks with "
                                    + id
                                    + " disagree about the configuration; give all the same name,"
                                    + " operationTimeout, abortOnFailure and algorithm, and come again:\n"
                                    + "  rank 0: name 'world', operationTimeout 20s,"
                                    + " abortOnFailure true\n"
                                    + "  rank 1: name '"
                                    + other.name()
                                    + "', operationTimeout "
                                    + other.operationTimeout().toSeconds()
                                    + "s, abortOnFailure "
                                    + other.abortOnFailure()
                                    + other.algorithm()
                                            .map(name -> ", algorithm " + name)
                                            .orElse(""));
        }
        backend.closeAll(List.of(backend.create(id, 1, 2, config), get(first)));
    }

    @Test
    void theTraceOfADroppedCommunicatorIsComplete(@TempDir Path folder) {
        Path file = folder.resolve("trace.jsonl");
        traceAndDrop(config.withTraceFile(file));
        Awaitility.await()
                .atMost(World.LONG)
                .until(() -> {
                    System.gc();
                    return Files.size(file) > 0;
                });
    }

    private void traceAndDrop(CommunicatorConfig traced) {
        allReduce(backend.createLocal(2, traced));
    }

    @Test
    void theTraceOfAnAbortedCommunicatorIsComplete(@TempDir Path folder) {
        Path file = folder.resolve("trace.jsonl");
        List<Communicator> ranks = backend.createLocal(2, config.withTraceFile(file));
        allReduce(ranks);
        ranks.get(0).abort(World.LONG);
        Awaitility.await().atMost(World.LONG).until(() -> Files.size(file) > 0);
        backend.closeAll(ranks);
    }

    private void allReduce(List<Communicator> ranks) {
        List<DeviceStream> streams = new ArrayList<>();
        backend.group(group -> {
            for (Communicator rank : ranks) {
                DeviceBuffer buffer = rank.device().allocate(64);
                streams.add(rank.device().createStream());
                group.on(rank)
                        .allReduce(
                                buffer,
                                buffer,
                                16,
                                DataType.INT32,
                                ReduceOp.SUM,
                                streams.getLast());
            }
        });
        backend.synchronizeAll(streams, World.LONG);
    }

    @Test
    void stepsAreTracedUntilTheCommunicatorsClose(@TempDir Path folder) throws Exception {
        Path file = folder.resolve("trace.jsonl");
        try (World world = new World(2, given -> given.withTraceFile(file))) {
            world.assertWorks();
        }
        assertThat(Files.readAllLines(file))
                .isNotEmpty()
                .allMatch(line ->
                        line.startsWith("{\"comm\":\"world\",\"op\":\"allReduce\",\"seq\":0"));
        Path absent = folder.resolve("absent").resolve("trace.jsonl");
        assertThatThrownBy(() -> backend.createLocal(2, config.withTraceFile(absent)))
                .isInstanceOf(UnsupportedException.class)
                .hasMessageStartingWith(
                        "communicator 'world': trace file " + absent + " cannot be written: ");
    }
}
