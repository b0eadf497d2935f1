package org.nccl4j.bench;

import java.io.ByteArrayOutputStream;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.List;

/** A console whose lines can be read back. */
final class CapturedConsole {

    private final ByteArrayOutputStream out = new ByteArrayOutputStream();
    private final ByteArrayOutputStream err = new ByteArrayOutputStream();
    private final Console console = new Console(stream(out), stream(err));

    private static PrintStream stream(ByteArrayOutputStream bytes) {
        return new PrintStream(bytes, false, StandardCharsets.UTF_8);
    }

    Console console() {
        return console;
    }

    /** Where standard error is captured, for a console with another standard output. */
    PrintStream errStream() {
        return stream(err);
    }

    /** A byte for standard output, from a stream in between. */
    void write(int b) {
        out.write(b);
    }

    /** Standard output as it was written. */
    String out() {
        return out.toString(StandardCharsets.UTF_8);
    }

    /** Standard error as it was written. */
    String err() {
        return err.toString(StandardCharsets.UTF_8);
    }

    List<String> outLines() {
        return out().lines().toList();
    }

    List<String> errLines() {
        return err().lines().toList();
    }
}
