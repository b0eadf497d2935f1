package org.nccl4j.collectives;

/**
 * How a backend carries out a collective, for people to look at: see {@link Backend#explain}.
 *
 * <p>Thread safety: immutable.
 *
 * @param text steps, messages and bytes of each rank as lines, the last one ended
 * @param svg the same as a picture, a whole SVG document
 */
public record Explanation(String text, String svg) {}
