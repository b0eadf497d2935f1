package org.nccl4j.nccl;

import java.util.ArrayList;
import java.util.EnumSet;
import java.util.List;
import java.util.Locale;
import java.util.Set;
import java.util.stream.Collectors;
import org.nccl4j.bindings.LibraryNotLoadedException;
import org.nccl4j.bindings.NativeLibrary;
import org.nccl4j.collectives.Availability;
import org.nccl4j.collectives.Capabilities;
import org.nccl4j.collectives.CollectiveException;
import org.nccl4j.collectives.DataType;
import org.nccl4j.collectives.InvalidArgumentException;
import org.nccl4j.collectives.LibraryUnavailableException;
import org.nccl4j.collectives.LoadedLibrary;
import org.nccl4j.collectives.ReduceOp;

/**
 * Whether NCCL can be used in this process, and with what. Looked at once, when somebody asks
 * first: what is missing stays missing until the process is started again.
 *
 * <p>Thread safety: immutable.
 */
final class NcclSetup {
    /** The first version with 8-bit floats. */
    private static final int FLOAT8_SINCE = 22403;

    /** The first compute capability that reduces 8-bit floats. */
    private static final int FLOAT8_REDUCING_CAPABILITY = 9;

    private static final Set<DataType> FLOAT8 =
            EnumSet.of(DataType.FLOAT8E4M3, DataType.FLOAT8E5M2);

    private final List<String> obstacles;
    private final List<Throwable> causes;
    private final List<NcclDevice> devices;
    private final List<LoadedLibrary> libraries;
    private final Capabilities capabilities;

    private static final class Found {
        static final NcclSetup SETUP = look();
    }

    private NcclSetup(
            List<String> obstacles,
            List<Throwable> causes,
            List<NcclDevice> devices,
            List<LoadedLibrary> libraries,
            Capabilities capabilities) {
        this.obstacles = obstacles;
        this.causes = causes;
        this.devices = devices;
        this.libraries = libraries;
        this.capabilities = capabilities;
    }

    static NcclSetup get() {
        return Found.SETUP;
    }

    Availability availability() {
        if (!obstacles.isEmpty()) {
            return new Availability.Unavailable(obstacles);
        }
        return new Availability.Available(
                "NCCL "
                        + NcclLibrary.version()
                        + ", CUDA "
                        + CudaRuntime.versionText(libraries.get(1).versionCode())
                        + ", "
                        + devices.size()
                        + (devices.size() == 1 ? " device: " : " devices: ")
                        + names());
    }

    private String names() {
        return devices.stream().map(NcclDevice::name).distinct().collect(Collectors.joining(", "));
    }

    /**
     * Passes if NCCL can be used.
     *
     * @throws LibraryUnavailableException with every obstacle if not; its cause and what it
     *     suppresses tell all that was tried
     */
    NcclSetup required() {
        if (!obstacles.isEmpty()) {
            LibraryUnavailableException unavailable =
                    new LibraryUnavailableException(
                            "backend 'nccl' cannot be used: " + String.join("; ", obstacles),
                            causes.isEmpty() ? null : causes.getFirst());
            causes.stream().skip(1).forEach(unavailable::addSuppressed);
            throw unavailable;
        }
        return this;
    }

    List<NcclDevice> devices() {
        return devices;
    }

    /**
     * A device by number.
     *
     * @throws InvalidArgumentException if there is no such device
     */
    NcclDevice device(int ordinal) {
        if (ordinal < 0 || ordinal >= devices.size()) {
            throw new InvalidArgumentException(
                    "there is no device "
                            + ordinal
                            + "; this process sees "
                            + devices.size()
                            + (devices.size() == 1 ? " GPU" : " GPUs")
                            + ", numbered from 0; see CUDA_VISIBLE_DEVICES");
        }
        return devices.get(ordinal);
    }

    Capabilities capabilities() {
        return capabilities;
    }

    /** What has been loaded, also where something else is missing. */
    List<LoadedLibrary> libraries() {
        return libraries;
    }

    private static NcclSetup look() {
        List<String> obstacles = new ArrayList<>();
        List<Throwable> causes = new ArrayList<>();
        List<LoadedLibrary> libraries = new ArrayList<>();
        int version = lookForNccl(obstacles, causes, libraries);
        List<NcclDevice> devices = lookForDevices(obstacles, causes, libraries);
        return new NcclSetup(
                List.copyOf(obstacles),
                List.copyOf(causes),
                devices,
                List.copyOf(libraries),
                capabilities(version, weakestCapability(devices)));
    }

    private static int lookForNccl(
            List<String> obstacles, List<Throwable> causes, List<LoadedLibrary> libraries) {
        int version = 0;
        try {
            version = NcclLibrary.versionCode();
            libraries.add(
                    new LoadedLibrary("NCCL", NcclLibrary.version(), version, NcclLibrary.path()));
            if (version < NcclLibrary.OLDEST_VERSION_CODE) {
                obstacles.add(tooOld(version, NcclLibrary.path()));
            }
        } catch (ExceptionInInitializerError e) {
            obstacles.add(reason("NCCL", e.getCause()));
            causes.add(e.getCause());
        } catch (RuntimeException | LinkageError e) {
            obstacles.add(reason("NCCL", e));
            causes.add(e);
        }
        return version;
    }

    static String tooOld(int version, String path) {
        return "NCCL "
                + NcclLibrary.version(version)
                + " from "
                + path
                + " is too old: 2.18 or newer is needed; install one, or name its folder with"
                + " -Dnccl4j.library.path";
    }

    private static List<NcclDevice> lookForDevices(
            List<String> obstacles, List<Throwable> causes, List<LoadedLibrary> libraries) {
        try {
            // For the loader's own exception, before a class of functions wraps it in an error.
            if (!NativeLibrary.CUDA_RUNTIME.has("cudaGetDeviceCount")) {
                obstacles.add(
                        NativeLibrary.CUDA_RUNTIME.path()
                                + " has no cudaGetDeviceCount, so it is not the CUDA runtime");
                return List.of();
            }
            int version = CudaRuntime.runtimeVersion();
            libraries.add(
                    new LoadedLibrary(
                            "CUDA runtime",
                            CudaRuntime.versionText(version),
                            version,
                            NativeLibrary.CUDA_RUNTIME.path()));
            int count = CudaRuntime.deviceCountOrError();
            if (count <= 0) {
                int code = count == 0 ? 100 : -count;
                obstacles.add(
                        CudaErrors.noDevices(
                                code, CudaRuntime.errorName(code), CudaRuntime.errorText(code)));
                return List.of();
            }
            addDriver(libraries);
            return NcclDevice.all(count);
        } catch (ExceptionInInitializerError e) {
            obstacles.add(reason("the CUDA runtime", e.getCause()));
            causes.add(e.getCause());
        } catch (RuntimeException | LinkageError e) {
            obstacles.add(reason("the CUDA runtime", e));
            causes.add(e);
        }
        return List.of();
    }

    private static void addDriver(List<LoadedLibrary> libraries) {
        int version = CudaRuntime.driverVersion();
        if (DriverContext.isKnown()) {
            libraries.add(
                    new LoadedLibrary(
                            "CUDA driver",
                            CudaRuntime.versionText(version),
                            version,
                            NativeLibrary.CUDA_DRIVER.path()));
        }
    }

    /** An obstacle in one line, with the remedy. */
    static String reason(String library, Throwable cause) {
        return switch (cause) {
            case LibraryNotLoadedException e -> summaryAndRemedy(e);
            case CollectiveException e -> oneLine(e.getMessage());
            case IllegalCallerException e ->
                    library
                            + " cannot be called: "
                            + oneLine(e.getMessage())
                            + "; start the JVM with --enable-native-access="
                            + callers();
            default -> library + " cannot be used: " + oneLine(cause.toString());
        };
    }

    /** Between them is what was tried. */
    private static String summaryAndRemedy(LibraryNotLoadedException cause) {
        String remedy = cause.getMessage().lines().toList().getLast().strip();
        return remedy.equals(cause.summary()) ? remedy : cause.summary() + "; " + clause(remedy);
    }

    /** A sentence as it reads in the middle of another. */
    private static String clause(String sentence) {
        String open =
                sentence.endsWith(".") ? sentence.substring(0, sentence.length() - 1) : sentence;
        return open.matches("[A-Z][a-z ].*")
                ? open.substring(0, 1).toLowerCase(Locale.ROOT) + open.substring(1)
                : open;
    }

    private static String oneLine(String text) {
        return text.strip().replaceAll("\\s*\\R\\s*", "; ");
    }

    private static String callers() {
        Module module = NativeLibrary.class.getModule();
        return module.isNamed()
                ? module.getName() + "," + NcclSetup.class.getModule().getName()
                : "ALL-UNNAMED";
    }

    /** The lowest compute capability of all devices, times ten. */
    private static int weakestCapability(List<NcclDevice> devices) {
        return devices.stream().mapToInt(NcclDevice::computeCapability).min().orElse(0);
    }

    /**
     * What a version of NCCL can do on devices.
     *
     * @param version NCCL's version code
     * @param weakestCapability the lowest compute capability, times ten
     */
    static Capabilities capabilities(int version, int weakestCapability) {
        Set<DataType> types = EnumSet.allOf(DataType.class);
        if (version < FLOAT8_SINCE || weakestCapability < 10 * FLOAT8_REDUCING_CAPABILITY) {
            types.removeAll(FLOAT8);
        }
        return Capabilities.none()
                .withTypes(types)
                .withReductions(EnumSet.allOf(ReduceOp.Predefined.class))
                .withPreMulSum(true)
                .withRegistration(version >= NcclRegistration.SINCE_VERSION_CODE)
                .withFirstUseMayWait(true);
    }
}
