# shellcheck shell=sh
# Sourced by bench/jmh and examples/run.
#
# nearest WORD CANDIDATE... prints the candidate that was probably meant: the one with the fewest edits
# (insert, delete, replace; case, dashes and underscores do not count) if they are at most a third of the
# word's letters, or 1; nothing if none is so near.

nearest() {
    awk 'function plain(word) { word = tolower(word); gsub(/[-_]/, "", word); return word }
        function edits(a, b,  i, j, best, row, above, diagonal) {
            for (j = 0; j <= length(b); j++) row[j] = j
            for (i = 1; i <= length(a); i++) {
                diagonal = row[0]
                row[0] = i
                for (j = 1; j <= length(b); j++) {
                    above = row[j]
                    best = diagonal + (substr(a, i, 1) != substr(b, j, 1))
                    if (above + 1 < best) best = above + 1
                    if (row[j - 1] + 1 < best) best = row[j - 1] + 1
                    diagonal = above
                    row[j] = best
                }
            }
            return row[length(b)]
        }
        BEGIN {
            word = plain(ARGV[1])
            fewest = (length(word) < 3 ? 1 : int(length(word) / 3)) + 1
            for (k = 2; k < ARGC; k++) {
                count = edits(word, plain(ARGV[k]))
                if (count < fewest) { fewest = count; near = ARGV[k] }
            }
            if (near != "") print near
        }' "$@"
}
