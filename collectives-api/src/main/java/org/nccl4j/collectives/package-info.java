/**
 * Collective communication for the JVM: the contract that every backend keeps.
 *
 * <p>Start with {@link org.nccl4j.collectives.Backends}, which gives a {@link
 * org.nccl4j.collectives.Backend}; it makes {@link org.nccl4j.collectives.Communicator}s, whose
 * {@link org.nccl4j.collectives.Operations} are enqueued on {@link
 * org.nccl4j.collectives.DeviceStream}s and work on {@link org.nccl4j.collectives.DeviceBuffer}s.
 *
 * <p>Two ranks of this process, driven by one thread:
 *
 * {@snippet :
 * Backend backend = Backends.preferred();
 * List<Communicator> ranks = backend.createLocal(2, CommunicatorConfig.defaults());
 * List<DeviceBuffer> buffers = new ArrayList<>();
 * List<DeviceStream> streams = new ArrayList<>();
 * for (Communicator rank : ranks) {
 *     buffers.add(rank.device().allocate(1024 * DataType.FLOAT32.sizeBytes()));
 *     streams.add(rank.device().createStream());
 * }
 * backend.group(
 *         group -> {
 *             for (int r = 0; r < 2; r++) {
 *                 DeviceBuffer buffer = buffers.get(r);
 *                 group.on(ranks.get(r))
 *                         .allReduce( // in place
 *                                 buffer,
 *                                 buffer,
 *                                 1024,
 *                                 DataType.FLOAT32,
 *                                 ReduceOp.SUM,
 *                                 streams.get(r));
 *             }
 *         });
 * backend.synchronizeAll(streams, Duration.ofMinutes(1));
 * backend.closeAll(ranks);
 * buffers.forEach(DeviceBuffer::close);
 * streams.forEach(DeviceStream::close);
 * }
 *
 * <h2>What holds everywhere</h2>
 *
 * <ul>
 *   <li>Operations enqueue and return. {@link org.nccl4j.collectives.DeviceStream#synchronize},
 *       {@code poll}, {@code completion} and events tell when they are done.
 *   <li>Counts are elements of the given {@link org.nccl4j.collectives.DataType} and {@code long};
 *       sizes and offsets of buffers are bytes. Names say which.
 *   <li>What a call refuses with {@link org.nccl4j.collectives.InvalidArgumentException} or {@link
 *       org.nccl4j.collectives.UnsupportedException} has changed nothing: all stays usable.
 *   <li>Nothing waits for ever. A method that waits takes a {@link java.time.Duration}, or is bound
 *       by {@link org.nccl4j.collectives.CommunicatorConfig#operationTimeout}. Zero asks without
 *       waiting, and so does a negative duration.
 *   <li>A wait that is interrupted ends with {@link
 *       org.nccl4j.collectives.WaitInterruptedException}, the interrupt flag set again and nothing
 *       changed. Enqueuing does not look at the flag.
 *   <li>A failure belongs to its communicator: it fails once, on every rank that can be told, and
 *       is thrown wherever its work is waited for. {@link
 *       org.nccl4j.collectives.CollectiveException#recovery} says what helps.
 *   <li>Whoever makes something closes it. Closing twice does nothing, and no garbage collection
 *       closes anything.
 * </ul>
 */
package org.nccl4j.collectives;
