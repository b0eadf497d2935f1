package org.nccl4j.contract;

import java.util.List;
import org.nccl4j.collectives.DataType;

/**
 * Which of a tier's operations run; a mode of a backend that shares its code with another one need
 * not repeat them all.
 *
 * @param operations names of operations, such as {@code allReduce}; empty for all
 * @param types element types
 * @param countsElements the small counts, of {0, 1, 3, 33, 1025}
 * @param wideSizes whether sizes up to and over 1 MiB run too
 * @param driveModes who issues the operations
 */
public record Extent(
        List<String> operations,
        List<DataType> types,
        List<Integer> countsElements,
        boolean wideSizes,
        List<DriveMode> driveModes) {

    /** Copies the lists. */
    public Extent {
        operations = List.copyOf(operations);
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
                List.of(),
                List.of(DataType.values()),
                TierCases.CORE_COUNTS,
                true,
                List.of(DriveMode.values()));
    }

    /**
     * With these operations alone.
     *
     * @param some their names
     * @return the changed copy
     */
    public Extent withOperations(List<String> some) {
        return new Extent(some, types, countsElements, wideSizes, driveModes);
    }

    /**
     * With fewer types.
     *
     * @param some the types
     * @return the changed copy
     */
    public Extent withTypes(DataType... some) {
        return new Extent(operations, List.of(some), countsElements, wideSizes, driveModes);
    }

    /**
     * With other small counts and no wide sizes.
     *
     * @param some the counts
     * @return the changed copy
     */
    public Extent withCountsOnly(Integer... some) {
        return new Extent(operations, types, List.of(some), false, driveModes);
    }

    /**
     * With fewer drive modes.
     *
     * @param some the drive modes
     * @return the changed copy
     */
    public Extent withDriveModes(DriveMode... some) {
        return new Extent(operations, types, countsElements, wideSizes, List.of(some));
    }
}
