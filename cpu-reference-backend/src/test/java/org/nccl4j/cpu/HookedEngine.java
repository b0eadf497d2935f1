package org.nccl4j.cpu;

/** The reference engine with somebody who may wait or throw before each piece. */
final class HookedEngine implements Engine {
    /** Called by the runner of a participant. */
    interface Hook {
        void beforeProgress(JoinedOperation operation, int participant);
    }

    private final Engine engine = new ReferenceEngine();
    private final Hook hook;

    HookedEngine(Hook hook) {
        this.hook = hook;
    }

    @Override
    public String name() {
        return "hooked";
    }

    @Override
    public long steps(JoinedOperation operation) {
        return engine.steps(operation);
    }

    @Override
    public Run start(JoinedOperation operation) {
        Run run = engine.start(operation);
        return new Run() {
            @Override
            public int shares() {
                return run.shares();
            }

            @Override
            public Progress progress(int participant) {
                hook.beforeProgress(operation, participant);
                return run.progress(participant);
            }

            @Override
            public void finish(boolean done) {
                run.finish(done);
            }
        };
    }
}
