package org.nccl4j.nccl;

import static org.assertj.core.api.Assertions.assertThat;

import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.Test;
import org.nccl4j.collectives.CommunicatorConfig;

/** What ranks of one process know of each other; no native code is called. */
final class CliqueTest {
    private static Clique clique(int size, int... localRanks) {
        Clique clique = new Clique("job", "1f", size, CommunicatorConfig.defaults());
        for (int rank : localRanks) {
            clique.add(rank, null, CommunicatorConfig.defaults());
        }
        return clique;
    }

    @Test
    void ranksOfOtherProcessesAreNamedByRanges() {
        assertThat(Wording.elsewhere(clique(3, 0, 1, 2))).isEmpty();
        assertThat(Wording.elsewhere(clique(2, 0))).isEqualTo("rank 1");
        assertThat(Wording.elsewhere(clique(8, 1, 4, 5))).isEqualTo("ranks 0, 2-3, 6-7");
        assertThat(Wording.elsewhere(clique(Integer.MAX_VALUE, 0)))
                .isEqualTo("ranks 1-" + (Integer.MAX_VALUE - 1));
    }

    @Test
    void aWarningIsSaidOncePerCommunicator() {
        Clique clique = clique(2, 0, 1);

        assertThat(clique.isNew("ignored")).isTrue();
        assertThat(clique.isNew("ignored")).isFalse();
        assertThat(clique(2, 0, 1).isNew("ignored")).as("of another communicator").isTrue();
    }

    @Test
    void whoWaitsForALateCloserIsSaidOnce() {
        Clique clique = clique(2, 0, 1);
        clique.expect(2);

        assertThat(clique.leave(clique.member(0))).isNull();
        assertThat(clique.lateClosers(System.nanoTime())).isNull();

        long later = System.nanoTime() + TimeUnit.SECONDS.toNanos(11);
        assertThat(clique.lateClosers(later))
                .contains("'job'")
                .contains("rank 0 is closed")
                .contains("until rank 1 of this process is closed");
        assertThat(clique.lateClosers(later)).isNull();
    }

    /** What is inside NCCL may not be hidden by a thread that is refused. */
    @Test
    void aRefusedThreadHidesNobody() {
        Member member = clique(1, 0).member(0);

        assertThat(member.enter()).isTrue();
        assertThat(member.enter()).as("a second thread").isFalse();
        assertThat(member.isInside()).isTrue();
        member.leave();
        assertThat(member.isInside()).isFalse();

        member.managementBegins();
        member.obstruct(Member.CLOSING);
        assertThat(member.enter()).as("while it is being closed").isFalse();
        assertThat(member.isInside()).isTrue();
        assertThat(member.insideEntry()).as("the user's thread").isEqualTo(-1);
        member.managementEnds();
        assertThat(member.isInside()).isFalse();
    }

    @Test
    void oldVersionsAbortOneAtATime() {
        assertThat(Aborting.isAtOnce(21805)).isFalse();
        assertThat(Aborting.isAtOnce(21901)).isTrue();
        assertThat(Aborting.isAtOnce(23007)).isTrue();
    }
}
