package org.nccl4j.cpu.schedule;

import static org.assertj.core.api.Assertions.assertThat;

import java.util.regex.Pattern;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;

class SchedulePictureTest {
    private static final Pattern ARROW =
            Pattern.compile("^<line .* marker-end=\"url\\(#head\\)\"/>$");
    private static final Pattern CLOSED_ELEMENT =
            Pattern.compile("<(line|rect) [^<>]*/>|<(text|title|defs)( [^<>]*)?>.*</\\2>");

    @Test
    void theTableShowsStepsAndBytes() {
        String text =
                SchedulePicture.text(
                        ScheduleAlgorithm.RING.schedule(Collective.ALL_REDUCE, 4), 4096, 4);
        assertThat(text)
                .isEqualTo(
                        """
                        all-reduce by ring, 4 ranks, 4096 bytes in 4 chunks: 6 steps
                        chunk>rank: that chunk is sent to that rank; +: and reduced there
                        step      rank 0  rank 1  rank 2  rank 3  most bytes of a rank
                        0         3>1+    0>2+    1>3+    2>0+    1024
                        1         2>1+    3>2+    0>3+    1>0+    1024
                        2         1>1+    2>2+    3>3+    0>0+    1024
                        3         0>1     1>2     2>3     3>0     1024
                        4         3>1     0>2     1>3     2>0     1024
                        5         2>1     3>2     0>3     1>0     1024
                        sent      6144    6144    6144    6144    6144
                        received  6144    6144    6144    6144    6144
                        bytes from rank to rank:
                          0->1: 6144  1->2: 6144  2->3: 6144  3->0: 6144
                        """);
    }

    /** Uneven chunks, ranges of chunks, and blocks with origin and destination. */
    @Test
    void theTableNamesRangesAndBlocks() {
        String text =
                SchedulePicture.text(
                        ScheduleAlgorithm.HALVING_DOUBLING.schedule(Collective.ALL_REDUCE, 4),
                        28,
                        4);
        assertThat(text.lines().skip(3).limit(2))
                .containsExactly(
                        "0         2-3>1+  0-1>0+  2-3>3+  0-1>2+  16",
                        "1         1>2+    3>3+    0>0+    2>1+    8");
        String blocks =
                SchedulePicture.text(
                        ScheduleAlgorithm.BRUCK.schedule(Collective.ALL_TO_ALL, 3), 12, 4);
        assertThat(blocks).contains("0:1>1").contains("2 steps");
    }

    @ParameterizedTest
    @EnumSource(ScheduleAlgorithm.class)
    void thePictureHasAnArrowPerMessage(ScheduleAlgorithm algorithm) {
        for (Collective collective : algorithm.collectives()) {
            Schedule schedule = algorithm.schedule(collective, 6);
            String svg = SchedulePicture.svg(schedule, 4096, 4);
            assertThat(svg).startsWith("<svg xmlns=").endsWith("</svg>\n");
            // Every other element is on a line of its own, and is closed there.
            svg.lines()
                    .skip(1)
                    .filter(line -> !line.equals("</svg>"))
                    .forEach(line -> assertThat(line).matches(CLOSED_ELEMENT));
            long arrows = svg.lines().filter(ARROW.asPredicate()).count();
            long sends = 0;
            for (int rank = 0; rank < 6; rank++) {
                sends +=
                        schedule.program(rank).stream()
                                .filter(action -> action.kind() == Action.Kind.SEND)
                                .count();
            }
            assertThat(arrows).as(schedule.toString()).isEqualTo(sends);
        }
    }
}
