package org.nccl4j.bindings;

import java.lang.foreign.FunctionDescriptor;
import java.lang.foreign.MemorySegment;
import java.lang.invoke.MethodHandle;
import java.lang.reflect.Constructor;
import java.lang.reflect.Field;
import java.net.URL;
import java.net.URLClassLoader;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.function.Function;
import java.util.stream.Collectors;
import java.util.stream.Stream;

/**
 * The bindings' classes once more, in a class loader of their own, where each library seems to be
 * loaded and to have every function, so that descriptors can be read without a library. Nothing may
 * be called.
 */
final class IsolatedBindings {
    private final ClassLoader loader;
    private final List<String> lookedUp = new ArrayList<>();

    private IsolatedBindings(ClassLoader loader) {
        this.loader = loader;
    }

    static IsolatedBindings create() throws ReflectiveOperationException {
        URL classes = NativeLibrary.class.getProtectionDomain().getCodeSource().getLocation();
        IsolatedBindings bindings =
                new IsolatedBindings(
                        new URLClassLoader(
                                new URL[] {classes}, ClassLoader.getPlatformClassLoader()));
        Function<String, Optional<MemorySegment>> everything =
                function -> {
                    bindings.lookedUp.add(function);
                    return Optional.of(MemorySegment.ofAddress(1));
                };
        Class<?> library = bindings.type("org.nccl4j.bindings.NativeLibrary");
        Constructor<?> loaded =
                bindings.type("org.nccl4j.bindings.LibrarySearch$Loaded")
                        .getDeclaredConstructors()[0];
        loaded.setAccessible(true);
        Field field = library.getDeclaredField("loaded");
        field.setAccessible(true);
        for (String name : List.of("NCCL", "CUDA_RUNTIME", "CUDA_DRIVER")) {
            field.set(
                    library.getField(name).get(null),
                    loaded.newInstance(everything, "nowhere", List.of()));
        }
        return bindings;
    }

    Class<?> type(String name) throws ReflectiveOperationException {
        return Class.forName(name, true, loader);
    }

    /** The functions of a generated header class with their descriptors. */
    static Map<String, FunctionDescriptor> generated(Class<?> header)
            throws ReflectiveOperationException {
        Map<String, FunctionDescriptor> functions = new TreeMap<>();
        for (String name : names(header)) {
            functions.put(
                    name, (FunctionDescriptor) header.getMethod(name + "$descriptor").invoke(null));
        }
        return functions;
    }

    private static Set<String> names(Class<?> header) {
        return Stream.of(header.getMethods())
                .map(method -> method.getName())
                .filter(name -> name.endsWith("$descriptor"))
                .map(name -> name.substring(0, name.lastIndexOf('$')))
                .collect(Collectors.toCollection(TreeSet::new));
    }

    /** The symbols that a class written by hand looks up, with their handles. */
    Map<String, MethodHandle> written(Class<?> type) throws ReflectiveOperationException {
        Map<String, MethodHandle> functions = new TreeMap<>();
        for (Class<?> holder : type.getDeclaredClasses()) {
            Field handle = holder.getDeclaredField("HANDLE");
            handle.setAccessible(true);
            lookedUp.clear();
            MethodHandle value = (MethodHandle) handle.get(null);
            functions.put(lookedUp.getFirst(), value);
        }
        return functions;
    }
}
