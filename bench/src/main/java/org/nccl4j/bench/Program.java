package org.nccl4j.bench;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Locale;
import java.util.Optional;
import java.util.stream.IntStream;

/**
 * The programs of nccl-tests: what each moves, what its columns hold, how its bandwidth is
 * computed.
 */
enum Program {
    ALL_REDUCE("all_reduce", "every rank's buffer reduced, to every rank"),
    ALL_GATHER("all_gather", "every rank's chunk, to every rank"),
    BROADCAST("broadcast", "the root's buffer, to every rank"),
    REDUCE_SCATTER("reduce_scatter", "every rank's buffer reduced, a chunk to each rank"),
    REDUCE("reduce", "every rank's buffer reduced, to the root"),
    ALLTOALL("alltoall", "a chunk from every rank to every rank"),
    ALLTOALLV("alltoallv", "chunks of different sizes from every rank to every rank"),
    SCATTER("scatter", "a chunk of the root's buffer to each rank"),
    GATHER("gather", "every rank's chunk, to the root"),
    SENDRECV("sendrecv", "every rank sends its buffer to the next rank"),
    HYPERCUBE("hypercube", "all_gather by recursive doubling; ranks must be a power of two");

    private static final String SUFFIX = "_perf";

    private final String label;
    private final String summary;

    Program(String label, String summary) {
        this.label = label;
        this.summary = summary;
    }

    /** nccl-tests' name of the operation, for example {@code all_reduce}. */
    String label() {
        return label;
    }

    /** The operation's name in the contract; of hypercube that of its steps. */
    String operation() {
        return this == HYPERCUBE ? SENDRECV.label : label;
    }

    /** The name in the table and in messages, whatever was typed: {@code all_reduce_perf}. */
    String executable() {
        return label + SUFFIX;
    }

    /** What the program moves, in a few words, for the help. */
    String summary() {
        return summary;
    }

    /**
     * The program of that name: nccl-tests' name with or without {@code _perf}, in either case,
     * with or without underscores or dashes between its words.
     */
    static Optional<Program> named(String word) {
        String plain = plain(word);
        return Arrays.stream(values())
                .filter(p -> plain.equals(plain(p.label)) || plain.equals(plain(p.executable())))
                .findFirst();
    }

    private static String plain(String word) {
        return word.toLowerCase(Locale.ROOT).replace("_", "").replace("-", "");
    }

    /**
     * Counts of one row.
     *
     * @param sizeBytes the size of the sweep. Programs that deal in one chunk per rank round the
     *     chunk down to a multiple of 16 bytes, so their size column may be smaller, and 0 for
     *     small sizes
     * @param ranks the number of ranks
     * @throws UnsupportedOperationException for alltoallv, see {@link AllToAllVTraffic#shape}
     */
    Shape shape(long sizeBytes, ElementType type, int ranks) {
        return switch (this) {
            case ALL_REDUCE, REDUCE, BROADCAST, SENDRECV -> same(sizeBytes, type);
            case ALL_GATHER, GATHER, HYPERCUBE -> gathering(sizeBytes, type, ranks);
            case REDUCE_SCATTER, SCATTER -> scattering(sizeBytes, type, ranks);
            case ALLTOALL -> {
                long chunk = chunkCount(sizeBytes, type, ranks);
                yield new Shape(type, chunk * ranks, chunk * ranks, chunk, 0, 0);
            }
            case ALLTOALLV ->
                    throw new UnsupportedOperationException(
                            "the shape of alltoallv depends on its traffic: use"
                                    + " AllToAllVTraffic.shape");
        };
    }

    /** busbw divided by algbw. */
    double busFactor(int ranks) {
        return switch (this) {
            case ALL_REDUCE -> 2.0 * (ranks - 1) / ranks;
            case REDUCE, BROADCAST, SENDRECV, HYPERCUBE -> 1;
            case ALL_GATHER, REDUCE_SCATTER, GATHER, SCATTER, ALLTOALL, ALLTOALLV ->
                    (ranks - 1.0) / ranks;
        };
    }

    /**
     * Bandwidth of one cell.
     *
     * @param seconds wall time of one operation, after the reduction over threads and processes
     */
    Bandwidth bandwidth(Shape shape, int ranks, double seconds) {
        int width = shape.type().widthBytes();
        long movedBytes =
                switch (this) {
                    case ALL_REDUCE, REDUCE, BROADCAST, SENDRECV -> shape.paramCount() * width;
                    case ALL_GATHER, REDUCE_SCATTER, GATHER, SCATTER, ALLTOALL ->
                            shape.paramCount() * width * ranks;
                    case ALLTOALLV -> shape.sizeBytes();
                    case HYPERCUBE -> shape.paramCount() * width * (ranks - 1);
                };
        double algBw = movedBytes / 1.0e9 / seconds;
        return new Bandwidth(algBw, algBw * busFactor(ranks));
    }

    /** True if the rows name the reduction, so that {@code -o all} repeats the sweep. */
    boolean loopsOverOps() {
        // sendrecv reduces nothing; nccl-tests sweeps it once per operator all the same.
        return reduces() || this == SENDRECV;
    }

    /** True if -o changes the result. */
    boolean reduces() {
        return this == ALL_REDUCE || this == REDUCE || this == REDUCE_SCATTER;
    }

    /** True if the program has a root rank, which -r chooses. */
    boolean hasRoot() {
        return this == REDUCE || this == BROADCAST || this == GATHER || this == SCATTER;
    }

    /** False if the second cell's check is N/A even when checks are on. */
    boolean checksInPlace() {
        return this != ALLTOALL && this != ALLTOALLV && this != SENDRECV;
    }

    /** True if the program runs on that many ranks (hypercube wants a power of two). */
    boolean runsOn(int ranks) {
        return this != HYPERCUBE || Integer.bitCount(ranks) == 1;
    }

    /**
     * The sweeps of one run in their order: types, then reductions, then roots. Each is repeated -N
     * times over the sizes, after one warm-up.
     *
     * @param root what -r gave; -1 is every root. Other values are passed on unchecked
     */
    List<Series> series(List<ElementType> types, List<RedOp> ops, int root, int ranks) {
        List<RedOp> opsRun = loopsOverOps() ? ops : List.of(RedOp.SUM);
        int[] roots =
                !hasRoot()
                        ? new int[] {-1}
                        : root == -1 ? IntStream.range(0, ranks).toArray() : new int[] {root};
        List<Series> series = new ArrayList<>();
        for (ElementType type : types) {
            for (RedOp op : opsRun) {
                for (int each : roots) {
                    series.add(new Series(type, op, each, redop(op)));
                }
            }
        }
        return series;
    }

    private String redop(RedOp op) {
        return loopsOverOps() ? op.label() : this == HYPERCUBE ? "" : "none";
    }

    /** Elements of a rank's chunk: the rank's share rounded down to a multiple of 16 bytes. */
    static long chunkCount(long sizeBytes, ElementType type, int ranks) {
        long share = sizeBytes / type.widthBytes() / ranks;
        long alignment = 16 / type.widthBytes();
        return share - share % alignment;
    }

    private static Shape same(long sizeBytes, ElementType type) {
        long count = sizeBytes / type.widthBytes();
        return new Shape(type, count, count, count, 0, 0);
    }

    private static Shape gathering(long sizeBytes, ElementType type, int ranks) {
        long chunk = chunkCount(sizeBytes, type, ranks);
        return new Shape(type, chunk, chunk * ranks, chunk, chunk, 0);
    }

    private static Shape scattering(long sizeBytes, ElementType type, int ranks) {
        long chunk = chunkCount(sizeBytes, type, ranks);
        return new Shape(type, chunk * ranks, chunk, chunk, 0, chunk);
    }
}
