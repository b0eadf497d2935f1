package org.nccl4j.bench;

import java.io.IOException;
import org.openjdk.jmh.Main;

/** JMH's own command, but for what it says of wrong options. */
public final class JmhMain {
    private JmhMain() {}

    /**
     * Runs it.
     *
     * @param arguments JMH's options
     */
    public static void main(String[] arguments) throws IOException {
        JmhWords.parse("bench/jmh", arguments);
        Main.main(arguments);
    }
}
