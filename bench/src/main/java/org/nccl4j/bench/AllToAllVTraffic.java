package org.nccl4j.bench;

import java.io.IOException;
import java.io.InputStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.OptionalDouble;

/**
 * Who sends how much to whom in alltoallv: spread evenly from nothing to oneself to the most to the
 * rank before oneself, or as a file says. Chosen by the environment variables {@code
 * NCCL_TESTS_ALLTOALLV_SPREAD}, {@code _MATRIX_FILE}, {@code _MATRIX_SCALE} and {@code
 * _PRINT_SUMMARY}.
 *
 * <p>Thread safety: immutable.
 */
final class AllToAllVTraffic {

    private static final String PREFIX = "NCCL_TESTS_ALLTOALLV_";

    /** Every block is a multiple of this, as the chunks of the other programs are. */
    private static final long ALIGNMENT_BYTES = 16;

    /** Of a matrix for 1024 ranks, with 15 characters for each pair of them. */
    private static final int LARGEST_FILE_BYTES = 16 << 20;

    private final double spread;
    private final String file;
    private final double scale;
    private final long[][] matrixBytes;
    private final boolean printsSummary;

    private AllToAllVTraffic(
            double spread, String file, double scale, long[][] matrixBytes, boolean printsSummary) {
        this.spread = spread;
        this.file = file;
        this.scale = scale;
        this.matrixBytes = matrixBytes;
        this.printsSummary = printsSummary;
    }

    /**
     * The traffic that the environment asks for. Reads the matrix file if there is one.
     *
     * @throws BenchFailure if the file cannot be read or is no square matrix of sizes
     */
    static AllToAllVTraffic of(Map<String, String> environment) {
        double spread = Math.clamp(number(environment, PREFIX + "SPREAD"), 0, 1);
        double scale = Math.max(0, number(environment, PREFIX + "MATRIX_SCALE"));
        boolean printsSummary =
                CNumber.parseInteger(environment.getOrDefault(PREFIX + "PRINT_SUMMARY", "0")) != 0;
        String file = environment.get(PREFIX + "MATRIX_FILE");
        long[][] matrixBytes = file == null ? null : read(file, scale);
        return new AllToAllVTraffic(spread, file, scale, matrixBytes, printsSummary);
    }

    private static double number(Map<String, String> environment, String name) {
        OptionalDouble number = CNumber.parseWholeDouble(environment.getOrDefault(name, ""));
        return number.orElse(1);
    }

    /** True if {@link #summary} is to be printed with every row. */
    boolean printsSummary() {
        return printsSummary;
    }

    /**
     * Checks that the traffic fits the run.
     *
     * @param ranks the number of ranks
     * @param sweep the sizes, of which a matrix allows only one
     * @throws BenchFailure if it does not
     */
    void check(int ranks, BenchOptions.Sweep sweep) {
        if (matrixBytes == null) {
            return;
        }
        if (ranks > matrixBytes.length) {
            throw failure(
                    "Invalid alltoallv traffic matrix, requested nranks (%d) is larger than matrix"
                            + " size (%d) in file %s.",
                    ranks, matrixBytes.length, file);
        }
        long[][] bytes = corner(ranks);
        long neededBytes = Math.max(largestRow(bytes), largestColumn(bytes));
        if (sweep.maxBytes() < neededBytes) {
            throw failure(
                    "maxBytes (-e) must be at least %d bytes as required by traffic matrix file %s"
                            + " (got %d). Increase -e.",
                    neededBytes, file, sweep.maxBytes());
        }
        if (sweep.minBytes() != sweep.maxBytes()) {
            throw failure(
                    "-b and -e options must be set to the same value (e.g., -b 32M -e 32M) when"
                            + " using alltoallv traffic matrix mode.");
        }
    }

    /**
     * The bytes from each rank to each rank, multiples of 16.
     *
     * @return {@code [from][to]}
     */
    long[][] bytes(long sizeBytes, ElementType type, int ranks) {
        if (matrixBytes != null) {
            return corner(ranks);
        }
        double total = totalBytes(sizeBytes, type, ranks);
        double distances = ranks * (ranks - 1.0) / 2;
        long[][] bytes = new long[ranks][ranks];
        for (int from = 0; from < ranks; from++) {
            for (int to = 0; to < ranks; to++) {
                int distance = (to - from + ranks) % ranks;
                double share =
                        ranks == 1
                                ? total
                                : (1 - spread) * total / ranks
                                        + spread * distance * total / distances;
                bytes[from][to] = aligned((long) share);
            }
        }
        return bytes;
    }

    /** The counts of a row whose blocks are {@code bytes}. */
    Shape shape(long[][] bytes, long sizeBytes, ElementType type, int ranks) {
        long paramCount = matrixBytes != null ? 0 : Program.chunkCount(sizeBytes, type, ranks);
        return new Shape(
                type,
                largestRow(bytes) / type.widthBytes(),
                largestColumn(bytes) / type.widthBytes(),
                paramCount,
                0,
                0);
    }

    /**
     * The lines that {@code _PRINT_SUMMARY} asks for. nccl-tests prints them in the middle of the
     * row; they belong before or behind it.
     *
     * @param bytes the blocks of the row
     * @param seconds wall time of one operation
     */
    List<String> summary(
            long[][] bytes, long sizeBytes, ElementType type, int ranks, double seconds) {
        double micros = seconds * 1e6;
        String head = "# " + PREFIX + "PRINT_SUMMARY: mode=";
        List<String> lines = new ArrayList<>();
        lines.add(
                matrixBytes == null
                        ? head
                                + "generated nranks="
                                + ranks
                                + " total_bytes="
                                + totalBytes(sizeBytes, type, ranks)
                                + " spread="
                                + CNumber.fixed(spread, 3)
                                + " time_usec="
                                + CNumber.fixed(micros, 2)
                        : head
                                + "matrix nranks="
                                + ranks
                                + " matrix_dim="
                                + matrixBytes.length
                                + " scale="
                                + CNumber.fixed(scale, 3)
                                + " time_usec="
                                + CNumber.fixed(micros, 2));
        for (int rank = 0; rank < ranks; rank++) {
            long sent = Arrays.stream(bytes[rank]).sum();
            long received = columnTotal(bytes, rank);
            double algBw = Math.max(sent, received) / 1e9 / seconds;
            lines.add(
                    "#   rank="
                            + rank
                            + " send_bytes="
                            + sent
                            + " recv_bytes="
                            + received
                            + " alg_bw="
                            + CNumber.fixed(algBw, 2)
                            + " bus_bw="
                            + CNumber.fixed(algBw * Program.ALLTOALLV.busFactor(ranks), 2));
        }
        return lines;
    }

    private static long totalBytes(long sizeBytes, ElementType type, int ranks) {
        return Program.chunkCount(sizeBytes, type, ranks) * ranks * type.widthBytes();
    }

    private long[][] corner(int ranks) {
        long[][] corner = new long[ranks][];
        for (int from = 0; from < ranks; from++) {
            corner[from] = Arrays.copyOf(matrixBytes[from], ranks);
        }
        return corner;
    }

    private static long largestRow(long[][] bytes) {
        return Arrays.stream(bytes).mapToLong(row -> Arrays.stream(row).sum()).max().orElse(0);
    }

    private static long largestColumn(long[][] bytes) {
        long largest = 0;
        for (int to = 0; to < bytes.length; to++) {
            largest = Math.max(largest, columnTotal(bytes, to));
        }
        return largest;
    }

    private static long columnTotal(long[][] bytes, int to) {
        long total = 0;
        for (long[] row : bytes) {
            total += row[to];
        }
        return total;
    }

    private static long aligned(long bytes) {
        return bytes - bytes % ALIGNMENT_BYTES;
    }

    private static long[][] read(String file, double scale) {
        byte[] text;
        try (InputStream in = Files.newInputStream(Path.of(file))) {
            // Not the file's size, which a pipe does not have.
            text = in.readNBytes(LARGEST_FILE_BYTES + 1);
        } catch (IOException unreadable) {
            BenchFailure failure =
                    failure("Unable to open alltoallv traffic matrix file %s.", file);
            failure.initCause(unreadable);
            throw failure;
        }
        if (text.length > LARGEST_FILE_BYTES) {
            throw failure(
                    "Invalid alltoallv traffic matrix, file %s is larger than %d bytes.",
                    file, LARGEST_FILE_BYTES);
        }
        List<String[]> rows =
                new String(text, StandardCharsets.UTF_8)
                        .lines()
                        .filter(line -> !line.isBlank())
                        .map(l -> l.trim().split("\\s+"))
                        .toList();
        if (rows.isEmpty()) {
            throw failure("Invalid alltoallv traffic matrix, file %s is empty.", file);
        }
        int columns = rows.getFirst().length;
        // A cell is so bounded that totals of rows and columns cannot overflow.
        double limitBytes = 0x1p63 / Math.max(columns, rows.size());
        long[][] bytes = new long[rows.size()][columns];
        for (int row = 0; row < rows.size(); row++) {
            String[] cells = rows.get(row);
            if (cells.length != columns) {
                throw failure(
                        "Invalid alltoallv traffic matrix column count in file %s row %d. Expected %d"
                                + " columns, got %d.",
                        file, row, columns, cells.length);
            }
            for (int column = 0; column < columns; column++) {
                String where =
                        "Invalid alltoallv traffic matrix value at row %d col %d in file %s.";
                OptionalDouble value = CNumber.parseWholeDouble(cells[column]);
                if (value.isEmpty()) {
                    throw failure(where, row, column, file);
                }
                if (value.getAsDouble() < 0) {
                    throw failure(where + " Value must be non-negative.", row, column, file);
                }
                double scaled = value.getAsDouble() * scale;
                if (!(scaled < limitBytes)) {
                    throw failure(
                            where + " Value overflow (value=%s scale=%s).",
                            row,
                            column,
                            file,
                            CNumber.general(value.getAsDouble()),
                            CNumber.general(scale));
                }
                bytes[row][column] = aligned((long) scaled);
            }
        }
        if (rows.size() != columns) {
            throw failure(
                    "Invalid alltoallv traffic matrix, file %s must be square (got %dx%d).",
                    file, rows.size(), columns);
        }
        return bytes;
    }

    private static BenchFailure failure(String format, Object... values) {
        return new BenchFailure(ExitCode.INTERNAL, String.format(Locale.ROOT, format, values));
    }
}
