package org.nccl4j.cpu;

/**
 * What one unit of each of the {@link Amounts} takes: the alpha-beta model with a term for
 * reductions and terms for data that does not fit caches.
 *
 * <p>Thread safety: immutable.
 *
 * @param fixedMicros an operation
 * @param handoverMicros waking other threads
 * @param rankMicros a rank
 * @param alphaMicros a step
 * @param betaMicrosPerMiB moving
 * @param gammaMicrosPerMiB combining, beyond moving
 * @param spillMicrosPerMiB moving, beyond beta, the part that does not fit the inner cache
 * @param memoryMicrosPerMiB moving, beyond that, the part that does not fit the outer cache
 * @param innerCacheMiB what fits the inner cache
 * @param outerCacheMiB what fits the outer cache
 */
record Rates(
        double fixedMicros,
        double handoverMicros,
        double rankMicros,
        double alphaMicros,
        double betaMicrosPerMiB,
        double gammaMicrosPerMiB,
        double spillMicrosPerMiB,
        double memoryMicrosPerMiB,
        double innerCacheMiB,
        double outerCacheMiB) {
    private static final double MIB = 1 << 20;

    /** How many rates there are besides the caches' sizes. */
    static final int TERMS = 8;

    /** From the terms in their order. */
    static Rates of(double[] terms, double innerCacheMiB, double outerCacheMiB) {
        return new Rates(
                terms[0],
                terms[1],
                terms[2],
                terms[3],
                terms[4],
                terms[5],
                terms[6],
                terms[7],
                innerCacheMiB,
                outerCacheMiB);
    }

    /** The time of an operation. */
    double micros(Amounts amounts) {
        double[] units = units(amounts, innerCacheMiB, outerCacheMiB);
        return fixedMicros * units[0]
                + handoverMicros * units[1]
                + rankMicros * units[2]
                + alphaMicros * units[3]
                + betaMicrosPerMiB * units[4]
                + gammaMicrosPerMiB * units[5]
                + spillMicrosPerMiB * units[6]
                + memoryMicrosPerMiB * units[7];
    }

    /** What each term is multiplied by. */
    static double[] units(Amounts amounts, double innerCacheMiB, double outerCacheMiB) {
        double movedMiB = amounts.movedBytes() / MIB;
        double touchedMiB = amounts.touchedBytes() / MIB;
        return new double[] {
            1,
            amounts.handovers(),
            amounts.ranks(),
            amounts.steps(),
            movedMiB,
            amounts.reducedBytes() / MIB,
            movedMiB * beyond(touchedMiB, innerCacheMiB),
            movedMiB * beyond(touchedMiB, outerCacheMiB)
        };
    }

    private static double beyond(double touchedMiB, double cacheMiB) {
        return touchedMiB <= cacheMiB ? 0 : 1 - cacheMiB / touchedMiB;
    }
}
