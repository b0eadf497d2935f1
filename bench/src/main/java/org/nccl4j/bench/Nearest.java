package org.nccl4j.bench;

import java.util.Collection;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.TreeMap;
import java.util.stream.Collectors;

/** Finds what somebody probably meant to type. */
final class Nearest {

    private Nearest() {}

    /**
     * The candidates nearest to a word, at most three. From near to far: the same but for case,
     * underscores and dashes; one begins with the other; they share a beginning, or the word
     * abbreviates the candidate; few edits apart, at most a third of the word. Empty if nothing is
     * near; several only if they are equally near.
     */
    static List<String> to(String word, Collection<String> candidates) {
        String plain = plain(word);
        Map<Integer, List<String>> byScore =
                candidates.stream()
                        .distinct()
                        .collect(
                                Collectors.groupingBy(
                                        candidate -> score(plain, plain(candidate)),
                                        TreeMap::new,
                                        Collectors.toList()));
        Map.Entry<Integer, List<String>> nearest = byScore.entrySet().iterator().next();
        return nearest.getKey() <= Math.max(2, plain.length() / 3)
                ? nearest.getValue().stream().limit(3).toList()
                : List.of();
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
        int common = 0;
        int shorter = Math.min(word.length(), candidate.length());
        while (common < shorter && word.charAt(common) == candidate.charAt(common)) {
            common++;
        }
        if (common == shorter && common >= 3) {
            return 1;
        }
        int distance = distance(word, candidate);
        boolean related = common >= 4 || (word.length() >= 4 && abbreviates(word, candidate));
        if (related) {
            return Math.min(2, distance);
        }
        // Two edits of a short word leave nothing of it.
        return word.length() <= 4 && distance > 1 ? Integer.MAX_VALUE : distance;
    }

    /** True if the word is the candidate with letters left out, the first excepted. */
    private static boolean abbreviates(String word, String candidate) {
        int at = 0;
        for (int i = 0; i < candidate.length() && at < word.length(); i++) {
            if (candidate.charAt(i) == word.charAt(at)) {
                at++;
            } else if (at == 0) {
                return false;
            }
        }
        return at == word.length();
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
