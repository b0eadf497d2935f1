package org.nccl4j.bindings;

import java.util.List;
import java.util.Locale;

/** The libraries that can be loaded: what each is called, and where it comes from. */
@SuppressWarnings("ImmutableEnumChecker") // the lists come from List.of
enum LibraryKind {
    NCCL(
            "NCCL",
            "nccl",
            List.of("libnccl.so.2"),
            "ncclGetVersion",
            "Install NCCL 2.18 or newer (packages: libnccl2 on Debian and Ubuntu, libnccl on RHEL,"
                    + " nccl on conda-forge, nvidia-nccl-cu12 or nvidia-nccl-cu13 with pip)"),
    CUDA_RUNTIME(
            "the CUDA runtime",
            "cudart",
            List.of("libcudart.so.13", "libcudart.so.12"),
            "cudaRuntimeGetVersion",
            "Install the CUDA runtime 12 or 13 (packages: cuda-cudart-13-0 or cuda-cudart-12-x from"
                    + " NVIDIA's repositories, cuda-cudart on conda-forge, nvidia-cuda-runtime or"
                    + " nvidia-cuda-runtime-cu12 with pip)"),
    CUDA_DRIVER(
            "the CUDA driver",
            "cuda",
            List.of("libcuda.so.1"),
            "cuDriverGetVersion",
            "Install the NVIDIA driver, which brings this library; start a container with the NVIDIA"
                    + " container toolkit (docker run --gpus all), which mounts it");

    /** As it is called in a message. */
    final String title;

    /** In property and variable names. */
    final String word;

    /** File names without a folder, the preferred one first. */
    final List<String> sonames;

    /** A function that every version has: a file without it is another library. */
    final String marker;

    /** The last line of a failure. */
    final String advice;

    LibraryKind(String title, String word, List<String> sonames, String marker, String advice) {
        this.title = title;
        this.word = word;
        this.sonames = sonames;
        this.marker = marker;
        this.advice = advice;
    }

    /** The system property that names its file. */
    String property() {
        return "nccl4j." + word + ".library";
    }

    /** The environment variable that names its file. */
    String variable() {
        return "NCCL4J_" + word.toUpperCase(Locale.ROOT) + "_LIBRARY";
    }
}
