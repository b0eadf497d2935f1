/** The contract that every backend keeps. */
module org.nccl4j.collectives {}
