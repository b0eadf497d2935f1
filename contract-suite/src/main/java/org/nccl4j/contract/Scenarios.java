package org.nccl4j.contract;

import java.util.List;
import java.util.stream.Stream;

/** All scenarios. */
final class Scenarios {
    private Scenarios() {}

    static List<Scenario> all() {
        return Stream.of(
                        ValueScenarios.all(),
                        EnqueueScenarios.all(),
                        StreamScenarios.all(),
                        GroupScenarios.all(),
                        BufferScenarios.all(),
                        MemoryScenarios.all(),
                        ArgumentScenarios.all(),
                        NullScenarios.all(),
                        CreateScenarios.all(),
                        CommunicatorScenarios.all(),
                        RegistrationScenarios.all(),
                        FailureScenarios.all(),
                        EnqueueScenarios.ofManyRanks())
                .flatMap(List::stream)
                .toList();
    }
}
