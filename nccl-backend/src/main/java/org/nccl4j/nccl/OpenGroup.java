package org.nccl4j.nccl;

/** A group whose body is running. Belongs to the thread that runs it. */
final class OpenGroup {
    private OpenGroup() {}

    /** Refuses a stream that this thread's open group has touched. */
    static void refuseIfTouched(NcclStream stream) {
        assert stream != null;
    }
}
