package org.nccl4j.examples;

import java.lang.invoke.MethodHandle;
import java.lang.invoke.MethodHandles;
import java.lang.invoke.MethodType;
import java.util.Arrays;
import org.nccl4j.collectives.LibraryUnavailableException;

/**
 * What {@code examples/run} starts: an example by name, with words instead of a stack trace where
 * something has to be installed first.
 */
final class Launcher {
    private static final int UNAVAILABLE = 5;

    private Launcher() {}

    /**
     * Runs an example.
     *
     * @param arguments its class's simple name, then its arguments
     */
    public static void main(String[] arguments) throws Throwable {
        String name = arguments[0];
        try {
            MethodHandle main =
                    MethodHandles.lookup()
                            .findStatic(
                                    Class.forName(Launcher.class.getPackageName() + "." + name),
                                    "main",
                                    MethodType.methodType(void.class, String[].class));
            main.invokeExact(Arrays.copyOfRange(arguments, 1, arguments.length));
        } catch (LibraryUnavailableException unavailable) {
            exit(name, unavailable.getMessage());
        } catch (LinkageError lacking) {
            switch (name) {
                case "JCudaAllReduce" ->
                        exit(
                                name,
                                lacking(
                                        lacking,
                                        "JCuda",
                                        "jcuda-12.6.0.jar:jcuda-natives-12.6.0-linux-x86_64.jar",
                                        name));
                case "JavaCppAllReduce" ->
                        exit(
                                name,
                                lacking(
                                        lacking,
                                        "org.bytedeco:cuda-platform and what it depends on",
                                        "'folder/*'",
                                        name));
                default -> throw lacking;
            }
        }
    }

    private static String lacking(
            LinkageError lacking, String library, String jars, String example) {
        return "needs the jars of "
                + library
                + " with their natives, and found them not or not whole: "
                + lacking
                + "\n  CLASSPATH="
                + jars
                + " examples/run "
                + example
                + "  (docs/nccl.md tells more)";
    }

    private static void exit(String example, String why) {
        System.err.println(example + ": " + why);
        System.exit(UNAVAILABLE);
    }
}
