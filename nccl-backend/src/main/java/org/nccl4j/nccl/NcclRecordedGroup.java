package org.nccl4j.nccl;

import java.util.ArrayList;
import java.util.Comparator;
import java.util.List;
import org.nccl4j.collectives.CollectiveException;
import org.nccl4j.collectives.RecordedGroup;

/**
 * Operations of some communicators, issued as one group of NCCL's on a platform thread. An error
 * within a group sticks to all of it: what NCCL had recorded is dropped, so that all communicators
 * in it fail.
 *
 * <p>Thread safety: one thread at a time.
 */
final class NcclRecordedGroup implements RecordedGroup, Runnable {
    private final GroupCall[] calls;
    private final Member[] members;
    private final boolean nonBlocking;

    // ---- what follows from the calls, see prepare()

    /** Those that get work, from the first slot on. */
    private final NcclStream[] streams;

    private int streamCount;

    /** The operation, if it is one call of NCCL's, which is a group by itself; else null. */
    private GroupCall single;

    /** Whether a rank's calls are compared with those of the others. */
    private final boolean isChecked;

    /** Whether a rank's operations are timed for the flight recorder. */
    private final boolean isTimed;

    private boolean asHostCall;

    private NcclRecordedGroup(List<GroupCall> calls) {
        this.calls = calls.toArray(GroupCall[]::new);
        this.members = calls.stream().map(call -> call.member).distinct().toArray(Member[]::new);
        this.streams = new NcclStream[calls.size()];
        this.nonBlocking = members.length > 0 && members[0].nonBlocking;
        boolean checked = false;
        boolean timed = false;
        for (Member member : members) {
            checked |= member.check != null;
            timed |= member.timed != null;
        }
        this.isChecked = checked;
        this.isTimed = timed;
    }

    /** Issued communicator by communicator, in the order of their first appearance. */
    static NcclRecordedGroup of(List<GroupCall> calls) {
        List<NcclCommunicator> order = new ArrayList<>();
        for (GroupCall call : calls) {
            if (!order.contains(call.communicator)) {
                order.add(call.communicator);
            }
        }
        List<GroupCall> sorted = new ArrayList<>(calls);
        sorted.sort(Comparator.comparingInt(call -> order.indexOf(call.communicator)));
        NcclRecordedGroup group = new NcclRecordedGroup(sorted);
        group.prepare();
        return group;
    }

    /**
     * For plain operations of a communicator: calls that are given what they do before each use.
     */
    static NcclRecordedGroup reusable(NcclCommunicator communicator, int count) {
        List<GroupCall> calls = new ArrayList<>();
        for (int i = 0; i < count; i++) {
            calls.add(new GroupCall(communicator));
        }
        return new NcclRecordedGroup(calls);
    }

    GroupCall call(int index) {
        return calls[index];
    }

    /** Issues what its calls have been given, and keeps nothing of it reachable. */
    void issueOnce() {
        try {
            prepare();
            issue();
        } finally {
            for (int i = 0; i < calls.length; i++) {
                calls[i].forget();
                streams[i] = null;
            }
        }
    }

    private void prepare() {
        streamCount = 0;
        for (int i = 0; i < calls.length; i++) {
            if (!calls[i].isEmpty() && !hasStream(calls[i].stream)) {
                streams[streamCount++] = calls[i].stream;
            }
        }
        single = calls.length == 1 && !calls[0].kind().needsGroup() ? calls[0] : null;
    }

    private boolean hasStream(NcclStream stream) {
        for (int i = 0; i < streamCount; i++) {
            if (streams[i] == stream) {
                return true;
            }
        }
        return false;
    }

    // Loops by index, because iterators are objects.
    @Override
    public void issue() {
        for (int i = 0; i < members.length; i++) {
            OpenGroup.refuseIfTouched(members[i]);
        }
        for (int i = 0; i < calls.length; i++) {
            calls[i].check();
        }
        for (int i = 0; i < calls.length; i++) {
            calls[i].member.requireUsable(calls[i].kind().operation());
        }
        if (isChecked) {
            agree();
        }
        PlatformThread.run(this);
    }

    /**
     * Compares it with what the other ranks call. All of it is posted before anything is waited
     * for, because a rank that one of the calls waits for may be in this group as well.
     */
    private void agree() {
        List<ConsistencyCheck.Posted> posted = new ArrayList<>();
        for (int i = 0; i < calls.length; i++) {
            int ahead = 0;
            for (int j = 0; j < i; j++) {
                if (calls[i].countsWith(calls[j])) {
                    ahead++;
                }
            }
            ConsistencyCheck.Posted call = calls[i].post(ahead);
            if (call != null) {
                posted.add(call);
            }
        }
        long startNanos = System.nanoTime();
        posted.forEach(call -> call.await(startNanos));
    }

    /** Issues it in its place among the host calls, which everything else waits for. */
    void issueAsHostCall() {
        asHostCall = true;
        run();
    }

    /** Issues it on this platform thread, of which NCCL wants that it has some device. */
    @Override
    public void run() {
        if (members.length == 0) {
            return;
        }
        members[0].attach();
        enter();
        try {
            for (int i = 0; i < members.length; i++) {
                members[i].preMulSums.hold();
            }
            for (int i = 0; i < calls.length; i++) {
                calls[i].begin();
            }
            // Else none of it goes to NCCL.
            if (streamCount > 0) {
                if (isTimed) {
                    startTiming();
                }
                launch();
            }
        } catch (CollectiveException e) {
            throw failed(e);
        } finally {
            if (isTimed) {
                stopTiming();
            }
            for (int i = 0; i < members.length; i++) {
                members[i].preMulSums.release();
            }
            leave(members.length);
        }
        requireSound();
        if (FlightRecord.isEnabled()) {
            for (int i = 0; i < calls.length; i++) {
                calls[i].recordFlight();
            }
        }
    }

    private void startTiming() {
        for (int i = 0; i < calls.length; i++) {
            calls[i].startTiming();
        }
    }

    private void stopTiming() {
        for (int i = 0; i < calls.length; i++) {
            calls[i].stopTiming();
        }
    }

    /** Fails all communicators; if one had failed before, that is what made NCCL come back. */
    private CollectiveException failed(CollectiveException failure) {
        CollectiveException thrown = failure;
        for (int i = members.length - 1; i >= 0; i--) {
            CollectiveException earlier = members[i].clique.cause();
            if (earlier != null) {
                thrown = earlier.forThisThread();
            }
        }
        for (int i = 0; i < members.length; i++) {
            members[i].clique.fail(failure);
        }
        return thrown;
    }

    private void enter() {
        for (int i = 0; i < members.length; i++) {
            if (asHostCall) {
                // Its obstacle is this call itself, and the user's thread is elsewhere.
                members[i].managementBegins();
                if (members[i].clique.cause() != null) {
                    leave(i + 1);
                    throw members[i].clique.cause().forThisThread();
                }
            } else if (!members[i].enter()) {
                leave(i);
                throw members[i].refusal("a group");
            }
        }
    }

    /** The first members. */
    private void leave(int count) {
        for (int i = 0; i < count; i++) {
            if (asHostCall) {
                members[i].managementEnds();
            } else {
                members[i].leave();
            }
        }
    }

    private void launch() {
        if (nonBlocking) {
            for (int i = 0; i < streamCount; i++) {
                streams[i].launchBegins();
            }
        }
        try {
            enqueue();
            if (nonBlocking) {
                settle();
            }
        } finally {
            if (nonBlocking) {
                for (int i = 0; i < streamCount; i++) {
                    streams[i].launchEnds();
                }
            }
        }
        for (int i = 0; i < calls.length; i++) {
            if (!calls[i].isEmpty()) {
                calls[i].enqueued();
            }
        }
    }

    private void enqueue() {
        int code = single == null ? enqueueTogether() : single.enqueue();
        if (single != null && !isFine(code)) {
            throw single.failed(code);
        }
        if (code == NcclLibrary.IN_PROGRESS && !nonBlocking) {
            settle();
        }
    }

    /** Returns NCCL's code, success or in progress. */
    private int enqueueTogether() {
        int code = NcclLibrary.groupStart();
        if (code != NcclLibrary.SUCCESS) {
            throw NcclLibrary.failed("ncclGroupStart", code, doing());
        }
        int end;
        GroupCall last = null;
        try {
            for (int i = 0; i < calls.length && isFine(code); i++) {
                if (!calls[i].isEmpty()) {
                    last = calls[i];
                    code = last.enqueue();
                }
            }
        } finally {
            // Always, or the thread's later calls would only be recorded.
            end = NcclLibrary.groupEnd();
        }
        if (!isFine(code)) {
            throw last.failed(code);
        }
        if (!isFine(end)) {
            throw NcclLibrary.failed("ncclGroupEnd", end, doing());
        }
        return end;
    }

    private String doing() {
        return "a group of "
                + calls.length
                + (calls.length == 1 ? " operation, " : " operations, the first is ")
                + calls[0].doing();
    }

    private void settle() {
        for (int i = 0; i < members.length; i++) {
            int state = members[i].settleLaunch();
            if (state != NcclLibrary.SUCCESS) {
                throw NcclLibrary.failed("ncclGroupEnd", state, doing());
            }
        }
    }

    private static boolean isFine(int code) {
        return code == NcclLibrary.SUCCESS || code == NcclLibrary.IN_PROGRESS;
    }

    /** What was enqueued while its communicator failed has been given up. */
    private void requireSound() {
        for (int i = 0; i < members.length; i++) {
            if (members[i].isObstructed()) {
                members[i].requireSound();
            }
        }
    }
}
