package org.nccl4j.bindings;

import java.io.IOException;
import java.io.InputStream;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.channels.SeekableByteChannel;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Optional;

/**
 * What a library file says of itself, where {@code dlerror} misleads, or where the linker would not
 * live to say anything.
 */
final class ElfFile {
    private static final int MACHINE_OFFSET = 18;
    private static final int BIG_ENDIAN = 2;
    private static final int CLASS_64 = 2;
    private static final int HEADER_BYTES = 64;
    private static final int SEGMENT_BYTES = 56;

    private ElfFile() {}

    /**
     * Why a file must not even be shown to the linker: it waits for ever for a pipe, and maps a
     * file that was copied in part, to be killed by the first touch of what is missing.
     *
     * @return the reason, empty if there is none or the linker says it better
     */
    static Optional<String> obstacle(Path file) {
        if (Files.exists(file) && !Files.isRegularFile(file) && !Files.isDirectory(file)) {
            return Optional.of("is neither a file nor a link to one");
        }
        try (SeekableByteChannel channel = Files.newByteChannel(file)) {
            ByteBuffer head = read(channel, 0, HEADER_BYTES);
            if (head == null
                    || !isElf(head.array())
                    || head.get(4) != CLASS_64
                    || head.get(5) == BIG_ENDIAN) {
                return Optional.empty();
            }
            long table = head.getLong(32);
            int segments = Short.toUnsignedInt(head.getShort(56));
            long end = table + (long) segments * SEGMENT_BYTES;
            for (int i = 0; i < segments; i++) {
                ByteBuffer segment = read(channel, table + (long) i * SEGMENT_BYTES, SEGMENT_BYTES);
                if (segment == null) {
                    break; // the table itself is cut off
                }
                end = Math.max(end, segment.getLong(8) + segment.getLong(32));
            }
            return channel.size() >= end
                    ? Optional.empty()
                    : Optional.of(
                            "is cut off: it has "
                                    + channel.size()
                                    + " bytes and says that it has at least "
                                    + end
                                    + "; copy or install it again");
        } catch (IOException e) {
            return Optional.empty(); // not there, or not readable: the linker will say so
        }
    }

    /** Bytes of a file, whose numbers are little-endian; null if it ends before. */
    private static ByteBuffer read(SeekableByteChannel channel, long position, int bytes)
            throws IOException {
        if (position < 0 || position > channel.size() - bytes) {
            return null;
        }
        ByteBuffer buffer = ByteBuffer.allocate(bytes).order(ByteOrder.LITTLE_ENDIAN);
        channel.position(position);
        while (buffer.hasRemaining()) {
            if (channel.read(buffer) < 0) {
                return null;
            }
        }
        return buffer.flip();
    }

    private static boolean isElf(byte[] head) {
        return head[0] == 0x7f && head[1] == 'E' && head[2] == 'L' && head[3] == 'F';
    }

    /** The machine that a file is built for, empty if it is no ELF file. */
    static Optional<String> machine(Path file) {
        byte[] head;
        try (InputStream in = Files.newInputStream(file)) {
            head = in.readNBytes(MACHINE_OFFSET + Short.BYTES);
        } catch (IOException e) {
            return Optional.empty(); // not there, or not readable: dlerror has said so
        }
        if (head.length < MACHINE_OFFSET + Short.BYTES || !isElf(head)) {
            return Optional.empty();
        }
        ByteOrder order = head[5] == BIG_ENDIAN ? ByteOrder.BIG_ENDIAN : ByteOrder.LITTLE_ENDIAN;
        int machine =
                Short.toUnsignedInt(ByteBuffer.wrap(head).order(order).getShort(MACHINE_OFFSET));
        return Optional.of(
                switch (machine) {
                    case 3 -> "x86 (32 bits)";
                    case 21 -> "ppc64";
                    case 62 -> "amd64";
                    case 183 -> "aarch64";
                    case 243 -> "riscv64";
                    default -> "ELF machine " + machine;
                });
    }
}
