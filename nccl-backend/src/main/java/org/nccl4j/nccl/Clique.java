package org.nccl4j.nccl;

import java.lang.foreign.Arena;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
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
    private static final long SETTLING_NANOS = TimeUnit.MILLISECONDS.toNanos(1);

    /** After so long an abort that does not return is reported. */
    private static final Duration ABORT_REPORTED = Duration.ofSeconds(10);

    final String name;
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

    /** By rank; null for ranks that live elsewhere. */
    private final Member[] members;

    /** Ranks of this process, once all of them are known. */
    private int localRanks = -1;

    private int closedMembers;
    private volatile CommunicatorFailure failure;
    private boolean abortRequested;
    private boolean abortStarted;
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

    /** What a split has become so far. */
    private static final class Parts {
        private final Map<Integer, Integer> localRanksByColor = new HashMap<>();
        private final Map<Integer, Clique> byColor = new HashMap<>();
        private int posted;
        private int fetched;
    }

    Clique(String name, int size, CommunicatorConfig agreed) {
        this.name = name;
        this.size = size;
        this.operationTimeout = agreed.operationTimeout();
        this.timeoutNanos = Durations.saturatedNanos(operationTimeout);
        this.abortOnFailure = agreed.abortOnFailure();
        this.members = new Member[size];
    }

    // ---- ranks

    synchronized Member add(int rank, NcclDevice device, CommunicatorConfig config) {
        Member member = new Member(this, rank, device, config);
        members[rank] = member;
        return member;
    }

    /** A rank that has not joined after all. */
    synchronized void remove(Member member) {
        members[member.rank] = null;
    }

    /** How many ranks of this process it has once all have come. */
    synchronized void expect(int localRanks) {
        this.localRanks = localRanks;
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
        List<Member> local = new ArrayList<>();
        for (Member member : members) {
            if (member != null) {
                local.add(member);
            }
        }
        return local;
    }

    /** The rank, or null if it lives elsewhere. */
    synchronized Member member(int rank) {
        return members[rank];
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
                    Clique part = new Clique(partName(number, color), partSize, config);
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
            requestAbort(LONGEST_GRACE_NANOS);
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
     * Has its work given up if it has failed, now or when it does.
     *
     * @param graceNanos how long threads may take to come out of NCCL
     */
    void requestAbort(long graceNanos) {
        synchronized (this) {
            abortRequested = true;
            if (failure == null || abortStarted || over) {
                return;
            }
            abortStarted = true;
        }
        NativeThread.start("abort-" + name, () -> abort(Math.min(graceNanos, LONGEST_GRACE_NANOS)));
    }

    /** Waits for an abort that has been requested, unless it takes so long that it is reported. */
    boolean awaitAborted() {
        return Waiting.untilUninterruptibly(
                        this::isAborted, System.nanoTime(), ABORT_REPORTED.toNanos())
                == Waiting.Outcome.OVER;
    }

    private void abort(long graceNanos) {
        List<Member> local = local();
        long start = System.nanoTime();
        Waiting.untilUninterruptibly(
                () ->
                        System.nanoTime() - start >= SETTLING_NANOS
                                && local.stream().noneMatch(Member::isInside),
                start,
                Math.max(graceNanos, SETTLING_NANOS));
        // What was enqueued while it failed.
        tellStreams();
        List<Thread> aborting = new ArrayList<>();
        for (Member member : local) {
            long handle = member.takeHandle();
            if (handle != 0) {
                // None may wait for another's.
                aborting.add(
                        NativeThread.start(
                                "abort-" + name + "-" + member.rank, () -> abort(member, handle)));
            }
        }
        join(aborting);
        end();
        failure.aborted();
    }

    private static void abort(Member member, long handle) {
        try {
            NcclLibrary.commAbort(handle, "aborting " + member.describe());
        } catch (CollectiveException e) {
            LOG.log(
                    System.Logger.Level.ERROR,
                    member.describe() + " could not be aborted; its memory is lost",
                    e);
        }
    }

    private void join(List<Thread> aborting) {
        boolean reported = false;
        boolean interrupted = false;
        for (Thread thread : aborting) {
            while (true) {
                try {
                    if (reported) {
                        thread.join();
                        break;
                    }
                    if (thread.join(ABORT_REPORTED)) {
                        break;
                    }
                    reported = true;
                    LOG.log(
                            System.Logger.Level.ERROR,
                            "the abort of communicator '"
                                    + name
                                    + "' has not returned from NCCL within "
                                    + Durations.text(ABORT_REPORTED)
                                    + "; until it does its buffers and streams are in use; destroy"
                                    + " captured graphs, or restart the process");
                } catch (InterruptedException e) {
                    interrupted = true;
                }
            }
        }
        if (interrupted) {
            Thread.currentThread().interrupt();
        }
    }

    /** NCCL has nothing of it any more. */
    private void end() {
        for (Member member : local()) {
            member.strip();
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
            closedMembers++;
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
                    () -> {
                        try {
                            finish(each);
                        } catch (CollectiveException e) {
                            synchronized (failures) {
                                failures.add(e);
                            }
                        }
                        ended.countDown();
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
        member.enter();
        try {
            member.preMulSums.destroyAll();
            NcclLibrary.commFinalize(member.comm(), doing);
            int state = member.settle();
            if (state != NcclLibrary.SUCCESS) {
                throw NcclLibrary.failed("ncclCommFinalize", state, doing);
            }
        } finally {
            member.leave();
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
            abort(member, handle);
            throw e;
        }
    }

    CollectiveTimeoutException stillMoving(Member member) {
        return new CollectiveTimeoutException(
                member.describe()
                        + " is closed, but its work could not be given up within "
                        + Durations.text(ABORT_REPORTED)
                        + ": NCCL has not come back from the abort; keep its buffers and streams",
                true);
    }
}
