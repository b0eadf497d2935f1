package org.nccl4j.contract;

import java.util.List;
import org.nccl4j.collectives.DataType;

/**
 * Which of a tier's operations run; a mode of a backend that shares its code with another one need
 * not repeat them all.
 *
 * @param types element types
 * @param countsElements the small counts, of {0, 1, 3, 33, 1025}
 * @param wideSizes whether sizes up to and over 1 MiB run too
 * @param driveModes who issues the operations
 */
public record Extent(
        List<DataType> types,
        List<Integer> countsElements,
        boolean wideSizes,
        List<DriveMode> driveModes) {

    /** Copies the lists. */
    public Extent {
        types = List.copyOf(types);
        countsElements = List.copyOf(countsElements);
        driveModes = List.copyOf(driveModes);
    }

    /**
     * The whole tier.
     *
     * @return all types, counts and drive modes
     */
    public static Extent everything() {
        return new Extent(
                List.of(DataType.values()),
                TierCases.CORE_COUNTS,
                true,
                List.of(DriveMode.values()));
    }

    /**
     * With fewer types.
     *
     * @param some the types
     * @return the changed copy
     */
    public Extent withTypes(DataType... some) {
        return new Extent(List.of(some), countsElements, wideSizes, driveModes);
    }

    /**
     * With other small counts and no wide sizes.
     *
     * @param some the counts
     * @return the changed copy
     */
    public Extent withCountsOnly(Integer... some) {
        return new Extent(types, List.of(some), false, driveModes);
    }

    /**
     * With fewer drive modes.
     *
     * @param some the drive modes
     * @return the changed copy
     */
    public Extent withDriveModes(DriveMode... some) {
        return new Extent(types, countsElements, wideSizes, List.of(some));
    }
}
