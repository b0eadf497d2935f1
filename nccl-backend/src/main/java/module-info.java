/** The contract over NCCL and CUDA streams. */
module org.nccl4j.nccl {
    requires transitive org.nccl4j.collectives;
    requires org.nccl4j.bindings;

    provides org.nccl4j.collectives.Backend with
            org.nccl4j.nccl.NcclBackend;
}
