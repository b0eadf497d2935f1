package org.nccl4j.bench;

/**
 * A run of elements in a buffer and what it holds.
 *
 * @param offset element of the buffer at which it starts
 * @param count its length in elements
 * @param content the elements
 * @param firstIndex index in {@code content} of the first element
 */
record Span(long offset, long count, Content content, long firstIndex) {}
