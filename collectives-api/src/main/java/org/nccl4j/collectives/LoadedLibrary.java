package org.nccl4j.collectives;

/**
 * A native library that a backend has loaded.
 *
 * <p>Thread safety: immutable.
 *
 * @param name what it is, such as {@code "NCCL"}
 * @param version as people write it, such as {@code "2.30.7"}
 * @param versionCode as the library tells it, such as 23007
 * @param path the file that was really loaded
 */
public record LoadedLibrary(String name, String version, int versionCode, String path) {}
