package org.nccl4j.bench;

/**
 * A line of {@code bench info}.
 *
 * @param name what it tells of; empty if it goes on with what the line before tells
 * @param text what it tells
 */
record InfoEntry(String name, String text) {}
