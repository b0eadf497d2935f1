/** Programs to start from. */
module org.nccl4j.examples {
    requires org.nccl4j.collectives;

    exports org.nccl4j.examples;
}
