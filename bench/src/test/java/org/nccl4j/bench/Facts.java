package org.nccl4j.bench;

/** Facts of backends that are not there. */
final class Facts {

    static final BackendFacts CPU = new BackendFacts("cpu", 0, 0, "", false, false, false);

    private Facts() {}

    /** NCCL of a version, with graphs and registration. */
    static BackendFacts nccl(int version) {
        return nccl(version, true, true);
    }

    static BackendFacts nccl(int version, boolean captures, boolean registers) {
        String text = version / 10000 + "." + version / 100 % 100 + "." + version % 100;
        return new BackendFacts("nccl", version, version, text, captures, registers, false);
    }

    /** As headers 2.27.7 and the emulator's library. */
    static BackendFacts emulated() {
        return new BackendFacts("nccl", 22707, 23007, "2.30.7", true, true, true);
    }
}
