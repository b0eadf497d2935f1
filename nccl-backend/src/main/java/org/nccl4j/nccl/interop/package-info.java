/**
 * Memory and streams that other CUDA bindings for Java own, as {@link
 * org.nccl4j.collectives.DeviceBuffer}s and {@link org.nccl4j.collectives.DeviceStream}s.
 *
 * <p>JCuda and JavaCPP are optional: a class here needs its library only when it is used, and none
 * of their native code. Everybody else passes an address to {@link
 * org.nccl4j.collectives.DeviceBuffer#wrap(org.nccl4j.collectives.Device, long, long, Object)} and
 * a stream's handle to {@link org.nccl4j.collectives.Device#wrapStream}.
 */
package org.nccl4j.nccl.interop;
