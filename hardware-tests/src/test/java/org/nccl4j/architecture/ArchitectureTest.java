package org.nccl4j.architecture;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import com.tngtech.archunit.core.domain.JavaClasses;
import com.tngtech.archunit.core.importer.ClassFileImporter;
import com.tngtech.archunit.lang.ArchRule;
import java.io.IOException;
import java.lang.foreign.Linker;
import java.lang.foreign.SymbolLookup;
import java.lang.module.ModuleDescriptor;
import java.nio.file.Path;
import java.util.List;
import java.util.concurrent.TimeUnit;
import java.util.stream.Stream;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Disabled;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.condition.EnabledOnOs;
import org.junit.jupiter.api.condition.OS;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.Arguments;
import org.junit.jupiter.params.provider.MethodSource;

/** Holds the built tree to its rules, and each rule to a class that breaks it. */
final class ArchitectureTest {

    private static JavaClasses all;
    private static JavaClasses tests;

    @BeforeAll
    static void readClasses() throws IOException {
        List<Path> main = Modules.mainClasses();
        List<Path> test = Modules.testClasses();
        all = read(Stream.concat(main.stream(), test.stream()));
        Stream<Path> suite =
                main.stream().filter(path -> path.toString().contains("contract-suite"));
        tests = read(Stream.concat(suite, test.stream()));
    }

    private static JavaClasses read(Stream<Path> folders) {
        return new ClassFileImporter()
                // This package names what it forbids.
                .withImportOption(location -> !location.contains("org/nccl4j/architecture/"))
                .importPaths(folders.toList());
    }

    @Test
    void modulesRequireOnlyWhatTheirArrowsAllow() throws IOException {
        assertThat(Modules.descriptors()).flatExtracting(Modules::forbiddenArrows).isEmpty();
    }

    @Test
    void nothingInternalIsExported() throws IOException {
        assertThat(Modules.descriptors()).flatExtracting(Modules::exportedInternals).isEmpty();
    }

    @Test
    void nativeCallsStayInTheBindings() {
        Rules.NATIVE_CALLS_STAY_IN_THE_BINDINGS.check(all);
    }

    @Test
    void standardStreamsBelongToBench() {
        Rules.STANDARD_STREAMS_BELONG_TO_BENCH.check(all);
    }

    @Test
    void namesSayWhatATypeIs() {
        Rules.NAMES_SAY_WHAT_A_TYPE_IS.check(all);
    }

    @Test
    void testsDoNotSleep() {
        Rules.TESTS_DO_NOT_SLEEP.check(tests);
    }

    @Test
    void testsAreNotSwitchedOff() {
        Rules.TESTS_ARE_NOT_SWITCHED_OFF.check(tests);
    }

    @Test
    void aForbiddenArrowIsFound() {
        ModuleDescriptor bench =
                ModuleDescriptor.newModule("org.nccl4j.bench")
                        .requires("java.base")
                        .requires("org.nccl4j.collectives")
                        .requires("org.nccl4j.cpu")
                        .build();

        assertThat(Modules.forbiddenArrows(bench))
                .containsExactly(
                        "org.nccl4j.bench requires org.nccl4j.cpu"
                                + " and may require only [org.nccl4j.collectives]");
    }

    @Test
    void aModuleWithoutArrowsIsFound() {
        ModuleDescriptor module = ModuleDescriptor.newModule("org.nccl4j.other").build();

        assertThat(Modules.forbiddenArrows(module))
                .containsExactly("org.nccl4j.other has no entry in the table of arrows");
    }

    @Test
    void anExportedInternalPackageIsFound() {
        ModuleDescriptor module =
                ModuleDescriptor.newModule("org.nccl4j.cpu")
                        .exports("org.nccl4j.cpu.internal")
                        .build();

        assertThat(Modules.exportedInternals(module))
                .containsExactly("org.nccl4j.cpu exports org.nccl4j.cpu.internal to []");
    }

    @ParameterizedTest
    @MethodSource
    void aBrokenRuleIsFound(ArchRule rule, Class<?> breach) {
        JavaClasses classes = new ClassFileImporter().importClasses(breach);

        assertThatThrownBy(() -> rule.check(classes))
                .isInstanceOf(AssertionError.class)
                .hasMessageContaining(breach.getSimpleName());
    }

    static Stream<Arguments> aBrokenRuleIsFound() {
        return Stream.of(
                Arguments.of(Rules.NATIVE_CALLS_STAY_IN_THE_BINDINGS, UsesLinker.class),
                Arguments.of(Rules.NATIVE_CALLS_STAY_IN_THE_BINDINGS, UsesSymbolLookup.class),
                Arguments.of(Rules.STANDARD_STREAMS_BELONG_TO_BENCH, Prints.class),
                Arguments.of(Rules.STANDARD_STREAMS_BELONG_TO_BENCH, PrintsToStderr.class),
                Arguments.of(Rules.STANDARD_STREAMS_BELONG_TO_BENCH, PrintsStackTraces.class),
                Arguments.of(Rules.NAMES_SAY_WHAT_A_TYPE_IS, RingUtils.class),
                Arguments.of(Rules.NAMES_SAY_WHAT_A_TYPE_IS, RingHelper.class),
                Arguments.of(Rules.NAMES_SAY_WHAT_A_TYPE_IS, RingManagerThread.class),
                Arguments.of(Rules.NAMES_SAY_WHAT_A_TYPE_IS, RingImpl.class),
                Arguments.of(Rules.TESTS_DO_NOT_SLEEP, Sleeps.class),
                Arguments.of(Rules.TESTS_DO_NOT_SLEEP, SleepsForAUnit.class),
                Arguments.of(Rules.TESTS_ARE_NOT_SWITCHED_OFF, SwitchedOff.class),
                Arguments.of(Rules.TESTS_ARE_NOT_SWITCHED_OFF, HasATestSwitchedOff.class),
                Arguments.of(Rules.TESTS_ARE_NOT_SWITCHED_OFF, RunsSomewhere.class));
    }

    static final class UsesLinker {
        Linker linker = Linker.nativeLinker();
    }

    static final class UsesSymbolLookup {
        SymbolLookup lookup = SymbolLookup.loaderLookup();
    }

    static final class Prints {
        void print() {
            System.out.println();
        }
    }

    static final class PrintsToStderr {
        void print() {
            System.err.println();
        }
    }

    static final class PrintsStackTraces {
        @SuppressWarnings("CatchAndPrintStackTrace")
        void print(Exception e) {
            e.printStackTrace();
        }
    }

    static final class RingUtils {}

    static final class RingHelper {}

    static final class RingManagerThread {}

    static final class RingImpl {}

    static final class Sleeps {
        void sleep() throws InterruptedException {
            Thread.sleep(1);
        }
    }

    static final class SleepsForAUnit {
        void sleep() throws InterruptedException {
            TimeUnit.MILLISECONDS.sleep(1);
        }
    }

    @Disabled
    static final class SwitchedOff {}

    static final class HasATestSwitchedOff {
        @Test
        @Disabled
        void off() {}
    }

    @EnabledOnOs(OS.LINUX)
    static final class RunsSomewhere {}
}
