/** The contract in pure Java. */
module org.nccl4j.cpu {
    requires transitive org.nccl4j.collectives;
    requires java.management;
    requires jdk.management;
    // Faster reductions where the JVM was started with it: KernelChoice.
    requires static jdk.incubator.vector;

    provides org.nccl4j.collectives.Backend with
            org.nccl4j.cpu.CpuBackend;
}
