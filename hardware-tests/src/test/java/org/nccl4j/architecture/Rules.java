package org.nccl4j.architecture;

import static com.tngtech.archunit.core.domain.JavaCall.Predicates.target;
import static com.tngtech.archunit.core.domain.JavaClass.Predicates.equivalentTo;
import static com.tngtech.archunit.core.domain.JavaClass.Predicates.resideInAPackage;
import static com.tngtech.archunit.core.domain.properties.CanBeAnnotated.Predicates.annotatedWith;
import static com.tngtech.archunit.core.domain.properties.HasName.Predicates.name;
import static com.tngtech.archunit.core.domain.properties.HasOwner.Predicates.With.owner;
import static com.tngtech.archunit.lang.conditions.ArchConditions.dependOnClassesThat;
import static com.tngtech.archunit.lang.syntax.ArchRuleDefinition.noClasses;
import static com.tngtech.archunit.library.GeneralCodingRules.ACCESS_STANDARD_STREAMS;

import com.tngtech.archunit.base.DescribedPredicate;
import com.tngtech.archunit.core.domain.JavaAnnotation;
import com.tngtech.archunit.core.domain.JavaClass;
import com.tngtech.archunit.lang.ArchCondition;
import com.tngtech.archunit.lang.ArchRule;
import com.tngtech.archunit.lang.ConditionEvents;
import com.tngtech.archunit.lang.SimpleConditionEvent;
import java.lang.foreign.Linker;
import java.lang.foreign.SymbolLookup;
import java.util.concurrent.TimeUnit;
import java.util.regex.Pattern;
import java.util.stream.Stream;
import org.junit.jupiter.api.Disabled;

/** What the classes of nccl4j may not do. */
final class Rules {

    private static final Pattern FORBIDDEN_NAME =
            Pattern.compile("(Util(s|ity|ities)?|Helpers?|Managers?)(?![a-z])|Impl$");

    static final ArchRule NATIVE_CALLS_STAY_IN_THE_BINDINGS =
            noClasses()
                    .that()
                    .resideOutsideOfPackage("org.nccl4j.bindings..")
                    .and()
                    // One class of each, with the classes in it: what the CPU backend asks of the
                    // system, and what tests ask of the emulator beside CUDA and NCCL.
                    .haveNameNotMatching(
                            "org\\.nccl4j\\.(cpu\\.PosixCalls|hardware\\.EmulatorControls)(\\$.*)?")
                    .should(
                            dependOnClassesThat(
                                    equivalentTo(Linker.class)
                                            .or(equivalentTo(Linker.Option.class))
                                            .or(equivalentTo(SymbolLookup.class))))
                    .because("native libraries are loaded and called in one place");

    static final ArchRule STANDARD_STREAMS_BELONG_TO_BENCH =
            noClasses()
                    .that()
                    .resideOutsideOfPackages(
                            "org.nccl4j.bench..",
                            "org.nccl4j.examples..",
                            // as jextract generates it: a trace that is off
                            "org.nccl4j.bindings.nccl",
                            "org.nccl4j.bindings.cudart")
                    .should(ACCESS_STANDARD_STREAMS)
                    .because("a library logs to System.Logger; programs own stdout and stderr");

    static final ArchRule NAMES_SAY_WHAT_A_TYPE_IS =
            noClasses()
                    .should(
                            new ArchCondition<>("have a name that fits any type") {
                                @Override
                                public void check(JavaClass type, ConditionEvents events) {
                                    if (FORBIDDEN_NAME.matcher(type.getSimpleName()).find()) {
                                        events.add(
                                                SimpleConditionEvent.satisfied(
                                                        type, type.getName()));
                                    }
                                }
                            })
                    .because("Util, Helper, Manager and Impl name nothing of the field");

    static final ArchRule TESTS_DO_NOT_SLEEP =
            noClasses()
                    .should()
                    .callMethodWhere(
                            target(owner(equivalentTo(Thread.class)))
                                    .or(target(owner(equivalentTo(TimeUnit.class))))
                                    .and(target(name("sleep"))))
                    .because("a test waits for what it needs, under a deadline");

    static final ArchRule TESTS_ARE_NOT_SWITCHED_OFF =
            noClasses()
                    .should(
                            new ArchCondition<>("be switched off, nor have a test that is") {
                                @Override
                                public void check(JavaClass type, ConditionEvents events) {
                                    Stream.concat(Stream.of(type), type.getMembers().stream())
                                            .filter(annotatedWith(SWITCHES_OFF)::test)
                                            .forEach(element ->
                                                    events.add(
                                                            SimpleConditionEvent.satisfied(
                                                                    element,
                                                                    element.getDescription())));
                                }
                            })
                    .because("a test that cannot hold here aborts with \"unsupported: why\"");

    private static final DescribedPredicate<JavaAnnotation<?>> SWITCHES_OFF =
            DescribedPredicate.describe(
                    "@Disabled or a condition",
                    annotation ->
                            equivalentTo(Disabled.class)
                                    .or(resideInAPackage("org.junit.jupiter.api.condition"))
                                    .test(annotation.getRawType()));

    private Rules() {}
}
