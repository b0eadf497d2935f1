package org.nccl4j.nccl;

import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.lang.invoke.MethodHandles;
import java.lang.invoke.VarHandle;
import java.lang.ref.WeakReference;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionStage;
import java.util.concurrent.ForkJoinPool;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.function.BooleanSupplier;
import org.nccl4j.collectives.CollectiveException;
import org.nccl4j.collectives.CollectiveTimeoutException;
import org.nccl4j.collectives.DeviceBuffer;
import org.nccl4j.collectives.DeviceEvent;
import org.nccl4j.collectives.DeviceStream;
import org.nccl4j.collectives.InvalidArgumentException;
import org.nccl4j.collectives.UnsupportedException;
import org.nccl4j.collectives.WaitInterruptedException;
import org.nccl4j.collectives.spi.ArgumentChecks;
import org.nccl4j.collectives.spi.Durations;

/**
 * A CUDA stream. Work that needs memory or belongs to a communicator gets a ticket, from 1; how far
 * the stream is is found out by looking at CUDA, and remembered.
 *
 * <p>Our own streams may be asked at any time. A stream that others own may be destroyed by them
 * whenever its work is over, so behind each operation there an event of ours is recorded, and only
 * that is looked at unless the user asks.
 *
 * <p>Thread safety: as {@link DeviceStream}. Tickets are given out by one thread at a time, that
 * which enqueues. {@code touchers} keeps others off the stream while NCCL launches on it in the
 * background, and once it is gone.
 */
final class NcclStream implements DeviceStream {
    private static final int MOST_SUPPRESSED = 10;

    /** How long the whole stream is asked before a mark of its own is recorded. */
    private static final long ASKING_NANOS = 5_000;

    /** States of the marker: it is to be recorded by who enqueues next. */
    private static final int ASKED = 0;

    private static final int RECORDING = 1;
    private static final int OUTSTANDING = 2;

    /** In place of a number of touchers. */
    private static final int LAUNCHING = -1;

    private static final int GONE = -2;

    private static final AtomicInteger NUMBERS = new AtomicInteger();
    private static final CommunicatorUse[] NO_USES = {};

    private static final VarHandle ISSUED;
    private static final VarHandle PASSED;
    private static final VarHandle MARKING;

    static {
        try {
            MethodHandles.Lookup lookup = MethodHandles.lookup();
            ISSUED = lookup.findVarHandle(NcclStream.class, "issued", long.class);
            PASSED = lookup.findVarHandle(NcclStream.class, "passed", long.class);
            MARKING = lookup.findVarHandle(NcclStream.class, "marking", int.class);
        } catch (ReflectiveOperationException e) {
            throw new ExceptionInInitializerError(e);
        }
    }

    /** The last ticket of a communicator, which it does not keep reachable. */
    private static final class CommunicatorUse {
        private final WeakReference<NcclCommunicator> communicator;
        private volatile long ticket;

        CommunicatorUse(NcclCommunicator communicator) {
            this.communicator = new WeakReference<>(communicator);
        }

        boolean isLikelyToComeAgain() {
            NcclCommunicator user = communicator.get();
            return user != null && !user.member().isObstructed();
        }
    }

    private final NcclDevice device;
    private final long address;
    private final boolean foreign;

    /** For who enqueues on a foreign stream. */
    private final MemorySegment captureCell;

    private final String name;

    // What is being done, for messages: a text that is put together is an object.
    private final String markingEnd;
    private final String waiting;
    private final AtomicInteger touchers = new AtomicInteger();
    private volatile boolean closed;

    // ---- tickets

    private long issued;
    private volatile long passed;
    private final KeptBuffers kept = new KeptBuffers();
    private CommunicatorUse lastUse = new CommunicatorUse(null);
    private volatile CommunicatorUse[] uses = NO_USES;

    // ---- the marker: recorded behind some ticket when the watchdog has asked for it

    private final long marker;
    private volatile int marking = ASKED;
    private volatile long markerTicket;

    // ---- the tail: recorded behind each ticket of a foreign stream, and at the end of ours

    private final long tail;
    private volatile long tailTicket;

    // ---- what the watchdog saw last; by it only

    private long sampledPassed;
    private long busySinceNanos = -1;

    // ---- failures, guarded by the list

    private final List<CommunicatorFailure> failures = new ArrayList<>(1);
    private volatile boolean hasFailures;
    private volatile int failureCount;
    private CommunicatorFailure lastFailure;

    NcclStream(NcclDevice device, long address, boolean foreign) {
        this.device = device;
        this.address = address;
        this.foreign = foreign;
        this.name =
                (foreign
                                ? "foreign stream 0x" + Long.toHexString(address)
                                : "stream " + NUMBERS.getAndIncrement())
                        + " of device "
                        + device.ordinal();
        this.markingEnd = "marking the end of " + name;
        this.waiting = "waitFor on " + name;
        this.captureCell =
                foreign ? Arena.ofAuto().allocate(ValueLayout.JAVA_INT) : MemorySegment.NULL;
        this.marker = device.events().take(false);
        long second = 0;
        try {
            second = device.events().take(false);
        } finally {
            if (second == 0) {
                device.events().giveBack(marker, false);
            }
        }
        this.tail = second;
    }

    /** The stream, or a refusal of what is null or of another backend. */
    static NcclStream of(String operation, DeviceStream stream) {
        if (stream instanceof NcclStream mine) {
            return mine;
        }
        throw new InvalidArgumentException(
                operation
                        + ": the stream is "
                        + (stream == null ? "null" : "of another backend")
                        + "; make one with device().createStream(); nothing was enqueued");
    }

    // ---- for communicators

    /** The {@code cudaStream_t}. */
    MemorySegment handle() {
        return MemorySegment.ofAddress(address);
    }

    /** The {@code cudaStream_t} as a number. */
    long address() {
        return address;
    }

    /** Whether others own it. */
    boolean isForeign() {
        return foreign;
    }

    /**
     * To be asked before something is enqueued.
     *
     * @throws InvalidArgumentException if it has been closed
     * @throws UnsupportedException if its owner is capturing it
     */
    void requireOpen(String operation) {
        if (closed) {
            throw new InvalidArgumentException(
                    operation
                            + ": "
                            + this
                            + " has been closed; make another with device().createStream()");
        }
        if (foreign) {
            requireNoCapture(operation);
        }
        if (marking == OUTSTANDING && markerTicket <= passed && passed < issued) {
            markHead();
        }
    }

    /**
     * Work is coming behind work that has no marker, while the marker has been passed, though the
     * watchdog has not seen it: without one in between, the coming work would seem to head the
     * stream since then.
     */
    private void markHead() {
        if (MARKING.compareAndSet(this, OUTSTANDING, RECORDING)) {
            try {
                recordMarker(issued);
            } catch (CollectiveException e) {
                remember(e);
            }
        }
    }

    private void requireNoCapture(String operation) {
        boolean capturing;
        long before = CurrentDevice.visit(device);
        try {
            capturing = CudaRuntime.isCapturing(address, captureCell, operation);
        } finally {
            CurrentDevice.leave(before);
        }
        if (capturing) {
            throw new UnsupportedException(
                    operation
                            + ": "
                            + this
                            + " is being captured into a graph by its owner, and this backend"
                            + " cannot capture; end the capture first; nothing was enqueued");
        }
    }

    /** An operation has been enqueued here, by this thread; gives out the next ticket. */
    void enqueued(NcclCommunicator communicator) {
        CommunicatorUse use = lastUse;
        if (!use.communicator.refersTo(communicator)) {
            use = useOf(communicator);
        }
        use.ticket = issued + 1;
        issue();
    }

    private CommunicatorUse useOf(NcclCommunicator communicator) {
        CommunicatorUse[] known = uses;
        for (int i = 0; i < known.length; i++) {
            // Communicators that take turns cost nothing but this look.
            if (known[i].communicator.refersTo(communicator)) {
                lastUse = known[i];
                return known[i];
            }
        }
        return add(communicator);
    }

    private CommunicatorUse add(NcclCommunicator communicator) {
        List<CommunicatorUse> kept = new ArrayList<>();
        long over = passed;
        for (CommunicatorUse use : uses) {
            if (use.ticket > over || use.isLikelyToComeAgain()) {
                kept.add(use);
            }
        }
        CommunicatorUse added = new CommunicatorUse(communicator);
        kept.add(added);
        uses = kept.toArray(NO_USES);
        lastUse = added;
        return added;
    }

    private void issue() {
        long ticket = issued + 1;
        ISSUED.setRelease(this, ticket);
        if (marking == ASKED || foreign) {
            mark(ticket);
        }
    }

    /** Throws nothing: what a ticket was given out for has been enqueued. */
    private void mark(long ticket) {
        try {
            if (foreign) {
                recordRaw(tail, markingEnd);
                tailTicket = ticket;
            }
            if (MARKING.compareAndSet(this, ASKED, RECORDING)) {
                recordMarker(ticket);
            }
        } catch (CollectiveException e) {
            remember(e);
        }
    }

    /** The marker is this thread's. */
    private void recordMarker(long ticket) {
        boolean recorded = false;
        try {
            recordRaw(marker, name);
            markerTicket = ticket;
            recorded = true;
        } finally {
            marking = recorded ? OUTSTANDING : ASKED;
        }
    }

    /** Keeps a buffer of others reachable until the work that got the last ticket is over. */
    void keep(DeviceBuffer buffer) {
        long ticket = issued;
        if (passed < ticket) {
            kept.keep(buffer, ticket, passed);
        }
    }

    /** How many tickets have been given out. */
    long issued() {
        return (long) ISSUED.getAcquire(this);
    }

    /** The last ticket that is known to be over. */
    long passed() {
        return passed;
    }

    /**
     * A launch begins that NCCL goes on with after the call: until {@link #launchEnds} nobody else
     * touches the stream.
     */
    void launchBegins() {
        while (!touchers.compareAndSet(0, LAUNCHING)) {
            Thread.onSpinWait();
        }
    }

    void launchEnds() {
        touchers.compareAndSet(LAUNCHING, 0);
    }

    /**
     * Looks how far it is, and asks for the next marker; by the watchdog only.
     *
     * @throws CollectiveException if the device's context is lost
     */
    void sample(long nowNanos) {
        look();
        long over = passed;
        long given = issued();
        if (marking == OUTSTANDING && markerTicket <= over) {
            MARKING.compareAndSet(this, OUTSTANDING, ASKED);
        }
        if (over >= given) {
            busySinceNanos = -1;
        } else {
            if (over > sampledPassed || busySinceNanos < 0) {
                busySinceNanos = nowNanos;
            }
            if (!foreign && !closed && marking == ASKED && touch()) {
                try {
                    if (MARKING.compareAndSet(this, ASKED, RECORDING)) {
                        recordMarker(issued());
                    }
                } finally {
                    leave();
                }
            }
        }
        sampledPassed = over;
    }

    /**
     * Since when the oldest unpassed ticket has headed the stream, as far as the last sample knows,
     * or -1 if it is idle.
     */
    long busySinceNanos(long nowNanos) {
        return passed >= issued() ? -1 : busySinceNanos < 0 ? nowNanos : busySinceNanos;
    }

    boolean hasWorkOf(NcclCommunicator communicator) {
        long over = passed;
        for (CommunicatorUse use : uses) {
            if (use.communicator.refersTo(communicator)) {
                return use.ticket > over;
            }
        }
        return false;
    }

    /** Remembers why a communicator's work here has been given up, for those who wait or ask. */
    void fail(CommunicatorFailure failure) {
        synchronized (failures) {
            if (!failures.contains(failure)) {
                failures.add(failure);
                lastFailure = failure;
                failureCount = failureCount + 1;
                hasFailures = true;
            }
        }
    }

    /** Remembers what is nobody's failure but the stream's, until it has been told. */
    private void remember(CollectiveException cause) {
        CommunicatorFailure failure = new CommunicatorFailure(cause);
        failure.aborted();
        fail(failure);
    }

    // ---- looking

    /** Keeps the stream from NCCL's background launches and from its end; not if it is there. */
    private boolean touch() {
        while (true) {
            int now = touchers.get();
            if (now < 0) {
                return false;
            }
            if (touchers.compareAndSet(now, now + 1)) {
                return true;
            }
        }
    }

    private void leave() {
        touchers.decrementAndGet();
    }

    private void advance(long ticket) {
        long known = passed;
        while (known < ticket && !PASSED.compareAndSet(this, known, ticket)) {
            known = passed;
        }
        kept.dropPassed(passed);
        // Whoever found out asks for the next marker, so that it comes behind the very next
        // operation. Should the marker have been recorded anew meanwhile, it will be once more.
        if (marking == OUTSTANDING && markerTicket <= passed) {
            MARKING.compareAndSet(this, OUTSTANDING, ASKED);
        }
    }

    /** Finds out how far it is, without asking streams of others. */
    private void look() {
        long given = issued();
        if (passed >= given || !touch()) {
            return;
        }
        try {
            long before = CurrentDevice.visit(device);
            try {
                if (marking == OUTSTANDING) {
                    lookAt(marker, markerTicket);
                }
                if (foreign || closed) {
                    lookAt(tail, tailTicket);
                } else if (passed < given && CudaRuntime.streamQuery(address, name)) {
                    advance(given);
                }
            } finally {
                CurrentDevice.leave(before);
            }
        } finally {
            leave();
        }
    }

    /** The ticket was read before, so that one that is recorded again meanwhile does no harm. */
    private void lookAt(long event, long ticket) {
        if (ticket > passed && CudaRuntime.eventQuery(event, name)) {
            advance(ticket);
        }
    }

    /** Whether a ticket is over. */
    boolean hasPassed(long ticket) {
        if (passed < ticket) {
            look();
        }
        return passed >= ticket;
    }

    /** As {@link #hasPassed}; where the device's context is lost, nothing runs any more. */
    boolean hasPassedOrIsLost(long ticket) {
        try {
            return hasPassed(ticket);
        } catch (CollectiveException e) {
            if (CudaRuntime.isLoss(e)) {
                return true;
            }
            throw e;
        }
    }

    /** Whether all that got a ticket is over, and nothing is being launched. */
    boolean isIdle() {
        return touchers.get() != LAUNCHING && hasPassedOrIsLost(issued());
    }

    /** Whether it has been closed, and its work is over. */
    boolean isGone() {
        return closed && passed >= issued();
    }

    /** Asks the whole stream; false while NCCL launches on it. */
    private boolean isOver() {
        long given = issued();
        if (!touch()) {
            return touchers.get() == GONE;
        }
        try {
            boolean over;
            long before = CurrentDevice.visit(device);
            try {
                over = CudaRuntime.streamQuery(address, name);
            } finally {
                CurrentDevice.leave(before);
            }
            if (over) {
                advance(given);
            }
            return over;
        } finally {
            leave();
        }
    }

    private boolean isReached(long event) {
        long before = CurrentDevice.visit(device);
        try {
            return CudaRuntime.eventQuery(event, name);
        } finally {
            CurrentDevice.leave(before);
        }
    }

    // ---- for events and memory

    /** Records a CUDA event here. */
    void recordRaw(long event, String doing) {
        long before = CurrentDevice.visit(device);
        try {
            CudaRuntime.recordEvent(event, address, doing);
        } finally {
            CurrentDevice.leave(before);
        }
    }

    /** Makes later work here wait for a CUDA event. */
    void waitRaw(long event) {
        long before = CurrentDevice.visit(device);
        try {
            CudaRuntime.streamWaitEvent(address, event, waiting);
        } finally {
            CurrentDevice.leave(before);
        }
    }

    /**
     * An event, to be given back, that marks the work so far; 0 while NCCL launches here, or when
     * the stream is gone.
     */
    private long markNow() {
        if (!touch()) {
            return 0;
        }
        long event = 0;
        boolean recorded = false;
        try {
            event = device.events().take(false);
            recordRaw(event, markingEnd);
            recorded = true;
            return event;
        } finally {
            leave();
            if (!recorded && event != 0) {
                device.events().giveBack(event, false);
            }
        }
    }

    /**
     * Frees stream-ordered memory here.
     *
     * @return false if it must be done elsewhere: this is closed, of others, lost with its device,
     *     or NCCL launches on it
     */
    boolean freeAsync(long memory, String doing) {
        if (foreign || closed || !touch()) {
            return false;
        }
        long before = CurrentDevice.visit(device);
        try {
            CudaRuntime.freeAsync(memory, address, doing);
            return true;
        } catch (CollectiveException e) {
            if (CudaRuntime.isLoss(e)) {
                return false;
            }
            throw e;
        } finally {
            CurrentDevice.leave(before);
            leave();
        }
    }

    /** Whose work it has, for messages. */
    String workInWords() {
        List<String> having = new ArrayList<>();
        long over = passed;
        for (CommunicatorUse use : uses) {
            NcclCommunicator communicator = use.communicator.get();
            if (communicator != null && use.ticket > over) {
                having.add(communicator.describe());
            }
        }
        if (!having.isEmpty()) {
            return "work of " + String.join(" and of ", having) + " is not done";
        }
        return issued() > over
                ? "copies, fills or waits for events are not done"
                : "work of others is not done";
    }

    // ---- failures

    /**
     * The oldest failure; those after it that are forgotten once told come with it, the first few
     * as suppressed, so that a stream is usable again after one throw.
     */
    private void throwFailures() {
        synchronized (failures) {
            if (failures.isEmpty()) {
                return;
            }
            CollectiveException oldest = failures.getFirst().cause().forThisThread();
            List<CommunicatorFailure> kept = new ArrayList<>(1);
            for (int i = 0; i < failures.size(); i++) {
                CommunicatorFailure failure = failures.get(i);
                if (!failure.isAborted()) {
                    kept.add(failure);
                } else if (i > 0 && i <= MOST_SUPPRESSED) {
                    oldest.addSuppressed(failure.cause());
                }
            }
            failures.clear();
            failures.addAll(kept);
            hasFailures = !kept.isEmpty();
            throw oldest;
        }
    }

    /** What was remembered last; another thread may have been told it by now. */
    private CollectiveException takeLast() {
        synchronized (failures) {
            if (lastFailure.isAborted() && failures.remove(lastFailure)) {
                hasFailures = !failures.isEmpty();
            }
            return lastFailure.cause().forThisThread();
        }
    }

    // ---- DeviceStream

    @Override
    public NcclDevice device() {
        return device;
    }

    private void requireUsable(String operation) {
        if (closed) {
            requireOpen(operation);
        }
    }

    @Override
    public boolean poll() {
        OpenGroup.refuseIfTouched(this);
        requireUsable("poll");
        // Before the failures: work that is given up leaves its failure first.
        boolean over = isOver();
        if (hasFailures) {
            throwFailures();
        }
        return over;
    }

    @Override
    public void synchronize(Duration timeout) {
        OpenGroup.refuseIfTouched(this);
        long budgetNanos = Durations.saturatedNanos(timeout);
        if (Thread.currentThread().isInterrupted()) {
            throw interrupted();
        }
        requireUsable("synchronize");
        long startNanos = System.nanoTime();
        int failuresBefore = failureCount;
        if (hasFailures) {
            throwFailures();
        }
        Waiting.Outcome outcome = Waiting.Outcome.OVER;
        if (!isOver()) {
            try (Wait wait = new Wait(failuresBefore, startNanos)) {
                outcome = Waiting.until(wait, startNanos, budgetNanos);
            }
        }
        if (failureCount != failuresBefore) {
            throw takeLast();
        }
        switch (outcome) {
            case OVER -> {}
            case INTERRUPTED -> throw interrupted();
            case OUT_OF_TIME ->
                    throw new CollectiveTimeoutException(
                            this
                                    + " was not done within "
                                    + Durations.text(timeout)
                                    + ": "
                                    + workInWords()
                                    + "; nothing has changed, synchronize again or abort the"
                                    + " communicator",
                            false);
        }
    }

    private WaitInterruptedException interrupted() {
        return new WaitInterruptedException(
                "interrupted while waiting for "
                        + this
                        + "; its work is unchanged, synchronize again");
    }

    /** Whether what was enqueued before it was made is over, or a failure has come since. */
    private final class Wait implements BooleanSupplier, AutoCloseable {
        private final int failuresBefore;
        private final long startNanos;
        private long target;
        private long event;

        Wait(int failuresBefore, long startNanos) {
            this.failuresBefore = failuresBefore;
            this.startNanos = startNanos;
        }

        @Override
        public boolean getAsBoolean() {
            if (failureCount != failuresBefore) {
                return true;
            }
            if (event == 0) {
                if (isOver()) {
                    return true;
                }
                if (System.nanoTime() - startNanos > ASKING_NANOS) {
                    // Others may go on enqueuing for ever.
                    mark();
                }
                return false;
            }
            if (!isReached(event)) {
                return false;
            }
            advance(target);
            return true;
        }

        /** Records the mark, unless NCCL is launching. */
        void mark() {
            target = issued();
            event = markNow();
        }

        @Override
        public void close() {
            if (event != 0) {
                device.events().giveBack(event, false);
                event = 0;
            }
        }
    }

    @Override
    public void record(DeviceEvent event) {
        OpenGroup.refuseIfTouched(this);
        NcclEvent mine = NcclEvent.of("record", event);
        requireOpen("record");
        mine.recordOn(this);
    }

    @Override
    public void waitFor(DeviceEvent event) {
        OpenGroup.refuseIfTouched(this);
        NcclEvent mine = NcclEvent.of("waitFor", event);
        requireOpen("waitFor");
        mine.holdUp(this);
        // The device is not idle while it waits.
        issue();
    }

    @Override
    public DeviceBuffer allocate(long sizeBytes) {
        OpenGroup.refuseIfTouched(this);
        requireOpen("allocate");
        NcclDevice.requireSize(sizeBytes);
        if (sizeBytes == 0) {
            return DeviceBuffer.EMPTY;
        }
        if (!device.hasPools()) {
            return device.allocate(sizeBytes);
        }
        device.retain();
        DeviceBuffer buffer = null;
        try {
            long[] memory = new long[1];
            device.run(() ->
                    memory[0] =
                            device.allocateFromPool(
                                    sizeBytes,
                                    address,
                                    "allocating " + sizeBytes + " bytes on " + this));
            if (memory[0] == 0) {
                throw device.outOfMemory("stream-ordered memory", sizeBytes);
            }
            buffer = NcclMemory.pooled(device, memory[0], sizeBytes, this);
        } finally {
            if (buffer == null) {
                device.release();
            }
        }
        issue();
        return buffer;
    }

    @Override
    public void copy(DeviceBuffer source, DeviceBuffer destination, long sizeBytes) {
        OpenGroup.refuseIfTouched(this);
        ArgumentChecks.copy(NcclSetup.get().capabilities(), source, destination, sizeBytes);
        requireOpen("copy");
        if (sizeBytes == 0) {
            return;
        }
        LocalWork.requireReachable("copy", source);
        LocalWork.requireReachable("copy", destination);
        try {
            device.run(() -> LocalWork.copy(this, source, destination, sizeBytes));
        } finally {
            // Also when only some of it could be enqueued.
            issue();
            NcclMemory.use(source, this);
            NcclMemory.use(destination, this);
        }
    }

    @Override
    public void fill(DeviceBuffer destination, byte value) {
        OpenGroup.refuseIfTouched(this);
        ArgumentChecks.fill(NcclSetup.get().capabilities(), destination);
        requireOpen("fill");
        if (destination.sizeBytes() == 0) {
            return;
        }
        LocalWork.requireReachable("fill", destination);
        try {
            device.run(() -> LocalWork.fill(this, destination, value));
        } finally {
            issue();
            NcclMemory.use(destination, this);
        }
    }

    @Override
    public CompletionStage<Void> completion() {
        OpenGroup.refuseIfTouched(this);
        requireUsable("completion");
        CompletableFuture<Void> future = new CompletableFuture<>();
        int failuresBefore = failureCount;
        boolean over = isOver();
        CommunicatorFailure known;
        synchronized (failures) {
            known = failures.isEmpty() ? null : failures.getFirst();
        }
        if (known != null) {
            future.completeExceptionally(known.cause().forThisThread());
        } else if (over) {
            future.complete(null);
        } else {
            Poller.SHARED.add(new Completion(failuresBefore, future));
        }
        return future.minimalCompletionStage();
    }

    /** Completes a stage, on the common pool. */
    private final class Completion implements Poller.Matter {
        private final Wait wait;
        private final int failuresBefore;
        private final CompletableFuture<Void> future;

        Completion(int failuresBefore, CompletableFuture<Void> future) {
            this.wait = new Wait(failuresBefore, System.nanoTime());
            this.failuresBefore = failuresBefore;
            this.future = future;
            wait.mark();
        }

        @Override
        public boolean isSettled() {
            CollectiveException failure = null;
            try {
                if (!wait.getAsBoolean()) {
                    return false;
                }
                if (failureCount != failuresBefore) {
                    synchronized (failures) {
                        failure = lastFailure.cause();
                    }
                }
            } catch (CollectiveException e) {
                failure = e;
            }
            wait.close();
            CollectiveException cause = failure;
            ForkJoinPool.commonPool()
                    .execute(() -> {
                        if (cause == null) {
                            future.complete(null);
                        } else {
                            future.completeExceptionally(cause.forThisThread());
                        }
                    });
            return true;
        }

        @Override
        public NcclDevice device() {
            return device;
        }

        @Override
        public String toString() {
            return "the completion stage of " + NcclStream.this;
        }
    }

    @Override
    public void close() {
        OpenGroup.refuseIfTouched(this);
        synchronized (failures) {
            if (closed) {
                return;
            }
            closed = true;
        }
        Poller.SHARED.add(new End());
    }

    /** Gives a closed stream back when its work is over. */
    private final class End implements Poller.Matter {
        private boolean isMarked = foreign;

        @Override
        public boolean isSettled() {
            if (!isOverOrLost()) {
                return false;
            }
            while (!touchers.compareAndSet(0, GONE)) {
                if (touchers.get() == LAUNCHING) {
                    return false;
                }
                Thread.onSpinWait();
            }
            advance(issued());
            device.drop(NcclStream.this);
            device.events().giveBack(marker, false);
            device.events().giveBack(tail, false);
            if (!foreign) {
                device.giveBack(
                        () -> CudaRuntime.destroyStream(address, "closing " + NcclStream.this));
            }
            device.release();
            return true;
        }

        private boolean isOverOrLost() {
            try {
                return (isMarked || markEnd()) && isEndPassed();
            } catch (CollectiveException e) {
                if (CudaRuntime.isLoss(e)) {
                    return true;
                }
                throw e;
            }
        }

        private boolean markEnd() {
            if (!touch()) {
                return false;
            }
            try {
                long given = issued();
                recordRaw(tail, "closing " + NcclStream.this);
                tailTicket = given;
                isMarked = true;
            } finally {
                leave();
            }
            return true;
        }

        private boolean isEndPassed() {
            if (foreign) {
                return hasPassed(issued());
            }
            // Also of what got no ticket, such as waits.
            if (!touch()) {
                return false;
            }
            try {
                if (!CudaRuntime.eventQuery(tail, name)) {
                    return false;
                }
                advance(tailTicket);
                return true;
            } finally {
                leave();
            }
        }

        @Override
        public NcclDevice device() {
            return device;
        }

        @Override
        public String toString() {
            return "the end of " + NcclStream.this;
        }
    }

    @Override
    public String toString() {
        return name;
    }
}
