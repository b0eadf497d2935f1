/** The contract as test cases, for every backend, engine, algorithm and transport. */
module org.nccl4j.contract {
    requires transitive org.nccl4j.collectives;
    requires transitive org.junit.jupiter.api;
    requires transitive org.junit.jupiter.params;
    requires org.assertj.core;
    requires java.logging;
    requires org.opentest4j;

    exports org.nccl4j.contract;
}
