package org.nccl4j.bench;

import static org.assertj.core.api.Assertions.assertThat;

import java.util.List;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

/** The grammar is that of getopt_long; the messages are glibc's. */
final class GetOptTest {

    private static List<GetOpt.Event> scan(String... words) {
        return GetOpt.scan("all_reduce_perf", List.of(words));
    }

    private static GetOpt.Option option(Flag flag, String value) {
        return new GetOpt.Option(flag, value);
    }

    @Test
    void valuesAttachedAndSeparate() {
        assertThat(scan("-b8", "-e", "16", "--iters=3", "--warmup_iters", "4"))
                .containsExactly(
                        option(Flag.MIN_BYTES, "8"),
                        option(Flag.MAX_BYTES, "16"),
                        option(Flag.ITERATIONS, "3"),
                        option(Flag.WARMUP, "4"));
    }

    @Test
    void aValueMayLookLikeAnything() {
        assertThat(scan("-b", "-4", "-e=8", "--op=", "-o", "--", "--minbytes", "--help"))
                .containsExactly(
                        option(Flag.MIN_BYTES, "-4"),
                        option(Flag.MAX_BYTES, "=8"),
                        option(Flag.OP, ""),
                        option(Flag.OP, "--"),
                        option(Flag.MIN_BYTES, "--help"));
    }

    @Test
    void unambiguousPrefixes() {
        assertThat(scan("--minb=4", "--step", "1")).first().isEqualTo(option(Flag.MIN_BYTES, "4"));
        assertThat(scan("--op", "max")).containsExactly(option(Flag.OP, "max"));
        assertThat(scan("--he")).containsExactly(option(Flag.HELP, ""));
    }

    @Test
    void ourOwnOptionsLeaveTheOriginalsPrefixesAlone() {
        assertThat(scan("--b", "1")).containsExactly(option(Flag.BLOCKING, "1"));
        assertThat(scan("--t", "1")).containsExactly(option(Flag.TIMEOUT, "1"));
        assertThat(scan("--ba", "cpu")).containsExactly(option(Flag.BACKEND, "cpu"));
        assertThat(scan("--trace", "t.jsonl")).containsExactly(option(Flag.TRACE, "t.jsonl"));
    }

    @Test
    void strayWordsAreNoOptionsAndTwoDashesEndTheOptions() {
        assertThat(scan("x", "-", "-b", "8", "y", "--", "-b", "9"))
                .containsExactly(
                        new GetOpt.Stray("x"),
                        new GetOpt.Stray("-"),
                        option(Flag.MIN_BYTES, "8"),
                        new GetOpt.Stray("y"));
    }

    @Test
    void lettersMayShareAWord() {
        assertThat(scan("-hb", "8"))
                .containsExactly(option(Flag.HELP, ""), option(Flag.MIN_BYTES, "8"));
    }

    @ParameterizedTest
    @CsvSource({
        "-q, invalid option -- 'q'",
        "-b, option requires an argument -- 'b'",
        "--minbytes, option '--minbytes' requires an argument",
        "--foo, unrecognized option '--foo'",
        "--foo=3, unrecognized option '--foo=3'",
        "--help=3, option '--help' doesn't allow an argument",
        "--h=3, option '--help' doesn't allow an argument",
        "--m=4, option '--m=4' is ambiguous; possibilities: '--minbytes' '--maxbytes' '--memory'",
        "--n, option '--n' is ambiguous; possibilities: '--nthreads' '--ngpus'",
        "--step, option '--step' is ambiguous; possibilities: '--stepbytes' '--stepfactor'",
    })
    void messages(String word, String message) {
        GetOpt.Event event = scan(word).getLast();
        assertThat(event)
                .isInstanceOfSatisfying(
                        GetOpt.Rejected.class,
                        rejected ->
                                assertThat(rejected.message())
                                        .isEqualTo("all_reduce_perf: " + message));
    }

    @ParameterizedTest
    @CsvSource({
        "--min-bytes, --minbytes",
        "--iterations, --iters",
        "--datatyp3, --datatype",
        "--check_count, --check",
        "-B, -b",
        "-s, -S",
        "-qthreads, --nthreads",
        "--bakend, --backend",
    })
    void suggestions(String word, String suggestion) {
        assertThat(scan(word).getLast())
                .isInstanceOfSatisfying(
                        GetOpt.Rejected.class,
                        rejected -> assertThat(rejected.suggestions()).startsWith(suggestion));
    }

    @Test
    void scanningEndsWithARejectedWord() {
        assertThat(scan("-q", "-b", "8")).hasSize(1);
    }
}
