package org.nccl4j.cpu;

/** An engine that moves nothing: a test says how many shares there are and what each does. */
final class ScriptedEngine implements Engine {
    /** What happens when the engine is called. */
    interface Script {
        Progress progress(JoinedOperation operation, int share);

        default void start(JoinedOperation operation) {}

        default void finish(JoinedOperation operation, boolean done) {}
    }

    private final int shares;
    private final Script script;

    ScriptedEngine(int shares, Script script) {
        this.shares = shares;
        this.script = script;
    }

    @Override
    public String name() {
        return "scripted";
    }

    @Override
    public long steps(JoinedOperation operation) {
        return shares;
    }

    @Override
    public int mostShares(int participants) {
        return shares;
    }

    @Override
    public Run start(JoinedOperation operation) {
        script.start(operation);
        return new Run() {
            @Override
            public int shares() {
                return shares;
            }

            @Override
            public Progress progress(int share) {
                return script.progress(operation, share);
            }

            @Override
            public void finish(boolean done) {
                script.finish(operation, done);
            }
        };
    }
}
