package org.nccl4j.contract;

/** Who issues the operations of the ranks. */
public enum DriveMode {
    /** Each rank has a thread, which waits for nobody. */
    THREAD_PER_RANK,
    /** One thread drives all ranks by groups. */
    ONE_THREAD_WITH_GROUPS,
    /**
     * One thread drives all ranks by groups that it records once and issues several times, each
     * time with its inputs written anew.
     */
    ONE_THREAD_WITH_RECORDED_GROUPS;

    RankRunner runner() {
        return switch (this) {
            case THREAD_PER_RANK -> new RankRunner.ThreadPerRank(0);
            case ONE_THREAD_WITH_GROUPS -> new RankRunner.OneThreadWithGroups();
            case ONE_THREAD_WITH_RECORDED_GROUPS -> new RankRunner.OneThreadWithRecordedGroups();
        };
    }
}
