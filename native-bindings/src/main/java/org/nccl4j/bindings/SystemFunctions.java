package org.nccl4j.bindings;

import java.lang.foreign.FunctionDescriptor;
import java.lang.foreign.Linker;
import java.lang.invoke.MethodHandle;

/** Functions of the C library, and what to say when this module may not call them. */
final class SystemFunctions {

    private SystemFunctions() {}

    /**
     * A handle of a function that every C library has.
     *
     * @throws IllegalCallerException naming the missing flag, if native access is denied
     */
    static MethodHandle handle(String function, FunctionDescriptor descriptor) {
        Linker linker = Linker.nativeLinker();
        try {
            return linker.downcallHandle(linker.defaultLookup().findOrThrow(function), descriptor);
        } catch (IllegalCallerException e) {
            throw new IllegalCallerException(nativeAccessDenied(), e);
        }
    }

    /** Names exactly the flag that is missing. */
    static String nativeAccessDenied() {
        Module module = SystemFunctions.class.getModule();
        return "this JVM does not let nccl4j call native code: start it with "
                + "--enable-native-access="
                + (module.isNamed() ? module.getName() : "ALL-UNNAMED")
                + " (several modules are separated by commas; in an executable jar the manifest's"
                + " Enable-Native-Access: ALL-UNNAMED does the same for the class path)";
    }
}
