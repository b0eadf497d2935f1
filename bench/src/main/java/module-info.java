/** The bench command: nccl-tests' table, flags and JSON for every backend. */
module org.nccl4j.bench {
    requires java.logging;
    requires org.nccl4j.collectives;
    requires tools.jackson.core;
}
