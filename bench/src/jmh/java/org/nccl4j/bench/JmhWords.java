package org.nccl4j.bench;

import java.io.IOException;
import org.openjdk.jmh.runner.options.CommandLineOptionException;
import org.openjdk.jmh.runner.options.CommandLineOptions;

/** JMH's options on the command line of {@code bench/jmh}. */
public final class JmhWords {
    private static final int ARGUMENTS = 2;

    private JmhWords() {}

    /**
     * Parses them; ends the process if they are wrong, or only ask for JMH's help.
     *
     * @param command what was called, for the message
     * @param words behind it
     * @return the options
     */
    public static CommandLineOptions parse(String command, String[] words) throws IOException {
        CommandLineOptions options;
        try {
            options = new CommandLineOptions(words);
        } catch (CommandLineOptionException wrong) {
            System.err.println(
                    command + ": " + wrong.getMessage() + "; bench/jmh --help tells more");
            System.exit(ARGUMENTS);
            throw new IllegalStateException(wrong);
        }
        if (options.shouldHelp()) {
            options.showHelp();
            System.exit(0);
        }
        return options;
    }
}
