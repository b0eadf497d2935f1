package org.nccl4j.contract;

/** What a run of the suite can be told by system properties. */
final class Settings {
    /** The seed of everything random. */
    static final String SEED = "nccl4j.contract.seed";

    private static final long SEED_DEFAULT = 20_260_101;

    /** {@code core} or {@code full}. */
    static final String TIER = "nccl4j.contract.tier";

    /** Runs only cases and scenarios whose id contains this. */
    static final String ONLY = "nccl4j.contract.only";

    private Settings() {}

    static long seed() {
        return Long.getLong(SEED, SEED_DEFAULT);
    }

    static ContractSuite.Tier tier(ContractSuite.Tier otherwise) {
        String value = System.getProperty(TIER);
        if (value == null) {
            return otherwise;
        }
        return switch (value) {
            case "core" -> ContractSuite.Tier.CORE;
            case "full" -> ContractSuite.Tier.FULL;
            default ->
                    throw new IllegalArgumentException(
                            TIER + " must be core or full, got " + value);
        };
    }

    static boolean selects(String id) {
        return id.contains(only());
    }

    /** The part of an id that is asked for; empty, which every id contains, unless one is. */
    static String only() {
        return System.getProperty(ONLY, "");
    }
}
