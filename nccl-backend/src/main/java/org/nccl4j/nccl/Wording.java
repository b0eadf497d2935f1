package org.nccl4j.nccl;

import java.util.ArrayList;
import java.util.List;
import java.util.StringJoiner;
import org.nccl4j.collectives.CollectiveException;
import org.nccl4j.collectives.CollectiveTimeoutException;
import org.nccl4j.collectives.CommunicatorAbortedException;
import org.nccl4j.collectives.InvalidArgumentException;
import org.nccl4j.collectives.MismatchException;
import org.nccl4j.collectives.RankFailedException;
import org.nccl4j.collectives.ReduceOp;
import org.nccl4j.collectives.UniqueId;
import org.nccl4j.collectives.spi.Durations;

/**
 * Words for what happened, for exceptions and logs. NCCL tells nothing of other ranks; what is said
 * of them is known because they live in this process.
 *
 * <p>Thread safety: reads what ranks called last without their leave; good enough for words.
 */
final class Wording {
    private static final int SHOWN_RANKS = 16;

    /** Behind a call that is the oldest one known, while there were too many to remember all. */
    private static final String FORGOTTEN =
            " (or an earlier one: the last " + Member.RECORDS + " are remembered)";

    private Wording() {}

    /** An operation's name and number, with the peer if it has one. */
    static String name(CallRecord call) {
        if (call == null || call.kind == null) {
            return "nothing";
        }
        String numbered = call.kind.operation() + " #" + call.number;
        return switch (call.kind) {
            case SEND -> numbered + " to rank " + call.root;
            case RECV -> numbered + " from rank " + call.root;
            default -> numbered;
        };
    }

    /** What a rank called. */
    static String call(CallRecord call) {
        StringJoiner arguments = new StringJoiner(", ", call.kind.operation() + "(", ")");
        arguments.setEmptyValue(call.kind.operation() + "()");
        switch (call.kind) {
            case BARRIER, SPLIT, EXCHANGE_COUNTS -> {
                return arguments.toString();
            }
            case ALL_GATHER_V, REDUCE_SCATTER_V, ALL_TO_ALL_V ->
                    arguments.add("this rank's blocks of " + call.countElements + " elements");
            default -> arguments.add("count " + call.countElements);
        }
        arguments.add(String.valueOf(call.type));
        if (call.reduction != null) {
            arguments.add(
                    call.reduction instanceof ReduceOp.PreMulSum
                            ? "preMulSum"
                            : call.reduction.toString());
        }
        if (call.kind == OperationKind.SEND) {
            arguments.add("to rank " + call.root);
        } else if (call.kind == OperationKind.RECV) {
            arguments.add("from rank " + call.root);
        } else if (call.root >= 0) {
            arguments.add("root " + call.root);
        }
        return arguments.toString();
    }

    /** What a rank called, in the words that the other backends have for it. */
    static String call(Signature call) {
        StringJoiner arguments = new StringJoiner(", ", call.kind().operation() + "(", ")");
        switch (call.kind()) {
            case BARRIER, SPLIT, EXCHANGE_COUNTS -> {
                return arguments.toString();
            }
            case ALL_GATHER_V -> arguments.add("counts " + call.recvCounts());
            case REDUCE_SCATTER_V -> arguments.add("counts " + call.sendCounts());
            case ALL_TO_ALL_V ->
                    arguments
                            .add("send counts " + call.sendCounts())
                            .add("receive counts " + call.recvCounts());
            default -> arguments.add("count " + call.countElements());
        }
        arguments.add(String.valueOf(call.type()));
        if (call.reduction() != null) {
            arguments.add(call.reduction());
        }
        switch (call.kind()) {
            case SEND -> arguments.add("to rank " + call.root());
            case RECV -> arguments.add("from rank " + call.root());
            default -> {
                if (call.root() >= 0) {
                    arguments.add("root " + call.root());
                }
            }
        }
        return arguments.toString();
    }

    /** Two ranks whose calls with one number are not the same operation. */
    static MismatchException mismatch(
            Member member, long number, Signature own, int rank, Signature other) {
        boolean first = member.rank < rank;
        String calls =
                called(member, first ? member.rank : rank, first ? own : other)
                        + ", "
                        + called(member, first ? rank : member.rank, first ? other : own);
        String where = "communicator '" + member.clique.name + "': ";
        if (!own.kind().isPointToPoint()) {
            return new MismatchException(
                    where
                            + "ranks disagree about collective #"
                            + number
                            + ": "
                            + calls
                            + "; make the same calls in the same order on every rank and create"
                            + " a new communicator");
        }
        boolean sends = own.kind() == OperationKind.SEND;
        return new MismatchException(
                where
                        + "the two sides of send/recv #"
                        + number
                        + " from rank "
                        + (sends ? member.rank : rank)
                        + " to rank "
                        + (sends ? rank : member.rank)
                        + " disagree: "
                        + calls
                        + "; send and receive the same count and type, in the same order, and"
                        + " create a new communicator");
    }

    private static String called(Member member, int rank, Signature call) {
        return "rank " + rank + "/" + member.size + " called " + call(call);
    }

    /** Two ranks of an all-to-all whose sizes do not fit. */
    static MismatchException pairMismatch(
            Member member, long number, int from, int to, long sent, long expected) {
        return new MismatchException(
                "communicator '"
                        + member.clique.name
                        + "': ranks disagree about allToAllV #"
                        + number
                        + ": rank "
                        + from
                        + " sends "
                        + sent
                        + " elements to rank "
                        + to
                        + ", rank "
                        + to
                        + " expects "
                        + expected
                        + "; make the plans from exchangeCounts and create a new communicator");
    }

    /** A rank that has made one call, has been told to make it again, and makes another one. */
    static MismatchException changed(Member member, long number, Signature then, Signature now) {
        return new MismatchException(
                member.describe()
                        + " called "
                        + call(then)
                        + " as #"
                        + number
                        + ", which was interrupted or refused, and now calls "
                        + call(now)
                        + " instead; the consistency check has told the other ranks already: make"
                        + " the same call again, or create a new communicator");
    }

    /** An operation that the consistency check has held back in vain. */
    static CollectiveTimeoutException notCalled(
            Member member, Signature call, long number, List<Integer> missing) {
        StringJoiner known = new StringJoiner("; ", "; ", "");
        known.setEmptyValue("");
        String hint = "";
        for (int rank : missing) {
            Member other = member.clique.member(rank);
            if (other != null) {
                known.add("rank " + rank + " " + state(other));
                if (hint.isEmpty()) {
                    hint = groupHint(other);
                }
            }
        }
        return new CollectiveTimeoutException(
                call(call)
                        + ", #"
                        + number
                        + " of communicator '"
                        + member.clique.name
                        + "', was held back by the consistency check on rank "
                        + member.rank
                        + "/"
                        + member.size
                        + ": rank "
                        + shown(missing)
                        + (missing.size() == 1 ? " has" : " have")
                        + " not called it within "
                        + Durations.text(member.clique.operationTimeout)
                        + known
                        + hint
                        + "; look for a branch or an exception there, give all ranks the same store"
                        + " and group calls alike on all of them, or raise operationTimeout if they"
                        + " are only late; create a new communicator",
                true);
    }

    /** Which call a native function was called for. */
    static String doing(Member member, CallRecord call) {
        return call(call) + ", #" + call.number + " of " + member.describe();
    }

    /** An operation whose time is over, at the head of its stream. */
    static CollectiveTimeoutException timeout(Member member, CallRecord call) {
        return new CollectiveTimeoutException(
                start(member, call, "was not done", member.mayHaveForgottenEarlier(call))
                        + others(member, call)
                        + hint(call)
                        + "; create a new communicator",
                true);
    }

    /** A call that has not come back from NCCL. */
    static CollectiveTimeoutException stuck(Member member, CallRecord call) {
        if (call == null) {
            return new CollectiveTimeoutException(
                    "a call of NCCL for "
                            + member.describe()
                            + " has not returned within "
                            + Durations.text(member.clique.operationTimeout)
                            + "; create a new communicator",
                    true);
        }
        return new CollectiveTimeoutException(
                start(member, call, "has not returned from NCCL", false)
                        + "NCCL connects to peers when they are first used, and waits for them; "
                        + others(member, call)
                        + hint(call)
                        + "; create a new communicator",
                true);
    }

    /** A split, or an exchange of counts behind one, that has not ended. */
    static CollectiveTimeoutException timeout(HostCall call) {
        Member member = call.members().getFirst();
        return new CollectiveTimeoutException(
                call.kind().operation()
                        + " #"
                        + call.number()
                        + " of "
                        + member.describe()
                        + " was not done within "
                        + Durations.text(member.clique.operationTimeout)
                        + ": "
                        + absent(member, call.number(), true)
                        + "; create a new communicator",
                true);
    }

    private static String start(Member member, CallRecord call, String what, boolean orEarlier) {
        return call(call)
                + ", #"
                + call.number
                + (orEarlier ? FORGOTTEN : "")
                + " of communicator '"
                + member.clique.name
                + "', "
                + what
                + " on rank "
                + member.rank
                + "/"
                + member.size
                + " within "
                + Durations.text(member.clique.operationTimeout)
                + ": ";
    }

    private static String others(Member member, CallRecord call) {
        if (!call.kind.isPointToPoint()) {
            return absent(member, call.number, false);
        }
        Member peer = member.clique.member(call.root);
        String wanted =
                (call.kind == OperationKind.SEND ? "recv #" : "send #")
                        + call.number
                        + (call.kind == OperationKind.SEND ? " from rank " : " to rank ")
                        + member.rank;
        if (peer == null) {
            return "rank "
                    + call.root
                    + " lives in another process: look whether it has called "
                    + wanted;
        }
        long called =
                call.kind == OperationKind.SEND
                        ? peer.receives(member.rank)
                        : peer.sends(member.rank);
        return called > call.number
                ? "rank " + peer.rank + " has called " + wanted + ", but waits for something else"
                : "rank "
                        + peer.rank
                        + " has not called "
                        + wanted
                        + " and "
                        + state(peer)
                        + groupHint(peer);
    }

    /** Who has not called a collective, as far as can be known. */
    private static String absent(Member member, long number, boolean hostCall) {
        StringJoiner absent = new StringJoiner("; ");
        String hint = "";
        for (Member other : member.clique.local()) {
            if (other.collectives <= number) {
                absent.add("rank " + other.rank + " has not called it and " + state(other));
                if (hint.isEmpty()) {
                    hint = hostCall ? listHint(other) : groupHint(other);
                }
            }
        }
        String elsewhere = elsewhere(member.clique);
        if (absent.length() == 0 && elsewhere.isEmpty()) {
            absent.add(
                    "all ranks have called "
                            + (hostCall ? "it" : "their #" + number)
                            + "; look whether they made the same call with the same arguments, and"
                            + " whether other work ahead of it on a stream is not done");
        }
        if (!elsewhere.isEmpty()) {
            absent.add(
                    elsewhere
                            + (isOne(elsewhere) ? " lives" : " live")
                            + " in other processes: look for a branch, an exception or a dead"
                            + " process there");
        }
        return absent + hint;
    }

    /** The ranks that do not live in this process, such as "ranks 0, 2-5"; empty if all do. */
    static String elsewhere(Clique clique) {
        List<String> ranges = new ArrayList<>();
        int next = 0;
        for (Member member : clique.local()) {
            addRange(ranges, next, member.rank - 1);
            next = member.rank + 1;
        }
        addRange(ranges, next, clique.size - 1);
        if (ranges.isEmpty()) {
            return "";
        }
        boolean one = ranges.size() == 1 && !ranges.getFirst().contains("-");
        StringJoiner text = new StringJoiner(", ", one ? "rank " : "ranks ", "");
        ranges.subList(0, Math.min(SHOWN_RANKS, ranges.size())).forEach(text::add);
        if (ranges.size() > SHOWN_RANKS) {
            text.add("and more");
        }
        return text.toString();
    }

    private static void addRange(List<String> ranges, int first, int last) {
        if (first == last) {
            ranges.add(Integer.toString(first));
        } else if (first < last) {
            ranges.add(first + "-" + last);
        }
    }

    private static boolean isOne(String ranks) {
        return ranks.startsWith("rank ");
    }

    /** That ranks have not been connected in time; who is missing NCCL does not tell. */
    static String notConnected(Clique clique, UniqueId id) {
        String elsewhere = elsewhere(clique);
        String network = NcclEnvironment.value("NCCL_SOCKET_IFNAME");
        return "NCCL has not connected the "
                + clique.size
                + " ranks within "
                + Durations.text(clique.operationTimeout)
                + (elsewhere.isEmpty()
                        ? ", though all of them are in this process; NCCL_DEBUG=INFO shows how far"
                                + " each has come"
                        : "; "
                                + elsewhere
                                + (isOne(elsewhere) ? " has" : " have")
                                + " not come in this process, and NCCL does not tell who is missing"
                                + " of those in others: check that they have started, hold "
                                + id
                                + ", and reach this host over the network ("
                                + (network == null
                                        ? "NCCL_SOCKET_IFNAME is not set"
                                        : "NCCL_SOCKET_IFNAME=" + network)
                                + "); NCCL_DEBUG=INFO shows how far each has come");
    }

    static String shown(List<Integer> ranks) {
        StringJoiner text = new StringJoiner(", ");
        for (int rank : ranks.subList(0, Math.min(SHOWN_RANKS, ranks.size()))) {
            text.add(Integer.toString(rank));
        }
        if (ranks.size() > SHOWN_RANKS) {
            text.add((ranks.size() - SHOWN_RANKS) + " more");
        }
        return text.toString();
    }

    /** A thread that waits for one of its ranks before it has called another waits in vain. */
    private static String groupHint(Member absent) {
        return absent.lastCall() == null
                ? "; one thread that drives several ranks must use Backend.group"
                : "";
    }

    private static String listHint(Member absent) {
        return absent.lastCall() == null
                ? "; one thread that drives several ranks must use Backend.split or"
                        + " Backend.exchangeCounts, which take a list"
                : "";
    }

    private static String state(Member member) {
        if (member.closed) {
            return "has closed";
        }
        CallRecord last = member.lastCall();
        return last == null ? "has called nothing" : "last called " + name(last);
    }

    private static String hint(CallRecord call) {
        if (!call.kind.isPointToPoint()) {
            return "; raise operationTimeout if it is only slow or late";
        }
        return "; two ranks that both "
                + (call.kind == OperationKind.SEND ? "send" : "receive")
                + " first wait for each other: put send and recv in one Backend.group or use"
                + " sendRecv";
    }

    /** A call that meets another thread's. */
    static InvalidArgumentException severalThreads(String operation, Member member) {
        return new InvalidArgumentException(
                operation
                        + ": another thread is using "
                        + member.describe()
                        + "; a communicator belongs to one thread at a time: let one thread issue"
                        + " its operations, or hand it over when its calls have returned; nothing"
                        + " was enqueued");
    }

    static CommunicatorAbortedException aborted(Member member) {
        return new CommunicatorAbortedException(
                "rank "
                        + member.rank
                        + "/"
                        + member.size
                        + " aborted communicator '"
                        + member.clique.name
                        + (member.lastCall() == null
                                ? "' before its first operation"
                                : "' after " + name(member.lastCall()))
                        + "; unfinished work of the ranks of this process was given up; create a"
                        + " new communicator");
    }

    /** What went wrong on a thread of ours, as an exception that users know. */
    static CollectiveException failure(Member member, String doing, Throwable cause) {
        return cause instanceof CollectiveException known
                ? known
                : new RankFailedException(
                        member.rank,
                        doing
                                + " "
                                + member.describe()
                                + " failed: "
                                + cause
                                + "; create a new communicator",
                        cause);
    }

    /** Work that close has waited for. */
    static CollectiveTimeoutException closeTimeout(Member member) {
        for (NcclStream stream : member.streams()) {
            CallRecord call = member.oldestUnpassed(stream);
            if (call != null) {
                return timeout(member, call);
            }
        }
        return new CollectiveTimeoutException(
                "closing "
                        + member.describe()
                        + ": its work was not done within "
                        + Durations.text(member.clique.operationTimeout)
                        + ", last "
                        + name(member.lastCall())
                        + "; it was aborted",
                true);
    }

    /** Ranks that could not be finalized. */
    static CollectiveTimeoutException closeTimeout(Clique clique) {
        String elsewhere = elsewhere(clique);
        return new CollectiveTimeoutException(
                "communicator '"
                        + clique.name
                        + "' was not finalized within "
                        + Durations.text(clique.operationTimeout)
                        + (elsewhere.isEmpty()
                                ? ""
                                : ": look whether "
                                        + elsewhere
                                        + " of other processes closed it too")
                        + "; it was aborted, results that were synchronized are good",
                true);
    }

    /** A line per rank of this process, for the log. */
    static String table(Clique clique) {
        StringBuilder table = new StringBuilder();
        for (Member member : clique.local()) {
            table.append(System.lineSeparator())
                    .append("  rank ")
                    .append(member.rank)
                    .append("/")
                    .append(member.size)
                    .append(" on device ")
                    .append(member.device.ordinal())
                    .append(": ")
                    .append(state(member))
                    .append(member.isInside() ? ", is inside NCCL" : "");
            for (NcclStream stream : member.streams()) {
                CallRecord call = member.oldestUnpassed(stream);
                if (call != null) {
                    table.append(", waits for ")
                            .append(name(call))
                            .append(member.mayHaveForgottenEarlier(call) ? FORGOTTEN : "")
                            .append(" on ")
                            .append(stream);
                }
            }
        }
        return table.toString();
    }
}
