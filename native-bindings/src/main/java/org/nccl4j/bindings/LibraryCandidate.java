package org.nccl4j.bindings;

/**
 * One file that the loader has tried.
 *
 * <p>Thread safety: immutable.
 *
 * @param source why it was tried, for example {@code "system property nccl4j.nccl.library"}
 * @param file as it was given to {@code dlopen}: a path, or a file name that the dynamic linker
 *     looks for itself
 * @param outcome {@code "loaded"}, or why not: what {@code dlerror} said
 */
public record LibraryCandidate(String source, String file, String outcome) {}
