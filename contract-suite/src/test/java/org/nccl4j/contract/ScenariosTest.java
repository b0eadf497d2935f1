package org.nccl4j.contract;

import static org.assertj.core.api.Assertions.assertThat;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.Set;
import java.util.regex.MatchResult;
import java.util.regex.Pattern;
import java.util.stream.Collectors;
import org.junit.jupiter.api.Test;

/** The scenarios' ids, and what docs/semantics.md says about them. */
final class ScenariosTest {
    private static final Pattern ID =
            Pattern.compile("`((?:[VL]\\d+|[a-z]+)-[a-z0-9]+(?:-[a-z0-9]+)+)`");

    private static final List<String> ids = Scenarios.all().stream().map(Scenario::id).toList();

    @Test
    void areUnique() {
        assertThat(ids).doesNotHaveDuplicates().hasSizeGreaterThan(80);
    }

    @Test
    void coverTheCasesFromTheField() {
        Set<String> rows =
                ids.stream()
                        .filter(id -> id.matches("[VL]\\d+-.*"))
                        .map(id -> id.substring(0, id.indexOf('-')))
                        .collect(Collectors.toSet());

        assertThat(rows)
                .containsExactlyInAnyOrder(
                        "V1", "V3", "V5", "V7", "V8", "V9", "V10", "V11", "V12", "V13", "V17",
                        "V18", "L3", "L4", "L10");
    }

    @Test
    void areThoseThatTheDocumentationNames() throws IOException {
        String page = Files.readString(Path.of("..", "docs", "semantics.md"));
        List<String> named =
                ID.matcher(page).results().map((MatchResult found) -> found.group(1)).toList();

        assertThat(ids).containsAll(named);
        assertThat(named).containsAll(ids.stream().filter(id -> id.matches("[VL]\\d.*")).toList());
        assertThat(named).containsAll(ids.stream().filter(id -> id.startsWith("values-")).toList());
    }

    @Test
    void aSelectionOfNothingNamesWhatIsNear() {
        assertThat(ContractSuite.nothingSelected("timeout-nosuch"))
                .startsWith(
                        "-Dnccl4j.contract.only=timeout-nosuch selects nothing: no id contains it;"
                                + " near are timeout-");
        assertThat(ContractSuite.nothingSelected("nosuch"))
                .endsWith(
                        "; ids are such as allReduce/FLOAT16/sum/n=5 and "
                                + Scenarios.all().getFirst().id());
    }
}
