package org.nccl4j.nccl;

import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Optional;
import java.util.function.Supplier;
import org.nccl4j.collectives.CollectiveException;
import org.nccl4j.collectives.MismatchException;
import org.nccl4j.collectives.RankFailedException;
import org.nccl4j.collectives.Store;
import org.nccl4j.collectives.WaitInterruptedException;

/**
 * Compares what the ranks of a communicator call, through a store that all of them see, before
 * anything goes to NCCL, which compares nothing. Each rank posts what it is about to do and waits
 * for the others. Keys are the communicator's fingerprint, the operation's number and the rank; as
 * a store cannot delete, it grows by a line per operation and rank: this is for debugging.
 *
 * <p>Thread safety: as the rank's communicator; host calls may wait on threads of their own.
 */
final class ConsistencyCheck {
    /** How long one look into the store lasts, before there is another look at the rest. */
    private static final Duration GLANCE = Duration.ofMillis(5);

    private final Member member;
    private final Store store;
    private final String prefix;

    ConsistencyCheck(Member member, Store store) {
        this.member = member;
        this.store = store;
        this.prefix = "nccl4j/check/" + member.clique.fingerprint + "/";
    }

    /** An operation that this rank has posted. */
    final class Posted {
        private final long number;
        private final Signature signature;

        /** Whether it moves nothing and so waits for nobody. */
        private final boolean isEmpty;

        private Posted(long number, Signature signature, boolean isEmpty) {
            this.number = number;
            this.signature = signature;
            this.isEmpty = isEmpty;
        }

        /**
         * Waits for the others, and compares.
         *
         * @param startNanos since when it has waited
         * @throws MismatchException if the ranks disagree; the communicator has failed
         * @throws WaitInterruptedException if the thread was interrupted; nothing has changed
         */
        void await(long startNanos) {
            Clique clique = member.clique;
            List<Integer> missing = new ArrayList<>(peers(signature));
            while (true) {
                CollectiveException cause = clique.cause();
                if (cause != null) {
                    throw cause.forThisThread();
                }
                missing.removeIf(rank -> compare(this, rank));
                if (missing.isEmpty() && signature.kind() == OperationKind.ALL_TO_ALL_V) {
                    comparePairs(this);
                }
                if (missing.isEmpty()
                        || isEmpty && signature.kind() != OperationKind.ALL_TO_ALL_V) {
                    return;
                }
                get(prefix + "mismatch", Duration.ZERO)
                        .ifPresent(told -> {
                            throw failed(
                                    new MismatchException(
                                            new String(told, StandardCharsets.UTF_8)));
                        });
                long leftNanos = clique.timeoutNanos - (System.nanoTime() - startNanos);
                if (leftNanos <= 0) {
                    throw failed(Wording.notCalled(member, signature, number, missing));
                }
                Duration left = Duration.ofNanos(leftNanos);
                get(
                        otherKey(signature, number, missing.getFirst()),
                        left.compareTo(GLANCE) < 0 ? left : GLANCE);
            }
        }
    }

    /** Tells the other ranks what this one is about to call. */
    Posted post(long number, Signature signature, boolean isEmpty) {
        byte[] value = signature.toBytes();
        String key = ownKey(signature, number);
        if (!fromStore(() -> store.setIfAbsent(key, value))) {
            // The same call again, after an interrupt or a refusal; the others have seen the first.
            byte[] earlier = get(key, Duration.ZERO).orElse(value);
            if (!Arrays.equals(earlier, value)) {
                throw failed(Wording.changed(member, number, signature(key, earlier), signature));
            }
        }
        return new Posted(number, signature, isEmpty);
    }

    /** Whose calls must agree with it. */
    private List<Integer> peers(Signature signature) {
        if (signature.kind().isPointToPoint()) {
            return List.of(signature.root());
        }
        List<Integer> others = new ArrayList<>();
        for (int rank = 0; rank < member.size; rank++) {
            if (rank != member.rank) {
                others.add(rank);
            }
        }
        return others;
    }

    /** Whether a rank has called, and the same. */
    private boolean compare(Posted mine, int rank) {
        String key = otherKey(mine.signature, mine.number, rank);
        Optional<byte[]> value = get(key, Duration.ZERO);
        if (value.isEmpty()) {
            return false;
        }
        Signature other = signature(key, value.get());
        if (!mine.signature.agreesWith(other)) {
            throw mismatch(Wording.mismatch(member, mine.number, mine.signature, rank, other));
        }
        return true;
    }

    /**
     * Compares what each rank sends to each with what that expects: also what does not concern this
     * rank, so that all of them are told.
     */
    private void comparePairs(Posted mine) {
        List<Signature> calls = new ArrayList<>();
        for (int rank = 0; rank < member.size; rank++) {
            String key = collectiveKey(mine.number, rank);
            calls.add(
                    rank == member.rank
                            ? mine.signature
                            : signature(key, get(key, Duration.ZERO).orElseThrow()));
        }
        for (int from = 0; from < member.size; from++) {
            for (int to = 0; to < member.size; to++) {
                long sent = calls.get(from).sendCounts().get(to);
                long expected = calls.get(to).recvCounts().get(from);
                if (sent != expected) {
                    throw mismatch(
                            Wording.pairMismatch(member, mine.number, from, to, sent, expected));
                }
            }
        }
    }

    /** Lets ranks know that do not look at this operation any more, or wait for another one. */
    private CollectiveException mismatch(MismatchException mismatch) {
        byte[] message = mismatch.getMessage().getBytes(StandardCharsets.UTF_8);
        fromStore(() -> store.setIfAbsent(prefix + "mismatch", message));
        return failed(mismatch);
    }

    /** Where this rank posts its call. */
    private String ownKey(Signature call, long number) {
        return switch (call.kind()) {
            case SEND -> pairKey(member.rank, call.root(), number, OperationKind.SEND);
            case RECV -> pairKey(call.root(), member.rank, number, OperationKind.RECV);
            default -> collectiveKey(number, member.rank);
        };
    }

    /** Where another rank posts the call that is to agree with this one's. */
    private String otherKey(Signature call, long number, int rank) {
        return switch (call.kind()) {
            case SEND -> pairKey(member.rank, call.root(), number, OperationKind.RECV);
            case RECV -> pairKey(call.root(), member.rank, number, OperationKind.SEND);
            default -> collectiveKey(number, rank);
        };
    }

    private String collectiveKey(long number, int rank) {
        return prefix + number + "/" + rank;
    }

    private String pairKey(int sender, int receiver, long number, OperationKind side) {
        return prefix + sender + "-" + receiver + "/" + number + "/" + side.operation();
    }

    private Signature signature(String key, byte[] value) {
        try {
            return Signature.of(value);
        } catch (IllegalArgumentException e) {
            throw failed(
                    new MismatchException(
                            "the store of the consistency check of "
                                    + member.describe()
                                    + " holds no operation under '"
                                    + key
                                    + "' but '"
                                    + new String(value, StandardCharsets.UTF_8)
                                    + "'; use one version of this library on all ranks, and create"
                                    + " a new communicator",
                            e));
        }
    }

    private Optional<byte[]> get(String key, Duration timeout) {
        return fromStore(() -> store.get(key, timeout));
    }

    /** A store that fails ends the communicator: without it nobody knows what the others do. */
    private <T> T fromStore(Supplier<T> access) {
        try {
            return access.get();
        } catch (WaitInterruptedException e) {
            throw e;
        } catch (CollectiveException e) {
            throw failed(e);
        } catch (RuntimeException e) {
            throw failed(
                    new RankFailedException(
                            member.rank,
                            "the store of the consistency check threw on "
                                    + member.describe()
                                    + ": "
                                    + e
                                    + "; look at the store, and create a new communicator",
                            e));
        }
    }

    /** Fails the communicator, and says what to throw. */
    private CollectiveException failed(CollectiveException failure) {
        member.clique.fail(failure);
        CollectiveException cause = member.clique.cause();
        return cause == null ? failure : cause.forThisThread();
    }
}
