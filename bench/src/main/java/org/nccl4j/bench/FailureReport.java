package org.nccl4j.bench;

/**
 * What nccl-tests prints on standard output when a run fails: a line that says what failed, then
 * one that says where. No footer follows.
 *
 * <p>Thread safety: stateless but for the console, which writes whole lines.
 */
final class FailureReport {

    private final Console console;
    private final String host;
    private final long pid;

    /**
     * @param hostname the host's name; cut at the first dot
     */
    FailureReport(Console console, String hostname, long pid) {
        this.console = console;
        int dot = hostname.indexOf('.');
        this.host = dot < 0 ? hostname : hostname.substring(0, dot);
        this.pid = pid;
    }

    /**
     * A failure of a library or backend.
     *
     * @param library {@code CUDA}, {@code NCCL} or the backend's name
     * @param message what it reports; with NCCL followed by {@code " / "} and its last error text
     * @param at where in the benchmark
     */
    void failed(String library, String message, StackTraceElement at) {
        console.out(host + ": Test " + library + " failure " + place(at) + " '" + message + "'");
        where(at);
    }

    /** A wait that took longer than -T. */
    void timedOut(int timeoutSeconds, StackTraceElement at) {
        console.out(host + ": Test timeout (" + timeoutSeconds + "s) " + place(at));
        where(at);
    }

    /** Where the run failed; alone, behind the footer, if all that failed is the verdict. */
    void where(StackTraceElement at) {
        console.out(" .. " + host + " pid " + pid + ": Test failure " + place(at));
    }

    /**
     * More devices asked for than there are; on standard error, with exit code 5.
     *
     * @param needed first device plus threads times devices per thread
     * @param found devices of the backend
     */
    void tooFewDevices(int needed, int found) {
        console.err(
                "Invalid number of GPUs: "
                        + needed
                        + " requested but only "
                        + found
                        + " were found.");
        console.err("Please check the number of processes and GPUs per process.");
    }

    private static String place(StackTraceElement at) {
        return at.getFileName() + ":" + at.getLineNumber();
    }
}
