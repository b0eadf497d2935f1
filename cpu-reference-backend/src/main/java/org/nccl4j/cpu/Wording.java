package org.nccl4j.cpu;

import java.util.Arrays;
import java.util.StringJoiner;
import org.nccl4j.collectives.BlockLayout;
import org.nccl4j.collectives.CollectiveException;
import org.nccl4j.collectives.CollectiveTimeoutException;
import org.nccl4j.collectives.CommunicatorAbortedException;
import org.nccl4j.collectives.InvalidArgumentException;
import org.nccl4j.collectives.MismatchException;
import org.nccl4j.collectives.RankFailedException;
import org.nccl4j.collectives.ReduceOp;
import org.nccl4j.collectives.spi.Durations;

/** Words for what happened, for exceptions and logs. Needs the scheduler's lock. */
final class Wording {
    private Wording() {}

    /** An operation's name and number. */
    static String name(Match match) {
        return match.isPair()
                ? "send/recv #"
                        + match.number
                        + " from rank "
                        + match.senderRank
                        + " to rank "
                        + match.receiverRank
                : match.first.kind.operation() + " #" + match.number;
    }

    private static String name(OperationKind kind, long number, int peer) {
        if (kind == null) {
            return "nothing";
        }
        if (kind != OperationKind.SEND_RECV) {
            return kind.operation() + " #" + number;
        }
        return peer >= 0
                ? "send #" + number + " to rank " + peer
                : "recv #" + number + " from rank " + ~peer;
    }

    /** A host call's name and number. */
    static String name(HostCall call) {
        return call.kind().operation() + " #" + call.number();
    }

    /** What a rank called. */
    static String call(Part part) {
        StringBuilder text = new StringBuilder();
        text.append(part.kind.operation(part.sender));
        StringJoiner arguments = new StringJoiner(", ", "(", ")");
        switch (part.kind) {
            case BARRIER, SPLIT, EXCHANGE_COUNTS -> {
                return text.append("()").toString();
            }
            case ALL_GATHER_V -> arguments.add("counts " + counts(part.recvLayout));
            case REDUCE_SCATTER_V -> arguments.add("counts " + counts(part.sendLayout));
            case ALL_TO_ALL_V ->
                    arguments.add(
                            "send counts "
                                    + counts(part.sendLayout)
                                    + ", receive counts "
                                    + counts(part.recvLayout));
            default -> arguments.add("count " + part.countElements);
        }
        arguments.add(part.type.toString());
        if (part.reduction != null) {
            arguments.add(
                    part.reduction instanceof ReduceOp.PreMulSum
                            ? "preMulSum"
                            : part.reduction.toString());
        }
        if (part.kind == OperationKind.SEND_RECV) {
            arguments.add((part.sender ? "to rank " : "from rank ") + part.root);
        } else if (part.root >= 0) {
            arguments.add("root " + part.root);
        }
        return text.append(arguments).toString();
    }

    private static String counts(BlockLayout layout) {
        return Arrays.toString(layout.countsElements());
    }

    static MismatchException mismatch(Match match, int rank, Part part) {
        int size = match.clique.size;
        String calls =
                "rank "
                        + match.firstRank
                        + "/"
                        + size
                        + " called "
                        + call(match.first)
                        + ", rank "
                        + rank
                        + "/"
                        + size
                        + " called "
                        + call(part);
        String where = "communicator '" + match.clique.name + "': ";
        return new MismatchException(
                match.isPair()
                        ? where
                                + "the two sides of "
                                + name(match)
                                + " disagree: "
                                + calls
                                + "; send and receive the same count and type, in the same order,"
                                + " and create a new communicator"
                        : where
                                + "ranks disagree about collective #"
                                + match.number
                                + ": "
                                + calls
                                + "; make the same calls in the same order on every rank and create"
                                + " a new communicator");
    }

    static MismatchException pairMismatch(Match match, OperationOfParts.PairCount pair) {
        return new MismatchException(
                "communicator '"
                        + match.clique.name
                        + "': ranks disagree about "
                        + name(match)
                        + ": rank "
                        + pair.from()
                        + " sends "
                        + pair.sentElements()
                        + " elements to rank "
                        + pair.to()
                        + ", rank "
                        + pair.to()
                        + " expects "
                        + pair.expectedElements()
                        + "; make the plans from exchangeCounts and create a new communicator");
    }

    static InvalidArgumentException overlap(Match match, Overlaps.Range one, Overlaps.Range other) {
        long start = Math.max(one.start(), other.start());
        long end = Math.min(one.end(), other.end());
        return new InvalidArgumentException(
                "communicator '"
                        + match.clique.name
                        + "': ranks' memory overlaps in "
                        + name(match)
                        + ": "
                        + range(match, one)
                        + " and "
                        + range(match, other)
                        + " have "
                        + (end - start)
                        + " bytes in common from 0x"
                        + Long.toHexString(start)
                        + "; what a rank receives into no other rank may use: give each rank"
                        + " memory of its own, or slices that lie apart (their offsets and lengths"
                        + " are bytes, counts are elements), and create a new communicator",
                true);
    }

    private static String range(Match match, Overlaps.Range range) {
        return "what rank "
                + range.rank()
                + "/"
                + match.clique.size
                + (range.written() ? " receives into" : " sends from")
                + " [0x"
                + Long.toHexString(range.start())
                + ", +"
                + (range.end() - range.start())
                + ")"
                + (range.block() < 0 ? "" : " as block " + range.block());
    }

    static RankFailedException closedPeer(Match match, int rank) {
        StringJoiner waiting = new StringJoiner(", ");
        for (int participant = 0; participant < match.participants(); participant++) {
            if (match.isPostedBy(participant)) {
                waiting.add(String.valueOf(match.rank(participant)));
            }
        }
        return new RankFailedException(
                rank,
                "rank "
                        + rank
                        + "/"
                        + match.clique.size
                        + " closed its communicator '"
                        + match.clique.name
                        + "' before joining "
                        + name(match)
                        + ", which rank "
                        + waiting
                        + " called; look for an exception on rank "
                        + rank
                        + ", and close a communicator when its last operation is complete on every"
                        + " rank",
                null);
    }

    /**
     * What was thrown while data moved. A rank is to blame if its memory is gone; else nobody is
     * who called us: shares are the engine's and not the ranks'.
     */
    static CollectiveException broke(Match match, int share, Throwable failure) {
        if (failure instanceof OutOfMemoryError) {
            return match.clique.outOfMemory;
        }
        for (int i = 0; i < match.participants(); i++) {
            if (Work.isClosed(match.send(i)) || Work.isClosed(match.recv(i))) {
                return new RankFailedException(
                        match.rank(i),
                        "rank "
                                + match.rank(i)
                                + "/"
                                + match.clique.size
                                + " of communicator '"
                                + match.clique.name
                                + "' broke in "
                                + name(match)
                                + ": the arena of its buffer was closed before the operation was"
                                + " complete; keep it open until the stream is synchronized; create"
                                + " a new communicator",
                        failure);
            }
        }
        String engine = match.clique.engine.name();
        String other =
                engine.equals(EngineSetting.REFERENCE)
                        ? EngineSetting.DIRECT
                        : EngineSetting.REFERENCE;
        return new RankFailedException(
                RankFailedException.NO_RANK,
                "communicator '"
                        + match.clique.name
                        + "': engine '"
                        + engine
                        + "' broke in "
                        + name(match)
                        + " of "
                        + match.clique.size
                        + " ranks"
                        + (share < 0 ? "" : ", share " + share)
                        + ": "
                        + failure
                        // So the JVM says that a page of mapped memory is not there.
                        + (failure instanceof InternalError
                                ? "; memory of a buffer cannot be accessed: see whether a file that"
                                        + " it is mapped from was shortened or its disk is full;"
                                        + " create a new communicator"
                                : "; no rank did anything wrong, this is a bug of nccl4j: report it"
                                        + " with this exception and its causes; create a new"
                                        + " communicator, and to go on meanwhile let it run another"
                                        + " algorithm, by CommunicatorConfig.withAlgorithm(\""
                                        + other
                                        + "\"), "
                                        + EngineSetting.VARIABLE
                                        + "="
                                        + other
                                        + " or --algo "
                                        + other
                                        + " of bench"),
                failure);
    }

    static CommunicatorAbortedException aborted(Member member) {
        return new CommunicatorAbortedException(
                "rank "
                        + member.rank
                        + "/"
                        + member.clique.size
                        + " aborted communicator '"
                        + member.clique.name
                        + "' after "
                        + name(
                                member.lastEnqueued,
                                member.lastEnqueuedNumber,
                                member.lastEnqueuedPeer)
                        + "; its unfinished work was given up on every rank; create a new"
                        + " communicator");
    }

    static CollectiveTimeoutException timeout(Batch batch) {
        Part part = firstUnfinished(batch);
        Clique clique = batch.member.clique;
        String hint = hint(batch, part);
        return new CollectiveTimeoutException(
                call(part)
                        + ", #"
                        + part.number
                        + " of communicator '"
                        + clique.name
                        + "', was not done on rank "
                        + batch.member.rank
                        + "/"
                        + clique.size
                        + " within "
                        + Durations.text(clique.operationTimeout)
                        + ": "
                        + progress(batch, part)
                        + (hint.isEmpty() && batch.started ? advice(part.match) : hint)
                        + "; create a new communicator",
                true);
    }

    static CollectiveTimeoutException timeout(HostCall call) {
        Clique clique = call.clique();
        Match match = clique.collectives().at(call.number());
        return new CollectiveTimeoutException(
                name(call)
                        + " of communicator '"
                        + clique.name
                        + "' was not done within "
                        + Durations.text(clique.operationTimeout)
                        + ": "
                        + joined(match)
                        + advice(match)
                        + "; create a new communicator",
                true);
    }

    /** Where to look if an operation was not done in time. */
    private static String advice(Match match) {
        if (match.joined) {
            return "; raise operationTimeout if it is only slow";
        }
        StringJoiner absent =
                new StringJoiner(
                        ", ",
                        "; look for a branch or an exception on rank ",
                        ", or raise operationTimeout if it is only late");
        absent.setEmptyValue("");
        for (int participant = 0; participant < match.participants(); participant++) {
            if (!isCalled(match, participant)) {
                absent.add(String.valueOf(match.rank(participant)));
            }
        }
        return absent.toString();
    }

    private static boolean isCalled(Match match, int participant) {
        return match.host != null ? match.isPostedBy(participant) : match.part(participant) != null;
    }

    private static Part firstUnfinished(Batch batch) {
        for (Part part : batch.parts) {
            if (!part.ended) {
                return part;
            }
        }
        return batch.parts.getFirst();
    }

    private static String progress(Batch batch, Part part) {
        if (!batch.started) {
            if (batch.streamsAhead > 0) {
                return "its group does not head all its streams: " + otherStreams(batch);
            }
            return "it waits for " + name(batch.member.openHostCall());
        }
        if (part.match.joined) {
            return "all its ranks have joined and its data is still being moved";
        }
        return joined(part.match) + groupHint(part.match);
    }

    /** A thread that waits for one of its ranks before it has called another waits in vain. */
    private static String groupHint(Match match) {
        for (int participant = 0; participant < match.participants(); participant++) {
            Member member = match.clique.members[match.rank(participant)];
            if (!isCalled(match, participant) && member.lastEnqueued == null) {
                return "; one thread that drives several ranks must use Backend.group";
            }
        }
        return "";
    }

    private static String otherStreams(Batch batch) {
        StringJoiner others = new StringJoiner("; ");
        for (CpuStream stream : batch.streams) {
            if (stream.headSubject() != batch) {
                others.add("on " + stream + " " + brief(stream));
            }
        }
        return others.toString();
    }

    /** Who has joined and what the others are doing. */
    private static String joined(Match match) {
        StringJoiner here = new StringJoiner(", ");
        StringJoiner absent = new StringJoiner("; ");
        here.setEmptyValue("no rank");
        for (int participant = 0; participant < match.participants(); participant++) {
            Member member = match.clique.members[match.rank(participant)];
            Part part = match.part(participant);
            if (match.host != null ? match.isPostedBy(participant) : part != null && part.arrived) {
                here.add("rank " + member.rank);
            } else if (part != null) {
                absent.add(
                        "rank "
                                + member.rank
                                + " has called it, but "
                                + part.stream
                                + " has not come to it: "
                                + brief(part.stream)
                                + (part.stream.headSubject() instanceof CpuStream source
                                        ? ", where " + brief(source)
                                        : ""));
            } else {
                absent.add("rank " + member.rank + " has not called it and " + state(member));
            }
        }
        return here + " joined; " + absent;
    }

    /** What a rank called last and what it waits for. */
    static String state(Member member) {
        if (member.closed) {
            return "has closed";
        }
        if (member.lastEnqueued == null) {
            return "has called nothing";
        }
        String last =
                "last called "
                        + name(
                                member.lastEnqueued,
                                member.lastEnqueuedNumber,
                                member.lastEnqueuedPeer);
        StringJoiner waiting = new StringJoiner(" and ", last + " and waits for ", "");
        waiting.setEmptyValue(last + ", which is complete");
        if (member.oldest != null && !member.oldest.waitsForHostCall()) {
            Part part = firstUnfinished(member.oldest);
            waiting.add(name(part.kind, part.number, part.sender ? part.root : ~part.root));
        }
        HostCall call = member.openHostCall();
        if (call != null) {
            waiting.add(name(call));
        }
        return waiting.toString();
    }

    /** Two ranks that send to each other first and receive later wait for each other. */
    private static String hint(Batch batch, Part part) {
        if (part.kind != OperationKind.SEND_RECV || part.match == null || part.match.joined) {
            return "";
        }
        Member peer = batch.member.clique.members[part.root];
        if (peer.isIdle() || peer.oldest.waitsForHostCall()) {
            return "";
        }
        Part other = firstUnfinished(peer.oldest);
        boolean crosswise =
                other.kind == OperationKind.SEND_RECV
                        && other.root == batch.member.rank
                        && other.sender == part.sender;
        return crosswise
                ? "; both "
                        + (part.sender ? "send" : "receive")
                        + " first: put send and recv in one Backend.group or use sendRecv"
                : "";
    }

    /** What a stream waits for, and what that waits for. */
    static String head(CpuStream stream) {
        if (stream.headSubject() instanceof Batch batch && batch.started) {
            Part part = firstUnfinished(batch);
            return call(part)
                    + ", #"
                    + part.number
                    + " of communicator '"
                    + batch.member.clique.name
                    + "', is not done: "
                    + progress(batch, part);
        }
        return brief(stream)
                + (stream.headSubject() instanceof CpuStream source
                        ? ", where " + brief(source)
                        : "");
    }

    /** What a stream waits for. One step only: streams may wait for one another in circles. */
    private static String brief(CpuStream stream) {
        if (stream.isEmpty()) {
            return "nothing is to be done";
        }
        return switch (stream.headKind()) {
            case RECORD -> "an event is to be recorded";
            case WAIT -> "an event of " + stream.headSubject() + " is waited for";
            case LOCAL -> "a " + ((LocalWork) stream.headSubject()).describe() + " is not done";
            case BATCH -> {
                Batch batch = (Batch) stream.headSubject();
                Part part = firstUnfinished(batch);
                yield name(part.kind, part.number, part.sender ? part.root : ~part.root)
                        + " of communicator '"
                        + batch.member.clique.name
                        + "' is not done";
            }
        };
    }

    /** A line per rank, for the log. */
    static String table(Clique clique) {
        StringBuilder table = new StringBuilder();
        for (Member member : clique.members) {
            table.append(System.lineSeparator())
                    .append("  rank ")
                    .append(member.rank)
                    .append(" on device ")
                    .append(member.device().ordinal())
                    .append(": ")
                    .append(state(member))
                    .append("; last completed ")
                    .append(
                            name(
                                    member.lastCompleted,
                                    member.lastCompletedNumber,
                                    member.lastCompletedPeer));
        }
        return table.toString();
    }
}
