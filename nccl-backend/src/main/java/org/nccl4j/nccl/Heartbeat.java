package org.nccl4j.nccl;

import java.util.concurrent.TimeUnit;

/**
 * What the watchdog is asking native code now, so that somebody who never calls any can tell when
 * it gets no answer: a driver that does not return takes the deadlines of all communicators away.
 *
 * <p>Thread safety: {@link #asks} and {@link #isAnswered} belong to one thread, {@link #overdue} to
 * another.
 */
final class Heartbeat {
    /** Native code answers in microseconds; nobody is to be woken for a slow machine. */
    private static final long OVERDUE_NANOS = TimeUnit.SECONDS.toNanos(30);

    /**
     * A question.
     *
     * @param functions the native functions that may be asked
     * @param subject whom it is about
     * @param sinceNanos when it began
     */
    private record Question(String functions, Object subject, long sinceNanos) {}

    private volatile Question question;
    private Question reported;

    /** Native code is asked about somebody. */
    void asks(String functions, Object subject, long nowNanos) {
        question = new Question(functions, subject, nowNanos);
    }

    void isAnswered() {
        question = null;
    }

    /**
     * What to say of a question that has been open for too long, null if nothing or said before.
     */
    String overdue(long nowNanos) {
        Question open = question;
        if (open == null || open.equals(reported) || nowNanos - open.sinceNanos < OVERDUE_NANOS) {
            return null;
        }
        reported = open;
        return "the watchdog has been in "
                + open.functions
                + " about "
                + open.subject
                + " for "
                + TimeUnit.NANOSECONDS.toSeconds(nowNanos - open.sinceNanos)
                + " s: until the driver answers no communicator of this process has a deadline;"
                + " look at dmesg for Xid errors and at nvidia-smi, and restart the process";
    }
}
