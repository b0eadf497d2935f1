package org.nccl4j.bench;

/**
 * What the command line and the report need to know of a backend. The driver fills it from the
 * backend that it found.
 *
 * @param name the backend's name, as {@code --backend} takes it
 * @param ncclHeaders version code of the NCCL headers that the bindings were made from; 0 without
 *     NCCL
 * @param ncclLibrary version code of the loaded NCCL library; 0 without NCCL
 * @param captures true if operations can be captured in a graph (-G)
 */
record BackendFacts(String name, int ncclHeaders, int ncclLibrary, boolean captures) {}
