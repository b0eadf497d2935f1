package org.nccl4j.bench;

import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import java.util.Optional;

/**
 * What {@code bench explain} is asked to show.
 *
 * @param operation the program's name, or what was given if there is no such program
 * @param algorithm a name of the backend's; empty for its first
 * @param ranks the number of ranks
 * @param type element type
 * @param sizeBytes of the full buffer, whole elements
 * @param svgFile where the picture goes
 * @param backend whose algorithms
 */
record ExplainOptions(
        String operation,
        Optional<String> algorithm,
        int ranks,
        ElementType type,
        long sizeBytes,
        Optional<Path> svgFile,
        String backend) {

    /** A command line that is refused. */
    static final class Refusal extends Exception {
        private static final long serialVersionUID = 1L;

        Refusal(String message) {
            super("bench: explain: " + message, null, false, false);
        }
    }

    private static final List<String> OPTIONS =
            List.of(
                    "--algo",
                    "--ngpus",
                    "--minbytes",
                    "--datatype",
                    "--svg",
                    "--backend",
                    "--help");

    /** What others call an option. */
    private static final Map<String, String> ELSEWHERE =
            Map.of(
                    "--ranks", "--ngpus",
                    "--nranks", "--ngpus",
                    "--gpus", "--ngpus",
                    "--size", "--minbytes",
                    "--bytes", "--minbytes",
                    "--type", "--datatype",
                    "--dtype", "--datatype",
                    "-n", "-g");

    /** Parses what follows {@code explain}; help is not among it. */
    static ExplainOptions parse(List<String> words) throws Refusal {
        Optional<String> operation = Optional.empty();
        Optional<String> algorithm = Optional.empty();
        int ranks = 4;
        ElementType type = ElementType.FLOAT;
        long bytes = 4 << 10;
        Optional<Path> svgFile = Optional.empty();
        String backend = "cpu";
        Iterator<String> rest = words.iterator();
        while (rest.hasNext()) {
            String word = rest.next();
            if (!word.startsWith("-")) {
                if (operation.isPresent()) {
                    throw new Refusal(
                            "one collective at a time, got " + operation.get() + " and " + word);
                }
                operation = Optional.of(Program.named(word).map(Program::label).orElse(word));
                continue;
            }
            int equals = word.startsWith("--") ? word.indexOf('=') : -1;
            String option = equals < 0 ? word : word.substring(0, equals);
            if (!isOption(option)) {
                throw new Refusal(
                        "unknown option "
                                + option
                                + "."
                                + Nearest.question(near(option))
                                + " See bench/bench explain --help.");
            }
            if (equals < 0 && !rest.hasNext()) {
                throw new Refusal(option + " needs a value; see bench/bench explain --help");
            }
            String value = equals < 0 ? rest.next() : word.substring(equals + 1);
            switch (option) {
                case "--algo" -> algorithm = Optional.of(value);
                case "-g", "--ngpus" -> ranks = ranks(value);
                case "-b", "--minbytes" -> bytes = bytes(value);
                case "-d", "--datatype" -> type = type(value);
                case "--svg" -> svgFile = Optional.of(Path.of(value));
                default -> backend = value;
            }
        }
        if (operation.isEmpty()) {
            throw new Refusal(
                    "name a collective, such as allreduce; see bench/bench explain --help");
        }
        return new ExplainOptions(
                operation.get(),
                algorithm,
                ranks,
                type,
                bytes / type.widthBytes() * type.widthBytes(),
                svgFile,
                backend);
    }

    private static List<String> near(String option) {
        String meant = ELSEWHERE.get(option);
        return meant == null ? Nearest.to(option, OPTIONS) : List.of(meant);
    }

    private static boolean isOption(String word) {
        return OPTIONS.contains(word) || List.of("-g", "-b", "-d").contains(word);
    }

    private static int ranks(String value) throws Refusal {
        if (!value.matches("[0-9]{1,9}") || Integer.parseInt(value) < 1) {
            throw new Refusal("-g " + value + ": the number of ranks must be 1 or more");
        }
        return Integer.parseInt(value);
    }

    private static long bytes(String value) throws Refusal {
        long bytes = CNumber.parseSizeBytes(value);
        if (bytes < 0) {
            throw new Refusal("-b " + value + " is no size; write 4096, 4K, 1M or 1G");
        }
        return bytes;
    }

    private static ElementType type(String value) throws Refusal {
        List<String> labels = new ArrayList<>();
        for (ElementType type : ElementType.values()) {
            if (type.label().equals(value)) {
                return type;
            }
            labels.add(type.label());
        }
        List<String> near =
                Arrays.stream(ElementType.values())
                        .filter(type -> type.isElsewhereCalled(value))
                        .map(ElementType::label)
                        .toList();
        throw new Refusal(
                "-d "
                        + value
                        + " is no type."
                        + Nearest.question(near.isEmpty() ? Nearest.to(value, labels) : near)
                        + " Types: "
                        + String.join(" ", labels));
    }
}
