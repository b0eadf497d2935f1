package org.nccl4j.cpu;

import java.util.ArrayList;
import java.util.List;

/**
 * Finds the {@link Rates} that predict measured times with the least squares of relative errors.
 *
 * <p>Thread safety: immutable.
 *
 * @param rates what was found
 * @param medianError of the predictions, relative to the times
 * @param worstError likewise
 */
record RatesFit(Rates rates, double medianError, double worstError) {
    /** Caches that are tried. */
    private static final double[] CACHES_MIB = {0.25, 0.5, 1, 2, 4, 8, 16, 32, 64, 128};

    /** A time that was measured. */
    record Sample(Amounts amounts, double micros) {}

    /**
     * Fits.
     *
     * @param samples at least one, of positive times
     */
    static RatesFit of(List<Sample> samples) {
        Rates best = null;
        double least = Double.POSITIVE_INFINITY;
        for (int pair = 0; pair < CACHES_MIB.length * CACHES_MIB.length; pair++) {
            double innerMiB = CACHES_MIB[pair / CACHES_MIB.length];
            double outerMiB = CACHES_MIB[pair % CACHES_MIB.length];
            if (outerMiB <= innerMiB) {
                continue;
            }
            double[][] rows = new double[samples.size()][];
            for (int i = 0; i < rows.length; i++) {
                Sample sample = samples.get(i);
                rows[i] = Rates.units(sample.amounts, innerMiB, outerMiB);
                for (int term = 0; term < Rates.TERMS; term++) {
                    rows[i][term] /= sample.micros;
                }
            }
            // None may be negative. So few terms allow to try which of them are zero.
            for (int terms = 1; terms < 1 << Rates.TERMS; terms++) {
                double[] solution = solve(rows, terms);
                double error = solution == null ? least : error(rows, solution);
                if (error < least) {
                    least = error;
                    best = Rates.of(solution, innerMiB, outerMiB);
                }
            }
        }
        if (best == null) {
            throw new IllegalArgumentException("no rates predict " + samples.size() + " samples");
        }
        List<Double> errors = new ArrayList<>();
        for (Sample sample : samples) {
            errors.add(Math.abs(best.micros(sample.amounts) / sample.micros - 1));
        }
        errors.sort(null);
        return new RatesFit(best, errors.get(errors.size() / 2), errors.getLast());
    }

    private static double error(double[][] rows, double[] solution) {
        double sum = 0;
        for (double[] row : rows) {
            double off = -1;
            for (int term = 0; term < Rates.TERMS; term++) {
                off += row[term] * solution[term];
            }
            sum += off * off;
        }
        return sum;
    }

    /**
     * Least squares of {@code row x solution = 1} by the normal equations, for some of the terms.
     *
     * @return the others being 0; null if a term is negative or they cannot be told apart
     */
    private static double[] solve(double[][] rows, int terms) {
        int[] used = new int[Integer.bitCount(terms)];
        for (int term = 0, at = 0; term < Rates.TERMS; term++) {
            if ((terms >> term & 1) != 0) {
                used[at++] = term;
            }
        }
        int n = used.length;
        double[][] equations = new double[n][n + 1];
        for (double[] row : rows) {
            for (int i = 0; i < n; i++) {
                for (int j = 0; j < n; j++) {
                    equations[i][j] += row[used[i]] * row[used[j]];
                }
                equations[i][n] += row[used[i]];
            }
        }
        for (int i = 0; i < n; i++) {
            int pivot = i;
            for (int j = i + 1; j < n; j++) {
                pivot = Math.abs(equations[j][i]) > Math.abs(equations[pivot][i]) ? j : pivot;
            }
            double[] swapped = equations[i];
            equations[i] = equations[pivot];
            equations[pivot] = swapped;
            if (Math.abs(equations[i][i]) < 1e-12) {
                return null;
            }
            for (int j = 0; j < n; j++) {
                double factor = j == i ? 0 : equations[j][i] / equations[i][i];
                for (int k = i; k <= n; k++) {
                    equations[j][k] -= factor * equations[i][k];
                }
            }
        }
        double[] solution = new double[Rates.TERMS];
        for (int i = 0; i < n; i++) {
            double value = equations[i][n] / equations[i][i];
            if (value < 0) {
                return null;
            }
            solution[used[i]] = value;
        }
        return solution;
    }
}
