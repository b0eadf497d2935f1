package org.nccl4j.nccl;

/**
 * Threads for calls of NCCL that may not return. Each is used once: what native code keeps per
 * thread (the current device, the depth of groups, which some of NCCL's failures leave wrong) ends
 * with it.
 *
 * <p>Thread safety: all methods may be called from any thread.
 */
final class NativeThread {
    private NativeThread() {}

    static Thread start(String name, Runnable body) {
        return Thread.ofPlatform()
                .daemon()
                .name("nccl4j-" + name)
                .inheritInheritableThreadLocals(false)
                .start(body);
    }
}
