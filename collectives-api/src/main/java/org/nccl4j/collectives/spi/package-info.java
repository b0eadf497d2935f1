/**
 * What backends share: argument checks, buffer ownership, the meeting of ranks over a {@link
 * org.nccl4j.collectives.Rendezvous} ({@link org.nccl4j.collectives.spi.Roster}), and durations for
 * clocks and messages. Programs that only use collectives need nothing from here.
 */
package org.nccl4j.collectives.spi;
