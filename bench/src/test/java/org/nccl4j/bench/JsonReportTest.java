package org.nccl4j.bench;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import java.io.IOException;
import java.io.OutputStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Clock;
import java.time.Instant;
import java.time.ZoneOffset;
import java.util.Arrays;
import java.util.List;
import java.util.Optional;
import java.util.OptionalDouble;
import java.util.OptionalLong;
import java.util.concurrent.atomic.AtomicInteger;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import tools.jackson.core.JacksonException;
import tools.jackson.databind.JsonNode;
import tools.jackson.databind.json.JsonMapper;

/** The file of -J: its bytes, its name, and what is left of it when a run fails. */
final class JsonReportTest {

    private static final BackendFacts NCCL =
            new BackendFacts("nccl", 22707, 23007, "2.30.7", true, true, false);
    private static final Clock CLOCK =
            Clock.fixed(Instant.parse("2026-01-31T09:05:00Z"), ZoneOffset.UTC);
    private static final DeviceLine H100 =
            new DeviceLine(0, 0, 4711, "node1", 0, "0000:1b:00", "NVIDIA H100 80GB HBM3");

    @TempDir private Path folder;

    private final CapturedConsole captured = new CapturedConsole();

    private static BenchOptions options(String line) {
        CapturedConsole parsing = new CapturedConsole();
        CommandLine.Outcome outcome =
                CommandLine.parse(Arrays.asList(line.split(" ")), name -> NCCL, parsing.console());
        assertThat(outcome).as(parsing.err()).isInstanceOf(CommandLine.Run.class);
        return ((CommandLine.Run) outcome).options();
    }

    private Path file() {
        return folder.resolve("r.json");
    }

    private JsonReport open() {
        return JsonReport.open(file().toString(), CLOCK, captured.console()).orElseThrow();
    }

    private String text() throws IOException {
        return Files.readString(file());
    }

    private JsonNode read() throws IOException {
        return JsonMapper.shared().readTree(text());
    }

    @Test
    void theWholeFile() throws IOException {
        BenchOptions options =
                options("allreduce -b 1M -e 1M -i 1M -g 8 -I 1 -K 1 -n 4 -J a/r.json");
        Row row =
                Rows.with(
                        Rows.allReduce(1 << 20, 31.07, 30.925, 0, 0),
                        IterationTimes.of(List.of(List.of(40.5, 30.0, 32.0, 31.0)), 1),
                        IterationTimes.of(List.of(List.of(30.5, 30.0, 32.0, 31.0)), 1));
        BusBandwidthMean mean = new BusBandwidthMean();
        mean.add(row);
        JsonReport report = open();
        report.start(options.commandLine(), List.of("NCCL_DEBUG=WARN"), NCCL);
        report.config(options, 8, List.of(H100, H100));
        report.row(row, options);
        report.finish(new Summary(0, mean.meanGBps(), OptionalDouble.empty()), Optional.empty());
        String iterations =
                "\"skipped_iterations\":1,\"min_us\":30.000000,\"max_us\":32.000000,"
                        + "\"avg_us\":31.000000,\"p50_us\":31.000000,\"p95_us\":32.000000,"
                        + "\"p99_us\":32.000000,\"stdev_us\":0.816497,\"cv_pct\":2.633860,";
        String device =
                "{\"rank\":0,\"group\":0,\"pid\":4711,\"hostname\":\"node1\",\"device\":0,"
                        + "\"device_hex\":\"0000:1b:00\","
                        + "\"device_info\":\"NVIDIA H100 80GB HBM3\"}";
        assertThat(text())
                .isEqualTo(
                        "{\"version\":3,\"start_time\":\"2026-01-31 09:05:00\","
                                + "\"args\":[\"all_reduce_perf\",\"-b\",\"1M\",\"-e\",\"1M\",\"-i\","
                                + "\"1M\",\"-g\",\"8\",\"-I\",\"1\",\"-K\",\"1\",\"-n\",\"4\",\"-J\","
                                + "\"a\\/r.json\"],"
                                + "\"env\":[\"NCCL_DEBUG=WARN\"],\"nccl_version\":23007,"
                                + "\"config\":{\"nthreads\":1,\"ngpus\":8,\"minimum_bytes\":1048576,"
                                + "\"maximum_bytes\":1048576,\"step_bytes\":1048576,"
                                + "\"warmup_iters\":1,\"iterations\":4,\"aggregated_iterations\":1,"
                                + "\"validation\":1,\"graph\":0,\"blocking_collectives\":\"false\","
                                + "\"per_iter_timing\":\"true\",\"per_iter_skip\":1,"
                                + "\"parallel_init\":\"false\",\"devices\":["
                                + device
                                + ","
                                + device
                                + "]},"
                                + "\"results\":[{\"size\":1048576,\"count\":262144,"
                                + "\"type\":\"float\",\"redop\":\"sum\",\"root\":\"    -1\","
                                + "\"out_of_place\":{\"time\":31.070000,\"alg_bw\":33.748825,"
                                + "\"bus_bw\":59.060444,\"nwrong\":0.000000},"
                                + "\"out_of_place_per_iter\":{"
                                + iterations
                                + "\"times_us\":[40.500000,30.000000,32.000000,31.000000]},"
                                + "\"in_place\":{\"time\":30.925000,\"alg_bw\":33.907065,"
                                + "\"bus_bw\":59.337365,\"nwrong\":0.000000},"
                                + "\"in_place_per_iter\":{"
                                + iterations
                                + "\"times_us\":[30.500000,30.000000,32.000000,31.000000]},"
                                + "\"actual_iterations\":4,\"experiment_name\":\"\"}],"
                                + "\"out_of_bounds\":{\"count\":0,\"okay\":\"true\"},"
                                + "\"average_bus_bandwidth\":{\"bandwidth\":59.198904,"
                                + "\"okay\":\"unchecked\"},"
                                + "\"errors\":[\"\"],"
                                + "\"end_time\":\"2026-01-31 09:05:00\"}");
    }

    @Test
    void otherValues() throws IOException {
        BenchOptions options = options("sendrecv -b 8 -e 8 -C 1 -z 3 -p 1");
        Row row =
                Rows.row(
                        Program.SENDRECV,
                        Rows.floatSum(),
                        8,
                        2,
                        1.0 / 3,
                        OptionalLong.of(1234567),
                        Double.POSITIVE_INFINITY,
                        OptionalLong.empty());
        JsonReport report = open();
        report.start(options.commandLine(), List.of(), NCCL);
        report.config(options, 2, List.of(H100));
        report.row(
                Rows.with(
                        row,
                        IterationTimes.of(List.of(List.of(1.0), List.of(2.0)), 0),
                        IterationTimes.of(List.of(List.of(1.0)), 0)),
                options);
        report.finish(
                new Summary(2, Double.NaN, OptionalDouble.of(1)), Optional.of("system \"error\""));
        assertThat(text())
                .contains(
                        "\"step_factor\":2,",
                        "\"blocking_collectives\":\"true\"",
                        "\"parallel_init\":\"true\"",
                        "{\"cpu_time\":0.333333,",
                        "\"nwrong\":1234567.000000}",
                        "{\"cpu_time\":\"inf\",",
                        "\"nwrong\":null}",
                        "\"times_us\":[2.000000],"
                                + "\"per_process_max_times_us\":[[1.000000],[2.000000]]}",
                        "\"out_of_bounds\":{\"count\":2,\"okay\":\"false\"}",
                        "{\"bandwidth\":\"nan\",\"okay\":\"true\"}",
                        "\"errors\":[\"system \\\"error\\\"\"]");
        JsonNode results = read().get("results").get(0);
        assertThat(results.get("in_place_per_iter").has("per_process_max_times_us")).isFalse();
    }

    @Test
    void stringsAreEscapedAndCut() throws IOException {
        JsonReport report = open();
        report.start(
                List.of(
                        "a/b\\c\"d\te\nf",
                        "cut here\u0007never seen",
                        "Größe",
                        "x".repeat(3000),
                        "x".repeat(2046) + "/",
                        ""),
                List.of(),
                NCCL);
        report.close();
        assertThat(text()).contains("[\"a\\/b\\\\c\\\"d\\te\\nf\",\"cut here\",\"Gr\",");
        JsonNode args = read().get("args");
        assertThat(args.get(3).asString()).hasSize(2047);
        assertThat(args.get(4).asString()).hasSize(2046);
        assertThat(args.get(5).asString()).isEmpty();
    }

    @Test
    void aRunThatFailsAmongItsResultsHasNoEnd() throws IOException {
        BenchOptions options = options("all_reduce");
        JsonReport report = open();
        report.start(options.commandLine(), List.of(), NCCL);
        report.config(options, 1, List.of(H100));
        report.close();
        assertThat(text()).endsWith(",\"results\":[]}");
        assertThat(read().has("end_time")).isFalse();
    }

    @Test
    void aRunThatFailsBeforeItsConfigurationHasOne() throws IOException {
        JsonReport report = open();
        report.start(List.of("all_reduce_perf"), List.of(), NCCL);
        report.close();
        assertThat(read().has("end_time")).isTrue();
        assertThat(read().has("config")).isFalse();
    }

    @Test
    void everyPrefixThatWasClosedIsValid() throws IOException {
        BenchOptions options = options("all_reduce");
        for (int parts = 1; parts <= 5; parts++) {
            Path path = folder.resolve("part" + parts + ".json");
            JsonReport report =
                    JsonReport.open(path.toString(), CLOCK, captured.console()).orElseThrow();
            report.start(options.commandLine(), List.of(), NCCL);
            if (parts > 1) {
                report.config(options, 1, List.of(H100));
            }
            for (int row = 2; row < parts; row++) {
                report.row(Rows.allReduce(8, 1, 1, 0, 0), options);
            }
            report.close();
            JsonNode json = JsonMapper.shared().readTree(Files.readString(path));
            int rows = json.has("results") ? json.get("results").size() : 0;
            assertThat(rows).isEqualTo(Math.max(0, parts - 2));
        }
    }

    @Test
    void rowsAreOnDiskAsSoonAsTheyAreThere() throws IOException {
        BenchOptions options = options("all_reduce");
        JsonReport report = open();
        report.start(options.commandLine(), List.of(), NCCL);
        report.config(options, 1, List.of(H100));
        report.row(Rows.allReduce(8, 1, 1, 0, 0), options);
        assertThat(text()).endsWith("\"experiment_name\":\"\"}");
        report.close();
    }

    @Test
    void nothingIsWrittenOnceItIsClosed() throws IOException {
        BenchOptions options = options("all_reduce");
        JsonReport report = open();
        report.start(options.commandLine(), List.of(), NCCL);
        report.config(options, 1, List.of(H100));
        report.finish(new Summary(0, 1, OptionalDouble.empty()), Optional.empty());
        String text = text();
        report.row(Rows.allReduce(8, 1, 1, 0, 0), options);
        report.finish(new Summary(0, 1, OptionalDouble.empty()), Optional.empty());
        report.close();
        assertThat(text()).isEqualTo(text);
    }

    @Test
    void noExistingFileIsTouched() throws IOException {
        Files.writeString(file(), "precious");
        open().close();
        open().close();
        assertThat(text()).isEqualTo("precious");
        assertThat(captured.outLines())
                .containsExactly(
                        "# Writing JSON output to " + file() + ".0",
                        "# Writing JSON output to " + file() + ".1");
    }

    @Test
    void aFileThatCannotBeCreatedIsSkipped() {
        String path = folder.resolve("none/r.json").toString();
        assertThat(JsonReport.open(path, CLOCK, captured.console())).isEmpty();
        assertThat(captured.out())
                .isEqualTo("# skipping json output; " + path + " not accessible\n");
        assertThat(captured.err()).startsWith("bench: -J " + path + ": ");
    }

    @Test
    void aFullDiskIsReportedOnceAndTheFileClosed() {
        AtomicInteger closed = new AtomicInteger();
        OutputStream full =
                new OutputStream() {
                    @Override
                    public void write(int b) throws IOException {
                        throw new IOException("No space left on device");
                    }

                    @Override
                    public void close() {
                        closed.incrementAndGet();
                    }
                };
        JsonReport report = new JsonReport(full, CLOCK);
        assertThatThrownBy(() -> report.start(List.of("all_reduce_perf"), List.of(), NCCL))
                .isInstanceOf(JacksonException.class)
                .hasMessageContaining("No space left on device");
        report.finish(new Summary(0, 1, OptionalDouble.empty()), Optional.empty());
        report.close();
        assertThat(closed).hasValue(1);
    }
}
