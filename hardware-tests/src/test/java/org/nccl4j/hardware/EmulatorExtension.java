package org.nccl4j.hardware;

import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import org.awaitility.Awaitility;
import org.awaitility.core.ConditionTimeoutException;
import org.junit.jupiter.api.extension.AfterAllCallback;
import org.junit.jupiter.api.extension.AfterEachCallback;
import org.junit.jupiter.api.extension.BeforeAllCallback;
import org.junit.jupiter.api.extension.BeforeEachCallback;
import org.junit.jupiter.api.extension.DynamicTestInvocationContext;
import org.junit.jupiter.api.extension.ExtensionContext;
import org.junit.jupiter.api.extension.InvocationInterceptor;
import org.junit.jupiter.api.extension.ParameterContext;
import org.junit.jupiter.api.extension.ParameterResolver;
import org.nccl4j.bindings.ProcessEnvironment;

/** What {@link OnEmulator} means. */
final class EmulatorExtension
        implements BeforeAllCallback,
                AfterAllCallback,
                BeforeEachCallback,
                AfterEachCallback,
                InvocationInterceptor,
                ParameterResolver {
    /** Memory may be freed a little later, when its streams have passed the work that uses it. */
    private static final Duration RELEASE_DEADLINE = Duration.ofSeconds(10);

    private EmulatorControls controls;
    private boolean leavesNothing;
    private String faults;
    private Map<String, Long> before;

    @Override
    public void beforeAll(ExtensionContext context) {
        OnEmulator emulator = context.getRequiredTestClass().getAnnotation(OnEmulator.class);
        EmulatorLibraries libraries = EmulatorLibraries.of(emulator.nccl());
        libraries.select();
        ProcessEnvironment.set("NCCL4J_EMULATOR_DEVICES", Integer.toString(emulator.devices()));
        faults = emulator.faults();
        controls = new EmulatorControls(libraries);
        leavesNothing = emulator.leavesNothing();
        before = controls.live();
    }

    @Override
    public void beforeEach(ExtensionContext context) {
        controls.forget();
        if (!faults.isEmpty()) {
            controls.inject(faults);
        }
    }

    @Override
    public void afterEach(ExtensionContext context) {
        requireNoMisuse(context.getDisplayName());
    }

    @Override
    public void interceptDynamicTest(
            Invocation<Void> invocation,
            DynamicTestInvocationContext invocationContext,
            ExtensionContext context)
            throws Throwable {
        Map<String, Long> beforeTest = controls.live();
        try {
            invocation.proceed();
        } catch (Throwable e) {
            controls.misuse().forEach(line -> e.addSuppressed(new AssertionError(line)));
            controls.forget();
            throw e;
        }
        requireNoMisuse(context.getDisplayName());
        // The contract suite keeps the communicators of its other tests open until its end, and a
        // device that is in use keeps a pool of events.
        if (leavesNothing && factory(context).equals("scenarios")) {
            beforeTest.remove("events");
            requireLive(controls, beforeTest, context.getDisplayName());
        }
    }

    /** The method that made a dynamic test. */
    private static String factory(ExtensionContext test) {
        ExtensionContext context = test;
        while (context.getTestMethod().isEmpty()) {
            context = context.getParent().orElseThrow();
        }
        return context.getRequiredTestMethod().getName();
    }

    /** What is left behind is found once all is closed that a class keeps for its tests. */
    @Override
    public void afterAll(ExtensionContext context) {
        if (controls != null && leavesNothing) {
            requireLive(controls, before, context.getDisplayName());
        }
    }

    private void requireNoMisuse(String test) {
        List<String> misuse = controls.misuse();
        controls.forget();
        if (!misuse.isEmpty()) {
            throw new AssertionError(
                    test
                            + ": CUDA or NCCL was misused, the emulator says:\n  "
                            + String.join("\n  ", misuse));
        }
    }

    /**
     * Waits until no more lives than before, of the kinds that were counted then; fails with those
     * of which there is more.
     */
    static void requireLive(EmulatorControls controls, Map<String, Long> before, String test) {
        try {
            Awaitility.await()
                    .atMost(RELEASE_DEADLINE)
                    .pollInterval(Duration.ofMillis(2))
                    .until(() -> left(controls, before).isEmpty());
        } catch (ConditionTimeoutException e) {
            throw new AssertionError(
                    test
                            + " leaves behind (more than before it, "
                            + RELEASE_DEADLINE.toSeconds()
                            + " s after its end): "
                            + left(controls, before),
                    e);
        }
    }

    private static Map<String, Long> left(EmulatorControls controls, Map<String, Long> before) {
        Map<String, Long> left = new TreeMap<>();
        before.forEach((kind, count) -> {
            long more = controls.live(kind) - count;
            if (more > 0) {
                left.put(kind, more);
            }
        });
        return left;
    }

    @Override
    public boolean supportsParameter(ParameterContext parameter, ExtensionContext context) {
        return parameter.getParameter().getType() == EmulatorControls.class;
    }

    @Override
    public Object resolveParameter(ParameterContext parameter, ExtensionContext context) {
        return controls;
    }
}
