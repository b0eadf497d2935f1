package org.nccl4j.cpu;

import org.nccl4j.collectives.CollectiveException;
import org.nccl4j.collectives.CommunicatorAbortedException;

/** The one record that is logged when a communicator fails: the cause and where each rank stood. */
final class FailureLog extends Chore {
    private final System.Logger log;
    private final String text;
    private final CollectiveException cause;

    private FailureLog(System.Logger log, String text, CollectiveException cause) {
        this.log = log;
        this.text = text;
        this.cause = cause;
    }

    /** Lock held. */
    static FailureLog of(Clique clique) {
        return new FailureLog(
                clique.scheduler.log(),
                "communicator '" + clique.name + "' failed" + Wording.table(clique),
                clique.cause);
    }

    @Override
    Chore perform(long budgetBytes) {
        // An abort is somebody's decision, not an error.
        System.Logger.Level level =
                cause instanceof CommunicatorAbortedException
                        ? System.Logger.Level.INFO
                        : System.Logger.Level.ERROR;
        log.log(level, text, cause);
        return null;
    }
}
