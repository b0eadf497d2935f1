package org.nccl4j.cpu;

import java.util.ArrayDeque;
import java.util.HashMap;
import java.util.Map;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicLong;
import org.nccl4j.collectives.CollectiveException;
import org.nccl4j.collectives.UniqueId;

/**
 * All changes of state of streams, operations and communicators of this process. This object's
 * monitor is <em>the</em> lock: every method but the constructor and the getters needs it held, as
 * assertions check here and in what it guards, and no data moves while it is, but for the little of
 * a {@link PersistentGroup}. What a change leaves to do without it (run a small operation, wake a
 * thread) is collected and handed to the thread that made the change by {@link #takeChores}.
 *
 * <p>An entry of a stream is <em>queued</em>, then <em>heads</em> the stream, then is
 * <em>passed</em>. Whoever adds, passes or unblocks an entry marks the stream as touched; {@link
 * #drive} then moves all touched streams as far as they go, one after the other and never by
 * recursion.
 *
 * <p>An operation (a {@link Match}) is in one of these states:
 *
 * <ul>
 *   <li><b>joining</b>: some rank has posted its call. Each post is compared with the first; a
 *       contradiction fails the clique. A part <em>arrives</em> when its batch heads all its
 *       streams. Only threads that enqueue post; any thread that drives streams makes parts arrive.
 *   <li><b>running</b>: all have arrived ({@link #joined}). It belongs to its runners: the thread
 *       that joined it if it is small, else {@link Workers}. They move data without the lock.
 *   <li><b>done</b>: the runner that finished the last participant calls {@link #completed}: each
 *       part ends, batches without unfinished operations pass their streams, and the match's slot
 *       may be used again.
 *   <li><b>failed</b>: any thread may call {@link #fail}, once per clique with effect. Runners see
 *       that it is {@linkplain Shares#abandon abandoned} between two pieces and leave. When none is
 *       left and the abort has been asked for (by configuration, {@code abort} or {@code close}),
 *       {@link #abortIfDue} gives up all batches of the clique: streams pass them, buffers are
 *       free.
 * </ul>
 *
 * <p>An empty operation (count 0) ends on arrival, and its match is done when all have posted.
 */
final class Scheduler {
    /**
     * An operation that costs no more than moving this over all ranks is run where it gets ready.
     * It takes about as long as waking another thread does.
     */
    static final long SMALL_BYTES = 64 << 10;

    /** The one of this process. */
    static final Scheduler SHARED =
            new Scheduler(
                    Runtime.getRuntime().availableProcessors(),
                    System.getLogger(CpuBackend.class.getName()));

    private final System.Logger log;
    private final Workers workers;
    private final Watchdog watchdog;

    /** Failures that the log did not take. */
    private final AtomicInteger unlogged = new AtomicInteger();

    private final ChoreList<Work> fresh = new ChoreList<>();
    private final Map<UniqueId, Meeting> meetings = new HashMap<>();
    private final ChoreList<Chore> deferred = new ChoreList<>();

    /** What could not be done yet. */
    private final ChoreList<Chore> repeated = new ChoreList<>();

    /** Streams to be driven, linked through {@link CpuStream#nextTouched}. */
    private CpuStream firstTouched;

    private CpuStream lastTouched;

    /** Batches so far. */
    private final AtomicLong enqueued = new AtomicLong();

    /**
     * A scheduler of its own.
     *
     * @param cores how many threads may run or spin at once
     * @param log where failures are recorded
     */
    Scheduler(int cores, System.Logger log) {
        this.log = log;
        this.workers = new Workers(this, cores);
        this.watchdog = new Watchdog(this);
    }

    /** Communicators that ranks are joining by id. */
    Map<UniqueId, Meeting> meetings() {
        assert Thread.holdsLock(this);
        return meetings;
    }

    System.Logger log() {
        return log;
    }

    Workers workers() {
        return workers;
    }

    Watchdog watchdog() {
        return watchdog;
    }

    /** Logs what must not end the thread that has met it. Lock not held. */
    void report(String text, Throwable failure) {
        try {
            log.log(System.Logger.Level.ERROR, text, failure);
            int missing = unlogged.getAndSet(0);
            if (missing > 0) {
                log.log(
                        System.Logger.Level.ERROR,
                        missing + " earlier failures could not be logged: the log failed as well");
            }
        } catch (RuntimeException | Error e) {
            // Most likely there is no memory: all that can be done is to say so later.
            unlogged.incrementAndGet();
        }
    }

    // ---- what is to be done without the lock

    /** Leaves something to the thread that holds the lock now. */
    void defer(Chore chore) {
        assert Thread.holdsLock(this);
        deferred.add(chore);
    }

    /** Keeps a chore that could not be done, for {@link #repeat}. */
    void repeatLater(Chore chore) {
        assert Thread.holdsLock(this);
        repeated.add(chore);
    }

    /** Defers once more what could not be done. */
    void repeat() {
        assert Thread.holdsLock(this);
        for (Chore chore = repeated.poll(); chore != null; chore = repeated.poll()) {
            defer(chore);
        }
    }

    /**
     * What the caller has to do once it has let go of the lock; give it to {@link Workers#perform}.
     *
     * @param budgetBytes how much of small works the caller may run itself
     */
    Chore takeChores(long budgetBytes) {
        assert Thread.holdsLock(this);
        long left = budgetBytes;
        for (Work work = fresh.poll(); work != null; work = fresh.poll()) {
            if (work.shares.areAbandoned()) {
                continue;
            }
            if (work.costBytes() <= left) {
                left -= work.costBytes();
                work.alone = true;
                defer(work);
            } else {
                workers.queue(work);
            }
        }
        return deferred.takeAll();
    }

    /** Takes a work back that nobody runs, for somebody who runs it together with another. */
    void withdraw(Work work) {
        assert Thread.holdsLock(this);
        if (!fresh.remove(work) && !workers.withdraw(work)) {
            throw new IllegalStateException("a work that nobody runs does not wait for anybody");
        }
        work.alone = true;
    }

    // ---- streams

    /** Something may have changed for the head of a stream. */
    void touch(CpuStream stream) {
        assert Thread.holdsLock(this);
        if (!stream.touched) {
            stream.touched = true;
            if (lastTouched == null) {
                firstTouched = stream;
            } else {
                lastTouched.nextTouched = stream;
            }
            lastTouched = stream;
        }
    }

    /** Moves touched streams as far as they go. */
    void drive() {
        assert Thread.holdsLock(this);
        while (firstTouched != null) {
            CpuStream stream = firstTouched;
            firstTouched = stream.nextTouched;
            if (firstTouched == null) {
                lastTouched = null;
            }
            stream.nextTouched = null;
            stream.touched = false;
            while (!stream.isEmpty() && !stream.headVisited) {
                stream.headVisited = true;
                visitHead(stream);
            }
            stream.announceProgress();
        }
    }

    private void visitHead(CpuStream stream) {
        switch (stream.headKind()) {
            case RECORD -> {
                ((CpuEvent) stream.headSubject()).passed(stream, stream.completed() + 1);
                stream.pass();
            }
            case WAIT -> {
                CpuStream source = (CpuStream) stream.headSubject();
                if (source.completed() >= stream.headTicket()) {
                    stream.pass();
                } else {
                    source.addDependent(stream);
                }
            }
            case LOCAL -> fresh.add((LocalWork) stream.headSubject());
            case BATCH -> {
                Batch batch = (Batch) stream.headSubject();
                if (batch.cancelled) {
                    stream.pass();
                } else if (--batch.streamsAhead == 0) {
                    start(batch);
                }
            }
        }
    }

    /** A stream's own copy or fill is over. */
    void completed(LocalWork work) {
        assert Thread.holdsLock(this);
        CpuStream stream = work.stream();
        work.releaseBuffers();
        stream.pass();
        touch(stream);
        drive();
    }

    // ---- batches

    /** How many batches have been enqueued so far, for those who look without the lock. */
    long enqueued() {
        return enqueued.getOpaque();
    }

    /** Enqueues a batch whose parts and streams are known. Follow with {@link #drive}. */
    void enqueue(Batch batch) {
        assert Thread.holdsLock(this);
        enqueued.setOpaque(enqueued.getPlain() + 1);
        Member member = batch.member;
        if (member.clique.cause != null) {
            // Another rank's batch of the same group has just failed it.
            tellStreams(batch);
            releaseBuffers(batch);
            return;
        }
        int parts = batch.parts.size();
        int streams = batch.streams.size();
        reserve(batch);
        batch.streamsAhead = streams;
        batch.operationsLeft = parts;
        batch.after = member.lastHostCall;
        member.link(batch);
        for (int i = 0; i < streams; i++) {
            batch.streams.get(i).push(CpuStream.EntryKind.BATCH, batch, 0);
            touch(batch.streams.get(i));
        }
        boolean measured = FlightRecord.isEnabled();
        for (int i = 0; i < parts && member.clique.cause == null; i++) {
            Part part = batch.parts.get(i);
            if (measured) {
                FlightRecord.enqueued(part);
            }
            try {
                post(member, part);
            } catch (OutOfMemoryError e) {
                // What others may have seen of it cannot be taken back.
                fail(member.clique, member.clique.outOfMemory);
                throw e;
            }
        }
    }

    /** Makes room for a batch in its streams, or lets go of its buffers. */
    private void reserve(Batch batch) {
        try {
            for (int i = 0; i < batch.streams.size(); i++) {
                batch.streams.get(i).reserve();
            }
        } catch (OutOfMemoryError e) {
            releaseBuffers(batch);
            throw e;
        }
    }

    private void post(Member member, Part part) {
        Clique clique = member.clique;
        SlotRing ring = member.ring(part);
        long number = member.takeNumber(part);
        Match match = ring.at(number);
        CollectiveException contradiction = match.post(member.participant(part), member.rank, part);
        member.noteEnqueued(part, number);
        if (contradiction != null) {
            fail(clique, contradiction);
        } else if (clique.closedMembers > 0 && !part.isEmpty()) {
            failIfNeedsClosed(match);
        }
        if (match.complete) {
            ring.retire();
        }
    }

    private void start(Batch batch) {
        if (batch.member.clique.cause != null) {
            return;
        }
        if (batch.waitsForHostCall()) {
            batch.after.hold(batch);
            return;
        }
        batch.started = true;
        // One more, so that the batch cannot end while its parts arrive.
        batch.operationsLeft++;
        for (int i = 0; i < batch.parts.size(); i++) {
            Part part = batch.parts.get(i);
            if (part.isEmpty()) {
                ended(part);
            } else {
                part.match.arrive(part);
            }
        }
        countDown(batch);
    }

    /** An operation is there on all its ranks. */
    void joined(Match match) {
        assert Thread.holdsLock(this);
        if (!match.isTakenAlong()) {
            fresh.add(match);
        }
    }

    /** A joined operation is done. */
    void completed(Match match) {
        assert Thread.holdsLock(this);
        match.clique.running--;
        for (int i = 0; i < match.participants(); i++) {
            ended(match.part(i));
        }
        drive();
    }

    private void ended(Part part) {
        Batch batch = part.batch;
        Member member = batch.member;
        member.noteCompleted(part, part.number);
        if (part.record != null) {
            part.record.ended(part);
            defer(part.record);
        }
        part.ended = true;
        releaseBuffers(part);
        countDown(batch);
    }

    private void countDown(Batch batch) {
        if (--batch.operationsLeft > 0) {
            return;
        }
        batch.member.unlink(batch);
        for (int i = 0; i < batch.streams.size(); i++) {
            CpuStream stream = batch.streams.get(i);
            stream.pass();
            touch(stream);
        }
        batch.member.giveBack(batch);
    }

    private void releaseBuffers(Batch batch) {
        for (int i = 0; i < batch.parts.size(); i++) {
            if (!batch.parts.get(i).ended) {
                releaseBuffers(batch.parts.get(i));
            }
        }
    }

    private void releaseBuffers(Part part) {
        CpuMemory.unuse(part.send, this);
        CpuMemory.unuse(part.recv, this);
    }

    // ---- host calls

    /** A host call is there on all its ranks: what came after it may start. */
    private void completed(HostCall call) {
        Batch batch = call.takeHeld();
        while (batch != null) {
            if (!batch.cancelled) {
                start(batch);
            }
            batch = call.takeHeld();
        }
        call.clique().waiters.wake(this);
        drive();
    }

    /** Takes a rank's part in a host call. */
    HostCall post(Member member, OperationKind kind, long[] given) {
        assert Thread.holdsLock(this);
        Clique clique = member.clique;
        long number = member.nextNumber++;
        Match match = clique.collectives().at(number);
        if (match.host == null) {
            match.host = new HostCall(clique, kind, number);
            clique.hostCalls.add(match.host);
            if (clique.hostCalls.peek() == match.host) {
                match.host.startClock();
            }
        }
        HostCall call = match.host;
        member.lastHostCall = call;
        member.lastEnqueued = kind;
        member.lastEnqueuedNumber = number;
        Part part = new Part();
        part.describe(kind, false, null, null, 0, null, null, -1, null, null, null);
        CollectiveException contradiction = match.post(member.rank, member.rank, part);
        call.give(member.rank, given);
        if (clique.cause != null) {
            // Another rank's part in this very call has failed it.
            return call;
        }
        if (contradiction != null) {
            fail(clique, contradiction);
        } else if (clique.closedMembers > 0) {
            failIfNeedsClosed(match);
        }
        if (clique.cause == null && match.posted == clique.size) {
            finish(match, call);
        }
        return call;
    }

    private void finish(Match match, HostCall call) {
        call.finish();
        OperationKind kind = match.first.kind;
        ArrayDeque<HostCall> open = call.clique().hostCalls;
        // Each rank posts in order, so that none is complete before those of lower numbers.
        open.remove();
        if (!open.isEmpty()) {
            open.peek().startClock();
        }
        match.complete = true;
        match.host = null;
        call.clique().collectives().retire();
        for (Member member : call.clique().members) {
            member.lastCompleted = kind;
            member.lastCompletedNumber = call.number();
            if (member.lastHostCall == call) {
                member.lastHostCall = null;
            }
        }
        completed(call);
    }

    // ---- failure

    /** Fails a clique, unless it has failed already: what follows from a failure is none. */
    void fail(Clique clique, CollectiveException cause) {
        assert Thread.holdsLock(this);
        if (clique.cause == null) {
            clique.cause = cause;
            settle(clique);
        }
    }

    /**
     * Does what a failure brings with it, as far as that is not done yet: it may have ended early
     * for want of memory. The watchdog comes back to it until the abort has come through.
     */
    void settle(Clique clique) {
        // Before anything that needs memory: what is written from now on is no result.
        abandonRunning(clique, false);
        if (!clique.failureLogged) {
            defer(FailureLog.of(clique));
            clique.failureLogged = true;
        }
        abandonRunning(clique, true);
        if (clique.abortOnFailure) {
            clique.abortRequested = true;
        }
        if (!clique.abortRequested) {
            for (Member member : clique.members) {
                for (Batch batch = member.oldest; batch != null; batch = batch.newer) {
                    tellStreams(batch);
                }
            }
        }
        abortIfDue(clique);
        clique.waiters.wake(this);
    }

    private void abandonRunning(Clique clique, boolean givingUp) {
        abandonRunning(clique.collectives(), givingUp);
        for (int sender = 0; sender < clique.size; sender++) {
            for (int receiver = 0; receiver < clique.size; receiver++) {
                SlotRing ring = clique.existingPair(sender, receiver);
                if (ring != null) {
                    abandonRunning(ring, givingUp);
                }
            }
        }
    }

    private void abandonRunning(SlotRing ring, boolean givingUp) {
        for (long number = ring.base(); number < ring.end(); number++) {
            Match match = ring.at(number);
            if (match.joined && !match.complete) {
                match.shares.abandon();
                if (givingUp && !match.isBeingRun()) {
                    workers.removeOpen(match);
                    match.givenUp();
                }
            }
        }
    }

    /** Gives up all work of a clique if that was asked for and none of it runs. */
    void abortIfDue(Clique clique) {
        assert Thread.holdsLock(this);
        if (!clique.abortRequested || clique.aborted || clique.running > 0) {
            return;
        }
        for (Member member : clique.members) {
            for (Batch batch = member.oldest; batch != null; batch = member.oldest) {
                giveUp(batch);
            }
        }
        clique.aborted = true;
        drive();
        clique.waiters.wake(this);
        watchdog.changed();
    }

    private void giveUp(Batch batch) {
        // First what needs memory: without it the batch is given up later.
        tellStreams(batch);
        batch.cancelled = true;
        releaseBuffers(batch);
        batch.member.unlink(batch);
        for (int i = 0; i < batch.streams.size(); i++) {
            CpuStream stream = batch.streams.get(i);
            if (stream.headVisited && stream.headSubject() == batch) {
                stream.pass();
                touch(stream);
            }
        }
    }

    private static void tellStreams(Batch batch) {
        for (int i = 0; i < batch.streams.size(); i++) {
            batch.streams.get(i).remember(batch.member.clique);
        }
    }

    // ---- leaving

    /** A rank leaves; operations that still need it fail. */
    void leave(Member member) {
        assert Thread.holdsLock(this);
        member.closed = true;
        member.setClosing(false);
        member.device().close();
        Clique clique = member.clique;
        clique.closedMembers++;
        member.abortedBeforeClose = clique.aborted;
        if (clique.cause == null) {
            failNeedy(clique.collectives());
            for (int peer = 0; peer < clique.size; peer++) {
                failNeedy(clique.existingPair(member.rank, peer));
                failNeedy(clique.existingPair(peer, member.rank));
            }
        }
        clique.waiters.wake(this);
        watchdog.changed();
    }

    private void failNeedy(SlotRing ring) {
        if (ring != null) {
            for (long number = ring.base(); number < ring.end(); number++) {
                Match match = ring.at(number);
                if (match.posted > 0 && !match.complete && !match.first.isEmpty()) {
                    failIfNeedsClosed(match);
                }
            }
        }
    }

    private void failIfNeedsClosed(Match match) {
        Clique clique = match.clique;
        for (int participant = 0; participant < match.participants(); participant++) {
            Member member = clique.members[match.rank(participant)];
            if (member.closed && !match.isPostedBy(participant)) {
                fail(clique, Wording.closedPeer(match, member.rank));
                return;
            }
        }
    }
}
