package org.nccl4j.collectives;

import java.security.MessageDigest;
import java.security.NoSuchAlgorithmException;
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
        if (bytes == null) {
            throw new InvalidArgumentException("a unique id needs its bytes, got null");
        }
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
        return other instanceof UniqueId id && MessageDigest.isEqual(bytes, id.bytes);
    }

    @Override
    public int hashCode() {
        return Arrays.hashCode(bytes);
    }

    /**
     * A fingerprint that is equal for equal ids and tells nothing of the bytes, which are a secret:
     * whoever has them can join the job.
     */
    @Override
    public String toString() {
        try {
            byte[] hash = MessageDigest.getInstance("SHA-256").digest(bytes);
            return "UniqueId[fingerprint " + HexFormat.of().formatHex(hash, 0, 4) + "]";
        } catch (NoSuchAlgorithmException e) {
            throw new IllegalStateException("every Java platform has SHA-256", e);
        }
    }
}
