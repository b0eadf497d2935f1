package org.nccl4j.contract;

/** The operations that move data, with what the suite must know about each. */
enum Collective {
    ALL_REDUCE("allReduce", true, false, true),
    REDUCE("reduce", true, true, true),
    BROADCAST("broadcast", false, true, true),
    ALL_GATHER("allGather", false, false, true),
    ALL_GATHER_V("allGatherV", false, false, true),
    REDUCE_SCATTER("reduceScatter", true, false, true),
    REDUCE_SCATTER_V("reduceScatterV", true, false, true),
    GATHER("gather", false, true, true),
    SCATTER("scatter", false, true, true),
    ALL_TO_ALL("allToAll", false, false, false),
    ALL_TO_ALL_V("allToAllV", false, false, false),
    /** Each rank sends to the next one and receives from the one before. */
    SEND_RECV("sendRecv", false, false, false),
    /** Each even rank sends to the odd one above it, if there is one. */
    PAIRS("sendAndRecv", false, false, false);

    private final String label;
    private final boolean reduces;
    private final boolean rooted;
    private final boolean inPlace;

    Collective(String label, boolean reduces, boolean rooted, boolean inPlace) {
        this.label = label;
        this.reduces = reduces;
        this.rooted = rooted;
        this.inPlace = inPlace;
    }

    boolean reduces() {
        return reduces;
    }

    boolean rooted() {
        return rooted;
    }

    boolean hasInPlaceForm() {
        return inPlace;
    }

    @Override
    public String toString() {
        return label;
    }
}
