package org.nccl4j.cpu;

import static org.assertj.core.api.Assertions.assertThat;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Optional;
import org.junit.jupiter.api.Nested;
import org.junit.jupiter.api.Test;
import org.nccl4j.collectives.Backend;
import org.nccl4j.contract.BackendUnderTest;
import org.nccl4j.contract.ContractSuite;
import org.nccl4j.contract.DriveMode;
import org.nccl4j.contract.Extent;
import org.nccl4j.contract.HopOrder;
import org.nccl4j.cpu.schedule.Collective;
import org.nccl4j.cpu.schedule.ScheduleAlgorithm;

/**
 * The contract's core tier for each algorithm: the operations that it does, and the scenarios about
 * values, groups and aborts. What is the same for all engines, and what an algorithm leaves to the
 * reference engine, is {@link CpuContractTest}'s. {@code -Dtest='ScheduleContractTest$Tree'} runs
 * one algorithm.
 */
final class ScheduleContractTest {
    @Test
    void everyAlgorithmIsHere() {
        assertThat(
                        Arrays.stream(ScheduleContractTest.class.getDeclaredClasses())
                                .map(Class::getSimpleName)
                                .filter(name -> !name.equals("OnAlgorithm")))
                .hasSameSizeAs(ScheduleAlgorithm.values());
    }

    @Nested
    final class Ring extends OnAlgorithm {
        Ring() {
            super(ScheduleAlgorithm.RING);
        }
    }

    @Nested
    final class Tree extends OnAlgorithm {
        Tree() {
            super(ScheduleAlgorithm.TREE);
        }
    }

    @Nested
    final class HalvingDoubling extends OnAlgorithm {
        HalvingDoubling() {
            super(ScheduleAlgorithm.HALVING_DOUBLING);
        }
    }

    @Nested
    final class DoubleTree extends OnAlgorithm {
        DoubleTree() {
            super(ScheduleAlgorithm.DOUBLE_TREE);
        }
    }

    @Nested
    final class Hierarchical extends OnAlgorithm {
        Hierarchical() {
            super(ScheduleAlgorithm.HIERARCHICAL);
        }
    }

    @Nested
    final class Hierarchical3 extends OnAlgorithm {
        Hierarchical3() {
            super(ScheduleAlgorithm.HIERARCHICAL_3);
        }
    }

    @Nested
    final class Torus2d extends OnAlgorithm {
        Torus2d() {
            super(ScheduleAlgorithm.TORUS_2D);
        }
    }

    @Nested
    final class Torus3d extends OnAlgorithm {
        Torus3d() {
            super(ScheduleAlgorithm.TORUS_3D);
        }
    }

    @Nested
    final class Star extends OnAlgorithm {
        Star() {
            super(ScheduleAlgorithm.STAR);
        }
    }

    @Nested
    final class OneShot extends OnAlgorithm {
        OneShot() {
            super(ScheduleAlgorithm.ONE_SHOT);
        }
    }

    @Nested
    final class TwoShot extends OnAlgorithm {
        TwoShot() {
            super(ScheduleAlgorithm.TWO_SHOT);
        }
    }

    @Nested
    final class Pairwise extends OnAlgorithm {
        Pairwise() {
            super(ScheduleAlgorithm.PAIRWISE);
        }
    }

    @Nested
    final class Bruck extends OnAlgorithm {
        Bruck() {
            super(ScheduleAlgorithm.BRUCK);
        }
    }

    @Nested
    final class HierarchicalExchange extends OnAlgorithm {
        HierarchicalExchange() {
            super(ScheduleAlgorithm.HIERARCHICAL_EXCHANGE);
        }
    }

    /** The suite on one of them. */
    abstract static class OnAlgorithm extends ContractSuite {
        private final ScheduleAlgorithm algorithm;

        OnAlgorithm(ScheduleAlgorithm algorithm) {
            this.algorithm = algorithm;
        }

        @Override
        protected BackendUnderTest backendUnderTest() {
            CpuBackend backend =
                    new CpuBackend(new ScheduleEngine(List.of(algorithm)), CpuDevices.SHARED);
            return new BackendUnderTest() {
                @Override
                public Backend backend() {
                    return backend;
                }

                @Override
                public String label() {
                    return "cpu/" + algorithm.title();
                }

                /**
                 * {@link ScheduleEngineTest} knows each algorithm's order, which may be a tree; a
                 * hop order is one for all-reduce, reduce-scatter and reduce alike.
                 */
                @Override
                public Optional<HopOrder> hopOrder() {
                    return algorithm == ScheduleAlgorithm.RING
                            ? Optional.of(HopOrder.ring())
                            : Optional.empty();
                }
            };
        }

        @Override
        protected Extent extent() {
            List<String> operations = new ArrayList<>();
            for (Collective collective : algorithm.collectives()) {
                operations.add(OperationKind.valueOf(collective.name()).operation());
                if (collective == Collective.ALL_GATHER) {
                    operations.add(OperationKind.ALL_GATHER_V.operation());
                } else if (collective == Collective.REDUCE_SCATTER) {
                    operations.add(OperationKind.REDUCE_SCATTER_V.operation());
                }
            }
            return Extent.everything()
                    .withOperations(operations)
                    .withDriveModes(DriveMode.THREAD_PER_RANK, DriveMode.ONE_THREAD_WITH_GROUPS);
        }

        /** Ids of operations have slashes; those of scenarios have none. */
        @Override
        protected boolean selects(String id) {
            return super.selects(id)
                    && (id.contains("/")
                            || id.startsWith("V")
                            || id.startsWith("values-")
                            || id.startsWith("group-")
                            || id.startsWith("abort-"));
        }
    }
}
