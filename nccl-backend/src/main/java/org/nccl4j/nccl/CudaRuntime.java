package org.nccl4j.nccl;

/** The CUDA runtime's functions. Thread safety: as CUDA's own. */
final class CudaRuntime {
    private CudaRuntime() {}

    static int currentDevice() {
        throw new UnsupportedOperationException();
    }

    static void setDevice(int device) {
        throw new UnsupportedOperationException(Integer.toString(device));
    }
}
