package org.nccl4j.nccl;

import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import org.nccl4j.bindings.nccl.ncclConfig_v23000;
import org.nccl4j.collectives.CommunicatorConfig;
import org.nccl4j.collectives.NcclOption;

/**
 * A configuration as NCCL's struct. What is not set is undefined, so that NCCL decides; surplus
 * fields are not read by an older library, which is therefore said.
 *
 * <p>Thread safety: all methods may be called from any thread.
 */
final class NativeConfig {
    private static final int MAGIC = 0xcafebeef;
    private static final int UNDEFINED = Integer.MIN_VALUE;

    /** The version whose struct the bindings have. */
    private static final int STRUCT_VERSION = 23007;

    private static final int COMMUNICATOR_NAME_SINCE = 22703;

    /** NCCL keeps the pointer and hands it on to children, so that a name lives for ever. */
    private static final Map<String, MemorySegment> NAMES = new ConcurrentHashMap<>();

    private NativeConfig() {}

    /** A communicator's settings; valid while the arena is. */
    static MemorySegment of(CommunicatorConfig config, String name, Arena arena) {
        MemorySegment struct = arena.allocate(ncclConfig_v23000.layout());
        ncclConfig_v23000.size(struct, ncclConfig_v23000.layout().byteSize());
        ncclConfig_v23000.magic(struct, MAGIC);
        ncclConfig_v23000.version(struct, Math.min(STRUCT_VERSION, NcclLibrary.versionCode()));
        ncclConfig_v23000.blocking(struct, config.blocking() ? 1 : 0);
        ncclConfig_v23000.netName(
                struct,
                config.nccl().netName().map(arena::allocateFrom).orElse(MemorySegment.NULL));
        ncclConfig_v23000.commName(
                struct, NAMES.computeIfAbsent(name, Arena.global()::allocateFrom));
        for (NcclOption option : NcclOption.values()) {
            set(struct, option, config.nccl().values().getOrDefault(option, UNDEFINED));
        }
        return struct;
    }

    private static void set(MemorySegment struct, NcclOption option, int value) {
        switch (option) {
            case CGA_CLUSTER_SIZE -> ncclConfig_v23000.cgaClusterSize(struct, value);
            case MIN_CTAS -> ncclConfig_v23000.minCTAs(struct, value);
            case MAX_CTAS -> ncclConfig_v23000.maxCTAs(struct, value);
            case SPLIT_SHARE -> ncclConfig_v23000.splitShare(struct, value);
            case TRAFFIC_CLASS -> ncclConfig_v23000.trafficClass(struct, value);
            case COLLNET_ENABLE -> ncclConfig_v23000.collnetEnable(struct, value);
            case CTA_POLICY -> ncclConfig_v23000.CTAPolicy(struct, value);
            case SHRINK_SHARE -> ncclConfig_v23000.shrinkShare(struct, value);
            case NVLS_CTAS -> ncclConfig_v23000.nvlsCTAs(struct, value);
            case CHANNELS_PER_NET_PEER -> ncclConfig_v23000.nChannelsPerNetPeer(struct, value);
            case NVLINK_CENTRIC_SCHED -> ncclConfig_v23000.nvlinkCentricSched(struct, value);
            case GRAPH_USAGE_MODE -> ncclConfig_v23000.graphUsageMode(struct, value);
            case NUM_RMA_CTX -> ncclConfig_v23000.numRmaCtx(struct, value);
            case MAX_P2P_PEERS -> ncclConfig_v23000.maxP2pPeers(struct, value);
            case GRAPH_STREAM_ORDERING -> ncclConfig_v23000.graphStreamOrdering(struct, value);
        }
    }

    /** A warning of settings that the loaded library is too old for, empty if there are none. */
    static String ignored(CommunicatorConfig config) {
        int version = NcclLibrary.versionCode();
        List<String> ignored = new ArrayList<>();
        config.nccl().values().keySet().stream()
                .sorted()
                .filter(option -> option.sinceVersion() > version)
                .forEach(option -> ignored.add(named(option.fieldName(), option.sinceVersion())));
        boolean isNamed = !config.name().equals(CommunicatorConfig.defaults().name());
        if (isNamed && COMMUNICATOR_NAME_SINCE > version) {
            ignored.add(named("commName", COMMUNICATOR_NAME_SINCE));
        }
        return ignored.isEmpty()
                ? ""
                : "communicator '"
                        + config.name()
                        + "': NCCL "
                        + NcclLibrary.version()
                        + " ignores "
                        + String.join(", ", ignored)
                        + "; leave it out or install a newer NCCL";
    }

    private static String named(String field, int since) {
        return field
                + " (since "
                + since / 10_000
                + "."
                + since / 100 % 100
                + "."
                + since % 100
                + ")";
    }
}
