package org.nccl4j.cpu;

import java.util.ArrayList;
import java.util.List;
import org.nccl4j.cpu.schedule.Collective;
import org.nccl4j.cpu.schedule.ScheduleAlgorithm;

/**
 * How long operations take over one transport, by algorithm.
 *
 * <p>Thread safety: immutable.
 *
 * @param transport its name in calibration files
 * @param direct of the {@link DirectEngine}
 * @param schedules of the {@link ScheduleEngine}, whatever the algorithm
 * @param threshold a schedule must be predicted to take less than this share of the direct engine's
 *     time to be chosen: what is closer is within the error of the predictions
 */
record CostModel(String transport, Rates direct, Rates schedules, double threshold) {
    /** Ranks that are threads of one process. */
    static final String THREADS = "threads";

    /**
     * What is taken without a calibration: measured on two cores of an Intel Xeon (model 167) by
     * {@code bench/bench calibrate}.
     */
    static final CostModel SHIPPED =
            new CostModel(
                    THREADS,
                    new Rates(0, 3, 0.035, 0.093, 18.6, 17.5, 53, 84.8, 2, 16),
                    new Rates(0.021, 7, 0.196, 0.08, 12.9, 61.7, 57.2, 63.5, 0.5, 8));

    /** The threshold, unless a calibration has seen greater errors. */
    static final double TIE = 0.75;

    CostModel(String transport, Rates direct, Rates schedules) {
        this(transport, direct, schedules, TIE);
    }

    /** An algorithm and what it is predicted to take; none is the direct engine. */
    record Prediction(ScheduleAlgorithm algorithm, double micros) {
        String name() {
            return algorithm == null ? EngineSetting.DIRECT : algorithm.title();
        }
    }

    /** One algorithm of a collective, ready to be asked about any size. */
    private record Candidate(ScheduleAlgorithm algorithm, ScheduleAmounts amounts) {}

    /** Asks about sizes of one kind of operation among one number of ranks. */
    Predictions predictions(OperationKind kind, Topology topology) {
        int ranks = topology.ranks();
        List<Candidate> candidates = new ArrayList<>();
        Collective collective = ScheduleEngine.collective(kind);
        if (collective != null && ranks > 1 && ranks <= ScheduleEngine.MOST_RANKS) {
            for (ScheduleAlgorithm algorithm : ScheduleAlgorithm.values()) {
                if (algorithm.collectives().contains(collective)) {
                    candidates.add(
                            new Candidate(
                                    algorithm,
                                    new ScheduleAmounts(algorithm.schedule(collective, ranks))));
                }
            }
        }
        return new Predictions(this, kind, topology, candidates);
    }

    /** The predictions for one kind of operation among one number of ranks. */
    static final class Predictions {
        private final CostModel model;
        private final OperationKind kind;
        private final Topology topology;
        private final List<Candidate> candidates;

        private Predictions(
                CostModel model,
                OperationKind kind,
                Topology topology,
                List<Candidate> candidates) {
            this.model = model;
            this.kind = kind;
            this.topology = topology;
            this.candidates = candidates;
        }

        /** All of them, the direct engine's first. */
        List<Prediction> all(long totalBytes) {
            List<Prediction> all = new ArrayList<>();
            Amounts amounts = Amounts.ofDirect(kind, topology, totalBytes);
            all.add(new Prediction(null, model.direct.micros(amounts)));
            for (Candidate candidate : candidates) {
                amounts = candidate.amounts.of(kind, topology, totalBytes);
                all.add(new Prediction(candidate.algorithm, model.schedules.micros(amounts)));
            }
            return all;
        }

        /** The least; within the {@link #threshold} the direct engine's. */
        Prediction best(long totalBytes) {
            List<Prediction> all = all(totalBytes);
            Prediction direct = all.getFirst();
            Prediction best = direct;
            for (Prediction each : all) {
                if (each.micros < best.micros && each.micros / direct.micros < model.threshold) {
                    best = each;
                }
            }
            return best;
        }
    }
}
