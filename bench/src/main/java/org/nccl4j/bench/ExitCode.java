package org.nccl4j.bench;

/** The exit codes of bench: nccl-tests' and, for an interrupted run, the shell's. */
enum ExitCode {
    /** The run succeeded, or help was asked for. */
    OK(0, "success, or help"),
    /** An error of the benchmark itself, an unusable alltoallv matrix, a full disk. */
    INTERNAL(1, "internal error, unusable alltoallv traffic, or stdout or -J cannot be written"),
    /** A CUDA call failed. */
    CUDA(2, "a CUDA call failed"),
    /** The backend refused or failed an operation. */
    BACKEND(3, "the backend refused or failed an operation"),
    /** Work did not complete within -T seconds. */
    TIMEOUT(4, "work did not complete within -T seconds"),
    /** Not enough devices, or something that this backend cannot do. */
    UNSUPPORTED(5, "not enough devices, or not possible on this backend"),
    /** Versions or devices that do not go together. */
    INVALID_USAGE(6, "versions or devices that do not go together"),
    /** A wrong element anywhere, or a bandwidth below the minimum. */
    FAILED(7, "wrong elements, or average bus bandwidth below NCCL_TESTS_MIN_BW"),
    /** Interrupted by Ctrl-C. */
    INTERRUPTED(130, "interrupted (Ctrl-C)"),
    /** Standard output was closed, say by {@code head}: what SIGPIPE gives a program in C. */
    OUTPUT_CLOSED(141, "the reader of standard output went away"),
    /** The command line was refused. */
    ARGUMENTS(255, "the command line was refused");

    private final int status;
    private final String meaning;

    ExitCode(int status, String meaning) {
        this.status = status;
        this.meaning = meaning;
    }

    int status() {
        return status;
    }

    /** For the help. */
    String meaning() {
        return meaning;
    }
}
