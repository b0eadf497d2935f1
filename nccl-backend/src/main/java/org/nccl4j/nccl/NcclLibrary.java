package org.nccl4j.nccl;

import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import org.nccl4j.bindings.NativeLibrary;
import org.nccl4j.bindings.nccl.Nccl;
import org.nccl4j.bindings.nccl.NcclByAddress;
import org.nccl4j.collectives.LibraryUnavailableException;
import org.nccl4j.collectives.NativeCallException;
import org.nccl4j.collectives.UnsupportedException;

/**
 * NCCL's functions. Operations and group calls give the raw result code, to be compared with {@link
 * #SUCCESS} and {@link #IN_PROGRESS}; all others throw for any other code than these two. Nothing
 * here may be called before {@link NcclSetup} has found the library, but for {@link
 * #versionCode()}.
 *
 * <p>Thread safety: as NCCL's own; what is about the library and not about a communicator may be
 * called from any thread.
 */
final class NcclLibrary {
    static final int SUCCESS = 0;
    static final int IN_PROGRESS = 7;

    /** The first version with split and with today's layout of the configuration. */
    static final int OLDEST_VERSION_CODE = 21801;

    private NcclLibrary() {}

    /** Known from the first call on. */
    private static final class Version {
        static final int CODE = load();

        private static int load() {
            // For the loader's own exception, before a class of functions wraps it in an error.
            if (!NativeLibrary.NCCL.has("ncclGetVersion")) {
                throw new LibraryUnavailableException(
                        path() + " has no ncclGetVersion, so it is not NCCL");
            }
            NcclEnvironment.complete();
            try (Arena arena = Arena.ofConfined()) {
                MemorySegment cell = arena.allocate(ValueLayout.JAVA_INT);
                int code = Nccl.ncclGetVersion(cell);
                if (code != SUCCESS) {
                    throw new LibraryUnavailableException(
                            "ncclGetVersion of " + path() + " answered " + code);
                }
                return cell.get(ValueLayout.JAVA_INT, 0);
            }
        }
    }

    // ---- the library

    /**
     * As the library tells it, such as 23007.
     *
     * @throws org.nccl4j.bindings.LibraryNotLoadedException if it cannot be loaded
     */
    static int versionCode() {
        return Version.CODE;
    }

    /** As people write it, such as 2.30.7. */
    static String version() {
        return version(versionCode());
    }

    /** A version code as people write it; the formula changed with 2.9. */
    static String version(int code) {
        int major = code < 10_000 ? 1_000 : 10_000;
        return code / major + "." + code % major / 100 + "." + code % 100;
    }

    /** The file that was loaded. */
    static String path() {
        return NativeLibrary.NCCL.path();
    }

    /** Whether the loaded library has a function. */
    static boolean has(String function) {
        return NativeLibrary.NCCL.has(function);
    }

    /**
     * Refuses what the loaded library is too old for.
     *
     * @param function the function that is needed
     * @param since the first version that has it, such as 22803
     * @param doing what needs it
     */
    static void require(String function, int since, String doing) {
        if (!has(function)) {
            throw new UnsupportedException(
                    doing
                            + " needs NCCL "
                            + version(since)
                            + " ("
                            + function
                            + "), loaded is "
                            + version()
                            + " from "
                            + path());
        }
    }

    /**
     * What a failed call becomes.
     *
     * @param function the C function
     * @param code its result
     * @param doing what was being done, by whom: operation, number, rank, communicator
     */
    static NativeCallException failed(String function, int code, String doing) {
        return NcclErrors.exception(function, code, errorText(code), lastErrorText(), doing);
    }

    /** What NCCL calls a code. */
    static String errorText(int code) {
        return Nccl.ncclGetErrorString(code).getString(0);
    }

    /**
     * The text of NCCL's last warning, copied. It is one for the whole process, of any thread's
     * call, and never forgotten; empty if there was none.
     */
    static String lastErrorText() {
        MemorySegment text = Nccl.ncclGetLastError(MemorySegment.NULL);
        return text.address() == 0 ? "" : text.getString(0).strip();
    }

    private static int checked(String function, int code, String doing) {
        if (code == SUCCESS || code == IN_PROGRESS) {
            return code;
        }
        throw failed(function, code, doing);
    }

    private static MemorySegment at(long address) {
        return MemorySegment.ofAddress(address);
    }

    // ---- communicators

    static void getUniqueId(MemorySegment id) {
        checked("ncclGetUniqueId", Nccl.ncclGetUniqueId(id), "making a unique id");
    }

    static int commInitRankConfig(
            MemorySegment communicatorCell,
            int ranks,
            MemorySegment id,
            int rank,
            MemorySegment config,
            String doing) {
        return checked(
                "ncclCommInitRankConfig",
                Nccl.ncclCommInitRankConfig(communicatorCell, ranks, id, rank, config),
                doing);
    }

    static int commSplit(
            long communicator,
            int color,
            int key,
            MemorySegment childCell,
            MemorySegment config,
            String doing) {
        return checked(
                "ncclCommSplit",
                Nccl.ncclCommSplit(at(communicator), color, key, childCell, config),
                doing);
    }

    static int commFinalize(long communicator, String doing) {
        return checked("ncclCommFinalize", Nccl.ncclCommFinalize(at(communicator)), doing);
    }

    static int commDestroy(long communicator, String doing) {
        return checked("ncclCommDestroy", Nccl.ncclCommDestroy(at(communicator)), doing);
    }

    static int commAbort(long communicator, String doing) {
        return checked("ncclCommAbort", Nccl.ncclCommAbort(at(communicator)), doing);
    }

    /** The number of ranks, once it is made. */
    static int commCount(long communicator, String doing) {
        try (Arena arena = Arena.ofConfined()) {
            MemorySegment cell = arena.allocate(ValueLayout.JAVA_INT);
            checked("ncclCommCount", Nccl.ncclCommCount(at(communicator), cell), doing);
            return cell.get(ValueLayout.JAVA_INT, 0);
        }
    }

    /** This rank's number, once it is made. */
    static int commUserRank(long communicator, String doing) {
        try (Arena arena = Arena.ofConfined()) {
            MemorySegment cell = arena.allocate(ValueLayout.JAVA_INT);
            checked("ncclCommUserRank", Nccl.ncclCommUserRank(at(communicator), cell), doing);
            return cell.get(ValueLayout.JAVA_INT, 0);
        }
    }

    /** The communicator's state: success, in progress or what went wrong. */
    static int commGetAsyncError(long communicator, MemorySegment stateCell, String doing) {
        checked(
                "ncclCommGetAsyncError",
                NcclByAddress.ncclCommGetAsyncError(communicator, stateCell),
                doing);
        return stateCell.get(ValueLayout.JAVA_INT, 0);
    }

    static int redOpCreatePreMulSum(
            MemorySegment operatorCell,
            MemorySegment scalar,
            int type,
            int residence,
            long communicator,
            String doing) {
        return checked(
                "ncclRedOpCreatePreMulSum",
                Nccl.ncclRedOpCreatePreMulSum(
                        operatorCell, scalar, type, residence, at(communicator)),
                doing);
    }

    static int redOpDestroy(int operator, long communicator, String doing) {
        return checked(
                "ncclRedOpDestroy", Nccl.ncclRedOpDestroy(operator, at(communicator)), doing);
    }

    /** Local; the handle is 0 where registration does nothing. */
    static int commRegister(
            long communicator,
            long address,
            long sizeBytes,
            MemorySegment handleCell,
            String doing) {
        return checked(
                "ncclCommRegister",
                Nccl.ncclCommRegister(at(communicator), at(address), sizeBytes, handleCell),
                doing);
    }

    static int commDeregister(long communicator, long handle, String doing) {
        return checked(
                "ncclCommDeregister", Nccl.ncclCommDeregister(at(communicator), at(handle)), doing);
    }

    // ---- groups and operations: raw codes

    static int groupStart() {
        return Nccl.ncclGroupStart();
    }

    static int groupEnd() {
        return Nccl.ncclGroupEnd();
    }

    static int allReduce(
            long send, long recv, long count, int type, int op, long communicator, long stream) {
        return NcclByAddress.ncclAllReduce(send, recv, count, type, op, communicator, stream);
    }

    static int reduce(
            long send,
            long recv,
            long count,
            int type,
            int op,
            int root,
            long communicator,
            long stream) {
        return NcclByAddress.ncclReduce(send, recv, count, type, op, root, communicator, stream);
    }

    static int broadcast(
            long send, long recv, long count, int type, int root, long communicator, long stream) {
        return NcclByAddress.ncclBroadcast(send, recv, count, type, root, communicator, stream);
    }

    static int allGather(
            long send, long recv, long count, int type, long communicator, long stream) {
        return NcclByAddress.ncclAllGather(send, recv, count, type, communicator, stream);
    }

    static int reduceScatter(
            long send, long recv, long count, int type, int op, long communicator, long stream) {
        return NcclByAddress.ncclReduceScatter(send, recv, count, type, op, communicator, stream);
    }

    static int allToAll(
            long send, long recv, long count, int type, long communicator, long stream) {
        return NcclByAddress.ncclAlltoAll(send, recv, count, type, communicator, stream);
    }

    static int gather(
            long send, long recv, long count, int type, int root, long communicator, long stream) {
        return NcclByAddress.ncclGather(send, recv, count, type, root, communicator, stream);
    }

    static int scatter(
            long send, long recv, long count, int type, int root, long communicator, long stream) {
        return NcclByAddress.ncclScatter(send, recv, count, type, root, communicator, stream);
    }

    static int send(long send, long count, int type, int peer, long communicator, long stream) {
        return NcclByAddress.ncclSend(send, count, type, peer, communicator, stream);
    }

    static int recv(long recv, long count, int type, int peer, long communicator, long stream) {
        return NcclByAddress.ncclRecv(recv, count, type, peer, communicator, stream);
    }
}
