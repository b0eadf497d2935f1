package org.nccl4j.nccl;

import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.UUID;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.Future;
import org.nccl4j.collectives.Bootstrap;
import org.nccl4j.collectives.CollectiveException;
import org.nccl4j.collectives.CollectiveTimeoutException;
import org.nccl4j.collectives.Communicator;
import org.nccl4j.collectives.CommunicatorConfig;
import org.nccl4j.collectives.InvalidArgumentException;
import org.nccl4j.collectives.NcclOption;
import org.nccl4j.collectives.RankFailedException;
import org.nccl4j.collectives.RankInfo;
import org.nccl4j.collectives.Rendezvous;
import org.nccl4j.collectives.UniqueId;
import org.nccl4j.collectives.UnsupportedException;
import org.nccl4j.collectives.WaitInterruptedException;
import org.nccl4j.collectives.spi.ArgumentChecks;
import org.nccl4j.collectives.spi.Durations;
import org.nccl4j.collectives.spi.Roster;

/**
 * Has NCCL make communicators. Its own wait for missing ranks has no end, so it waits on a thread
 * of its own, from which it is taken by aborting what it has made so far.
 *
 * <p>Thread safety: all methods may be called from any thread.
 */
final class Initialization {
    private static final System.Logger LOG = System.getLogger("org.nccl4j.nccl");

    /** How long a caller whose time is over waits for what NCCL has begun to be given up. */
    private static final Duration GIVING_UP = Duration.ofMillis(500);

    /**
     * How long a rank may take to come back by itself when another one of this process has been
     * aborted. NCCL leaves the handle of an init that has failed to its caller, as far as its
     * source tells up to 2.30; a library that ends it sets the cell to null, which is seen after
     * this. Who takes longer has not noticed, as is common before all ranks are connected, and is
     * aborted.
     */
    private static final Duration NOTICING = Duration.ofMillis(50);

    private Initialization() {}

    // ---- the user's calls

    /** Rank i on device i. */
    static List<Communicator> local(int ranks, CommunicatorConfig config) {
        ArgumentChecks.given("createLocal", "configuration", config);
        int devices = NcclSetup.get().devices().size();
        if (ranks < 1 || ranks > devices) {
            throw new InvalidArgumentException(
                    "createLocal: "
                            + ranks
                            + " ranks, must be 1 to "
                            + devices
                            + ", the number of GPUs that this process sees");
        }
        if (config.deviceOrdinal().isPresent()) {
            throw new InvalidArgumentException(
                    "createLocal: rank i is on device i, so the configuration cannot name device "
                            + config.deviceOrdinal().getAsInt()
                            + "; leave it out, or use create() per rank");
        }
        requireSupported(config);
        long startNanos = System.nanoTime();
        // Its ranks are all here, so that any name will do that no other communicator has.
        String fingerprint = UUID.randomUUID().toString();
        Clique clique = new Clique(config.name(), fingerprint, ranks, config);
        clique.expect(ranks);
        List<Member> members = new ArrayList<>();
        for (int rank = 0; rank < ranks; rank++) {
            members.add(clique.add(rank, NcclSetup.get().device(rank), config));
        }
        UniqueId id = newUniqueId(where(members), startNanos, config.operationTimeout());
        connect(members, id, startNanos);
        return members.stream().<Communicator>map(NcclCommunicator::open).toList();
    }

    static Communicator create(Bootstrap bootstrap, int rank, int size, CommunicatorConfig config) {
        ArgumentChecks.given("create", "bootstrap", bootstrap);
        ArgumentChecks.given("create", "configuration", config);
        if (size < 1 || rank < 0 || rank >= size) {
            throw new InvalidArgumentException(
                    "create of communicator '"
                            + config.name()
                            + "': rank "
                            + rank
                            + " of "
                            + size
                            + "; the size must be at least 1 and the rank 0 to size - 1");
        }
        requireSupported(config);
        long startNanos = System.nanoTime();
        return switch (bootstrap) {
            case UniqueId id -> {
                // The id tells nothing of hosts; whoever runs several of them names the device.
                int turn = rank % NcclSetup.get().devices().size();
                NcclDevice device = NcclSetup.get().device(config.deviceOrdinal().orElse(turn));
                yield join(id, rank, size, device, config, startNanos);
            }
            case Rendezvous rendezvous -> meet(rendezvous, rank, size, config, startNanos);
        };
    }

    private static Communicator meet(
            Rendezvous rendezvous, int rank, int size, CommunicatorConfig config, long startNanos) {
        RankInfo self =
                RankInfo.ofThisProcess(
                        rank,
                        size,
                        config.deviceOrdinal().orElse(-1),
                        "nccl4j nccl, NCCL " + NcclLibrary.version());
        Roster roster = Roster.meet(rendezvous, self, config);
        int turn = Places.deviceFor(self, roster.ranks(), NcclSetup.get().devices().size());
        NcclDevice device = NcclSetup.get().device(config.deviceOrdinal().orElse(turn));
        Places.requireDistinct(rendezvous, roster, self, device, config, startNanos);
        UniqueId id =
                roster.id(() ->
                        newUniqueId(
                                where(rank, size, config), startNanos, config.operationTimeout()));
        return join(id, rank, size, device, config, startNanos);
    }

    private static Communicator join(
            UniqueId id,
            int rank,
            int size,
            NcclDevice device,
            CommunicatorConfig config,
            long startNanos) {
        Member member = Meetings.come(id, rank, size, device, config);
        try {
            connect(List.of(member), id, startNanos);
        } catch (RuntimeException | Error e) {
            Meetings.withdraw(id, member);
            throw e;
        }
        return NcclCommunicator.open(member);
    }

    static UniqueId newUniqueId() {
        return newUniqueId(
                "newUniqueId: ",
                System.nanoTime(),
                CommunicatorConfig.defaults().operationTimeout());
    }

    /** NCCL looks for the network for it, which has no deadline of its own. */
    private static UniqueId newUniqueId(String where, long startNanos, Duration timeout) {
        CompletableFuture<UniqueId> made = new CompletableFuture<>();
        NativeThread.start("unique-id", () -> makeUniqueId(made));
        return switch (Waiting.until(made::isDone, startNanos, Durations.saturatedNanos(timeout))) {
            case OVER -> {
                if (made.state() == Future.State.FAILED) {
                    throw thrownHere(made.exceptionNow());
                }
                yield made.resultNow();
            }
            case INTERRUPTED ->
                    throw new WaitInterruptedException(
                            where
                                    + "interrupted while NCCL was making a unique id; nothing was"
                                    + " made, call it again");
            case OUT_OF_TIME ->
                    throw new CollectiveTimeoutException(
                            where
                                    + "NCCL has not made a unique id within "
                                    + Durations.text(timeout)
                                    + "; it looks for the network interface then: see"
                                    + " NCCL_SOCKET_IFNAME and NCCL_DEBUG=INFO; nothing was made",
                            false);
        };
    }

    private static void makeUniqueId(CompletableFuture<UniqueId> made) {
        try (Arena arena = Arena.ofConfined()) {
            MemorySegment bytes = arena.allocate(UniqueId.SIZE_BYTES);
            NcclLibrary.getUniqueId(bytes);
            made.complete(new UniqueId(bytes.toArray(ValueLayout.JAVA_BYTE)));
        } catch (RuntimeException | Error e) {
            made.completeExceptionally(e);
        }
    }

    private static RuntimeException thrownHere(Throwable failure) {
        if (failure instanceof CollectiveException known) {
            return known.forThisThread();
        }
        return new IllegalStateException("making a unique id failed: " + failure, failure);
    }

    private static void requireSupported(CommunicatorConfig config) {
        String what = null;
        if (config.nccl().values().getOrDefault(NcclOption.SPLIT_SHARE, 0) != 0) {
            what =
                    "have a split share its parent's resources: NCCL then aborts the family"
                            + " together, which this backend does not; leave SPLIT_SHARE out";
        } else if (config.traceFile().isPresent()) {
            what = "write a trace file: NCCL does not tell its steps; leave traceFile out";
        } else if (config.algorithm().isPresent()) {
            what =
                    "take algorithm '"
                            + config.algorithm().get()
                            + "': NCCL chooses by itself; leave algorithm out, or steer NCCL by its"
                            + " variable NCCL_ALGO";
        }
        if (what != null) {
            throw new UnsupportedException(
                    "communicator '" + config.name() + "': backend 'nccl' cannot " + what);
        }
    }

    static String where(int rank, int size, CommunicatorConfig config) {
        return "create of communicator '" + config.name() + "' on rank " + rank + "/" + size + ": ";
    }

    private static String where(List<Member> members) {
        Member first = members.getFirst();
        return members.size() == 1
                ? where(first.rank, first.size, first.config)
                : "createLocal of communicator '"
                        + first.config.name()
                        + "' with "
                        + first.size
                        + " ranks: ";
    }

    // ---- connecting

    private static void connect(List<Member> members, UniqueId id, long startNanos) {
        Clique clique = members.getFirst().clique;
        String ignored = NativeConfig.ignored(members.getFirst().config);
        if (!ignored.isEmpty() && clique.isNew(ignored)) {
            LOG.log(System.Logger.Level.WARNING, ignored);
        }
        Attempt attempt = new Attempt(members, id);
        NativeThread.start("init-" + clique.name, members.getFirst().device, attempt);
        Waiting.Outcome outcome =
                Waiting.until(
                        () -> attempt.isOver() || clique.refusal() != null,
                        startNanos,
                        clique.timeoutNanos);
        if (outcome == Waiting.Outcome.OVER && attempt.isMade()) {
            return;
        }
        RuntimeException failure =
                switch (outcome) {
                    case OVER -> failure(members, attempt);
                    case INTERRUPTED ->
                            new WaitInterruptedException(
                                    where(members)
                                            + "interrupted while NCCL was connecting; "
                                            + again(members));
                    case OUT_OF_TIME ->
                            new CollectiveTimeoutException(
                                    where(members)
                                            + Wording.notConnected(clique, id)
                                            + "; "
                                            + again(members),
                                    false);
                };
        // Ranks of this process that wait for these wait in vain.
        clique.refuse(new Clique.Refusal(members.getFirst().rank, failure));
        attempt.giveUp();
        throw failure;
    }

    /** What came of it: NCCL's refusal of these ranks, or that another one has given up. */
    private static RuntimeException failure(List<Member> members, Attempt attempt) {
        Clique.Refusal earlier = members.getFirst().clique.refusal();
        RuntimeException own = attempt.failure();
        if (earlier == null) {
            return own;
        }
        String text =
                where(members)
                        + "rank "
                        + earlier.rank()
                        + " has given up: "
                        + earlier.cause().getMessage();
        return earlier.cause() instanceof CollectiveTimeoutException
                ? new CollectiveTimeoutException(text, false)
                : new RankFailedException(
                        earlier.rank(), text, own == null ? earlier.cause() : own);
    }

    private static String again(List<Member> members) {
        return members.size() == members.getFirst().size
                ? "nothing was made, call it again"
                : "nothing was made; an id serves once, so create again with a new one, or a new"
                        + " job name, on every rank";
    }

    /** One try to make the communicators of ranks that one thread drives. */
    private static final class Attempt implements Runnable {
        private final List<Member> members;
        private final MemorySegment id;
        private final List<MemorySegment> configs = new ArrayList<>();
        private volatile boolean abandoned;
        private volatile boolean over;
        private volatile RuntimeException failure;

        Attempt(List<Member> members, UniqueId id) {
            this.members = members;
            // Alive as long as the thread is, however long NCCL keeps it.
            Arena arena = members.getFirst().clique.arena;
            this.id = arena.allocateFrom(ValueLayout.JAVA_BYTE, id.toBytes());
            for (Member member : members) {
                configs.add(NativeConfig.of(member.config, member.clique.name, arena));
            }
        }

        boolean isOver() {
            return over || failure != null;
        }

        boolean isMade() {
            return over && failure == null;
        }

        RuntimeException failure() {
            return failure;
        }

        @Override
        public void run() {
            try {
                make();
                if (take()) {
                    settle();
                    openResources();
                }
            } catch (RuntimeException e) {
                failure = e;
            } catch (Error e) {
                failure = new IllegalStateException(where(members) + "failed", e);
            }
            over = true;
        }

        private String doing(Member member) {
            return "making " + member.describe() + " on device " + member.device.ordinal();
        }

        private void requireStarted(int code) {
            if (code != NcclLibrary.SUCCESS) {
                throw NcclLibrary.failed("ncclGroupStart", code, doing(members.getFirst()));
            }
        }

        private void make() {
            // Never by ncclCommInitAll, which takes no configuration.
            boolean grouped = members.size() > 1;
            int end = NcclLibrary.SUCCESS;
            if (grouped) {
                requireStarted(NcclLibrary.groupStart());
            }
            try {
                for (int i = 0; i < members.size(); i++) {
                    Member member = members.get(i);
                    setDevice(member);
                    NcclLibrary.commInitRankConfig(
                            member.communicatorCell,
                            member.size,
                            id,
                            member.rank,
                            configs.get(i),
                            doing(member));
                }
            } finally {
                if (grouped) {
                    end = NcclLibrary.groupEnd();
                }
            }
            if (end != NcclLibrary.SUCCESS && end != NcclLibrary.IN_PROGRESS) {
                throw NcclLibrary.failed("ncclGroupEnd", end, doing(members.getFirst()));
            }
        }

        /**
         * NCCL does not know of a failure here and will wait for the ranks that do not come, so
         * that it is told before the group ends; the caller aborts the others.
         */
        private void setDevice(Member member) {
            try {
                CudaRuntime.setDevice(member.device.ordinal());
            } catch (CollectiveException e) {
                failure = e;
                throw e;
            }
        }

        /** Makes the handles the members', unless the caller has given up. */
        private synchronized boolean take() {
            if (abandoned) {
                return false;
            }
            for (Member member : members) {
                member.made(handle(member));
            }
            return true;
        }

        private static long handle(Member member) {
            return member.communicatorCell.get(ValueLayout.JAVA_LONG, 0);
        }

        private void settle() {
            for (Member member : members) {
                int state = member.settle();
                if (state != NcclLibrary.SUCCESS) {
                    throw NcclLibrary.failed("ncclCommInitRankConfig", state, doing(member));
                }
            }
        }

        /**
         * Should it take too long the caller gives up; what was opened after that is closed here.
         */
        private void openResources() {
            for (Member member : members) {
                if (!abandoned) {
                    member.openResources();
                }
            }
            synchronized (this) {
                if (abandoned) {
                    members.forEach(Member::closeResources);
                }
            }
        }

        /**
         * Aborts what NCCL has made so far; it comes back from its wait then. A rank at a time, of
         * all that this process gives up: where one is aborted NCCL may come back with an error for
         * the others, and ends what it had made of them. When it has, their cells tell; one that
         * does not come back is aborted all the same.
         */
        void giveUp() {
            Clique clique = members.getFirst().clique;
            boolean isBack;
            synchronized (clique.givingUp) {
                if (clique.isGivenUp) {
                    awaitOver(NOTICING);
                }
                clique.isGivenUp = true;
                isBack = abortHandles();
            }
            members.forEach(Member::closeResources);
            if (!isBack) {
                LOG.log(
                        System.Logger.Level.WARNING,
                        where(members)
                                + "NCCL has not come back within "
                                + Durations.text(GIVING_UP)
                                + " from making it, though it was aborted; a thread of it stays"
                                + " behind, and what NCCL has allocated on the device until it"
                                + " does");
            }
        }

        private boolean abortHandles() {
            List<Aborting> begun = new ArrayList<>();
            for (Member member : members) {
                if (!begun.isEmpty()) {
                    awaitOver(NOTICING);
                }
                long handle = takeBack(member);
                if (handle != 0) {
                    begun.add(
                            Aborting.start(
                                    member.clique.name,
                                    List.of(
                                            new Aborting.Handle(
                                                    handle, member.device, member.describe()))));
                }
            }
            return Waiting.untilUninterruptibly(
                            () -> over && begun.stream().allMatch(Aborting::isOver),
                            System.nanoTime(),
                            GIVING_UP.toNanos())
                    == Waiting.Outcome.OVER;
        }

        private void awaitOver(Duration longest) {
            Waiting.untilUninterruptibly(() -> over, System.nanoTime(), longest.toNanos());
        }

        /** The handle that is to be aborted; 0 if NCCL has made none, or ended it. */
        private synchronized long takeBack(Member member) {
            abandoned = true;
            long taken = member.takeHandle();
            long handle = taken != 0 ? taken : handle(member);
            member.communicatorCell.set(ValueLayout.JAVA_LONG, 0, 0);
            return handle;
        }
    }
}
