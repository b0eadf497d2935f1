package org.nccl4j.bench;

/**
 * The two bandwidths of a cell. Formulas: {@link Program#bandwidth}.
 *
 * @param algBwGBps the collective's data divided by time, in 10^9 bytes per second
 * @param busBwGBps algBw times the share that crosses each link in an optimal algorithm
 */
record Bandwidth(double algBwGBps, double busBwGBps) {}
