package org.nccl4j.bench;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Locale;
import java.util.Objects;
import java.util.stream.Stream;
import org.nccl4j.collectives.Availability;
import org.nccl4j.collectives.Backend;
import org.nccl4j.collectives.Device;
import org.nccl4j.collectives.LibraryUnavailableException;

/**
 * What {@code bench info} tells of the backends, their libraries and devices.
 *
 * @param installed the backends, usable or not
 */
record BackendProbes(List<Backend> installed) {

    List<InfoProbe> all() {
        List<InfoProbe> probes = new ArrayList<>();
        for (Backend backend : installed) {
            probes.add(new InfoProbe("Backends", () -> availability(backend)));
        }
        for (Backend backend : installed) {
            probes.add(new InfoProbe("Libraries", () -> libraries(backend)));
        }
        for (Backend backend : installed) {
            probes.add(new InfoProbe("Devices", () -> devices(backend)));
        }
        return probes;
    }

    private static boolean isAvailable(Backend backend) {
        return backend.availability() instanceof Availability.Available;
    }

    private static List<InfoEntry> availability(Backend backend) {
        return switch (backend.availability()) {
            case Availability.Available yes ->
                    entries(
                            backend.name(),
                            Stream.of(
                                    "available: "
                                            + yes.summary()
                                            + (yes.summary().contains("(not calibrated)")
                                                    ? "\n"
                                                            + Help.LAUNCHER
                                                            + " calibrate measures this machine for"
                                                            + " the choice of algorithms"
                                                    : "")));
            case Availability.Unavailable no ->
                    entries(
                            backend.name(),
                            no.reasons().stream().map(reason -> "not available: " + reason));
        };
    }

    private static List<InfoEntry> libraries(Backend backend) {
        Availability availability = backend.availability();
        Stream<String> loaded = loaded(backend);
        return switch (availability) {
            case Availability.Available yes -> {
                List<InfoEntry> entries = entries(backend.name(), loaded);
                yield entries.isEmpty()
                        ? List.of(new InfoEntry(backend.name(), "needs none"))
                        : entries;
            }
            case Availability.Unavailable no -> {
                List<InfoEntry> entries =
                        entries(backend.name(), Stream.concat(loaded, tried(backend, no)));
                yield entries.isEmpty()
                        ? List.of(new InfoEntry(backend.name(), "none loaded"))
                        : entries;
            }
        };
    }

    private static Stream<String> loaded(Backend backend) {
        try {
            return backend.libraries().stream()
                    .map(library ->
                            library.name()
                                    + " "
                                    + library.version()
                                    + " ("
                                    + library.versionCode()
                                    + ") "
                                    + library.path());
        } catch (LibraryUnavailableException none) {
            return Stream.empty();
        }
    }

    /** What led to a refusal: the candidates, which are not among the reasons. */
    private static Stream<String> tried(Backend backend, Availability.Unavailable no) {
        try {
            backend.devices();
            return Stream.of("but devices can be listed: this is a bug in the backend");
        } catch (LibraryUnavailableException unavailable) {
            return Stream.concat(
                            Stream.iterate(
                                    unavailable.getCause(), Objects::nonNull, Throwable::getCause),
                            Arrays.stream(unavailable.getSuppressed()))
                    .map(Throwable::getMessage)
                    .filter(Objects::nonNull)
                    .flatMap(String::lines)
                    .map(String::strip)
                    .filter(line -> no.reasons().stream().noneMatch(why -> why.contains(line)))
                    .distinct();
        }
    }

    private static List<InfoEntry> devices(Backend backend) {
        if (!isAvailable(backend)) {
            return entries(backend.name(), Stream.of("none, for the reasons above"));
        }
        List<Device> devices = backend.devices();
        if (backend.capabilities().hostBuffers() && !devices.isEmpty()) {
            // Virtual ones are all alike.
            Device first = devices.getFirst();
            return entries(
                    backend.name(),
                    Stream.of(
                            devices.size()
                                    + " of up to "
                                    + backend.deviceLimit()
                                    + ", each "
                                    + first.name()
                                    + ", "
                                    + memory(first.memory())));
        }
        return entries(
                backend.name(),
                devices.stream()
                        .map(device ->
                                device.ordinal()
                                        + " ["
                                        + device.busId()
                                        + "] "
                                        + device.name()
                                        + ", "
                                        + memory(device.memory())));
    }

    private static String memory(Device.Memory memory) {
        return gib(memory.freeBytes()) + " of " + gib(memory.totalBytes()) + " free";
    }

    private static String gib(long bytes) {
        return String.format(Locale.ROOT, "%.1f GiB", bytes / (double) (1L << 30));
    }

    private static List<InfoEntry> entries(String name, Stream<String> texts) {
        List<InfoEntry> entries = new ArrayList<>();
        texts.flatMap(String::lines)
                .forEach(text -> entries.add(new InfoEntry(entries.isEmpty() ? name : "", text)));
        return entries;
    }
}
