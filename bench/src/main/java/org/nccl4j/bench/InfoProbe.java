package org.nccl4j.bench;

import java.util.List;
import java.util.concurrent.Callable;

/**
 * Finds out something for {@code bench info}. May fail or hang: the report says so and goes on.
 *
 * @param title the section that it fills
 * @param lines looks, and tells what it sees
 */
record InfoProbe(String title, Callable<List<InfoEntry>> lines) {}
