package org.nccl4j.bindings;

import static java.lang.foreign.ValueLayout.ADDRESS;
import static java.lang.foreign.ValueLayout.JAVA_INT;

import java.lang.foreign.Arena;
import java.lang.foreign.FunctionDescriptor;
import java.lang.foreign.MemorySegment;
import java.lang.invoke.MethodHandle;
import java.util.Optional;

/**
 * The environment that native libraries read. Java's own view, {@link System#getenv}, is a copy
 * that it never changes.
 *
 * <p>Thread safety: setting is not safe while other threads' native code reads the environment; set
 * what a library needs before its first call.
 */
public final class ProcessEnvironment {
    private ProcessEnvironment() {}

    /**
     * Sets a variable, replacing its value.
     *
     * @param name the variable
     * @param value its value
     * @throws IllegalArgumentException if C cannot have such a name or value
     * @throws IllegalCallerException if native access is denied; it names the flag
     */
    public static void set(String name, String value) {
        requireName(name);
        if (value.indexOf('\0') >= 0) {
            throw new IllegalArgumentException(
                    "the value of " + name + " has a zero character, which would end it in C");
        }
        MethodHandle setenv =
                SystemFunctions.handle(
                        "setenv", FunctionDescriptor.of(JAVA_INT, ADDRESS, ADDRESS, JAVA_INT));
        int result;
        try (Arena arena = Arena.ofConfined()) {
            result =
                    (int)
                            setenv.invokeExact(
                                    arena.allocateFrom(name), arena.allocateFrom(value), 1);
        } catch (Throwable e) {
            throw NativeLibrary.undeclared(e);
        }
        if (result != 0) {
            throw new IllegalStateException(
                    "setenv(" + name + ") failed: the process has no memory for it");
        }
    }

    /**
     * A variable as native libraries see it.
     *
     * @param name the variable
     * @return its value, empty if it is not set
     * @throws IllegalArgumentException if C cannot have such a name
     * @throws IllegalCallerException if native access is denied; it names the flag
     */
    public static Optional<String> get(String name) {
        requireName(name);
        MethodHandle getenv =
                SystemFunctions.handle("getenv", FunctionDescriptor.of(ADDRESS, ADDRESS));
        try (Arena arena = Arena.ofConfined()) {
            MemorySegment value = (MemorySegment) getenv.invokeExact(arena.allocateFrom(name));
            return value.equals(MemorySegment.NULL)
                    ? Optional.empty()
                    : Optional.of(value.reinterpret(Long.MAX_VALUE).getString(0));
        } catch (Throwable e) {
            throw NativeLibrary.undeclared(e);
        }
    }

    private static void requireName(String name) {
        if (name.isEmpty() || name.indexOf('=') >= 0 || name.indexOf('\0') >= 0) {
            throw new IllegalArgumentException(
                    "not a variable's name: '"
                            + name
                            + "' (it must not be empty, nor have '=' or a zero character)");
        }
    }
}
