import java.io.IOException;
import java.io.InputStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Instant;
import java.util.ArrayList;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.TreeMap;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import java.util.stream.Stream;
import javax.xml.stream.XMLInputFactory;
import javax.xml.stream.XMLStreamConstants;
import javax.xml.stream.XMLStreamException;
import javax.xml.stream.XMLStreamReader;

/**
 * The last step of the build: counts what its tests did, module by module, and fails if one was
 * skipped. A test that cannot hold on a backend or machine aborts with "unsupported: why", which is
 * counted apart; every other way of not running a test hides something.
 */
final class BuildReport {

    private static final Pattern UNSUPPORTED =
            Pattern.compile(
                    "(?:org\\.opentest4j\\.TestAbortedException: )?(?:Assumption failed: )?"
                            + "unsupported: ([^\\r\\n]*)");

    private int passed;
    private int failed;
    private double seconds;
    private final List<String> skipped = new ArrayList<>();
    private final Map<String, Integer> unsupported = new TreeMap<>();

    private BuildReport() {}

    /**
     * Takes the root folder and the instant when the build began; older results are not its own.
     */
    public static void main(String[] args) throws IOException, XMLStreamException {
        Path root = Path.of(args[0]);
        Instant begin = Instant.parse(args[1]);
        BuildReport total = new BuildReport();
        try (Stream<Path> folders = Files.list(root)) {
            for (Path folder : folders.sorted().toList()) {
                Path reports = folder.resolve("target/surefire-reports");
                if (Files.isDirectory(reports)) {
                    BuildReport module = new BuildReport();
                    module.readAll(reports, begin);
                    module.print(folder.getFileName().toString());
                    printCounts(folder.resolve("target"), begin);
                    total.add(module);
                }
            }
        }
        total.unsupported.forEach(
                (why, count) -> System.out.printf("Unsupported: %d x %s%n", count, why));
        total.skipped.forEach(test -> System.out.printf("Skipped: %s%n", test));
        System.out.printf(
                "Tests: %d passed, %d failed, %d skipped%n",
                total.passed, total.failed, total.skipped.size());
        if (!total.skipped.isEmpty()) {
            System.out.println(
                    "A test may not be skipped: let it pass, or abort it with \"unsupported: why\""
                            + " where the backend or the machine cannot do what it tests.");
            System.exit(1);
        }
    }

    /** The contract suite counts cases, of which there are many to a test. */
    private static void printCounts(Path target, Instant begin) throws IOException {
        try (Stream<Path> files = Files.list(target)) {
            for (Path file : files.sorted().toList()) {
                if (file.getFileName().toString().matches("contract-.*\\.txt")
                        && !Files.getLastModifiedTime(file).toInstant().isBefore(begin)) {
                    System.out.println(Files.readAllLines(file).getFirst());
                }
            }
        }
    }

    private void readAll(Path reports, Instant begin) throws IOException, XMLStreamException {
        try (Stream<Path> files = Files.list(reports)) {
            for (Path file : files.sorted().toList()) {
                if (file.getFileName().toString().matches("TEST-.*\\.xml")
                        && !Files.getLastModifiedTime(file).toInstant().isBefore(begin)) {
                    read(file);
                }
            }
        }
    }

    private void read(Path file) throws IOException, XMLStreamException {
        XMLInputFactory factory = XMLInputFactory.newFactory();
        factory.setProperty(XMLInputFactory.SUPPORT_DTD, false);
        try (InputStream in = Files.newInputStream(file)) {
            XMLStreamReader xml = factory.createXMLStreamReader(in);
            while (xml.hasNext()) {
                if (xml.next() == XMLStreamConstants.START_ELEMENT
                        && xml.getLocalName().equals("testcase")) {
                    readTest(xml);
                }
            }
        }
    }

    private void readTest(XMLStreamReader xml) throws XMLStreamException {
        String test =
                xml.getAttributeValue(null, "classname")
                        + "."
                        + xml.getAttributeValue(null, "name");
        seconds += Double.parseDouble(xml.getAttributeValue(null, "time").replace(",", ""));
        boolean ran = true;
        while (xml.next() != XMLStreamConstants.END_ELEMENT
                || !xml.getLocalName().equals("testcase")) {
            if (xml.getEventType() != XMLStreamConstants.START_ELEMENT) {
                continue;
            }
            switch (xml.getLocalName()) {
                case "failure", "error" -> {
                    ran = false;
                    failed++;
                }
                case "skipped" -> {
                    ran = false;
                    String message = xml.getAttributeValue(null, "message");
                    readSkipped(test, (message == null ? xml.getElementText() : message).strip());
                }
                default -> {
                    // Output and system properties say nothing about the outcome.
                }
            }
        }
        if (ran) {
            passed++;
        }
    }

    private void readSkipped(String test, String message) {
        Matcher matcher = UNSUPPORTED.matcher(message);
        if (matcher.lookingAt()) {
            unsupported.merge(matcher.group(1), 1, Integer::sum);
        } else {
            skipped.add(test + ": " + message.lines().findFirst().orElse("no reason given"));
        }
    }

    private void print(String module) {
        System.out.printf(
                Locale.ROOT,
                "%-24s %6d passed %4d failed %4d skipped %4d unsupported %8.1f s%n",
                module,
                passed,
                failed,
                skipped.size(),
                unsupported.values().stream().mapToInt(Integer::intValue).sum(),
                seconds);
    }

    private void add(BuildReport module) {
        passed += module.passed;
        failed += module.failed;
        skipped.addAll(module.skipped);
        module.unsupported.forEach((why, count) -> unsupported.merge(why, count, Integer::sum));
    }
}
