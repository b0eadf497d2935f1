package org.nccl4j.bench;

import java.io.BufferedOutputStream;
import java.io.FileDescriptor;
import java.io.FileOutputStream;
import java.io.IOException;
import java.io.PrintStream;
import java.io.UncheckedIOException;
import java.nio.charset.StandardCharsets;

/**
 * The two output streams. Standard output carries nccl-tests' lines and nothing else; all else goes
 * to standard error. Lines end in a single line feed on every platform and are flushed one by one.
 *
 * <p>Thread safety: each line is written whole; lines of several threads do not mix.
 */
final class Console {

    private final PrintStream out;
    private final PrintStream err;

    Console(PrintStream out, PrintStream err) {
        this.out = out;
        this.err = err;
    }

    /** The process's own streams, in UTF-8 whatever the locale. */
    static Console standard() {
        return new Console(stream(FileDescriptor.out), stream(FileDescriptor.err));
    }

    private static PrintStream stream(FileDescriptor descriptor) {
        FileOutputStream raw = new FileOutputStream(descriptor);
        return new PrintStream(new BufferedOutputStream(raw), false, StandardCharsets.UTF_8);
    }

    /**
     * Writes one line to standard output.
     *
     * @throws UncheckedIOException if standard output is closed: an endless run whose reader went
     *     away must end
     */
    void out(String line) {
        out.print(line + "\n");
        if (out.checkError()) {
            throw new UncheckedIOException(
                    new IOException("standard output was closed; the rest of the table is lost"));
        }
    }

    /** Writes one line to standard error. A closed standard error is of no consequence. */
    void err(String line) {
        err.print(line + "\n");
        err.flush();
    }

    /** Writes part of a line to standard error, for progress that rewrites itself. */
    void errPart(String text) {
        err.print(text);
        err.flush();
    }
}
