package org.nccl4j.bench;

import java.util.Optional;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.nccl4j.collectives.DeviceBuffer;

/**
 * A fault on purpose: one element of one result is changed between the operation and its check, to
 * prove that the check, the footer and the exit code notice.
 *
 * @param row counted from 0 over the whole run
 * @param placement which cell of the row
 * @param rank whose result
 * @param element which element of what the rank receives
 */
record Corruption(int row, Placement placement, int rank, long element) {

    /** The system property that asks for one: {@code row:cell:rank:element}, all from 0. */
    static final String PROPERTY = "nccl4j.bench.corrupt";

    private static final Pattern FORM = Pattern.compile("(\\d{1,9}):([01]):(\\d{1,9}):(\\d{1,18})");

    /**
     * Reads the property.
     *
     * @param value its value, null if it is not set
     * @throws IllegalArgumentException if it has another form
     */
    static Optional<Corruption> parse(String value) {
        if (value == null) {
            return Optional.empty();
        }
        Matcher form = FORM.matcher(value);
        if (!form.matches()) {
            throw new IllegalArgumentException(
                    PROPERTY + "=" + value + ": expected row:cell:rank:element, such as 0:1:0:7");
        }
        return Optional.of(
                new Corruption(
                        Integer.parseInt(form.group(1)),
                        Placement.values()[Integer.parseInt(form.group(2))],
                        Integer.parseInt(form.group(3)),
                        Long.parseLong(form.group(4))));
    }

    /**
     * Changes the element if it is in this result.
     *
     * @param data reaches into the result
     * @return whether it is
     */
    boolean apply(
            int ofRow,
            Placement ofPlacement,
            int ofRank,
            DeviceBuffer result,
            int widthBytes,
            BufferData data) {
        boolean here =
                ofRow == row
                        && ofPlacement == placement
                        && ofRank == rank
                        && element < result.sizeBytes() / widthBytes;
        if (here) {
            data.corrupt(result, element, widthBytes);
        }
        return here;
    }

    /** The value of the property. */
    @Override
    public String toString() {
        return row + ":" + placement.ordinal() + ":" + rank + ":" + element;
    }
}
