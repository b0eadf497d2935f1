package org.nccl4j.bench;

import static org.assertj.core.api.Assertions.assertThat;

import java.util.List;
import java.util.OptionalDouble;
import java.util.concurrent.atomic.AtomicLong;
import org.junit.jupiter.api.Test;

/** The end of a run: what it shows, and when. */
final class RunReportTest {

    private final CapturedConsole captured = new CapturedConsole();

    @Test
    void memoryIsThatBeforeTheRanksLeave() {
        BenchOptions options = options("all_reduce -M 1");
        AtomicLong collectiveBytes = new AtomicLong(42);
        RunReport report =
                new RunReport(
                        captured.console(),
                        options,
                        OptionalDouble.empty(),
                        () -> new MemoryUsage(0, 0, collectiveBytes.get()),
                        new Progress(captured.console(), false, options.sweep(), 1, () -> 0));
        report.start();
        report.ran();
        collectiveBytes.set(7);
        assertThat(report.finish()).isEqualTo(ExitCode.OK);
        assertThat(captured.out()).contains("| Collective 42.0 B |");
    }

    private static BenchOptions options(String line) {
        CapturedConsole parsing = new CapturedConsole();
        CommandLine.Outcome outcome =
                CommandLine.parse(List.of(line.split(" ")), name -> Facts.CPU, parsing.console());
        return ((CommandLine.Run) outcome).options();
    }
}
