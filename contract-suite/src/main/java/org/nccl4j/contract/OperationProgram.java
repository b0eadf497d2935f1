package org.nccl4j.contract;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.OptionalInt;
import java.util.function.Function;
import org.nccl4j.collectives.Communicator;
import org.nccl4j.collectives.DataType;
import org.nccl4j.collectives.DeviceBuffer;
import org.nccl4j.collectives.DeviceStream;
import org.nccl4j.collectives.Operations;
import org.nccl4j.collectives.ReduceOp;

/**
 * One operation on every rank. Before it, each buffer is written whole, with noise around and
 * between the inputs; after it, each buffer is read whole and must equal, to the byte, what it was
 * with the results in their places.
 */
final class OperationProgram implements RankProgram {
    /** Where the buffers of a rank come from. */
    @FunctionalInterface
    interface Source {
        /**
         * A buffer that nobody else uses until the check.
         *
         * @param rank whose
         * @param number 0 for what is sent, or sent and received in place, 1 for what is received
         * @param sizeBytes at least
         */
        DeviceBuffer buffer(Rank rank, int number, int sizeBytes);
    }

    private static final int GUARD_BYTES = 64;
    private static final byte[] NOISE = noise();

    private final OperationCase operation;
    private final Geometry geometry;
    private final Values values;
    private final Arithmetic arithmetic;
    private final int width;
    private final Source source;
    private final Memory[] memories;
    private final byte[][] received;

    /**
     * A program.
     *
     * @param operation what to do
     * @param geometry where its elements go
     * @param values inputs and what they reduce to
     * @param firstRegion the number of the first of two regions per rank that nobody else uses
     *     until the check
     */
    OperationProgram(OperationCase operation, Geometry geometry, Values values, int firstRegion) {
        this(
                operation,
                geometry,
                values,
                (rank, number, sizeBytes) -> rank.region(firstRegion + number, sizeBytes));
    }

    private OperationProgram(
            OperationCase operation, Geometry geometry, Values values, Source source) {
        this.operation = operation;
        this.geometry = geometry;
        this.values = values;
        this.arithmetic = Arithmetic.of(operation.type());
        this.width = arithmetic.widthBytes();
        this.source = source;
        this.memories = new Memory[operation.ranks()];
        this.received = new byte[operation.ranks()][];
    }

    /** With inputs that give one right answer in any order. */
    static OperationProgram exact(OperationCase operation) {
        return exact(operation, 0);
    }

    /** With such inputs, and buffers of a kind. */
    static OperationProgram exact(OperationCase operation, Source source) {
        return new OperationProgram(
                operation, new Geometry(operation), exactValues(operation), source);
    }

    /** As given, and in place if there is such a form, with the same inputs. */
    static List<OperationProgram> placements(OperationCase operation, Values values) {
        OperationProgram outOfPlace = of(operation, values);
        return operation.collective().hasInPlaceForm()
                ? List.of(outOfPlace, of(operation.asInPlace(), values))
                : List.of(outOfPlace);
    }

    static OperationProgram exact(OperationCase operation, int firstRegion) {
        return new OperationProgram(
                operation, new Geometry(operation), exactValues(operation), firstRegion);
    }

    static OperationProgram of(OperationCase operation, Values values) {
        return new OperationProgram(operation, new Geometry(operation), values, 0);
    }

    static Values exactValues(OperationCase operation) {
        int[] lengths = new Geometry(operation).inputLengths();
        return operation.collective().reduces()
                ? Values.exact(
                        operation.type(),
                        operation.reduction(),
                        operation.ranks(),
                        Arrays.stream(lengths).max().orElseThrow(),
                        operation.seed())
                : Values.copied(operation.type(), lengths, operation.seed());
    }

    @Override
    public String id() {
        return operation.id();
    }

    /** Whether a rank cannot have its result without another one. */
    boolean needs(int rank, int other) {
        return geometry.output(rank).stream()
                .filter(part -> part.count() > 0)
                .anyMatch(part -> part.source() == other || part.source() == Part.REDUCED);
    }

    /** What the rank's output held at its last check, part after part. */
    byte[] received(int rank) {
        return received[rank];
    }

    @Override
    public void prepare(Rank rank) {
        Memory memory = new Memory(rank.rank());
        memories[rank.rank()] = memory;
        for (Image image : memory.images) {
            DeviceBuffer region = source.buffer(rank, image.number, image.before.length);
            rank.write(image.before, region);
            image.region = region;
        }
    }

    @Override
    public void issue(Rank rank, Function<Communicator, Operations> on) {
        Memory memory = memories[rank.rank()];
        enqueue(
                on.apply(rank.communicator()),
                rank.rank(),
                slice(memory.send),
                slice(memory.recv),
                rank.stream());
    }

    private static DeviceBuffer slice(Range range) {
        return range == null
                ? null
                : range.image.region.slice(range.offsetBytes, range.lengthBytes);
    }

    private void enqueue(
            Operations operations,
            int rank,
            DeviceBuffer send,
            DeviceBuffer recv,
            DeviceStream stream) {
        int ranks = operation.ranks();
        int root = operation.root();
        long count = operation.countElements();
        DataType type = operation.type();
        ReduceOp op =
                operation.reduction() == null
                        ? null
                        : operation.reduction().operator(type, values.scalars()[rank]);
        switch (operation.collective()) {
            case ALL_REDUCE -> operations.allReduce(send, recv, count, type, op, stream);
            case REDUCE -> operations.reduce(send, recv, count, type, op, root, stream);
            case BROADCAST -> operations.broadcast(send, recv, count, type, root, stream);
            case ALL_GATHER -> operations.allGather(send, recv, count, type, stream);
            case ALL_GATHER_V ->
                    operations.allGatherV(send, recv, geometry.layout(rank), type, stream);
            case REDUCE_SCATTER -> operations.reduceScatter(send, recv, count, type, op, stream);
            case REDUCE_SCATTER_V ->
                    operations.reduceScatterV(send, recv, geometry.layout(rank), type, op, stream);
            case GATHER -> operations.gather(send, recv, count, type, root, stream);
            case SCATTER -> operations.scatter(send, recv, count, type, root, stream);
            case ALL_TO_ALL -> operations.allToAll(send, recv, count, type, stream);
            case ALL_TO_ALL_V ->
                    operations.allToAllV(send, recv, geometry.plan(rank), type, stream);
            case SEND_RECV ->
                    operations.sendRecv(
                            send,
                            count,
                            (rank + 1) % ranks,
                            recv,
                            count,
                            (rank + ranks - 1) % ranks,
                            type,
                            stream);
            case PAIRS -> {
                if (geometry.sendsInPairs(rank)) {
                    operations.send(send, count, type, rank + 1, stream);
                } else if (rank % 2 == 1) {
                    operations.recv(recv, count, type, rank - 1, stream);
                }
            }
        }
    }

    @Override
    public void check(Rank rank) {
        int r = rank.rank();
        Memory memory = memories[r];
        for (Image image : memory.images) {
            byte[] actual = rank.read(image.region, image.after.length);
            if (image == memory.recvImage()) {
                acceptEqualResults(memory, actual);
                received[r] = memory.output(actual);
            }
            if (!Arrays.equals(actual, image.after)) {
                throw new AssertionError(
                        operation.id() + ", rank " + r + ": " + difference(memory, image, actual));
            }
        }
    }

    /** Any NaN is as good as another; where the right bits are not known, all are good. */
    private void acceptEqualResults(Memory memory, byte[] actual) {
        boolean unknown = operation.collective().reduces() && values.reduced() == null;
        if (!unknown && !(arithmetic instanceof Arithmetic.Floats)) {
            return;
        }
        byte[] expected = memory.recvImage().after;
        if (!unknown && Arrays.equals(actual, expected)) {
            return;
        }
        for (Part part : geometry.output(memory.rank)) {
            for (int i = 0; i < part.count(); i++) {
                int at = memory.recv.offsetBytes + (part.place() + i) * width;
                long bits = Elements.get(width, actual, at);
                if (unknown || arithmetic.same(bits, Elements.get(width, expected, at))) {
                    Elements.put(width, expected, at, bits);
                }
            }
        }
    }

    private String difference(Memory memory, Image image, byte[] actual) {
        int first = Arrays.mismatch(actual, image.after);
        int bytes = 0;
        for (int i = 0; i < actual.length; i++) {
            if (actual[i] != image.after[i]) {
                bytes++;
            }
        }
        String where = image.name + " buffer, " + bytes + " bytes differ, the first ";
        if (image == memory.recvImage()) {
            for (Part part : geometry.output(memory.rank)) {
                int start = memory.recv.offsetBytes + part.place() * width;
                if (first >= start && first < start + part.count() * width) {
                    int i = (first - start) / width;
                    int at = start + i * width;
                    return where
                            + "in element "
                            + (part.place() + i)
                            + " (element "
                            + (part.index() + i)
                            + " of "
                            + (part.source() == Part.REDUCED
                                    ? "the reduction"
                                    : "rank " + part.source() + "'s input")
                            + "): expected "
                            + arithmetic.describe(Elements.get(width, image.after, at))
                            + ", got "
                            + arithmetic.describe(Elements.get(width, actual, at));
                }
            }
        }
        return where
                + "at byte "
                + (first - image.payloadStart)
                + " of "
                + image.payloadBytes
                + ", which must not change: expected "
                + (image.after[first] & 0xff)
                + ", got "
                + (actual[first] & 0xff);
    }

    private static byte[] noise() {
        byte[] bytes = new byte[1 << 16];
        Mix random = new Mix(0x9015e);
        for (int i = 0; i < bytes.length; i++) {
            bytes[i] = (byte) random.next();
        }
        return bytes;
    }

    /** A region before and after the operation. */
    private static final class Image {
        private final int number;
        private final String name;
        private final int payloadStart;
        private final int payloadBytes;
        private final byte[] before;
        private byte[] after;
        private DeviceBuffer region;

        /** Noise, with the payload at a place that is aligned for its elements and no more. */
        private Image(int number, String name, int width, int elements, Mix random) {
            this.number = number;
            this.name = name;
            this.payloadStart = GUARD_BYTES + width * random.next(9);
            this.payloadBytes = elements * width;
            this.before = new byte[payloadStart + payloadBytes + GUARD_BYTES];
            int from = random.next(NOISE.length / 2);
            for (int at = 0; at < before.length; ) {
                int length = Math.min(before.length - at, NOISE.length - from);
                System.arraycopy(NOISE, from, before, at, length);
                at += length;
                from = 0;
            }
        }
    }

    /** A buffer argument. */
    private record Range(Image image, int offsetBytes, int lengthBytes) {}

    /** One rank's regions and buffer arguments. */
    private final class Memory {
        private final int rank;
        private final List<Image> images = new ArrayList<>();
        private Range send;
        private Range recv;

        private Memory(int rank) {
            this.rank = rank;
            Mix random = new Mix(Mix.hash(operation.seed() ^ 0x3e3, rank));
            List<Part> input = geometry.input(rank);
            List<Part> output = geometry.output(rank);
            int sendElements = extent(input);
            int recvElements = extent(output);
            OptionalInt shift =
                    operation.inPlace() ? geometry.inPlaceShift(rank) : OptionalInt.empty();
            // Longer buffers than needed are allowed and must be left alone.
            int slack = random.next(3);
            if (shift.isPresent()) {
                int sendStart = Math.max(0, shift.getAsInt());
                int recvStart = Math.max(0, -shift.getAsInt());
                int elements = Math.max(sendStart + sendElements, recvStart + recvElements) + slack;
                Image image = new Image(0, "in-place", width, elements, random);
                images.add(image);
                send = range(image, sendStart, sendElements);
                recv = range(image, recvStart, recvElements);
            } else {
                send = separate(0, "send", input, sendElements, slack, random);
                recv = separate(1, "receive", output, recvElements, slack, random);
            }
            if (send != null) {
                fill(send, input);
            }
            for (Image image : images) {
                image.after = image.before.clone();
            }
            if (recv != null) {
                expect(recv, output);
            }
        }

        private int extent(List<Part> parts) {
            int extent = 0;
            for (Part part : parts) {
                if (part.count() > 0) {
                    extent = Math.max(extent, part.end());
                }
            }
            return extent;
        }

        private Range range(Image image, int startElements, int elements) {
            return new Range(image, image.payloadStart + startElements * width, elements * width);
        }

        /** Null or untouched where this rank has no part in it. */
        private Range separate(
                int number, String name, List<Part> parts, int elements, int slack, Mix random) {
            if (parts.isEmpty() && random.nextBoolean()) {
                return null;
            }
            int atLeast = parts.isEmpty() ? operation.countElements() : elements;
            Image image = new Image(number, name, width, atLeast + slack, random);
            images.add(image);
            return range(image, 0, atLeast + slack);
        }

        private void fill(Range range, List<Part> parts) {
            for (Part part : parts) {
                long[] source = values.inputs()[part.source()];
                put(range.image.before, range.offsetBytes, part, source);
            }
        }

        private void expect(Range range, List<Part> parts) {
            for (Part part : parts) {
                long[] source =
                        part.source() == Part.REDUCED
                                ? values.reduced()
                                : values.inputs()[part.source()];
                if (source != null) {
                    put(range.image.after, range.offsetBytes, part, source);
                }
            }
        }

        private void put(byte[] memory, int offsetBytes, Part part, long[] source) {
            int at = offsetBytes + part.place() * width;
            for (int i = 0; i < part.count(); i++, at += width) {
                Elements.put(width, memory, at, source[part.index() + i]);
            }
        }

        private Image recvImage() {
            return recv == null ? null : recv.image;
        }

        private byte[] output(byte[] actual) {
            List<Part> parts = geometry.output(rank);
            byte[] bytes = new byte[parts.stream().mapToInt(Part::count).sum() * width];
            int to = 0;
            for (Part part : parts) {
                if (part.count() == 0) {
                    continue;
                }
                int from = recv.offsetBytes + part.place() * width;
                System.arraycopy(actual, from, bytes, to, part.count() * width);
                to += part.count() * width;
            }
            return bytes;
        }
    }
}
