package org.nccl4j.examples;

/** Data-parallel gradient averaging. */
public final class GradientAveraging {
    private GradientAveraging() {}

    /**
     * Runs it.
     *
     * @param arguments none
     */
    public static void main(String[] arguments) {}
}
