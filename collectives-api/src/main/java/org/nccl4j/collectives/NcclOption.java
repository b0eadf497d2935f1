package org.nccl4j.collectives;

/**
 * A setting of a communicator that NCCL alone has, named as the field of {@code ncclConfig_t}. What
 * is not set NCCL decides. {@code blocking} and {@code commName} are {@link
 * CommunicatorConfig#blocking} and {@link CommunicatorConfig#name}.
 *
 * <p>An environment variable of NCCL with the same meaning beats the setting.
 */
public enum NcclOption {
    /** Thread blocks per cluster of the kernels. */
    CGA_CLUSTER_SIZE("cgaClusterSize", 21700, 0, 8),
    /** Least thread blocks per kernel. */
    MIN_CTAS("minCTAs", 21700, 1, Integer.MAX_VALUE),
    /** Most thread blocks per kernel; NCCL caps it. */
    MAX_CTAS("maxCTAs", 21700, 1, Integer.MAX_VALUE),
    /** Whether communicators split from this one share its resources. */
    SPLIT_SHARE("splitShare", 21801, 0, 1),
    /** The network's traffic class. */
    TRAFFIC_CLASS("trafficClass", 22602, Integer.MIN_VALUE + 1, Integer.MAX_VALUE),
    /** In-network reduction. */
    COLLNET_ENABLE("collnetEnable", 22703, 0, 1),
    /** Which thread blocks collectives may use: 0 default, 1 efficiency, 2 none. */
    CTA_POLICY("CTAPolicy", 22703, 0, 3),
    /** Whether communicators shrunk from this one share its resources. */
    SHRINK_SHARE("shrinkShare", 22703, 0, 1),
    /** Thread blocks of NVLink SHARP kernels. */
    NVLS_CTAS("nvlsCTAs", 22703, 1, Integer.MAX_VALUE),
    /** Channels per network peer. */
    CHANNELS_PER_NET_PEER("nChannelsPerNetPeer", 22803, 1, 64),
    /** Scheduling that spares NVLink. */
    NVLINK_CENTRIC_SCHED("nvlinkCentricSched", 22803, 0, 1),
    /** CUDA graphs: 0 none, 1 one graph, 2 several or mixed with plain launches. */
    GRAPH_USAGE_MODE("graphUsageMode", 22902, 0, 2),
    /** Contexts of one-sided operations. */
    NUM_RMA_CTX("numRmaCtx", 22902, 0, Integer.MAX_VALUE),
    /** Peers that a rank may exchange with. */
    MAX_P2P_PEERS("maxP2pPeers", 23003, 1, Integer.MAX_VALUE),
    /** Whether graph launches keep the order of streams. */
    GRAPH_STREAM_ORDERING("graphStreamOrdering", 23007, 0, 1);

    private final String fieldName;
    private final int sinceVersion;
    private final int minimum;
    private final int maximum;

    NcclOption(String fieldName, int sinceVersion, int minimum, int maximum) {
        this.fieldName = fieldName;
        this.sinceVersion = sinceVersion;
        this.minimum = minimum;
        this.maximum = maximum;
    }

    /**
     * The field of {@code ncclConfig_t}.
     *
     * @return its name
     */
    public String fieldName() {
        return fieldName;
    }

    /**
     * The first NCCL that has the field; an older one ignores it.
     *
     * @return a version code, such as 22703 for 2.27.3
     */
    public int sinceVersion() {
        return sinceVersion;
    }

    /**
     * The least value that NCCL accepts.
     *
     * @return the value
     */
    public int minimum() {
        return minimum;
    }

    /**
     * The greatest value that NCCL accepts.
     *
     * @return the value
     */
    public int maximum() {
        return maximum;
    }
}
