/** jextract's output for NCCL and the CUDA runtime, and the one loader of native libraries. */
module org.nccl4j.bindings {
    exports org.nccl4j.bindings;
    exports org.nccl4j.bindings.nccl;
    exports org.nccl4j.bindings.cudart;
}
