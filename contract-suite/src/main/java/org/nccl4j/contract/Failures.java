package org.nccl4j.contract;

import java.util.List;

/** Turns what went wrong on ranks into one error that says how to see it again. */
final class Failures {
    private static final int SHOWN = 6;

    private Failures() {}

    /** How many programs failed, on whatever number of ranks. */
    static int programs(List<RankRunner.Failure> failures) {
        return (int) failures.stream().map(RankRunner.Failure::program).distinct().count();
    }

    static void throwIfAny(
            List<RankRunner.Failure> failures, int programs, RankRunner runner, long seed) {
        if (failures.isEmpty()) {
            return;
        }
        StringBuilder text = new StringBuilder();
        text.append(programs(failures))
                .append(" of ")
                .append(programs)
                .append(" cases failed with ")
                .append(runner.label())
                .append("; repeat with -D")
                .append(Settings.SEED)
                .append('=')
                .append(seed)
                .append(" -D")
                .append(Settings.ONLY)
                .append("='")
                .append(withoutSeed(failures.getFirst().program()))
                .append("'");
        for (RankRunner.Failure failure : failures.subList(0, Math.min(SHOWN, failures.size()))) {
            text.append("\n  ")
                    .append(failure.program())
                    .append(", rank ")
                    .append(failure.rank())
                    .append(": ")
                    .append(failure.cause());
        }
        if (failures.size() > SHOWN) {
            text.append("\n  and ").append(failures.size() - SHOWN).append(" more");
        }
        AssertionError error = new AssertionError(text.toString(), failures.getFirst().cause());
        failures.stream().skip(1).limit(SHOWN).forEach(f -> error.addSuppressed(f.cause()));
        throw error;
    }

    private static String withoutSeed(String id) {
        int at = id.indexOf("/seed=");
        return at < 0 ? id : id.substring(0, at);
    }
}
