package org.nccl4j.nccl;

import java.util.ArrayList;
import java.util.List;
import java.util.Optional;
import org.nccl4j.collectives.Communicator;
import org.nccl4j.collectives.InvalidArgumentException;
import org.nccl4j.collectives.Pending;
import org.nccl4j.collectives.spi.ArgumentChecks;

/**
 * What one thread calls for all ranks that it drives.
 *
 * <p>Thread safety: as the communicators.
 */
final class ListForms {
    private ListForms() {}

    static Pending<List<Optional<Communicator>>> split(
            List<Communicator> communicators, int[] colors, int[] keys) {
        List<NcclCommunicator> ranks = ranksOfOne("split", communicators);
        ArgumentChecks.given("split", "array of colors", colors);
        ArgumentChecks.given("split", "array of keys", keys);
        if (colors.length != ranks.size() || keys.length != ranks.size()) {
            throw new InvalidArgumentException(
                    "split: "
                            + ranks.size()
                            + " communicators need as many colors and keys, got "
                            + colors.length
                            + " and "
                            + keys.length
                            + "; nothing has changed");
        }
        List<long[]> given = new ArrayList<>();
        for (int i = 0; i < colors.length; i++) {
            NcclCommunicator.requireColor(colors[i]);
            given.add(new long[] {colors[i], keys[i]});
        }
        HostCall call = HostCall.post(ranks, OperationKind.SPLIT, given);
        return new HostPending<>(call, () -> call.isSplit() ? children(call, ranks.size()) : null);
    }

    private static List<Optional<Communicator>> children(HostCall call, int ranks) {
        List<Optional<Communicator>> children = new ArrayList<>();
        for (int i = 0; i < ranks; i++) {
            children.add(Optional.ofNullable(call.child(i)));
        }
        return List.copyOf(children);
    }

    static Pending<long[][]> exchangeCounts(
            List<Communicator> communicators, long[][] sendCountsElements) {
        List<NcclCommunicator> ranks = ranksOfOne("exchangeCounts", communicators);
        ArgumentChecks.given("exchangeCounts", "array of counts", sendCountsElements);
        if (sendCountsElements.length != ranks.size()) {
            throw new InvalidArgumentException(
                    "exchangeCounts: "
                            + ranks.size()
                            + " communicators need as many rows of counts, got "
                            + sendCountsElements.length
                            + "; nothing has changed");
        }
        List<long[]> given = new ArrayList<>();
        for (int i = 0; i < ranks.size(); i++) {
            ranks.get(i).requireCounts(sendCountsElements[i]);
            given.add(sendCountsElements[i].clone());
        }
        HostCall call = HostCall.post(ranks, OperationKind.EXCHANGE_COUNTS, given);
        return new HostPending<>(call, call::counts);
    }

    static void closeAll(List<Communicator> communicators) {
        ArgumentChecks.given("closeAll", "list of communicators", communicators);
        List<NcclCommunicator> mine = new ArrayList<>();
        for (Communicator communicator : communicators) {
            NcclCommunicator each = NcclCommunicator.of("closeAll", communicator);
            OpenGroup.refuseIfTouched(each.member());
            mine.add(each);
        }
        NcclCommunicator.closeAll(mine);
    }

    /** Different ranks of one communicator, or a refusal. */
    private static List<NcclCommunicator> ranksOfOne(
            String operation, List<Communicator> communicators) {
        ArgumentChecks.given(operation, "list of communicators", communicators);
        List<NcclCommunicator> ranks = new ArrayList<>();
        for (Communicator communicator : communicators) {
            NcclCommunicator mine = NcclCommunicator.of(operation, communicator);
            OpenGroup.refuseIfTouched(mine.member());
            if (!ranks.isEmpty() && ranks.getFirst().member().clique != mine.member().clique) {
                throw new InvalidArgumentException(
                        operation
                                + ": "
                                + ranks.getFirst()
                                + " and "
                                + mine
                                + " are not ranks of one communicator; nothing has changed");
            }
            if (ranks.contains(mine)) {
                throw new InvalidArgumentException(
                        operation + ": " + mine + " is given twice; nothing has changed");
            }
            ranks.add(mine);
        }
        if (ranks.isEmpty()) {
            throw new InvalidArgumentException(operation + ": no communicators given");
        }
        return ranks;
    }
}
