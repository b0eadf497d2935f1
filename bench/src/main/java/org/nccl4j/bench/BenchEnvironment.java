package org.nccl4j.bench;

import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.OptionalDouble;
import java.util.OptionalInt;
import java.util.TreeMap;
import java.util.stream.Stream;

/**
 * The environment variables that the benchmark itself reads; those of alltoallv are with {@link
 * AllToAllVTraffic}.
 *
 * @param variables all of them
 */
record BenchEnvironment(Map<String, String> variables) {

    private static final List<String> LAUNCHER_VARIABLES =
            List.of(
                    "OMPI_COMM_WORLD_SIZE",
                    "PMI_SIZE",
                    "PMIX_RANK",
                    "MV2_COMM_WORLD_SIZE",
                    "SLURM_NTASKS",
                    "WORLD_SIZE");

    /**
     * Whose values the JSON file may hold (NCCL4J* is among NCCL*): the rest of an environment can
     * hold secrets.
     */
    private static final List<String> REPORTED_PREFIXES = List.of("NCCL", "CUDA");

    BenchEnvironment {
        variables = Map.copyOf(variables);
    }

    private static final String FIRST_DEVICE = "NCCL_TESTS_DEVICE";

    /** {@code NCCL_TESTS_DEVICE}: the ordinal of the first device, if it is set and not -1. */
    OptionalInt firstDevice() {
        String value = variables.get(FIRST_DEVICE);
        OptionalInt device = value == null ? OptionalInt.empty() : CNumber.parseInt(value);
        return device.isPresent() && device.getAsInt() == -1 ? OptionalInt.empty() : device;
    }

    /** Why {@link #firstDevice} is no device of any machine, on one line; empty if it can be. */
    Optional<String> refusal() {
        String value = variables.get(FIRST_DEVICE);
        boolean unfit =
                value != null && (CNumber.parseInt(value).isEmpty() || firstDevice().orElse(0) < 0);
        return unfit
                ? Optional.of(
                        "bench: "
                                + FIRST_DEVICE
                                + "="
                                + value
                                + ": must be the ordinal of the first device, 0 or more; -1 is as"
                                + " unset")
                : Optional.empty();
    }

    /** {@code NCCL_TESTS_MIN_BW}: the expected bandwidth in GB/s, if it is set and not -1. */
    OptionalDouble expectedBusBwGBps() {
        String value = variables.get("NCCL_TESTS_MIN_BW");
        if (value == null) {
            return OptionalDouble.empty();
        }
        double expected = CNumber.parseLeadingDouble(value);
        return expected == -1 ? OptionalDouble.empty() : OptionalDouble.of(expected);
    }

    /** The variable by which a launcher of several processes shows; empty if none did. */
    Optional<String> launcherVariable() {
        return LAUNCHER_VARIABLES.stream().filter(variables::containsKey).findFirst();
    }

    /**
     * {@code NAME=value} of the variables that the JSON file lists, sorted by name, without what
     * looks like a secret.
     */
    List<String> reported() {
        Stream<Map.Entry<String, String>> sorted = new TreeMap<>(variables).entrySet().stream();
        return sorted.filter(entry -> isReported(entry.getKey()))
                .map(entry ->
                        entry.getKey()
                                + "="
                                + MachineProbes.masked(entry.getKey(), entry.getValue()))
                .toList();
    }

    private static boolean isReported(String name) {
        return REPORTED_PREFIXES.stream().anyMatch(name::startsWith);
    }
}
