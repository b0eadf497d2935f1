package org.nccl4j.bindings;

import static org.assertj.core.api.Assertions.assertThat;

import java.io.IOException;
import java.io.InputStream;
import java.lang.foreign.Arena;
import java.lang.foreign.FunctionDescriptor;
import java.lang.foreign.MemoryLayout;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.lang.invoke.MethodHandle;
import java.lang.invoke.MethodType;
import java.lang.reflect.Method;
import java.lang.reflect.Modifier;
import java.util.ArrayList;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.stream.Collectors;
import java.util.stream.Stream;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;
import org.nccl4j.bindings.cudart.CudaRt;
import org.nccl4j.bindings.cudart.MemoryPools;
import org.nccl4j.bindings.cudart.cudaDeviceProp;
import org.nccl4j.bindings.cudart.cudaPointerAttributes;
import org.nccl4j.bindings.nccl.Nccl;
import org.nccl4j.bindings.nccl.ncclConfig_t;
import org.nccl4j.bindings.nccl.ncclSimInfo_t;
import org.nccl4j.bindings.nccl.ncclUniqueId;
import org.nccl4j.bindings.nccl.ncclWaitSignalDesc_t;
import tools.jackson.databind.JsonNode;
import tools.jackson.databind.ObjectMapper;

/**
 * Compares the bindings with numbers that a C compiler gave for NCCL 2.30.7's and CUDA 13.0's
 * headers. No library is needed.
 */
final class AbiTest {

    /** Structures of nccl_device.h, which is not bound. */
    private static final Set<String> DEVICE_API =
            Set.of("ncclCommProperties_t", "ncclTeam_t", "ncclDevCommRequirements_t");

    /** Deprecated and about to go: not bound on purpose. */
    private static final Set<String> NOT_BOUND = Set.of("ncclResetDebugInit");

    private static final Map<String, Class<?>> NCCL_STRUCTURES =
            Map.of(
                    "ncclUniqueId", ncclUniqueId.class,
                    "ncclConfig_t", ncclConfig_t.class,
                    "ncclSimInfo_t", ncclSimInfo_t.class,
                    "ncclWaitSignalDesc_t", ncclWaitSignalDesc_t.class);

    private static JsonNode nccl;
    private static JsonNode cuda;
    private static IsolatedBindings bindings;

    @BeforeAll
    static void read() throws IOException, ReflectiveOperationException {
        try (InputStream json = AbiTest.class.getResourceAsStream("/nccl-abi-2.30.7.json")) {
            nccl = new ObjectMapper().readTree(json);
        }
        cuda = nccl.get("cudart130");
        bindings = IsolatedBindings.create();
    }

    @Test
    void structuresHaveTheSizeAndAlignmentOfC() throws ReflectiveOperationException {
        assertThat(NCCL_STRUCTURES.keySet())
                .containsExactlyInAnyOrderElementsOf(
                        without(keys(nccl.get("offsets")), DEVICE_API));
        for (var structure : NCCL_STRUCTURES.entrySet()) {
            MemoryLayout layout = layout(structure.getValue());
            assertThat(layout.byteSize())
                    .as("size of %s", structure.getKey())
                    .isEqualTo(nccl.get("sizes").get(structure.getKey()).asLong());
            assertThat(layout.byteAlignment())
                    .as("alignment of %s", structure.getKey())
                    .isEqualTo(nccl.get("alignments").get(structure.getKey()).asLong());
        }
    }

    @Test
    void fieldsAreWhereCHasThem() throws ReflectiveOperationException {
        for (var structure : NCCL_STRUCTURES.entrySet()) {
            String name = structure.getKey();
            assertThat(numbers(structure.getValue(), "$offset"))
                    .as("offsets of %s, none missing and none too many", name)
                    .isEqualTo(numbers(nccl.get("offsets").get(name)));
            assertThat(numbers(structure.getValue(), "$layout"))
                    .as("sizes of the fields of %s", name)
                    .isEqualTo(numbers(nccl.get("fieldSizes").get(name)));
        }
    }

    @Test
    void constantsHaveTheValuesOfC() throws ReflectiveOperationException {
        // nccl_device.h again
        Set<String> names = without(keys(nccl.get("enums")), Set.of());
        names.removeIf(name -> name.startsWith("NCCL_GIN_"));
        Map<String, Integer> expected = new TreeMap<>();
        Map<String, Integer> values = new TreeMap<>();
        for (String name : names) {
            // unsigned ones too, such as the magic number
            expected.put(name, (int) nccl.get("enums").get(name).asLong());
            values.put(name, (int) Nccl.class.getMethod(name).invoke(null));
        }
        assertThat(values).isEqualTo(expected);
        Set<String> bound = constants(Nccl.class);
        bound.removeAll(names);
        // what is no integer
        assertThat(bound)
                .containsExactlyInAnyOrder(
                        "NCCL_COMM_NULL",
                        "NCCL_CONFIG_UNDEF_PTR",
                        "NCCL_SUFFIX",
                        "NCCL_UNDEF_FLOAT");
        assertThat(Nccl.NCCL_COMM_NULL()).isEqualTo(MemorySegment.NULL);
        assertThat(Nccl.NCCL_CONFIG_UNDEF_PTR()).isEqualTo(MemorySegment.NULL);
        JsonNode initializers = nccl.get("initializers");
        assertThat(Nccl.NCCL_UNDEF_FLOAT())
                .isEqualTo((float) initializers.get("undefFloat").asDouble());
        assertThat(Nccl.NCCL_CONFIG_UNDEF_INT()).isEqualTo(initializers.get("undefInt").asInt());
        assertThat(Integer.toUnsignedLong(Nccl.NCCL_API_MAGIC()))
                .isEqualTo(initializers.get("configMagic").asLong());
    }

    /** The macro is no constant, so C code has it and Java has the fields. */
    @Test
    void aConfigFilledThroughTheFieldsIsNcclsInitializer() throws ReflectiveOperationException {
        try (Arena arena = Arena.ofConfined()) {
            MemorySegment config = ncclConfig_t.allocate(arena);
            for (Method setter : ncclConfig_t.class.getMethods()) {
                if (Modifier.isStatic(setter.getModifiers())
                        && setter.getParameterCount() == 2
                        && setter.getParameterTypes()[1] == int.class
                        && setter.getReturnType() == void.class) {
                    setter.invoke(null, config, Nccl.NCCL_CONFIG_UNDEF_INT());
                }
            }
            ncclConfig_t.size(config, ncclConfig_t.sizeof());
            ncclConfig_t.magic(config, Nccl.NCCL_API_MAGIC());
            ncclConfig_t.version(config, Nccl.NCCL_VERSION_CODE());
            ncclConfig_t.netName(config, Nccl.NCCL_CONFIG_UNDEF_PTR());
            ncclConfig_t.commName(config, Nccl.NCCL_CONFIG_UNDEF_PTR());

            assertThat(hex(config)).isEqualTo(initializer("NCCL_CONFIG_INITIALIZER_hex"));
        }
    }

    @Test
    void aSimInfoFilledThroughTheFieldsIsNcclsInitializer() {
        try (Arena arena = Arena.ofConfined()) {
            MemorySegment info = ncclSimInfo_t.allocate(arena);
            ncclSimInfo_t.size(info, ncclSimInfo_t.sizeof());
            ncclSimInfo_t.magic(info, nccl.get("initializers").get("simInfoMagic").asInt());
            ncclSimInfo_t.version(info, Nccl.NCCL_VERSION_CODE());
            ncclSimInfo_t.estimatedTime(info, Nccl.NCCL_UNDEF_FLOAT());

            assertThat(hex(info)).isEqualTo(initializer("NCCL_SIM_INFO_INITIALIZER_hex"));
        }
    }

    @Test
    void everyFunctionOfNcclIsBoundWithItsSignature() throws ReflectiveOperationException {
        Class<?> header = bindings.type(Nccl.class.getName());
        Map<String, FunctionDescriptor> bound = IsolatedBindings.generated(header);

        assertThat(bound.keySet())
                .as("none missing and none too many")
                .isEqualTo(without(names(nccl.get("functions")), NOT_BOUND));
        check(nccl.get("functions"), bound);
        checkJavaMethods(header, bound);
    }

    @Test
    void functionsOfTheCudaRuntimeAreBoundWithTheirSignature() throws ReflectiveOperationException {
        Class<?> header = bindings.type(CudaRt.class.getName());
        Map<String, FunctionDescriptor> bound = IsolatedBindings.generated(header);

        assertThat(names(cuda.get("functions"))).containsAll(bound.keySet());
        check(cuda.get("functions"), bound);
        checkJavaMethods(header, bound);
    }

    @Test
    void functionsBoundByHandHaveTheirSignature() throws ReflectiveOperationException {
        Map<String, JsonNode> functions = byName(cuda.get("functions"));
        Set<String> generated =
                IsolatedBindings.generated(bindings.type(CudaRt.class.getName())).keySet();
        for (String type : List.of("MemoryPools", "CudaRtAdditions")) {
            Class<?> written = bindings.type("org.nccl4j.bindings.cudart." + type);
            Map<String, MethodHandle> handles = bindings.written(written);
            assertThat(handles).isNotEmpty();
            for (var handle : handles.entrySet()) {
                String name = handle.getKey();
                assertThat(generated).as("bound twice").doesNotContain(name);
                assertThat(functions).containsKey(name);
                assertThat(handle.getValue().type())
                        .as(name)
                        .isEqualTo(descriptor(functions.get(name)).toMethodType());
                assertThat(method(written, name).getParameterTypes())
                        .as(name)
                        .isEqualTo(handle.getValue().type().parameterArray());
            }
        }
    }

    /** As those that jextract binds, but for addresses and handles, which are numbers. */
    @Test
    void functionsBoundByAddressHaveTheirSignature() throws ReflectiveOperationException {
        checkByAddress("nccl.NcclByAddress", "nccl.Nccl");
        checkByAddress("cudart.CudaRtByAddress", "cudart.CudaRt");
    }

    private static void checkByAddress(String type, String header)
            throws ReflectiveOperationException {
        Class<?> written = bindings.type("org.nccl4j.bindings." + type);
        Map<String, FunctionDescriptor> generated =
                IsolatedBindings.generated(bindings.type("org.nccl4j.bindings." + header));
        Map<String, MethodHandle> handles = bindings.written(written);
        assertThat(handles).isNotEmpty();
        handles.forEach((name, handle) -> {
            MethodType expected = generated.get(name).toMethodType();
            MethodType bound = handle.type();
            assertThat(bound.parameterCount()).as(name).isEqualTo(expected.parameterCount());
            assertThat(bound.parameterList()).as("%s has an address", name).contains(long.class);
            for (int i = 0; i < expected.parameterCount(); i++) {
                // What is written to stays a segment.
                if (expected.parameterType(i) != MemorySegment.class
                        || bound.parameterType(i) != long.class) {
                    assertThat(bound.parameterType(i))
                            .as("parameter %d of %s", i, name)
                            .isEqualTo(expected.parameterType(i));
                }
            }
            assertThat(bound.returnType()).as(name).isEqualTo(expected.returnType());
            assertThat(method(written, name).getParameterTypes())
                    .as(name)
                    .isEqualTo(bound.parameterArray());
        });
    }

    /** The numbers of cuda.h: what a parameter is, and which symbols its macros stand for. */
    @Test
    void functionsOfTheDriverHaveTheirSignatureAndSymbol() throws ReflectiveOperationException {
        Map<String, List<String>> expected =
                Map.ofEntries(
                        Map.entry("cuInit", List.of("unsigned int")),
                        Map.entry("cuDriverGetVersion", List.of("int*")),
                        Map.entry("cuDeviceGetCount", List.of("int*")),
                        Map.entry("cuDeviceGet", List.of("CUdevice*", "int")),
                        Map.entry("cuDeviceGetName", List.of("char*", "int", "CUdevice")),
                        Map.entry("cuCtxGetCurrent", List.of("CUcontext*")),
                        Map.entry("cuCtxSetCurrent", List.of("CUcontext by address")),
                        Map.entry("cuCtxGetDevice", List.of("CUdevice*")),
                        Map.entry("cuDevicePrimaryCtxRetain", List.of("CUcontext*", "CUdevice")),
                        Map.entry("cuDevicePrimaryCtxRelease_v2", List.of("CUdevice")),
                        Map.entry(
                                "cuDevicePrimaryCtxGetState",
                                List.of("CUdevice", "unsigned int*", "int*")),
                        Map.entry("cuStreamGetCtx", List.of("CUstream", "CUcontext*")),
                        Map.entry(
                                "cuPointerGetAttribute",
                                List.of("void*", "CUpointer_attribute", "CUdeviceptr")),
                        Map.entry("cuGetErrorName", List.of("CUresult", "const char**")),
                        Map.entry("cuGetErrorString", List.of("CUresult", "const char**")));
        Map<String, MethodHandle> bound =
                bindings.written(bindings.type(CudaDriver.class.getName()));

        assertThat(bound.keySet()).isEqualTo(expected.keySet());
        expected.forEach((name, parameters) ->
                assertThat(bound.get(name).type())
                        .as(name)
                        .isEqualTo(descriptor("CUresult", parameters).toMethodType()));
    }

    @Test
    void constantsOfTheCudaRuntimeHaveTheValuesOfC() throws ReflectiveOperationException {
        Map<String, Long> expected = numbers(cuda.get("enums"));
        Map<String, Long> bound = new TreeMap<>();
        for (String name : constants(CudaRt.class)) {
            if (expected.containsKey(name)) {
                Object value = CudaRt.class.getMethod(name).invoke(null);
                bound.put(
                        name,
                        value instanceof MemorySegment handle
                                ? handle.address()
                                : ((Number) value).longValue());
            }
        }
        expected.keySet().retainAll(bound.keySet());

        assertThat(bound).hasSizeGreaterThan(80).isEqualTo(expected);
    }

    @Test
    void constantsOfTheMemoryPoolsHaveTheValuesOfC() {
        JsonNode enums = cuda.get("enums");
        assertThat(MemoryPools.RELEASE_THRESHOLD)
                .isEqualTo(enums.get("cudaMemPoolAttrReleaseThreshold").asInt());
        assertThat(MemoryPools.RESERVED_MEM_CURRENT)
                .isEqualTo(enums.get("cudaMemPoolAttrReservedMemCurrent").asInt());
        assertThat(MemoryPools.USED_MEM_CURRENT)
                .isEqualTo(enums.get("cudaMemPoolAttrUsedMemCurrent").asInt());
        assertThat(MemoryPools.ACCESS_NONE)
                .isEqualTo(enums.get("cudaMemAccessFlagsProtNone").asInt());
        assertThat(MemoryPools.ACCESS_READ)
                .isEqualTo(enums.get("cudaMemAccessFlagsProtRead").asInt());
        assertThat(MemoryPools.ACCESS_READ_WRITE)
                .isEqualTo(enums.get("cudaMemAccessFlagsProtReadWrite").asInt());
        assertThat(MemoryPools.LOCATION_DEVICE)
                .isEqualTo(enums.get("cudaMemLocationTypeDevice").asInt());
        assertThat(MemoryPools.ALLOCATION_PINNED)
                .isEqualTo(enums.get("cudaMemAllocationTypePinned").asInt());
    }

    @Test
    void structuresOfTheCudaRuntimeAreAsInC() throws ReflectiveOperationException {
        Map<String, MemoryLayout> layouts =
                Map.of(
                        "cudaPointerAttributes", cudaPointerAttributes.layout(),
                        "cudaDeviceProp", cudaDeviceProp.layout(),
                        "cudaMemPoolProps", MemoryPools.PROPERTIES,
                        "cudaMemLocation", MemoryPools.LOCATION,
                        "cudaMemAccessDesc", MemoryPools.ACCESS_DESCRIPTION);

        assertThat(layouts.keySet()).isEqualTo(keys(cuda.get("sizes")));
        layouts.forEach((name, layout) -> {
            assertThat(layout.byteSize())
                    .as("size of %s", name)
                    .isEqualTo(cuda.get("sizes").get(name).asLong());
            numbers(cuda.get("offsets").get(name))
                    .forEach((field, offset) ->
                            assertThat(
                                            layout.byteOffset(
                                                    MemoryLayout.PathElement.groupElement(field)))
                                    .as("offset of %s.%s", name, field)
                                    .isEqualTo(offset));
        });
    }

    private static void check(JsonNode functions, Map<String, FunctionDescriptor> bound) {
        Map<String, JsonNode> inC = byName(functions);
        Map<String, String> expected = new TreeMap<>();
        Map<String, String> values = new TreeMap<>();
        bound.forEach((name, descriptor) -> {
            expected.put(name, text(descriptor(inC.get(name))));
            values.put(name, text(descriptor));
        });
        assertThat(values).isEqualTo(expected);
    }

    /** The method that is called passes on what the descriptor has. */
    private static void checkJavaMethods(Class<?> header, Map<String, FunctionDescriptor> bound) {
        bound.forEach((name, descriptor) -> {
            Method method = method(header, name);
            assertThat(method.getParameterTypes())
                    .as(name)
                    .isEqualTo(descriptor.toMethodType().parameterArray());
            assertThat(method.getReturnType())
                    .as(name)
                    .isEqualTo(descriptor.toMethodType().returnType());
        });
    }

    private static Method method(Class<?> type, String name) {
        List<Method> methods =
                Stream.of(type.getDeclaredMethods())
                        .filter(method -> method.getName().equals(name))
                        .toList();
        assertThat(methods).as(name).hasSize(1);
        return methods.getFirst();
    }

    /** What a descriptor means to C, apart from names: size, alignment and kind of each value. */
    private static String text(FunctionDescriptor descriptor) {
        return descriptor.argumentLayouts().stream()
                        .map(AbiTest::text)
                        .collect(Collectors.joining(", ", "(", ") -> "))
                + descriptor.returnLayout().map(AbiTest::text).orElse("void");
    }

    private static String text(MemoryLayout layout) {
        String kind =
                layout instanceof ValueLayout value ? value.carrier().getSimpleName() : "by value";
        return kind + " " + layout.byteSize() + "/" + layout.byteAlignment();
    }

    private static FunctionDescriptor descriptor(JsonNode function) {
        List<String> parameters = new ArrayList<>();
        function.get("params").forEach(parameter -> parameters.add(parameter.asString()));
        return descriptor(function.get("returns").asString(), parameters);
    }

    private static FunctionDescriptor descriptor(String result, List<String> parameters) {
        MemoryLayout[] layouts =
                parameters.stream()
                        .map(parameter -> layout(parameter).orElseThrow())
                        .toArray(MemoryLayout[]::new);
        return layout(result)
                .map(layout -> FunctionDescriptor.of(layout, layouts))
                .orElseGet(() -> FunctionDescriptor.ofVoid(layouts));
    }

    /** The layout of a C type, empty for void. */
    private static Optional<MemoryLayout> layout(String type) {
        String plain = type.replaceFirst("^const ", "");
        if (plain.endsWith("*")) {
            return Optional.of(ValueLayout.ADDRESS);
        }
        if (plain.startsWith("enum ")) {
            return Optional.of(ValueLayout.JAVA_INT);
        }
        return switch (plain) {
            case "void" -> Optional.empty();
            case "int", "unsigned int", "cudaError_t", "CUresult", "CUdevice" ->
                    Optional.of(ValueLayout.JAVA_INT);
            case "CUpointer_attribute" -> Optional.of(ValueLayout.JAVA_INT);
            case "unsigned long long", "CUdeviceptr", "CUcontext by address" ->
                    Optional.of(ValueLayout.JAVA_LONG);
            // handles, and a pointer to a function
            case "cudaEvent_t", "cudaGraph_t", "cudaGraphExec_t", "cudaMemPool_t" ->
                    Optional.of(ValueLayout.ADDRESS);
            case "cudaHostFn_t", "CUcontext", "CUstream" -> Optional.of(ValueLayout.ADDRESS);
            case "ncclUniqueId" ->
                    Optional.of(
                            MemoryLayout.structLayout(
                                    MemoryLayout.sequenceLayout(
                                            nccl.get("sizes").get(plain).asLong(),
                                            ValueLayout.JAVA_BYTE)));
            default -> Optional.of(scalar(plain));
        };
    }

    /**
     * The file says which of NCCL's types are how long: its enums are, its handles are pointers.
     */
    private static MemoryLayout scalar(String type) {
        JsonNode size = nccl.get("sizes").get(type);
        assertThat(size).as("C type %s", type).isNotNull();
        return switch (size.asInt()) {
            case 4 -> ValueLayout.JAVA_INT;
            case 8 -> type.equals("size_t") ? ValueLayout.JAVA_LONG : ValueLayout.ADDRESS;
            default -> throw new AssertionError(type + " has " + size + " bytes");
        };
    }

    private static MemoryLayout layout(Class<?> structure) throws ReflectiveOperationException {
        return (MemoryLayout) structure.getMethod("layout").invoke(null);
    }

    /** What methods such as blocking$offset or blocking$layout say, by field. */
    private static Map<String, Long> numbers(Class<?> structure, String suffix)
            throws ReflectiveOperationException {
        Map<String, Long> numbers = new TreeMap<>();
        for (Method method : structure.getMethods()) {
            if (method.getName().endsWith(suffix)) {
                String field =
                        method.getName().substring(0, method.getName().length() - suffix.length());
                Object value = method.invoke(null);
                numbers.put(
                        field,
                        value instanceof MemoryLayout layout ? layout.byteSize() : (Long) value);
            }
        }
        return numbers;
    }

    private static Map<String, Long> numbers(JsonNode object) {
        Map<String, Long> numbers = new TreeMap<>();
        for (String name : keys(object)) {
            numbers.put(name, object.get(name).asLong());
        }
        return numbers;
    }

    /** The methods without parameters that are no functions of the library. */
    private static Set<String> constants(Class<?> header) throws ReflectiveOperationException {
        Set<String> functions =
                IsolatedBindings.generated(bindings.type(header.getName())).keySet();
        return Stream.of(header.getDeclaredMethods())
                .filter(method -> method.getParameterCount() == 0)
                .map(Method::getName)
                .filter(name -> !name.contains("$") && !functions.contains(name))
                .collect(Collectors.toCollection(TreeSet::new));
    }

    private static Map<String, JsonNode> byName(JsonNode functions) {
        Map<String, JsonNode> byName = new TreeMap<>();
        functions.forEach(function -> byName.put(function.get("name").asString(), function));
        return byName;
    }

    private static Set<String> names(JsonNode functions) {
        return byName(functions).keySet();
    }

    private static Set<String> keys(JsonNode object) {
        return new TreeSet<>(object.propertyNames());
    }

    private static Set<String> without(Set<String> all, Set<String> some) {
        Set<String> rest = new TreeSet<>(all);
        rest.removeAll(some);
        return rest;
    }

    private static String initializer(String name) {
        return nccl.get("initializers").get(name).asString();
    }

    private static String hex(MemorySegment bytes) {
        return HexFormat.of().formatHex(bytes.toArray(ValueLayout.JAVA_BYTE));
    }
}
