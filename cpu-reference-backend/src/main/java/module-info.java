/** The contract in pure Java. */
module org.nccl4j.cpu {
    requires transitive org.nccl4j.collectives;
}
