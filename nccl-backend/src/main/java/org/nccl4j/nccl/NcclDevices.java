package org.nccl4j.nccl;

import java.util.List;

/** The GPUs of this process. Thread safety: immutable once they are known. */
final class NcclDevices {
    private NcclDevices() {}

    /** All of them, in CUDA's order. */
    static List<NcclDevice> all() {
        throw new UnsupportedOperationException();
    }

    /**
     * One of them.
     *
     * @throws org.nccl4j.collectives.InvalidArgumentException if there is no such device
     */
    static NcclDevice device(int ordinal) {
        return all().get(ordinal);
    }
}
