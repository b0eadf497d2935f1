/**
 * Collective communication for the JVM: the contract that every backend keeps.
 *
 * <p>Start with {@link org.nccl4j.collectives.Backends}, which gives a {@link
 * org.nccl4j.collectives.Backend}; it makes {@link org.nccl4j.collectives.Communicator}s, whose
 * {@link org.nccl4j.collectives.Operations} are enqueued on {@link
 * org.nccl4j.collectives.DeviceStream}s and work on {@link org.nccl4j.collectives.DeviceBuffer}s.
 */
package org.nccl4j.collectives;
