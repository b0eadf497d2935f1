package org.nccl4j.bench;

import static org.assertj.core.api.Assertions.assertThat;

import org.junit.jupiter.api.Test;

final class ProgressTest {

    private static final String ERASED = "\r\u001b[K";

    private final CapturedConsole console = new CapturedConsole();
    private long now = 5_000_000_000L;

    private Progress progress(boolean terminal, int cycles, int factor) {
        BenchOptions.Sweep sweep =
                new BenchOptions.Sweep(1 << 20, 4 << 20, 1 << 20, factor, cycles);
        return new Progress(console.console(), terminal, sweep, 1, () -> now);
    }

    private void starting(Progress progress, long sizeBytes, Placement placement) {
        Shape shape = Program.ALL_REDUCE.shape(sizeBytes, ElementType.FLOAT, 2);
        progress.starting(new RowPlan(Rows.floatSum(), sizeBytes, shape, null), placement);
    }

    @Test
    void aLongSweepSaysWhatRunsAndHowLongItTakes() {
        Progress progress = progress(true, 1, 2);
        starting(progress, 1 << 20, Placement.OUT_OF_PLACE);
        now += 2_000_000_000L;
        starting(progress, 1 << 20, Placement.IN_PLACE);
        assertThat(console.err()).as("nothing in the first seconds").isEmpty();
        now += 2_000_000_000L;
        starting(progress, 2 << 20, Placement.OUT_OF_PLACE);
        // 2.5 of 15.5 MiB took 4 s, fixed costs of a quarter MiB per cell included.
        String first = "bench: 2097152 B float sum out-of-place, 16 %, about 21 s left";
        assertThat(console.err()).isEqualTo(first);
        now += 1_000_000_000L;
        starting(progress, 2 << 20, Placement.IN_PLACE);
        assertThat(console.err())
                .startsWith(first + ERASED + "bench: 2097152 B float sum in-place");
        progress.erase();
        assertThat(console.err()).endsWith(" left" + ERASED);
        int length = console.err().length();
        progress.erase();
        assertThat(console.err()).hasSize(length);
        assertThat(console.out()).isEmpty();
    }

    @Test
    void stepsAreWeighedWithoutWalkingThem() {
        Progress progress = progress(true, 1, 1);
        starting(progress, 1 << 20, Placement.OUT_OF_PLACE);
        starting(progress, 1 << 20, Placement.IN_PLACE);
        now += 4_000_000_000L;
        starting(progress, 2 << 20, Placement.OUT_OF_PLACE);
        // 2.5 of 22 MiB: rows of 1, 2, 3 and 4 MiB.
        assertThat(console.err()).contains(", 11 %, ");
    }

    @Test
    void anEndlessRunHasNoEnd() {
        Progress progress = progress(true, 0, 2);
        starting(progress, 1 << 20, Placement.OUT_OF_PLACE);
        now += 4_000_000_000L;
        starting(progress, 1 << 20, Placement.IN_PLACE);
        assertThat(console.err()).endsWith(", running for 4 s until stopped");
    }

    @Test
    void nothingIsShownWhereNobodyLooks() {
        Progress progress = progress(false, 1, 2);
        starting(progress, 1 << 20, Placement.OUT_OF_PLACE);
        now += 60_000_000_000L;
        starting(progress, 1 << 20, Placement.IN_PLACE);
        progress.erase();
        assertThat(console.err()).isEmpty();
    }
}
