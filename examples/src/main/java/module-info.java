/** Programs to start from. */
// JCuda's jar names no module.
@SuppressWarnings("requires-automatic")
module org.nccl4j.examples {
    requires transitive org.nccl4j.collectives;
    requires static org.nccl4j.nccl;
    requires static jcuda;
    requires static org.bytedeco.cuda;

    exports org.nccl4j.examples;
}
