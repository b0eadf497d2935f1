package org.nccl4j.nccl;

import java.lang.foreign.Arena;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.SortedMap;
import java.util.TreeMap;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.nccl4j.collectives.CollectiveException;
import org.nccl4j.collectives.CollectiveTimeoutException;
import org.nccl4j.collectives.CommunicatorAbortedException;
import org.nccl4j.collectives.CommunicatorConfig;
import org.nccl4j.collectives.spi.Durations;

/**
 * The ranks of one communicator that live in this process, and the failure that ends them. It fails
 * once: the first cause wins. NCCL wants all of them to be aborted together, and to be destroyed
 * together, so what one rank begins is done for all: an abort at once, an orderly end when the last
 * of them closes.
 *
 * <p>Thread safety: guarded by its monitor; the cause and how far its end is may be read without.
 */
final class Clique {
    private static final System.Logger LOG = System.getLogger("org.nccl4j.nccl");

    /** How long a failed rank's thread may take to come out of NCCL before it is aborted. */
    private static final long LONGEST_GRACE_NANOS = TimeUnit.MILLISECONDS.toNanos(500);

    /** What makes an obstacle seen by a thread that is about to go into NCCL. */
    private static final long SEEN_AFTER_NANOS = TimeUnit.MILLISECONDS.toNanos(1);

    /** After so long a rank that others of this process wait for in close is named in the log. */
    private static final long LATE_CLOSER_NANOS = TimeUnit.SECONDS.toNanos(10);

    final String name;

    /** No other communicator has it; it tells nothing of the id, which is a secret. */
    final String fingerprint;

    final int size;
    final Duration operationTimeout;
    final long timeoutNanos;
    final boolean abortOnFailure;

    /** For cells that NCCL writes; alive as long as this is reachable. */
    final Arena arena = Arena.ofAuto();

    /** Held while a rank that has not been made is given up. */
    final Object givingUp = new Object();

    /** Whether one has been; guarded by {@link #givingUp}. */
    boolean isGivenUp;

    /** The ranks of this process, by rank; there may be many more elsewhere. */
    private final SortedMap<Integer, Member> members = new TreeMap<>();

    /** Ranks of this process, once all of them are known. */
    private int localRanks = -1;

    private final Set<String> warnings = new HashSet<>(0);
    private int closedMembers;
    private long firstClosedNanos;
    private boolean lateClosersReported;
    private volatile CommunicatorFailure failure;
    private boolean abortRequested;
    private boolean abortStarted;

    /** Until when an abort that has started waits for threads to come out of NCCL. */
    private volatile long graceEndNanos;

    private volatile AbortPhase abortPhase = AbortPhase.WAITS_FOR_CALLERS;
    private volatile boolean over;

    /** Splits that ranks have called, by number: colors by rank, and the parts by color. */
    private final Map<Long, Parts> splits = new HashMap<>(0);

    private volatile Refusal refusal;

    /**
     * A rank of this process that will not be made.
     *
     * @param rank the rank
     * @param cause why
     */
    record Refusal(int rank, RuntimeException cause) {}

    /** How far an abort is, in words for who waits for it. */
    private enum AbortPhase {
        WAITS_FOR_CALLERS("it still waits for threads to come out of NCCL"),
        IN_NCCL("NCCL has not come back from it"),
        GIVES_BACK("NCCL has come back from it, and what belonged to it is being freed");

        private final String words;

        AbortPhase(String words) {
            this.words = words;
        }
    }

    /** What a split has become so far. */
    private static final class Parts {
        private final Map<Integer, Integer> localRanksByColor = new HashMap<>();
        private final Map<Integer, Clique> byColor = new HashMap<>();
        private int posted;
        private int fetched;
    }

    Clique(String name, String fingerprint, int size, CommunicatorConfig agreed) {
        this.name = name;
        this.fingerprint = fingerprint;
        this.size = size;
        this.operationTimeout = agreed.operationTimeout();
        this.timeoutNanos = Durations.saturatedNanos(operationTimeout);
        this.abortOnFailure = agreed.abortOnFailure();
    }

    // ---- ranks

    synchronized Member add(int rank, NcclDevice device, CommunicatorConfig config) {
        Member member = new Member(this, rank, device, config);
        members.put(rank, member);
        return member;
    }

    /** A rank that has not joined after all. */
    synchronized void remove(Member member) {
        members.remove(member.rank);
    }

    /** How many ranks of this process it has once all have come. */
    synchronized void expect(int localRanks) {
        this.localRanks = localRanks;
    }

    /** Whether a warning has not been said before by a rank of this process. */
    synchronized boolean isNew(String warning) {
        return warnings.add(warning);
    }

    /** Lets ranks that are being made know that one will not come; the first one counts. */
    synchronized void refuse(Refusal refused) {
        if (refusal == null) {
            refusal = refused;
        }
    }

    Refusal refusal() {
        return refusal;
    }

    /** The ranks of this process, in order. */
    synchronized List<Member> local() {
        return new ArrayList<>(members.values());
    }

    /** The rank, or null if it lives elsewhere. */
    synchronized Member member(int rank) {
        return members.get(rank);
    }

    /** A local rank has called a split. */
    synchronized void splitPosted(long number, int color) {
        Parts parts = splits.computeIfAbsent(number, ignored -> new Parts());
        parts.posted++;
        parts.localRanksByColor.merge(color, 1, Integer::sum);
    }

    /**
     * The part of a split that a local rank has got. As NCCL's split ends nowhere before all ranks
     * have called it, all local ones have posted it.
     */
    synchronized Clique part(long number, int color, int partSize, CommunicatorConfig config) {
        Parts parts = splits.get(number);
        if (++parts.fetched == parts.posted) {
            splits.remove(number);
        }
        if (color < 0) {
            return null;
        }
        return parts.byColor.computeIfAbsent(
                color,
                ignored -> {
                    Clique part =
                            new Clique(
                                    partName(number, color),
                                    fingerprint + "/" + number + "." + color,
                                    partSize,
                                    config);
                    part.expect(parts.localRanksByColor.get(color));
                    return part;
                });
    }

    /** How a part of a split is called. */
    String partName(long number, int color) {
        return name + "/" + number + "." + color;
    }

    // ---- failure

    CollectiveException cause() {
        CommunicatorFailure now = failure;
        return now == null ? null : now.cause();
    }

    boolean isAborted() {
        CommunicatorFailure now = failure;
        return now != null && now.isAborted();
    }

    /** Whether NCCL has nothing of it any more. */
    boolean isOver() {
        return over;
    }

    /** Ends it with a cause, unless it has ended before. */
    void fail(CollectiveException cause) {
        fail(cause, LONGEST_GRACE_NANOS);
    }

    /**
     * As above.
     *
     * @param graceNanos how long threads may take to come out of NCCL if it is aborted
     */
    void fail(CollectiveException cause, long graceNanos) {
        String table;
        synchronized (this) {
            if (failure != null || over) {
                return;
            }
            table = Wording.table(this);
            failure = new CommunicatorFailure(cause);
            for (Member member : local()) {
                member.obstruct(Member.FAILED);
            }
        }
        tellStreams();
        // An abort is somebody's decision, not an error.
        System.Logger.Level level =
                cause instanceof CommunicatorAbortedException
                        ? System.Logger.Level.INFO
                        : System.Logger.Level.ERROR;
        LOG.log(level, "communicator '" + name + "' failed" + table, cause);
        boolean abort;
        synchronized (this) {
            abort = abortOnFailure || abortRequested;
        }
        if (abort) {
            requestAbort(graceNanos);
        }
    }

    void tellStreams(Member member) {
        member.tellStreams(failure);
    }

    private void tellStreams() {
        for (Member member : local()) {
            tellStreams(member);
        }
    }

    /**
     * Has its work given up if it has failed, now or when it does. Who has less time makes an abort
     * that has started already wait for less.
     *
     * @param graceNanos how long threads may take to come out of NCCL
     */
    void requestAbort(long graceNanos) {
        long end = System.nanoTime() + Math.min(graceNanos, LONGEST_GRACE_NANOS);
        synchronized (this) {
            abortRequested = true;
            if (failure == null || over) {
                return;
            }
            if (abortStarted) {
                if (end - graceEndNanos < 0) {
                    graceEndNanos = end;
                }
                return;
            }
            abortStarted = true;
            graceEndNanos = end;
        }
        NativeThread.start("abort-" + name, local().getFirst().device, this::abort);
    }

    /** Waits for an abort that has been requested, unless it takes so long that it is reported. */
    boolean awaitAborted() {
        return Waiting.untilUninterruptibly(
                        this::isAborted, System.nanoTime(), Aborting.REPORTED.toNanos())
                == Waiting.Outcome.OVER;
    }

    /** What an abort that is not through does. */
    String abortInWords() {
        return abortPhase.words;
    }

    private void abort() {
        List<Member> local = local();
        long start = System.nanoTime();
        Waiting.untilUninterruptibly(
                () -> {
                    long now = System.nanoTime();
                    return now - start >= SEEN_AFTER_NANOS
                            && (now - graceEndNanos >= 0
                                    || local.stream().noneMatch(Member::isInside));
                },
                start,
                Long.MAX_VALUE);
        // What was enqueued while it failed.
        tellStreams();
        List<Aborting.Handle> handles = new ArrayList<>();
        for (Member member : local) {
            warnIfInside(member);
            long handle = member.takeHandle();
            if (handle != 0) {
                handles.add(new Aborting.Handle(handle, member.device, member.describe()));
            }
        }
        abortPhase = AbortPhase.IN_NCCL;
        Aborting.start(name, handles).join();
        abortPhase = AbortPhase.GIVES_BACK;
        end();
        failure.aborted();
    }

    /** NCCL allows it for non-blocking communicators only; nothing else brings the thread back. */
    private static void warnIfInside(Member member) {
        if (member.isInside() && !member.nonBlocking) {
            LOG.log(
                    System.Logger.Level.WARNING,
                    member.describe()
                            + " is aborted while a thread is inside NCCL, in "
                            + Wording.name(member.lastCall())
                            + ": NCCL mostly comes back from that, but promises it only with"
                            + " config.withBlocking(false); use that where ranks may stay away");
        }
    }

    /** NCCL has nothing of it any more. */
    private void end() {
        for (Member member : local()) {
            member.closeResources();
        }
        over = true;
    }

    // ---- orderly end

    /**
     * A rank leaves. The last one of this process ends all of them.
     *
     * @return the failure of ending them, or null
     */
    CollectiveException leave(Member member) {
        synchronized (this) {
            member.abortedBeforeClose = isAborted();
            member.closed = true;
            member.obstruct(Member.CLOSING);
            if (closedMembers++ == 0) {
                firstClosedNanos = System.nanoTime();
            }
            int expected = localRanks >= 0 ? localRanks : local().size();
            if (closedMembers < expected || over) {
                return null;
            }
        }
        if (failure != null) {
            requestAbort(LONGEST_GRACE_NANOS);
            return null;
        }
        List<Member> local = local();
        CountDownLatch ended = new CountDownLatch(local.size());
        List<CollectiveException> failures = new ArrayList<>();
        for (Member each : local) {
            // Finalize and destroy wait for the other ranks, so none is behind another.
            NativeThread.start(
                    "close-" + name + "-" + each.rank,
                    each.device,
                    () -> {
                        try {
                            finish(each);
                        } catch (RuntimeException | Error e) {
                            synchronized (failures) {
                                failures.add(Wording.failure(each, "closing", e));
                            }
                        } finally {
                            ended.countDown();
                        }
                    });
        }
        Waiting.Outcome outcome =
                Waiting.untilUninterruptibly(
                        () -> ended.getCount() == 0, System.nanoTime(), timeoutNanos);
        CollectiveException first = null;
        synchronized (failures) {
            if (!failures.isEmpty()) {
                first = failures.getFirst();
            }
        }
        if (outcome == Waiting.Outcome.OUT_OF_TIME) {
            first = Wording.closeTimeout(this);
        }
        if (first == null) {
            end();
            return null;
        }
        synchronized (this) {
            abortRequested = true;
        }
        fail(first);
        if (!awaitAborted()) {
            first.addSuppressed(stillMoving(member));
        }
        return first;
    }

    /** Finalizes and destroys one rank, on a thread of its own. */
    private static void finish(Member member) {
        String doing = "closing " + member.describe();
        member.managementBegins();
        try {
            member.preMulSums.destroyAll();
            NcclLibrary.commFinalize(member.comm(), doing);
            int state = member.settle();
            if (state != NcclLibrary.SUCCESS) {
                throw NcclLibrary.failed("ncclCommFinalize", state, doing);
            }
        } finally {
            member.managementEnds();
        }
        long handle = member.takeHandle();
        if (handle == 0) {
            return;
        }
        try {
            NcclLibrary.commDestroy(handle, doing);
        } catch (CollectiveException e) {
            // Nothing has been freed, and NCCL may have left this thread inside a group, where the
            // abort would only be recorded; to end a group that is none is harmless.
            NcclLibrary.groupEnd();
            Aborting.start(
                            member.clique.name,
                            List.of(new Aborting.Handle(handle, member.device, member.describe())))
                    .join();
            throw e;
        }
    }

    /**
     * Names ranks for which others of this process have been waiting in vain to be over; once.
     *
     * @return what to say, or null
     */
    synchronized String lateClosers(long nowNanos) {
        if (closedMembers == 0
                || lateClosersReported
                || failure != null
                || nowNanos - firstClosedNanos < LATE_CLOSER_NANOS) {
            return null;
        }
        List<Integer> closedRanks = new ArrayList<>();
        List<Integer> late = new ArrayList<>();
        for (Member member : local()) {
            (member.closed ? closedRanks : late).add(member.rank);
        }
        if (late.isEmpty()) {
            return null;
        }
        lateClosersReported = true;
        return "communicator '"
                + name
                + "': rank "
                + Wording.shown(closedRanks)
                + " is closed, and keeps its memory until rank "
                + Wording.shown(late)
                + " of this process is closed too: NCCL ends the ranks of a process together";
    }

    CollectiveTimeoutException stillMoving(Member member) {
        return new CollectiveTimeoutException(
                member.describe()
                        + " is closed, but its work could not be given up within "
                        + Durations.text(Aborting.REPORTED)
                        + ": "
                        + abortInWords()
                        + "; keep its buffers and streams",
                true);
    }
}
