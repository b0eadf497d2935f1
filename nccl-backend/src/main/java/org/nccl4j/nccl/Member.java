package org.nccl4j.nccl;

import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.lang.invoke.MethodHandles;
import java.lang.invoke.VarHandle;
import java.lang.ref.WeakReference;
import java.util.ArrayDeque;
import java.util.Arrays;
import java.util.List;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.function.BooleanSupplier;
import org.nccl4j.collectives.CollectiveException;
import org.nccl4j.collectives.CommunicatorConfig;
import org.nccl4j.collectives.DataType;
import org.nccl4j.collectives.DeviceBuffer;
import org.nccl4j.collectives.InvalidArgumentException;
import org.nccl4j.collectives.NativeCallException;
import org.nccl4j.collectives.ReduceOp;

/**
 * One rank of this process: NCCL's communicator, the rank's numbers, and what it called last.
 * Nothing here refers strongly to the {@link NcclCommunicator} that the user holds, so that one
 * that was dropped can be found.
 *
 * <p>Thread safety: numbers and records belong to the communicator's thread; {@link #enter}, {@link
 * #leave} and the obstacles let another thread abort it; the rest is guarded by the clique's
 * monitor unless said otherwise.
 */
final class Member {
    /** So many calls are remembered for messages. */
    static final int RECORDS = 256;

    /** What a barrier reduces. */
    private static final long SCRATCH_BYTES = 256;

    /** Obstacles: the communicator has failed. */
    static final int FAILED = 1;

    /** It is closing or closed. */
    static final int CLOSING = 2;

    /** A split or an exchange of counts is to come first. */
    static final int HOST_CALL = 4;

    private static final VarHandle ENTERED;
    private static final VarHandle LEFT;
    private static final VarHandle OBSTACLES;

    static {
        try {
            MethodHandles.Lookup lookup = MethodHandles.lookup();
            ENTERED = lookup.findVarHandle(Member.class, "entered", long.class);
            LEFT = lookup.findVarHandle(Member.class, "left", long.class);
            OBSTACLES = lookup.findVarHandle(Member.class, "obstacles", int.class);
        } catch (ReflectiveOperationException e) {
            throw new ExceptionInInitializerError(e);
        }
    }

    final Clique clique;
    final int rank;
    final int size;
    final NcclDevice device;
    final CommunicatorConfig config;

    /** NCCL's communicator, 0 before it is made and from when it is to be freed. */
    private long comm;

    /** Compares what it calls with what the other ranks call; null unless that is wanted. */
    final ConsistencyCheck check;

    /** Times its operations for the flight recorder; null unless that is wanted. */
    final TimedCalls timed;

    /** Whether calls may return before they are done. */
    final boolean nonBlocking;

    /** Where NCCL writes the handle, and its state. */
    final MemorySegment communicatorCell;

    private final MemorySegment stateCell;

    private final String watching;

    /** Made once: a launch that is waited for is an operation's usual course. */
    private final BooleanSupplier settled = () -> asyncState() != NcclLibrary.IN_PROGRESS;

    /** As {@link #settled}. */
    private final BooleanSupplier hostCallFree = this::isHostCallFree;

    /** Not for {@link #comm} on the communicator's own thread. */
    private final Object pollLock = new Object();

    /** Calls that went into NCCL and came back; the same but while a thread is inside. */
    private long entered;

    private long left;
    private int obstacles;

    /** Threads of our own that are inside NCCL for it, beside the user's. */
    private final AtomicInteger managing = new AtomicInteger();

    // ---- by the communicator's thread

    private Thread attached;

    long collectives;
    private long[] sends;
    private long[] receives;
    private final CallRecord[] records = new CallRecord[RECORDS];
    private long recorded;

    // ---- what belongs to it

    final PreMulSums preMulSums;

    /** Of the rank's buffers that are open. */
    final List<NcclRegistration> registrations = new CopyOnWriteArrayList<>();

    private DeviceBuffer scratch;
    CountExchange counts;
    private WeakReference<NcclCommunicator> userHandle = new WeakReference<>(null);

    /** Streams that have had its work, replaced when one comes. */
    private volatile NcclStream[] streams = {};

    private NcclStream lastStream;

    // ---- guarded by the clique's monitor

    boolean closing;
    boolean closed;

    /** Whether the abort had come through before it was closed. */
    boolean abortedBeforeClose;

    /** Splits and exchanges that are not under way, the oldest first. */
    final ArrayDeque<HostCall> hostCalls = new ArrayDeque<>(0);

    // ---- by the watchdog

    long watchedEntry = -1;
    long watchedSinceNanos;

    Member(Clique clique, int rank, NcclDevice device, CommunicatorConfig config) {
        this.clique = clique;
        this.rank = rank;
        this.size = clique.size;
        this.device = device;
        this.config = config;
        this.check =
                config.consistencyCheck()
                        .filter(store -> size > 1)
                        .map(store -> new ConsistencyCheck(this, store))
                        .orElse(null);
        this.timed = config.timing() ? new TimedCalls(this) : null;
        String forced = NcclEnvironment.value("NCCL_COMM_BLOCKING");
        this.nonBlocking = forced == null ? !config.blocking() : forced.equals("0");
        this.communicatorCell = clique.arena.allocate(ValueLayout.ADDRESS);
        this.stateCell = clique.arena.allocate(ValueLayout.JAVA_INT);
        this.watching = "watching " + describe();
        this.preMulSums = new PreMulSums(this);
        Arrays.setAll(records, i -> new CallRecord());
    }

    String describe() {
        return "communicator '" + clique.name + "' on rank " + rank + "/" + size;
    }

    // ---- native

    long comm() {
        return comm;
    }

    /** It has been made; by a thread of its own, before anybody uses it. */
    void made(long handle) {
        synchronized (pollLock) {
            comm = handle;
        }
    }

    /**
     * Takes the handle away, so that nobody asks for its state any more.
     *
     * @return the handle, 0 if it has been taken before
     */
    long takeHandle() {
        synchronized (pollLock) {
            long handle = comm;
            comm = 0;
            return handle;
        }
    }

    /** NCCL's state of it: success, in progress, or what went wrong; success once it is gone. */
    int asyncState() {
        synchronized (pollLock) {
            return comm == 0
                    ? NcclLibrary.SUCCESS
                    : NcclLibrary.commGetAsyncError(comm, stateCell, watching);
        }
    }

    /**
     * Waits until a call of a non-blocking communicator is done, or its handle has been taken away,
     * which whoever watches the call's deadline does: the watchdog for operations and splits, the
     * caller of create and of close for theirs.
     *
     * @return the communicator's state
     */
    int settle() {
        int state = asyncState();
        if (state != NcclLibrary.IN_PROGRESS) {
            return state;
        }
        Waiting.untilUninterruptibly(settled, System.nanoTime(), Long.MAX_VALUE);
        return asyncState();
    }

    /**
     * As {@link #settle}, for a launch: until NCCL is done with it nothing may touch its streams,
     * so that one that fails is over only when the communicator has been aborted.
     */
    int settleLaunch() {
        try {
            int state = settle();
            if (clique.cause() == null) {
                return state;
            }
        } catch (NativeCallException e) {
            clique.fail(e);
        }
        clique.requestAbort(0);
        clique.awaitAborted();
        throw clique.cause().forThisThread();
    }

    /**
     * Gives it the memory and stream of its own, before its first operation: to get them later may
     * make the device wait for work that waits for other ranks.
     */
    void openResources() {
        scratch = device.allocate(SCRATCH_BYTES);
        counts = CountExchange.open(this);
    }

    long scratchAddress() {
        return scratch.address();
    }

    /** Gives back what belongs to it; NCCL does not use it any more. */
    void closeResources() {
        if (timed != null) {
            timed.end();
        }
        if (scratch != null) {
            scratch.close();
        }
        if (counts != null) {
            counts.close();
        }
    }

    // ---- the user's side

    /** Gives the rank to its user. */
    void handOut(NcclCommunicator communicator) {
        userHandle = new WeakReference<>(communicator);
    }

    /** What the user holds, null if that has been dropped. */
    NcclCommunicator userHandle() {
        return userHandle.get();
    }

    /** Sees to it that the calling platform thread has a context, once per thread that comes. */
    void attach() {
        Thread thread = Thread.currentThread();
        if (thread != attached) {
            CurrentDevice.attach(device);
            attached = thread;
        }
    }

    // ---- going into NCCL

    /**
     * Announces that the user's thread goes into NCCL, then says whether it may; if so {@link
     * #leave} must follow. Who aborts puts the obstacle up, waits a millisecond, and then looks
     * whether a thread is inside: so either that sees the obstacle, or this is seen inside, without
     * a fence here. Not if another thread is inside, as far as can be seen: nothing here is atomic.
     */
    boolean enter() {
        long before = entered;
        if (before != left || (int) OBSTACLES.getOpaque(this) != 0) {
            // Nothing has been announced, which would hide who is inside.
            return false;
        }
        ENTERED.setOpaque(this, before + 1);
        if ((int) OBSTACLES.getOpaque(this) == 0) {
            return true;
        }
        leave();
        return false;
    }

    void leave() {
        LEFT.setRelease(this, entered);
    }

    /** A thread of ours goes into NCCL, whatever the obstacles; {@link #managementEnds} follows. */
    void managementBegins() {
        managing.incrementAndGet();
    }

    void managementEnds() {
        managing.decrementAndGet();
    }

    boolean isInside() {
        return (long) LEFT.getAcquire(this) != (long) ENTERED.getAcquire(this)
                || managing.get() > 0;
    }

    /**
     * Why {@link #enter} refused.
     *
     * @throws CollectiveException in any case
     */
    CollectiveException refusal(String operation) {
        requireOpen(operation);
        return Wording.severalThreads(operation, this);
    }

    /** Names the user's call that is inside, or -1. */
    long insideEntry() {
        long leftNow = (long) LEFT.getAcquire(this);
        long enteredNow = (long) ENTERED.getAcquire(this);
        return leftNow == enteredNow ? -1 : enteredNow;
    }

    boolean isObstructed() {
        return (int) OBSTACLES.getOpaque(this) != 0;
    }

    /** Clique's monitor held. */
    void obstruct(int obstacle) {
        OBSTACLES.setVolatile(this, obstacles | obstacle);
    }

    /** Clique's monitor held. */
    void clear(int obstacle) {
        OBSTACLES.setVolatile(this, obstacles & ~obstacle);
    }

    /**
     * Waits for host calls that come first.
     *
     * @throws CollectiveException why it cannot be used
     */
    void requireUsable(String operation) {
        if (!isObstructed()) {
            return;
        }
        requireOpen(operation);
        // The watchdog fails it when the oldest of them takes too long, which ends this wait.
        Waiting.Outcome outcome =
                Waiting.untilUninterruptibly(hostCallFree, System.nanoTime(), Long.MAX_VALUE);
        assert outcome == Waiting.Outcome.OVER;
        requireOpen(operation);
    }

    private boolean isHostCallFree() {
        return ((int) OBSTACLES.getVolatile(this) & HOST_CALL) == 0 || clique.cause() != null;
    }

    /** Whether it has failed or is closed, host calls aside. */
    void requireOpen(String operation) {
        synchronized (clique) {
            CollectiveException cause = clique.cause();
            if (cause != null && (!closed || abortedBeforeClose)) {
                throw cause.forThisThread();
            }
            if (closed || closing) {
                throw new InvalidArgumentException(
                        operation
                                + ": "
                                + describe()
                                + (closed ? " is closed" : " is being closed")
                                + "; nothing was enqueued; create a new one");
            }
        }
    }

    /**
     * Passes if it has not failed while this thread was inside NCCL; else its work has been given
     * up.
     */
    void requireSound() {
        CollectiveException cause = clique.cause();
        if (cause != null) {
            clique.tellStreams(this);
            throw cause.forThisThread();
        }
    }

    // ---- numbers and records

    /** Takes the next number and notes the call. */
    CallRecord begin(
            OperationKind kind,
            long countElements,
            DataType type,
            ReduceOp reduction,
            int root,
            NcclStream stream) {
        long number = kind.isPointToPoint() ? nextOfPair(kind, root) : collectives++;
        return begin(kind, countElements, type, reduction, root, stream, number);
    }

    /** As above, with a number that has been taken before. */
    CallRecord begin(
            OperationKind kind,
            long countElements,
            DataType type,
            ReduceOp reduction,
            int root,
            NcclStream stream,
            long number) {
        CallRecord next = records[(int) (recorded++ & (RECORDS - 1))];
        next.kind = kind;
        next.countElements = countElements;
        next.type = type;
        next.reduction = reduction;
        next.root = root;
        next.stream = stream;
        next.ticket = CallRecord.NO_TICKET;
        next.number = number;
        if (stream != lastStream && stream != null) {
            note(stream);
        }
        return next;
    }

    /** The number that the next such call will take. */
    long nextNumber(OperationKind kind, int peer) {
        return switch (kind) {
            case SEND -> sends(peer);
            case RECV -> receives(peer);
            default -> collectives;
        };
    }

    private long nextOfPair(OperationKind kind, int peer) {
        if (kind == OperationKind.SEND) {
            if (sends == null) {
                sends = new long[size];
            }
            return sends[peer]++;
        }
        if (receives == null) {
            receives = new long[size];
        }
        return receives[peer]++;
    }

    /** The last call had no effect. */
    void takeBack(CallRecord last) {
        recorded--;
        switch (last.kind) {
            case SEND -> sends[last.root]--;
            case RECV -> receives[last.root]--;
            default -> collectives--;
        }
    }

    long sends(int peer) {
        long[] now = sends;
        return now == null ? 0 : now[peer];
    }

    long receives(int peer) {
        long[] now = receives;
        return now == null ? 0 : now[peer];
    }

    /** What it called last, or null. */
    CallRecord lastCall() {
        long count = recorded;
        return count == 0 ? null : records[(int) ((count - 1) & (RECORDS - 1))];
    }

    /** The oldest call that a stream has not passed, as far as is remembered, or null. */
    CallRecord oldestUnpassed(NcclStream stream) {
        long passed = stream.passed();
        long end = recorded;
        for (long i = Math.max(0, end - RECORDS); i < end; i++) {
            CallRecord each = records[(int) (i & (RECORDS - 1))];
            if (each.stream == stream
                    && each.ticket > passed
                    && each.ticket != CallRecord.NO_TICKET) {
                return each;
            }
        }
        return null;
    }

    /**
     * Whether calls before one that is the oldest unpassed one as far as is remembered may be so
     * too: more are outstanding than are remembered.
     */
    boolean mayHaveForgottenEarlier(CallRecord oldest) {
        return recorded > RECORDS && oldest.ticket > oldest.stream.passed() + 1;
    }

    // ---- streams

    private void note(NcclStream stream) {
        lastStream = stream;
        for (NcclStream known : streams) {
            if (known == stream) {
                return;
            }
        }
        synchronized (clique) {
            NcclStream[] more = Arrays.copyOf(streams, streams.length + 1);
            more[streams.length] = stream;
            streams = more;
        }
    }

    NcclStream[] streams() {
        return streams;
    }

    /** Whether a stream has work of it that is not over, as far as is known. */
    boolean hasWork() {
        for (NcclStream stream : streams) {
            if (hasWorkOn(stream)) {
                return true;
            }
        }
        return false;
    }

    /** As {@link #hasWork}, after a look at the streams. */
    boolean isBusy() {
        for (NcclStream stream : streams) {
            if (hasWorkOn(stream) && !stream.hasPassedOrIsLost(stream.issued())) {
                return true;
            }
        }
        return false;
    }

    private boolean hasWorkOn(NcclStream stream) {
        NcclCommunicator held = userHandle();
        return held == null ? oldestUnpassed(stream) != null : stream.hasWorkOf(held);
    }

    /** Tells the streams that have its work that this has been given up. */
    void tellStreams(CommunicatorFailure failure) {
        for (NcclStream stream : streams) {
            if (hasWorkOn(stream)) {
                stream.fail(failure);
            }
        }
    }

    @Override
    public String toString() {
        return describe();
    }
}
