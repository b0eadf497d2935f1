package org.nccl4j.bench;

import java.util.Collection;
import java.util.Comparator;
import java.util.List;
import java.util.Locale;

/** Finds what somebody probably meant to type. */
final class Nearest {

    private Nearest() {}

    /**
     * The candidates nearest to a word, best first: same but for case, underscores and dashes; then
     * those that begin with the word or the word with them; then by edit distance, at most a third
     * of the word. At most three; empty if nothing is near.
     */
    static List<String> to(String word, Collection<String> candidates) {
        String plain = plain(word);
        record Scored(String candidate, int score) {}
        return candidates.stream()
                .distinct()
                .map(candidate -> new Scored(candidate, score(plain, plain(candidate))))
                .filter(scored -> scored.score <= Math.max(1, plain.length() / 3))
                .sorted(Comparator.comparingInt(Scored::score))
                .limit(3)
                .map(Scored::candidate)
                .toList();
    }

    /** {@code " Did you mean a or b?"}, with a leading blank; empty if there is nothing to say. */
    static String question(List<String> candidates) {
        return candidates.isEmpty() ? "" : " Did you mean " + String.join(" or ", candidates) + "?";
    }

    private static String plain(String word) {
        return word.toLowerCase(Locale.ROOT).replace("_", "").replace("-", "");
    }

    private static int score(String word, String candidate) {
        if (word.equals(candidate)) {
            return 0;
        }
        boolean prefix = candidate.startsWith(word) || word.startsWith(candidate);
        if (prefix && Math.min(word.length(), candidate.length()) >= 3) {
            return 1;
        }
        return distance(word, candidate);
    }

    /** Edits (insert, delete, replace, swap neighbours) that turn one word into the other. */
    private static int distance(String a, String b) {
        int[][] edits = new int[a.length() + 1][b.length() + 1];
        for (int i = 0; i <= a.length(); i++) {
            for (int j = 0; j <= b.length(); j++) {
                if (i == 0 || j == 0) {
                    edits[i][j] = i + j;
                    continue;
                }
                boolean same = a.charAt(i - 1) == b.charAt(j - 1);
                int best = Math.min(edits[i - 1][j], edits[i][j - 1]) + 1;
                best = Math.min(best, edits[i - 1][j - 1] + (same ? 0 : 1));
                if (i > 1
                        && j > 1
                        && a.charAt(i - 1) == b.charAt(j - 2)
                        && a.charAt(i - 2) == b.charAt(j - 1)) {
                    best = Math.min(best, edits[i - 2][j - 2] + 1);
                }
                edits[i][j] = best;
            }
        }
        return edits[a.length()][b.length()];
    }
}
