package org.nccl4j.collectives;

import java.util.Arrays;
import java.util.HexFormat;

/**
 * The token of a job: ranks that hold the same bytes join the same communicator, nobody else does.
 * Made by {@link Backend#newUniqueId()} on one rank and carried to the others by hand. As long as
 * NCCL's (128 bytes).
 *
 * <p>Thread safety: immutable.
 */
public final class UniqueId implements Bootstrap {
    /** Length of an id in bytes. */
    public static final int SIZE_BYTES = 128;

    private final byte[] bytes;

    /**
     * An id from its bytes.
     *
     * @param bytes exactly {@value #SIZE_BYTES} bytes, copied
     * @throws InvalidArgumentException if the length is another
     */
    public UniqueId(byte[] bytes) {
        if (bytes.length != SIZE_BYTES) {
            throw new InvalidArgumentException(
                    "a unique id has "
                            + SIZE_BYTES
                            + " bytes, got "
                            + bytes.length
                            + "; pass the bytes that newUniqueId() gave, whole");
        }
        this.bytes = bytes.clone();
    }

    /**
     * The id's bytes, to carry to other ranks. They are a secret of the job.
     *
     * @return a copy
     */
    public byte[] toBytes() {
        return bytes.clone();
    }

    @Override
    public boolean equals(Object other) {
        return other instanceof UniqueId id && Arrays.equals(bytes, id.bytes);
    }

    @Override
    public int hashCode() {
        return Arrays.hashCode(bytes);
    }

    /** Shows only the first bytes, because the whole is a secret. */
    @Override
    public String toString() {
        return "UniqueId[" + HexFormat.of().formatHex(bytes, 0, 4) + "...]";
    }
}
