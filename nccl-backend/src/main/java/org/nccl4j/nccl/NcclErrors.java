package org.nccl4j.nccl;

import org.nccl4j.collectives.CollectiveException.Recovery;
import org.nccl4j.collectives.NativeCallException;

/**
 * What NCCL's result codes mean for a caller. Codes that this binding does not know are kept as
 * they are: a newer library may have more.
 *
 * <p>Thread safety: immutable.
 */
final class NcclErrors {
    private NcclErrors() {}

    static String name(int code) {
        return switch (code) {
            case 0 -> "ncclSuccess";
            case 1 -> "ncclUnhandledCudaError";
            case 2 -> "ncclSystemError";
            case 3 -> "ncclInternalError";
            case 4 -> "ncclInvalidArgument";
            case 5 -> "ncclInvalidUsage";
            case 6 -> "ncclRemoteError";
            case 7 -> "ncclInProgress";
            case 8 -> "ncclTimeout";
            default -> "a code that this version of nccl4j does not know";
        };
    }

    static Recovery recovery(int code) {
        return code == 4 ? Recovery.CORRECT_THE_CALL : Recovery.RECREATE_COMMUNICATOR;
    }

    private static String hint(int code) {
        return switch (code) {
            case 1 ->
                    "a CUDA call inside NCCL failed: the communicator is lost, create a new one;"
                            + " look for an earlier error of a kernel, for memory that is used up, and at NCCL_DEBUG=WARN";
            case 2 ->
                    "a system call failed (socket, shared memory, file): the communicator is lost;"
                            + " look at NCCL_SOCKET_IFNAME, firewalls, ulimit -l and -n, and the"
                            + " size of /dev/shm (docker: --shm-size)";
            case 3 ->
                    "a check inside NCCL failed, from a bug or from overwritten memory: the"
                            + " communicator is lost, create a new one; report it with the output of NCCL_DEBUG=INFO";
            case 4 ->
                    "NCCL refused an argument and did nothing, the communicator stays good; if our"
                            + " own checks let it pass, NCCL_DEBUG=WARN tells which it was";
            case 5 ->
                    "NCCL found a wrong use: two ranks on one GPU, ranks with different versions of"
                            + " NCCL, a feature that this machine lacks, or a group that mixes what"
                            + " may not be mixed; NCCL_DEBUG=WARN tells which; the"
                            + " communicator is lost";
            case 6 ->
                    "the network failed or a peer is gone: the communicator is lost; create a new"
                            + " one of the ranks that are left";
            case 7 -> "it goes on in the background; ask ncclCommGetAsyncError until it is done";
            case 8 -> "a time limit on the device has passed: the communicator is lost";
            default -> "the communicator is lost, create a new one; NCCL_DEBUG=WARN may tell more";
        };
    }

    static NativeCallException exception(
            String function, int code, String text, String lastErrorText, String doing) {
        return new NativeCallException(
                function,
                code,
                lastErrorText,
                recovery(code),
                doing
                        + ": "
                        + function
                        + " answered "
                        + code
                        + " ("
                        + name(code)
                        + (text.isEmpty() ? "" : ": " + text)
                        + ")"
                        + (lastErrorText.isEmpty()
                                ? ""
                                : "; NCCL's last warning, maybe of another call: \""
                                        + lastErrorText
                                        + "\"")
                        + "; "
                        + hint(code));
    }
}
