package org.nccl4j.cpu;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import org.nccl4j.collectives.DataType;
import tools.jackson.databind.JsonNode;
import tools.jackson.databind.json.JsonMapper;

class TraceWriterTest {
    private final JoinedOperation operation =
            new TestOperation(OperationKind.ALL_REDUCE, 4, DataType.INT32, 8, -1);

    @TempDir private Path folder;

    @Test
    void writesALinePerStep() throws IOException {
        Path file = folder.resolve("trace.jsonl");
        TraceWriter trace = TraceWriter.open(file, "world");
        trace.sent(operation, 2, 3, 0, 1, 262144, 1_000_000_000_000L);
        trace.close();
        assertThat(Files.readString(file))
                .isEqualTo(
                        "{\"comm\":\"world\",\"op\":\"allReduce\",\"seq\":7,\"step\":2,\"rank\":3,"
                                + "\"peer\":0,\"chunk\":1,\"offset\":262144,"
                                + "\"bytes\":1000000000000}\n");
    }

    @Test
    void anyNameGivesValidJson() throws IOException {
        Path file = folder.resolve("trace.jsonl");
        String name = "a \"quoted\" \\ name,\n\u0001 f\u00fcr \u00fcber 200 ".repeat(20);
        try (TraceWriter trace = TraceWriter.open(file, name)) {
            trace.sent(operation, 0, 0, 1, 0, 0, 0);
        }
        JsonNode line = new JsonMapper().readTree(Files.readString(file));
        assertThat(line.get("comm").asString()).isEqualTo(name);
        assertThat(line.get("bytes").asLong()).isZero();
    }

    @Test
    void replacesTheFileOnceAndSharesItAfterwards() throws IOException {
        Path file = folder.resolve("trace.jsonl");
        Files.writeString(file, "something older\n");
        TraceWriter first = TraceWriter.open(file, "first");
        TraceWriter second = TraceWriter.open(folder.resolve(".").resolve("trace.jsonl"), "second");
        first.sent(operation, 0, 0, 1, 0, 0, 4);
        second.sent(operation, 0, 0, 1, 0, 0, 4);
        first.close();
        first.close();
        assertThat(names(file)).containsExactly("first", "second");
        second.sent(operation, 1, 0, 1, 0, 0, 4);
        second.close();
        try (TraceWriter third = TraceWriter.open(file, "third")) {
            third.sent(operation, 0, 0, 1, 0, 0, 4);
        }
        assertThat(names(file)).containsExactly("first", "second", "second", "third");
    }

    @Test
    void aPartOpensTheFileWhenItWritesAndTellsAtCloseThatItCouldNot() throws IOException {
        Path file = Files.createDirectory(folder.resolve("sub")).resolve("trace.jsonl");
        TraceWriter whole = TraceWriter.open(file, "whole");
        TraceWriter part = whole.forCommunicator("part");
        TraceWriter late = whole.forCommunicator("late");
        whole.close();
        part.sent(operation, 0, 0, 1, 0, 0, 4);
        part.close();
        part.sent(operation, 1, 0, 1, 0, 0, 4);
        assertThat(names(file)).containsExactly("part");
        Files.delete(file);
        Files.delete(file.getParent());
        late.sent(operation, 0, 0, 1, 0, 0, 4);
        assertThatThrownBy(late::close)
                .isInstanceOf(IOException.class)
                .hasMessageStartingWith("trace " + file + " is incomplete: ");
        // One that has not written needs no file.
        whole.forCommunicator("silent").close();
    }

    @Test
    void aFileThatCannotBeWrittenIsRefused() {
        assertThatThrownBy(() -> TraceWriter.open(folder.resolve("none/trace.jsonl"), "world"))
                .isInstanceOf(IOException.class);
    }

    @Test
    void aFullDiskIsReportedAtClose() throws IOException {
        Path full = Path.of("/dev/full");
        assumeTrue(Files.exists(full), "unsupported: no /dev/full here");
        TraceWriter trace = TraceWriter.open(full, "world");
        for (int i = 0; i < 10_000; i++) {
            trace.sent(operation, 0, 0, 1, 0, 0, 4);
        }
        assertThatThrownBy(trace::close)
                .isInstanceOf(IOException.class)
                .hasMessageContaining("trace /dev/full is incomplete: ")
                .hasMessageContaining("collectives themselves were not affected");
    }

    private static List<String> names(Path file) throws IOException {
        JsonMapper mapper = new JsonMapper();
        return Files.readAllLines(file).stream()
                .map(line -> mapper.readTree(line).get("comm").asString())
                .toList();
    }
}
