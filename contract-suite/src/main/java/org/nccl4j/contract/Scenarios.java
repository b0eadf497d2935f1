package org.nccl4j.contract;

import java.util.List;
import java.util.stream.Stream;

/** All scenarios. */
final class Scenarios {
    private Scenarios() {}

    static List<Scenario> all() {
        return Stream.of(
                        ValueScenarios.all(),
                        StreamScenarios.all(),
                        GroupScenarios.all(),
                        BufferScenarios.all(),
                        ArgumentScenarios.all(),
                        CommunicatorScenarios.all(),
                        FailureScenarios.all())
                .flatMap(List::stream)
                .toList();
    }
}
