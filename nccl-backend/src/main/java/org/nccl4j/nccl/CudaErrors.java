package org.nccl4j.nccl;

import java.util.Set;
import org.nccl4j.collectives.CollectiveException.Recovery;
import org.nccl4j.collectives.NativeCallException;

/**
 * What the CUDA runtime's codes mean for a caller.
 *
 * <p>Thread safety: immutable.
 */
final class CudaErrors {
    /** After these a context answers nothing else any more. */
    private static final Set<Integer> STICKY =
            Set.of(214, 220, 226, 700, 702, 709, 710, 714, 715, 716, 717, 718, 719, 721, 722);

    private CudaErrors() {}

    /** Whether the context is lost for the life of the process. */
    static boolean isSticky(int code) {
        return STICKY.contains(code);
    }

    /** Whether nothing runs any more: the context is lost, or the process is ending. */
    static boolean isLoss(int code) {
        return isSticky(code) || code == 4;
    }

    /** Why a machine has no devices, with the remedy, in one line. */
    static String noDevices(int code, String name, String text) {
        String remedy =
                switch (code) {
                    case 35 ->
                            "no NVIDIA driver is loaded, or it is older than the CUDA runtime needs;"
                                    + " install or update the driver, in a container start it with"
                                    + " --gpus all";
                    case 100 ->
                            "the driver sees no GPU; look at nvidia-smi and at CUDA_VISIBLE_DEVICES";
                    case 34 ->
                            "libcuda.so.1 is the toolkit's stub and not the driver's; take the stubs"
                                    + " folder out of LD_LIBRARY_PATH";
                    case 46 -> "the GPUs are busy or prohibited; look at nvidia-smi -q -d COMPUTE";
                    case 802 ->
                            "the system is not ready: with NVSwitch start nvidia-fabricmanager, of"
                                    + " the driver's version";
                    case 803 ->
                            "the driver's library and its kernel module are of different versions;"
                                    + " reboot after an update of the driver";
                    case 804 ->
                            "this GPU does not support the compatibility package of another CUDA;"
                                    + " update the driver instead";
                    case 3, 999 ->
                            "the driver does not start; look at dmesg and nvidia-smi, and at the"
                                    + " permissions of /dev/nvidia*";
                    default -> "look at nvidia-smi";
                };
        return "no GPU can be used: cudaGetDeviceCount answered "
                + code
                + " ("
                + name
                + ": "
                + text
                + "): "
                + remedy;
    }

    static Recovery recovery(int code) {
        if (isLoss(code) || code == 999) {
            return Recovery.RESTART_PROCESS;
        }
        return switch (code) {
            case 1, 101, 400, 704, 712, 713, 900, 901, 902, 903, 904, 905, 906, 907, 908 ->
                    Recovery.CORRECT_THE_CALL;
            default -> Recovery.CHANGE_SETUP;
        };
    }

    private static String hint(int code) {
        if (isSticky(code)) {
            return "the device's context is lost and every later call will answer the same: restart"
                    + " the process; an earlier kernel or copy went wrong, compute-sanitizer finds"
                    + " which";
        }
        return switch (code) {
            case 1, 101 -> "an argument is wrong, such as a device that does not exist";
            case 2 ->
                    "device or pinned memory is used up; free some, or look who else holds it with"
                            + " nvidia-smi";
            case 3, 100 -> "look at nvidia-smi and at CUDA_VISIBLE_DEVICES";
            case 4 ->
                    "the process is ending and CUDA is unloaded already; do this before the end,"
                            + " not in a shutdown hook";
            case 34, 35, 802, 803, 804 -> "the driver is missing, too old or not ready";
            case 400 ->
                    "a stream, event or graph is not valid here: closed by its owner, or of"
                            + " another device";
            case 712, 713 -> "host memory is registered with CUDA already, or is not";
            case 999 ->
                    "CUDA does not know why; look at dmesg for messages of the driver (Xid), and"
                            + " restart the process if it happens again";
            case 801 -> "the device or driver does not support this";
            case 900, 901, 902, 903, 904, 905, 906, 907, 908 ->
                    "a stream is being captured into a graph, and this call is not allowed then";
            default -> "see CUDA's list of errors, cudaError_t";
        };
    }

    static NativeCallException exception(
            String function, int code, String name, String text, String doing) {
        return new NativeCallException(
                function,
                code,
                "",
                recovery(code),
                doing
                        + ": "
                        + function
                        + " answered "
                        + code
                        + " ("
                        + name
                        + ": "
                        + text
                        + "); "
                        + hint(code));
    }
}
