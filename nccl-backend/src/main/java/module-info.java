/** The contract over NCCL and CUDA streams. */
// JCuda's jar names no module.
@SuppressWarnings("requires-automatic")
module org.nccl4j.nccl {
    requires transitive org.nccl4j.collectives;
    requires org.nccl4j.bindings;
    requires static jcuda;
    requires static org.bytedeco.javacpp;

    exports org.nccl4j.nccl.interop;

    provides org.nccl4j.collectives.Backend with
            org.nccl4j.nccl.NcclBackend;
}
