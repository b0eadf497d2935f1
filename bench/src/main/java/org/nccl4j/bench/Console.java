package org.nccl4j.bench;

import java.io.BufferedOutputStream;
import java.io.FileDescriptor;
import java.io.FileOutputStream;
import java.io.IOException;
import java.io.OutputStream;
import java.io.PrintStream;
import java.io.UncheckedIOException;
import java.nio.charset.StandardCharsets;
import java.util.Locale;

/**
 * The two output streams. Standard output carries nccl-tests' lines and nothing else; all else goes
 * to standard error. Lines end in a single line feed on every platform and are flushed one by one.
 *
 * <p>Thread safety: each line is written whole; lines of several threads do not mix.
 */
final class Console {

    private final OutputStream out;
    private final PrintStream err;

    Console(OutputStream out, PrintStream err) {
        this.out = out;
        this.err = err;
    }

    /** The process's own streams, in UTF-8 whatever the locale. */
    static Console standard() {
        return new Console(
                new FileOutputStream(FileDescriptor.out),
                new PrintStream(
                        new BufferedOutputStream(new FileOutputStream(FileDescriptor.err)),
                        false,
                        StandardCharsets.UTF_8));
    }

    /**
     * Writes one line to standard output.
     *
     * @throws UncheckedIOException if it cannot be written: an endless run whose reader went away
     *     must end, see {@link #isReaderGone}
     */
    void out(String line) {
        byte[] bytes = (line + "\n").getBytes(StandardCharsets.UTF_8);
        try {
            synchronized (out) {
                out.write(bytes);
                out.flush();
            }
        } catch (IOException failed) {
            throw new UncheckedIOException(failed);
        }
    }

    /**
     * Whether standard output was a pipe whose reader went away, so that nobody misses the rest; a
     * full disk is not. Only the system's text tells them apart; in a language that this does not
     * know the user is told, which does no harm.
     */
    static boolean isReaderGone(UncheckedIOException failed) {
        String reason = String.valueOf(failed.getCause().getMessage());
        return reason.toLowerCase(Locale.ROOT).contains("broken pipe");
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
