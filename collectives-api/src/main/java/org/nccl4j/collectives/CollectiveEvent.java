package org.nccl4j.collectives;

import jdk.jfr.Category;
import jdk.jfr.DataAmount;
import jdk.jfr.Description;
import jdk.jfr.Enabled;
import jdk.jfr.Event;
import jdk.jfr.Label;
import jdk.jfr.Name;
import jdk.jfr.StackTrace;
import jdk.jfr.Timespan;

/**
 * One rank's part of one operation, for JDK Flight Recorder. Off by default and without stack
 * traces. Backends commit it when the operation completes; the enqueue fields are filled
 * everywhere, wait and run time on the CPU, and on NCCL only with {@link
 * CommunicatorConfig#timing}.
 *
 * <p>Thread safety: an event belongs to the thread that fills it.
 */
@Name("org.nccl4j.Collective")
@Label("Collective")
@Description("One rank's part of a collective operation")
@Category("nccl4j")
@Enabled(false)
@StackTrace(false)
public final class CollectiveEvent extends Event {
    /** Name of the communicator. */
    @Label("Communicator")
    public String communicator;

    /** Operation in NCCL's camel case. */
    @Label("Operation")
    public String operation;

    /**
     * Number of the operation on its communicator, or on its pair of ranks for send and receive.
     */
    @Label("Sequence")
    public long sequence;

    /** This rank. */
    @Label("Rank")
    public int rank;

    /** Ranks of the communicator. */
    @Label("Size")
    public int size;

    /** The count argument. */
    @Label("Count")
    public long countElements;

    /** Element type, empty for a barrier. */
    @Label("Type")
    public String type;

    /** Bytes of this rank's larger buffer. */
    @Label("Bytes")
    @DataAmount
    public long bytes;

    /**
     * From enqueue until every rank had joined, on NCCL until its stream had come to it; -1 if not
     * measured.
     */
    @Label("Wait")
    @Timespan(Timespan.NANOSECONDS)
    public long waitNanos = -1;

    /** From then until completion; -1 if not measured. */
    @Label("Run")
    @Timespan(Timespan.NANOSECONDS)
    public long runNanos = -1;

    /** An empty event. */
    public CollectiveEvent() {}
}
