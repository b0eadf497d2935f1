package org.nccl4j.nccl;

import static org.assertj.core.api.Assertions.assertThat;

import java.util.List;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.nccl4j.collectives.RankInfo;

@Timeout(30)
final class PlacesTest {
    private static RankInfo on(String host, int rank, int size) {
        return new RankInfo(rank, size, host, 1000 + rank, -1, "any");
    }

    /** Each rank's turn among those of its host, however ranks are spread. */
    @Test
    void countsTheRanksOfTheHost() {
        List<RankInfo> ranks =
                List.of(on("a", 0, 5), on("b", 1, 5), on("a", 2, 5), on("b", 3, 5), on("a", 4, 5));

        assertThat(ranks.stream().map(rank -> Places.deviceFor(rank, ranks, 8)))
                .containsExactly(0, 0, 1, 1, 2);
    }

    /** A process that sees one GPU of its own gets that. */
    @Test
    void wrapsWhereAProcessSeesFewerDevices() {
        List<RankInfo> ranks = List.of(on("a", 0, 3), on("a", 1, 3), on("a", 2, 3));

        assertThat(ranks.stream().map(rank -> Places.deviceFor(rank, ranks, 1)))
                .containsExactly(0, 0, 0);
    }
}
