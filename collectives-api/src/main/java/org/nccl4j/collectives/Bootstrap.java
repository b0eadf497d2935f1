package org.nccl4j.collectives;

/**
 * How the ranks of a communicator find each other: an id carried by hand, or a meeting through a
 * {@link Store}.
 */
public sealed interface Bootstrap permits UniqueId, Rendezvous {}
