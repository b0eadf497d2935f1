package org.nccl4j.bindings;

import static java.lang.foreign.ValueLayout.ADDRESS;
import static java.lang.foreign.ValueLayout.JAVA_INT;

import java.lang.foreign.Arena;
import java.lang.foreign.FunctionDescriptor;
import java.lang.foreign.Linker;
import java.lang.invoke.MethodHandle;

/**
 * The environment that native libraries read. Java's own view, {@link System#getenv}, is a copy
 * that it never changes.
 *
 * <p>Thread safety: setting is not safe while native code reads the environment; set what a library
 * needs before its first call.
 */
public final class ProcessEnvironment {
    private ProcessEnvironment() {}

    /**
     * Sets a variable, replacing its value.
     *
     * @param name the variable
     * @param value its value
     */
    public static void set(String name, String value) {
        Linker linker = Linker.nativeLinker();
        MethodHandle setenv =
                linker.downcallHandle(
                        linker.defaultLookup().findOrThrow("setenv"),
                        FunctionDescriptor.of(JAVA_INT, ADDRESS, ADDRESS, JAVA_INT));
        try (Arena arena = Arena.ofConfined()) {
            int result =
                    (int)
                            setenv.invokeExact(
                                    arena.allocateFrom(name), arena.allocateFrom(value), 1);
            if (result != 0) {
                throw new IllegalArgumentException("not a variable's name: '" + name + "'");
            }
        } catch (RuntimeException | Error e) {
            throw e;
        } catch (Throwable e) {
            throw new AssertionError("setenv declares nothing", e);
        }
    }
}
