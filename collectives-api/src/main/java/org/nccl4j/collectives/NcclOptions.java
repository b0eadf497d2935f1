package org.nccl4j.collectives;

import java.util.EnumMap;
import java.util.Map;
import java.util.Optional;

/**
 * Settings that NCCL alone has; other backends ignore them, and so does an NCCL that is older than
 * a setting, which the backend says in a warning.
 *
 * <p>Thread safety: immutable.
 *
 * @param values what is set; NCCL decides the rest
 * @param netName the network module to use, such as {@code "Socket"}
 */
public record NcclOptions(Map<NcclOption, Integer> values, Optional<String> netName) {
    private static final NcclOptions NONE = new NcclOptions(Map.of(), Optional.empty());

    /** Copies the values and refuses those that NCCL refuses. */
    public NcclOptions {
        if (values == null || netName == null) {
            throw new InvalidArgumentException(
                    "NCCL options that are not set are left out, not null: "
                            + values
                            + ", "
                            + netName);
        }
        values = Map.copyOf(values);
        values.forEach(NcclOptions::requireAccepted);
        Integer least = values.get(NcclOption.MIN_CTAS);
        Integer most = values.get(NcclOption.MAX_CTAS);
        if (least != null && most != null && least > most) {
            throw new InvalidArgumentException(
                    "minCTAs is " + least + ", must be at most maxCTAs, which is " + most);
        }
        if (netName.isPresent() && netName.get().isBlank()) {
            throw new InvalidArgumentException("netName must not be blank");
        }
    }

    /**
     * NCCL decides all.
     *
     * @return no settings
     */
    public static NcclOptions none() {
        return NONE;
    }

    /**
     * With a setting.
     *
     * @param option what to set
     * @param value its value
     * @return the changed copy
     * @throws InvalidArgumentException if NCCL does not accept the value
     */
    public NcclOptions with(NcclOption option, int value) {
        if (option == null) {
            throw new InvalidArgumentException("an NCCL option must be given, got null");
        }
        Map<NcclOption, Integer> changed = new EnumMap<>(NcclOption.class);
        changed.putAll(values);
        changed.put(option, value);
        return new NcclOptions(changed, netName);
    }

    /**
     * With a network module.
     *
     * @param name its name, or null to let NCCL choose
     * @return the changed copy
     */
    public NcclOptions withNetName(String name) {
        return new NcclOptions(values, Optional.ofNullable(name));
    }

    private static void requireAccepted(NcclOption option, int value) {
        if (value < option.minimum() || value > option.maximum()) {
            throw new InvalidArgumentException(
                    option.fieldName()
                            + " is "
                            + value
                            + ", must be "
                            + (option.maximum() == Integer.MAX_VALUE
                                    ? "at least " + option.minimum()
                                    : option.minimum() + " to " + option.maximum()));
        }
    }
}
