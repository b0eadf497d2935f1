package org.nccl4j.bindings.nccl;

import static java.lang.foreign.ValueLayout.ADDRESS;
import static java.lang.foreign.ValueLayout.JAVA_INT;
import static java.lang.foreign.ValueLayout.JAVA_LONG;

import java.lang.foreign.FunctionDescriptor;
import java.lang.foreign.MemorySegment;
import java.lang.invoke.MethodHandle;
import org.nccl4j.bindings.NativeLibrary;

/**
 * What is called for each operation once more, with addresses and handles as numbers. {@link Nccl}
 * takes a segment for each, which must be made for an address that is computed or belongs to a GPU;
 * only a compiler that inlines everything between there and the call makes that object disappear.
 * Here there is none from the start. Signatures are held to those of C by the same test; a function
 * is looked up when it is first called.
 *
 * <p>Thread safety: as NCCL's.
 */
public final class NcclByAddress {
    private NcclByAddress() {}

    private static final class NcclAllReduce {
        static final MethodHandle HANDLE =
                NativeLibrary.NCCL.function(
                        "ncclAllReduce",
                        FunctionDescriptor.of(
                                JAVA_INT, JAVA_LONG, JAVA_LONG, JAVA_LONG, JAVA_INT, JAVA_INT,
                                JAVA_LONG, JAVA_LONG));
    }

    /**
     * All-reduce.
     *
     * @param send address of what is sent
     * @param recv address of what is received
     * @param count elements
     * @param type an {@code ncclDataType_t}
     * @param op an {@code ncclRedOp_t}
     * @param comm the communicator
     * @param stream the stream
     * @return an {@code ncclResult_t}
     */
    public static int ncclAllReduce(
            long send, long recv, long count, int type, int op, long comm, long stream) {
        try {
            return (int)
                    NcclAllReduce.HANDLE.invokeExact(send, recv, count, type, op, comm, stream);
        } catch (Throwable e) {
            throw NativeLibrary.undeclared(e);
        }
    }

    private static final class NcclReduce {
        static final MethodHandle HANDLE =
                NativeLibrary.NCCL.function(
                        "ncclReduce",
                        FunctionDescriptor.of(
                                JAVA_INT, JAVA_LONG, JAVA_LONG, JAVA_LONG, JAVA_INT, JAVA_INT,
                                JAVA_INT, JAVA_LONG, JAVA_LONG));
    }

    /**
     * Reduce.
     *
     * @param send address of what is sent
     * @param recv address of what is received
     * @param count elements
     * @param type an {@code ncclDataType_t}
     * @param op an {@code ncclRedOp_t}
     * @param root the root
     * @param comm the communicator
     * @param stream the stream
     * @return an {@code ncclResult_t}
     */
    public static int ncclReduce(
            long send, long recv, long count, int type, int op, int root, long comm, long stream) {
        try {
            return (int)
                    NcclReduce.HANDLE.invokeExact(send, recv, count, type, op, root, comm, stream);
        } catch (Throwable e) {
            throw NativeLibrary.undeclared(e);
        }
    }

    private static final class NcclBroadcast {
        static final MethodHandle HANDLE =
                NativeLibrary.NCCL.function(
                        "ncclBroadcast",
                        FunctionDescriptor.of(
                                JAVA_INT, JAVA_LONG, JAVA_LONG, JAVA_LONG, JAVA_INT, JAVA_INT,
                                JAVA_LONG, JAVA_LONG));
    }

    /**
     * Broadcast.
     *
     * @param send address of what is sent
     * @param recv address of what is received
     * @param count elements
     * @param type an {@code ncclDataType_t}
     * @param root the root
     * @param comm the communicator
     * @param stream the stream
     * @return an {@code ncclResult_t}
     */
    public static int ncclBroadcast(
            long send, long recv, long count, int type, int root, long comm, long stream) {
        try {
            return (int)
                    NcclBroadcast.HANDLE.invokeExact(send, recv, count, type, root, comm, stream);
        } catch (Throwable e) {
            throw NativeLibrary.undeclared(e);
        }
    }

    private static final class NcclAllGather {
        static final MethodHandle HANDLE =
                NativeLibrary.NCCL.function(
                        "ncclAllGather",
                        FunctionDescriptor.of(
                                JAVA_INT, JAVA_LONG, JAVA_LONG, JAVA_LONG, JAVA_INT, JAVA_LONG,
                                JAVA_LONG));
    }

    /**
     * All-gather.
     *
     * @param send address of what is sent
     * @param recv address of what is received
     * @param count elements
     * @param type an {@code ncclDataType_t}
     * @param comm the communicator
     * @param stream the stream
     * @return an {@code ncclResult_t}
     */
    public static int ncclAllGather(
            long send, long recv, long count, int type, long comm, long stream) {
        try {
            return (int) NcclAllGather.HANDLE.invokeExact(send, recv, count, type, comm, stream);
        } catch (Throwable e) {
            throw NativeLibrary.undeclared(e);
        }
    }

    private static final class NcclReduceScatter {
        static final MethodHandle HANDLE =
                NativeLibrary.NCCL.function(
                        "ncclReduceScatter",
                        FunctionDescriptor.of(
                                JAVA_INT, JAVA_LONG, JAVA_LONG, JAVA_LONG, JAVA_INT, JAVA_INT,
                                JAVA_LONG, JAVA_LONG));
    }

    /**
     * Reduce-scatter.
     *
     * @param send address of what is sent
     * @param recv address of what is received
     * @param count elements
     * @param type an {@code ncclDataType_t}
     * @param op an {@code ncclRedOp_t}
     * @param comm the communicator
     * @param stream the stream
     * @return an {@code ncclResult_t}
     */
    public static int ncclReduceScatter(
            long send, long recv, long count, int type, int op, long comm, long stream) {
        try {
            return (int)
                    NcclReduceScatter.HANDLE.invokeExact(send, recv, count, type, op, comm, stream);
        } catch (Throwable e) {
            throw NativeLibrary.undeclared(e);
        }
    }

    private static final class NcclAlltoAll {
        static final MethodHandle HANDLE =
                NativeLibrary.NCCL.function(
                        "ncclAlltoAll",
                        FunctionDescriptor.of(
                                JAVA_INT, JAVA_LONG, JAVA_LONG, JAVA_LONG, JAVA_INT, JAVA_LONG,
                                JAVA_LONG));
    }

    /**
     * All-to-all; since 2.28.3.
     *
     * @param send address of what is sent
     * @param recv address of what is received
     * @param count elements
     * @param type an {@code ncclDataType_t}
     * @param comm the communicator
     * @param stream the stream
     * @return an {@code ncclResult_t}
     */
    public static int ncclAlltoAll(
            long send, long recv, long count, int type, long comm, long stream) {
        try {
            return (int) NcclAlltoAll.HANDLE.invokeExact(send, recv, count, type, comm, stream);
        } catch (Throwable e) {
            throw NativeLibrary.undeclared(e);
        }
    }

    private static final class NcclGather {
        static final MethodHandle HANDLE =
                NativeLibrary.NCCL.function(
                        "ncclGather",
                        FunctionDescriptor.of(
                                JAVA_INT, JAVA_LONG, JAVA_LONG, JAVA_LONG, JAVA_INT, JAVA_INT,
                                JAVA_LONG, JAVA_LONG));
    }

    /**
     * Gather; since 2.28.3.
     *
     * @param send address of what is sent
     * @param recv address of what is received
     * @param count elements
     * @param type an {@code ncclDataType_t}
     * @param root the root
     * @param comm the communicator
     * @param stream the stream
     * @return an {@code ncclResult_t}
     */
    public static int ncclGather(
            long send, long recv, long count, int type, int root, long comm, long stream) {
        try {
            return (int) NcclGather.HANDLE.invokeExact(send, recv, count, type, root, comm, stream);
        } catch (Throwable e) {
            throw NativeLibrary.undeclared(e);
        }
    }

    private static final class NcclScatter {
        static final MethodHandle HANDLE =
                NativeLibrary.NCCL.function(
                        "ncclScatter",
                        FunctionDescriptor.of(
                                JAVA_INT, JAVA_LONG, JAVA_LONG, JAVA_LONG, JAVA_INT, JAVA_INT,
                                JAVA_LONG, JAVA_LONG));
    }

    /**
     * Scatter; since 2.28.3.
     *
     * @param send address of what is sent
     * @param recv address of what is received
     * @param count elements
     * @param type an {@code ncclDataType_t}
     * @param root the root
     * @param comm the communicator
     * @param stream the stream
     * @return an {@code ncclResult_t}
     */
    public static int ncclScatter(
            long send, long recv, long count, int type, int root, long comm, long stream) {
        try {
            return (int)
                    NcclScatter.HANDLE.invokeExact(send, recv, count, type, root, comm, stream);
        } catch (Throwable e) {
            throw NativeLibrary.undeclared(e);
        }
    }

    private static final class NcclSend {
        static final MethodHandle HANDLE =
                NativeLibrary.NCCL.function(
                        "ncclSend",
                        FunctionDescriptor.of(
                                JAVA_INT, JAVA_LONG, JAVA_LONG, JAVA_INT, JAVA_INT, JAVA_LONG,
                                JAVA_LONG));
    }

    /**
     * Send.
     *
     * @param send address of what is sent
     * @param count elements
     * @param type an {@code ncclDataType_t}
     * @param peer the other rank
     * @param comm the communicator
     * @param stream the stream
     * @return an {@code ncclResult_t}
     */
    public static int ncclSend(long send, long count, int type, int peer, long comm, long stream) {
        try {
            return (int) NcclSend.HANDLE.invokeExact(send, count, type, peer, comm, stream);
        } catch (Throwable e) {
            throw NativeLibrary.undeclared(e);
        }
    }

    private static final class NcclRecv {
        static final MethodHandle HANDLE =
                NativeLibrary.NCCL.function(
                        "ncclRecv",
                        FunctionDescriptor.of(
                                JAVA_INT, JAVA_LONG, JAVA_LONG, JAVA_INT, JAVA_INT, JAVA_LONG,
                                JAVA_LONG));
    }

    /**
     * Receive.
     *
     * @param recv address of what is received
     * @param count elements
     * @param type an {@code ncclDataType_t}
     * @param peer the other rank
     * @param comm the communicator
     * @param stream the stream
     * @return an {@code ncclResult_t}
     */
    public static int ncclRecv(long recv, long count, int type, int peer, long comm, long stream) {
        try {
            return (int) NcclRecv.HANDLE.invokeExact(recv, count, type, peer, comm, stream);
        } catch (Throwable e) {
            throw NativeLibrary.undeclared(e);
        }
    }

    private static final class NcclCommGetAsyncError {
        static final MethodHandle HANDLE =
                NativeLibrary.NCCL.function(
                        "ncclCommGetAsyncError",
                        FunctionDescriptor.of(JAVA_INT, JAVA_LONG, ADDRESS));
    }

    /**
     * A communicator's state.
     *
     * @param comm the communicator
     * @param state an {@code ncclResult_t} to write
     * @return an {@code ncclResult_t}
     */
    public static int ncclCommGetAsyncError(long comm, MemorySegment state) {
        try {
            return (int) NcclCommGetAsyncError.HANDLE.invokeExact(comm, state);
        } catch (Throwable e) {
            throw NativeLibrary.undeclared(e);
        }
    }
}
