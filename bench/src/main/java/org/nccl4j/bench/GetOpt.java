package org.nccl4j.bench;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Optional;
import java.util.stream.Collectors;

/**
 * GNU {@code getopt_long}'s grammar over {@link Flag}: values attached or separate, unambiguous
 * prefixes of long names, stray words skipped, {@code --} ends the options. A command line library
 * would be the obvious choice; those of the JVM differ in what scripts rely on (a value may begin
 * with a dash, {@code -b=8} has the value {@code =8}, the texts of the messages), so this is
 * getopt's algorithm itself.
 */
final class GetOpt {

    /** What getopt finds in turn. */
    sealed interface Event {}

    /** An option with its value; the value is empty for an option that takes none. */
    record Option(Flag flag, String value) implements Event {}

    /**
     * A word that is no usable option; scanning ends with it.
     *
     * @param message getopt's own message
     * @param suggestions options that may have been meant, as they are typed
     */
    record Rejected(String message, List<String> suggestions) implements Event {}

    /** A word before {@code --} that is neither an option nor the value of one. */
    record Stray(String word) implements Event {}

    private static final List<Flag> NCCL_TESTS =
            Arrays.stream(Flag.values()).filter(flag -> !flag.isOurs()).toList();

    private static final List<Flag> OURS =
            Arrays.stream(Flag.values()).filter(Flag::isOurs).toList();

    private final String program;
    private final List<String> words;
    private final List<Event> events = new ArrayList<>();
    private int next;

    private GetOpt(String program, List<String> words) {
        this.program = program;
        this.words = words;
    }

    /**
     * Scans the words behind a program's name.
     *
     * @param program the name in messages
     * @return the options and stray words in their order; a {@link Rejected} can only be the last
     */
    static List<Event> scan(String program, List<String> words) {
        GetOpt scan = new GetOpt(program, words);
        scan.run();
        return List.copyOf(scan.events);
    }

    private void run() {
        while (next < words.size() && !rejected()) {
            String word = words.get(next++);
            if (word.equals("--")) {
                return;
            } else if (word.startsWith("--")) {
                longOption(word.substring(2));
            } else if (word.startsWith("-") && word.length() > 1) {
                letters(word.substring(1));
            } else {
                events.add(new Stray(word));
            }
        }
    }

    private boolean rejected() {
        return !events.isEmpty() && events.getLast() instanceof Rejected;
    }

    private void longOption(String text) {
        int equals = text.indexOf('=');
        String name = equals < 0 ? text : text.substring(0, equals);
        Optional<String> attached =
                equals < 0 ? Optional.empty() : Optional.of(text.substring(equals + 1));
        List<Flag> matches = matching(name);
        if (matches.isEmpty()) {
            reject("unrecognized option '--" + text + "'", nearLong(name));
        } else if (matches.size() > 1) {
            String possibilities =
                    matches.stream()
                            .map(flag -> " '--" + flag.longName() + "'")
                            .collect(Collectors.joining());
            // getopt names the possibilities itself.
            reject(
                    "option '--" + text + "' is ambiguous; possibilities:" + possibilities,
                    List.of());
        } else {
            Flag flag = matches.getFirst();
            String typed = "option '--" + flag.longName() + "'";
            if (!flag.takesValue()) {
                if (attached.isPresent()) {
                    reject(typed + " doesn't allow an argument", List.of());
                } else {
                    events.add(new Option(flag, ""));
                }
            } else if (attached.isPresent() || flag.valueIsOptional()) {
                events.add(new Option(flag, attached.orElse("")));
            } else {
                separateValue(flag, typed + " requires an argument");
            }
        }
    }

    /** An exact name, else the options that it is a prefix of, else those of our own. */
    private static List<Flag> matching(String name) {
        for (Flag flag : Flag.values()) {
            if (flag.longName().equals(name)) {
                return List.of(flag);
            }
        }
        // A prefix that is unambiguous in nccl-tests stays so: our additions come second.
        List<Flag> matches = startingWith(NCCL_TESTS, name);
        return matches.isEmpty() ? startingWith(OURS, name) : matches;
    }

    private static List<Flag> startingWith(List<Flag> flags, String name) {
        return flags.stream().filter(flag -> flag.longName().startsWith(name)).toList();
    }

    private void letters(String text) {
        for (int i = 0; i < text.length(); i++) {
            char letter = text.charAt(i);
            Optional<Flag> found =
                    NCCL_TESTS.stream().filter(flag -> flag.letter() == letter).findFirst();
            if (found.isEmpty()) {
                reject("invalid option -- '" + letter + "'", nearLetters(text, letter));
                return;
            }
            Flag flag = found.get();
            if (flag.takesValue()) {
                if (i + 1 < text.length()) {
                    events.add(new Option(flag, text.substring(i + 1)));
                } else {
                    separateValue(flag, "option requires an argument -- '" + letter + "'");
                }
                return;
            }
            events.add(new Option(flag, ""));
        }
    }

    private void separateValue(Flag flag, String complaint) {
        if (next < words.size()) {
            events.add(new Option(flag, words.get(next++)));
        } else {
            reject(complaint, List.of());
        }
    }

    private void reject(String message, List<String> suggestions) {
        events.add(new Rejected(program + ": " + message, suggestions));
    }

    private static List<String> nearLong(String name) {
        List<String> names = Arrays.stream(Flag.values()).map(Flag::longName).toList();
        return Nearest.to(name, names).stream().map(near -> "--" + near).toList();
    }

    private static List<String> nearLetters(String text, char letter) {
        // "-minbytes" is a long name that lacks a dash; "-B" may be "-b".
        List<String> asLong = text.length() > 2 ? nearLong(text) : List.of();
        if (!asLong.isEmpty()) {
            return asLong;
        }
        return NCCL_TESTS.stream()
                .filter(flag ->
                        Character.toLowerCase(flag.letter()) == Character.toLowerCase(letter))
                .map(Flag::typed)
                .toList();
    }
}
