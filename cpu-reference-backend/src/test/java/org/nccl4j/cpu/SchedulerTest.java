package org.nccl4j.cpu;

import static org.assertj.core.api.Assertions.assertThatThrownBy;

import java.util.stream.Stream;
import org.junit.jupiter.api.Named;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.Arguments;
import org.junit.jupiter.params.provider.MethodSource;
import org.nccl4j.collectives.InvalidArgumentException;

/** The one lock: who changes state without it is told so, in every test of this module. */
final class SchedulerTest {
    /** A change of state. */
    private interface Change {
        void of(World world, CpuStream stream, Member member);
    }

    static Stream<Arguments> stateChangesOnlyUnderTheLock() {
        return Stream.of(
                change("touch", (world, stream, member) -> world.scheduler.touch(stream)),
                change("drive", (world, stream, member) -> world.scheduler.drive()),
                change("takeChores", (world, stream, member) -> world.scheduler.takeChores(0)),
                change(
                        "fail",
                        (world, stream, member) ->
                                world.scheduler.fail(member.clique, Wording.aborted(member))),
                change(
                        "push",
                        (world, stream, member) ->
                                stream.push(CpuStream.EntryKind.WAIT, stream, 0)),
                change("pass", (world, stream, member) -> stream.pass()),
                change(
                        "remember",
                        (world, stream, member) ->
                                stream.remember(new InvalidArgumentException("of nothing"))),
                change("takeBatch", (world, stream, member) -> member.takeBatch()),
                change("requireUsable", (world, stream, member) -> member.requireUsable("barrier")),
                change("pair", (world, stream, member) -> member.clique.pair(0, 1)));
    }

    @ParameterizedTest
    @MethodSource
    @Timeout(60)
    void stateChangesOnlyUnderTheLock(Change change) {
        try (World world = new World(2)) {
            CpuStream stream = (CpuStream) world.stream(0);
            Member member = ((CpuCommunicator) world.rank(0)).member();
            assertThatThrownBy(() -> change.of(world, stream, member))
                    .isInstanceOf(AssertionError.class);
            world.assertWorks();
        }
    }

    private static Arguments change(String name, Change change) {
        return Arguments.of(Named.of(name, change));
    }
}
