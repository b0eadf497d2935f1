/**
 * Algorithms as values: who sends which chunk to whom at which step, and what the receiver does
 * with it. A {@link org.nccl4j.cpu.schedule.Schedule} is built by {@link
 * org.nccl4j.cpu.schedule.ScheduleAlgorithm}, proven by {@link
 * org.nccl4j.cpu.schedule.Verification}, shown by {@link org.nccl4j.cpu.schedule.SchedulePicture},
 * and run by the engine in the package above. Nothing here moves data or knows about threads.
 */
package org.nccl4j.cpu.schedule;
