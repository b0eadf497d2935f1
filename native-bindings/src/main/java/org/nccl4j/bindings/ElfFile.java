package org.nccl4j.bindings;

import java.io.IOException;
import java.io.InputStream;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Optional;

/** What a library file says of itself, for the one case in which {@code dlerror} misleads. */
final class ElfFile {
    private static final int MACHINE_OFFSET = 18;
    private static final int BIG_ENDIAN = 2;

    private ElfFile() {}

    /** The machine that a file is built for, empty if it is no ELF file. */
    static Optional<String> machine(Path file) {
        byte[] head;
        try (InputStream in = Files.newInputStream(file)) {
            head = in.readNBytes(MACHINE_OFFSET + Short.BYTES);
        } catch (IOException e) {
            return Optional.empty(); // not there, or not readable: dlerror has said so
        }
        if (head.length < MACHINE_OFFSET + Short.BYTES
                || head[0] != 0x7f
                || head[1] != 'E'
                || head[2] != 'L'
                || head[3] != 'F') {
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
