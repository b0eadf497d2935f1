package org.nccl4j.collectives;

import java.nio.file.Path;
import java.time.Duration;
import java.util.Optional;
import java.util.OptionalInt;
import java.util.function.Consumer;

/**
 * How a communicator behaves. Start from {@link #defaults()} and change what matters with the
 * {@code with} methods, because components may be added; all ranks must use the same values but for
 * device and trace file, which are each rank's own. {@link Backend#create} refuses ranks whose
 * name, timeout, {@code abortOnFailure} or algorithm differ. What a backend cannot do it refuses
 * with {@link UnsupportedException} when the communicator is made.
 *
 * <p>Thread safety: immutable.
 *
 * @param name shown in messages and traces
 * @param operationTimeout how long an operation may head its stream, or the oldest split or
 *     exchange of counts wait for ranks, before the communicator fails; also the bound of every
 *     wait inside create, split and close
 * @param abortOnFailure whether the watchdog aborts a failed communicator by itself, so that
 *     buffers and streams become free without a call of the user
 * @param deviceOrdinal the device of this rank; empty lets the backend choose, as it must be for
 *     {@link Backend#createLocal}, whose rank i is on device i
 * @param blocking NCCL's blocking mode; false costs a thread start per launch there; the CPU
 *     backend never blocks and ignores it
 * @param timing whether NCCL operations are timed for JFR events
 * @param consistencyCheck compares operations' signatures through this store where the backend
 *     cannot detect mismatches itself ({@link Capabilities#mismatchDetection})
 * @param traceFile where to write a JSON line per step that this rank takes in an algorithm, here
 *     and in communicators split from this one
 * @param algorithm what carries out operations, by the backend's name for it; empty leaves that to
 *     the backend, and to what a user may have set for it
 * @param nccl settings that NCCL alone has; other backends ignore them
 */
public record CommunicatorConfig(
        String name,
        Duration operationTimeout,
        boolean abortOnFailure,
        OptionalInt deviceOrdinal,
        boolean blocking,
        boolean timing,
        Optional<Store> consistencyCheck,
        Optional<Path> traceFile,
        Optional<String> algorithm,
        NcclOptions nccl) {
    private static final CommunicatorConfig DEFAULTS =
            new CommunicatorConfig(
                    "world",
                    Duration.ofMinutes(10),
                    true,
                    OptionalInt.empty(),
                    true,
                    false,
                    Optional.empty(),
                    Optional.empty(),
                    Optional.empty(),
                    NcclOptions.none());

    /** Refuses a timeout that is not positive, a blank name, a negative device and nulls. */
    public CommunicatorConfig {
        if (name == null || name.isBlank()) {
            throw new InvalidArgumentException(
                    "a communicator's name must not be blank, got "
                            + (name == null ? "null" : "'" + name + "'"));
        }
        if (operationTimeout == null || !operationTimeout.isPositive()) {
            throw new InvalidArgumentException(
                    "operationTimeout must be positive, got "
                            + operationTimeout
                            + "; nothing may wait for ever or not at all");
        }
        if (deviceOrdinal == null
                || consistencyCheck == null
                || traceFile == null
                || algorithm == null
                || nccl == null) {
            throw new InvalidArgumentException(
                    "an absent deviceOrdinal, consistencyCheck, traceFile or algorithm is empty, not"
                            + " null, and no NCCL options are NcclOptions.none()");
        }
        if (deviceOrdinal.isPresent() && deviceOrdinal.getAsInt() < 0) {
            throw new InvalidArgumentException(
                    "deviceOrdinal is " + deviceOrdinal.getAsInt() + ", must be at least 0");
        }
    }

    /**
     * The defaults: name "world", 10 minutes, abort on failure, device and algorithm chosen by the
     * backend, no trace.
     *
     * @return the configuration
     */
    public static CommunicatorConfig defaults() {
        return DEFAULTS;
    }

    /**
     * With another name.
     *
     * @param newName the name
     * @return the changed copy
     */
    public CommunicatorConfig withName(String newName) {
        return changed(draft -> draft.name = newName);
    }

    /**
     * With another timeout.
     *
     * @param timeout a positive duration
     * @return the changed copy
     */
    public CommunicatorConfig withOperationTimeout(Duration timeout) {
        return changed(draft -> draft.operationTimeout = timeout);
    }

    /**
     * With or without the automatic abort.
     *
     * @param abort whether the watchdog aborts a failed communicator
     * @return the changed copy
     */
    public CommunicatorConfig withAbortOnFailure(boolean abort) {
        return changed(draft -> draft.abortOnFailure = abort);
    }

    /**
     * On a given device.
     *
     * @param ordinal the device's number
     * @return the changed copy
     */
    public CommunicatorConfig withDevice(int ordinal) {
        return changed(draft -> draft.deviceOrdinal = OptionalInt.of(ordinal));
    }

    /**
     * In NCCL's blocking or non-blocking mode.
     *
     * @param block true for blocking
     * @return the changed copy
     */
    public CommunicatorConfig withBlocking(boolean block) {
        return changed(draft -> draft.blocking = block);
    }

    /**
     * With a consistency check through a store.
     *
     * @param store a store that all ranks see, or null for no check
     * @return the changed copy
     */
    public CommunicatorConfig withConsistencyCheck(Store store) {
        return changed(draft -> draft.consistencyCheck = Optional.ofNullable(store));
    }

    /**
     * With timed operations.
     *
     * @param timed whether operations are timed for JFR events where that costs something
     * @return the changed copy
     */
    public CommunicatorConfig withTiming(boolean timed) {
        return changed(draft -> draft.timing = timed);
    }

    /**
     * With a trace.
     *
     * @param file the file, replaced if it exists; communicators of one process that name the same
     *     file share it; null for no trace
     * @return the changed copy
     */
    public CommunicatorConfig withTraceFile(Path file) {
        return changed(draft -> draft.traceFile = Optional.ofNullable(file));
    }

    /**
     * By a given algorithm.
     *
     * @param newAlgorithm one of the backend's names, such as the CPU's {@code "ring"}; null leaves
     *     it to the backend
     * @return the changed copy
     */
    public CommunicatorConfig withAlgorithm(String newAlgorithm) {
        return changed(draft -> draft.algorithm = Optional.ofNullable(newAlgorithm));
    }

    /**
     * With settings that NCCL alone has.
     *
     * @param options the settings
     * @return the changed copy
     */
    public CommunicatorConfig withNccl(NcclOptions options) {
        return changed(draft -> draft.nccl = options);
    }

    private CommunicatorConfig changed(Consumer<Draft> change) {
        Draft draft = new Draft(this);
        change.accept(draft);
        return draft.made();
    }

    /** The components while one of them is changed. */
    private static final class Draft {
        private String name;
        private Duration operationTimeout;
        private boolean abortOnFailure;
        private OptionalInt deviceOrdinal;
        private boolean blocking;
        private boolean timing;
        private Optional<Store> consistencyCheck;
        private Optional<Path> traceFile;
        private Optional<String> algorithm;
        private NcclOptions nccl;

        Draft(CommunicatorConfig config) {
            name = config.name;
            operationTimeout = config.operationTimeout;
            abortOnFailure = config.abortOnFailure;
            deviceOrdinal = config.deviceOrdinal;
            blocking = config.blocking;
            timing = config.timing;
            consistencyCheck = config.consistencyCheck;
            traceFile = config.traceFile;
            algorithm = config.algorithm;
            nccl = config.nccl;
        }

        CommunicatorConfig made() {
            return new CommunicatorConfig(
                    name,
                    operationTimeout,
                    abortOnFailure,
                    deviceOrdinal,
                    blocking,
                    timing,
                    consistencyCheck,
                    traceFile,
                    algorithm,
                    nccl);
        }
    }
}
