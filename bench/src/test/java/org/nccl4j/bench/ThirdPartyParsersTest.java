package org.nccl4j.bench;

import static org.assertj.core.api.Assertions.assertThat;

import java.util.List;
import java.util.Optional;
import java.util.OptionalDouble;
import java.util.OptionalLong;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;

/**
 * The rules by which published tools read the table: superbenchmark's slice between header and
 * trailer and fields counted from the end, row expressions with one group per column, and the shell
 * pipelines of cluster guides ({@code grep "Avg bus bandwidth" | awk '{print $NF}'}).
 */
final class ThirdPartyParsersTest {

    private static final Pattern ROW =
            Pattern.compile(
                    "^\\s+(\\d+)\\s+(\\d+)\\s+(\\w+)\\s+(\\w+)\\s+(-?\\d+)"
                            + "\\s+([\\d.]+)\\s+([\\d.]+)\\s+([\\d.]+)\\s+(\\S+)"
                            + "\\s+([\\d.]+)\\s+([\\d.]+)\\s+([\\d.]+)\\s+(\\S+)");

    private final CapturedConsole captured = new CapturedConsole();
    private List<String> lines;

    @BeforeEach
    void print() {
        CommandLine.Outcome outcome =
                CommandLine.parse(
                        List.of("all_reduce", "-b", "8", "-e", "1G"),
                        name -> Facts.CPU,
                        captured.console());
        BenchOptions options = ((CommandLine.Run) outcome).options();
        TableReport table = new TableReport(captured.console(), options);
        table.start(Facts.CPU, 8);
        table.devices(List.of(new DeviceLine(0, 0, 1, "node1", 0, "0000:00:00", "A CPU @ 2 GHz")));
        table.columns();
        BusBandwidthMean mean = new BusBandwidthMean();
        for (Row row :
                List.of(
                        Rows.allReduce(8, 10.532, 10.471, 0, 0),
                        Rows.row(
                                Program.ALL_REDUCE,
                                Rows.floatSum(),
                                1048576,
                                8,
                                31.07,
                                OptionalLong.of(2),
                                30.925,
                                OptionalLong.empty()),
                        Rows.allReduce(1073741824, 9987.314, 10012.87, 0, 0))) {
            table.row(row);
            mean.add(row);
        }
        table.footer(
                new Summary(0, mean.meanGBps(), OptionalDouble.empty()),
                Optional.empty(),
                Optional.empty());
        lines = captured.outLines();
    }

    private List<String> rows() {
        return lines.stream().filter(line -> line.matches("^\\s+\\d.*")).toList();
    }

    @Test
    void onlyRowsBeginWithBlanksAndADigit() {
        assertThat(rows()).hasSize(3);
        assertThat(lines.stream().filter(line -> !line.isEmpty() && !line.startsWith("#")))
                .containsExactlyElementsOf(rows());
    }

    @Test
    void aRowHasThirteenFields() {
        for (String row : rows()) {
            assertThat(row.trim().split("\\s+")).hasSize(13);
        }
        String[] fields = rows().get(1).trim().split("\\s+");
        assertThat(fields)
                .containsExactly(
                        "1048576", "262144", "float", "sum", "-1", "31.07", "33.75", "59.06", "2",
                        "30.93", "33.91", "59.34", "N/A");
        assertThat(fields[7]).isEqualTo("59.06");
        assertThat(fields[11]).isEqualTo("59.34");
    }

    @Test
    void theBusBandwidthIsTheSixthFieldFromTheEnd() {
        int header = 0;
        int trailer = 0;
        for (int i = 0; i < lines.size(); i++) {
            if (lines.get(i).contains("out-of-place")) {
                header = i;
            }
            if (lines.get(i).contains("Out of bounds values")) {
                trailer = i;
            }
        }
        double largest = -1;
        for (String line : lines.subList(header + 3, trailer)) {
            String[] fields = line.strip().replaceAll(" +", " ").split(" ");
            assertThat(fields.length).isGreaterThan(10);
            largest = Math.max(largest, Double.parseDouble(fields[fields.length - 6]));
        }
        assertThat(largest).isEqualTo(188.14);
    }

    @Test
    void theHeaderNamesTheFieldsOfTheRows() {
        String header =
                lines.stream()
                        .filter(line -> line.matches("#\\s+size\\s.*"))
                        .findFirst()
                        .orElseThrow();
        List<String> names = List.of(header.substring(1).trim().split("\\s+"));
        assertThat(names).hasSize(13);
        assertThat(names.indexOf("busbw")).isEqualTo(7);
        assertThat(names.lastIndexOf("busbw")).isEqualTo(11);
        assertThat(names.indexOf("time")).isEqualTo(5);
    }

    @Test
    void aRowExpressionFindsEveryColumn() {
        for (String row : rows()) {
            Matcher matcher = ROW.matcher(row);
            assertThat(matcher.find()).isTrue();
            assertThat(matcher.group(3)).isEqualTo("float");
        }
    }

    @Test
    void trailers() {
        String average =
                lines.stream()
                        .filter(l -> l.contains("Avg bus bandwidth"))
                        .findFirst()
                        .orElseThrow();
        assertThat(average).matches("# Avg bus bandwidth    : [\\d.]+ ");
        String[] words = average.trim().split("\\s+");
        assertThat(Double.parseDouble(words[words.length - 1])).isGreaterThan(0);
        assertThat(words[5]).isEqualTo(words[words.length - 1]);
        assertThat(lines).contains("# Out of bounds values : 0 OK");
        assertThat(lines).contains("# Collective test concluded: all_reduce_perf");
    }

    @Test
    void parametersAndDevices() {
        Matcher parameters =
                Pattern.compile(
                                "# nThread (\\d+) nGpus (\\d+) minBytes (\\d+) maxBytes (\\d+) step: (\\S+)")
                        .matcher(captured.out());
        assertThat(parameters.find()).isTrue();
        assertThat(parameters.group(5)).isEqualTo("2(factor)");
        assertThat(captured.out())
                .containsPattern(
                        "#  Rank\\s+0 Group\\s+0 Pid\\s+1 on\\s+node1 device\\s+0"
                                + " \\[0000:00:00\\] A CPU");
    }
}
