/** The contract of nccl4j: collectives on device buffers and streams, implemented by backends. */
module org.nccl4j.collectives {
    requires transitive jdk.jfr;

    exports org.nccl4j.collectives;
    exports org.nccl4j.collectives.spi;

    uses org.nccl4j.collectives.Backend;
}
