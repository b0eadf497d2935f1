/**
 * The contract in pure Java: ranks of one process on virtual devices.
 *
 * <p>One layer serves every engine. {@link org.nccl4j.cpu.CpuBackend} makes communicators; calls on
 * them become entries of streams ({@code CpuStream}, {@code Batch}, {@code Part}) and meet those of
 * other ranks ({@code Match}, in a {@code Clique}). {@code Scheduler} holds the one lock and all
 * changes of state, and its page says which there are; {@code Workers} are the threads that move
 * data; {@code Watchdog} looks after deadlines. An {@code Engine} gets a {@code JoinedOperation},
 * on which all ranks agree, and knows nothing of all this.
 */
package org.nccl4j.cpu;
