/** Programs to start from. */
module org.nccl4j.examples {
    requires transitive org.nccl4j.collectives;

    exports org.nccl4j.examples;
}
