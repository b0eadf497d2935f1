package org.nccl4j.bench;

/** Ends a run with an exit code and a line for standard output. */
final class BenchFailure extends RuntimeException {
    private static final long serialVersionUID = 1L;

    private final ExitCode code;

    /**
     * @param code what the process exits with
     * @param line the line for standard output, to the character
     */
    BenchFailure(ExitCode code, String line) {
        super(line);
        this.code = code;
    }

    ExitCode code() {
        return code;
    }
}
