package org.nccl4j.cpu;

import java.io.BufferedOutputStream;
import java.io.Closeable;
import java.io.IOException;
import java.io.OutputStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.util.Arrays;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;

/**
 * Writes one communicator's steps to a file, a JSON object per line:
 *
 * <pre>{@code
 * {"comm":"world","op":"allReduce","seq":3,"step":0,"rank":1,"peer":2,"chunk":0,"offset":0,"bytes":256}
 * }</pre>
 *
 * <p>Communicators of one process that name the same file share it. The first one in the process
 * replaces what was there; later ones append. Writing never fails a collective: the first I/O error
 * ends the trace and is reported by {@link #close}.
 *
 * <p>Thread safety: any thread may write; lines are never mixed.
 */
final class TraceWriter implements StepTrace, Closeable {
    private static final Map<Path, Sink> SINKS = new ConcurrentHashMap<>();

    private enum State {
        /** Has not written anything, and holds no file. */
        FRESH,
        OPEN,
        CLOSED
    }

    private final Sink sink;
    private final byte[] prefix;

    /** Guarded by the sink. */
    private State state = State.FRESH;

    private TraceWriter(Sink sink, String communicator) {
        this.sink = sink;
        this.prefix =
                ("{\"comm\":\"" + escape(communicator) + "\",\"op\":\"")
                        .getBytes(StandardCharsets.UTF_8);
    }

    /**
     * Opens the file for a communicator.
     *
     * @param file where to write
     * @param communicator its name
     * @return the trace, to be closed with the communicator
     * @throws IOException if the file cannot be written
     */
    static TraceWriter open(Path file, String communicator) throws IOException {
        Path key = file.toAbsolutePath().normalize();
        TraceWriter trace = new TraceWriter(SINKS.computeIfAbsent(key, Sink::new), communicator);
        trace.sink.openFor(trace);
        return trace;
    }

    /**
     * A trace of another communicator in the same file. It opens the file if and when it writes, so
     * that this touches no file.
     *
     * @param communicator its name
     * @return the trace, to be closed with that communicator
     */
    TraceWriter forCommunicator(String communicator) {
        return new TraceWriter(sink, communicator);
    }

    @Override
    public void sent(
            JoinedOperation operation,
            int step,
            int participant,
            int peer,
            int chunk,
            long offsetBytes,
            long bytes) {
        synchronized (sink) {
            if (state == State.CLOSED) {
                // The work of a communicator that was closed before it could be given up.
                return;
            }
            if (state == State.FRESH) {
                sink.retain();
                state = State.OPEN;
            }
            sink.text(prefix);
            sink.text(operation.kind().operation());
            sink.field("\",\"seq\":", operation.sequence());
            sink.field(",\"step\":", step);
            sink.field(",\"rank\":", operation.rank(participant));
            sink.field(",\"peer\":", operation.rank(peer));
            sink.field(",\"chunk\":", chunk);
            sink.field(",\"offset\":", offsetBytes);
            sink.field(",\"bytes\":", bytes);
            sink.text("}\n");
            sink.write();
        }
    }

    /**
     * Writes out what is buffered; the file is closed with its last communicator.
     *
     * @throws IOException if a line could not be written, now or before
     */
    @Override
    public void close() throws IOException {
        synchronized (sink) {
            State before = state;
            state = State.CLOSED;
            if (before == State.OPEN) {
                sink.release();
            }
        }
    }

    private static String escape(String text) {
        StringBuilder escaped = new StringBuilder();
        for (char c : text.toCharArray()) {
            if (c == '"' || c == '\\') {
                escaped.append('\\').append(c);
            } else if (c < ' ') {
                escaped.append(String.format("\\u%04x", (int) c));
            } else {
                escaped.append(c);
            }
        }
        return escaped.toString();
    }

    /** The file. Guarded by itself. */
    private static final class Sink {
        private final Path file;
        private final byte[] digits = new byte[20];
        private byte[] line = new byte[256];
        private int length;
        private OutputStream out;
        private boolean begun;
        private int users;
        private IOException failure;

        Sink(Path file) {
            this.file = file;
        }

        synchronized void openFor(TraceWriter trace) throws IOException {
            retain();
            if (out == null) {
                users--;
                throw failure;
            }
            trace.state = State.OPEN;
        }

        /** One more user. A file that cannot be opened is a failure as one in writing it. */
        void retain() {
            if (users++ > 0) {
                return;
            }
            failure = null;
            try {
                out =
                        new BufferedOutputStream(
                                Files.newOutputStream(
                                        file,
                                        StandardOpenOption.CREATE,
                                        StandardOpenOption.WRITE,
                                        begun
                                                ? StandardOpenOption.APPEND
                                                : StandardOpenOption.TRUNCATE_EXISTING),
                                1 << 16);
                begun = true;
            } catch (IOException e) {
                fail(e);
            }
        }

        void release() throws IOException {
            users--;
            try {
                if (out != null && users == 0) {
                    OutputStream last = out;
                    out = null;
                    last.close();
                } else if (out != null) {
                    out.flush();
                }
            } catch (IOException e) {
                fail(e);
            }
            if (failure != null) {
                throw new IOException(
                        "trace "
                                + file
                                + " is incomplete: "
                                + failure.getMessage()
                                + "; the collectives themselves were not affected",
                        failure);
            }
        }

        void text(String ascii) {
            room(ascii.length());
            for (int i = 0; i < ascii.length(); i++) {
                line[length++] = (byte) ascii.charAt(i);
            }
        }

        void text(byte[] bytes) {
            room(bytes.length);
            System.arraycopy(bytes, 0, line, length, bytes.length);
            length += bytes.length;
        }

        void field(String key, long value) {
            text(key);
            int first = digits.length;
            long rest = value;
            do {
                digits[--first] = (byte) ('0' + rest % 10);
                rest /= 10;
            } while (rest != 0);
            room(digits.length);
            System.arraycopy(digits, first, line, length, digits.length - first);
            length += digits.length - first;
        }

        void write() {
            try {
                if (failure == null) {
                    out.write(line, 0, length);
                }
            } catch (IOException e) {
                fail(e);
            }
            length = 0;
        }

        private void room(int more) {
            if (length + more > line.length) {
                line = Arrays.copyOf(line, 2 * (length + more));
            }
        }

        private void fail(IOException e) {
            if (failure == null) {
                failure = e;
            } else if (!failure.equals(e)) {
                failure.addSuppressed(e);
            }
        }
    }
}
