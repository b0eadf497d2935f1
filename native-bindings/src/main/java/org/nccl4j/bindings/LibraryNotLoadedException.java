package org.nccl4j.bindings;

import java.util.List;

/**
 * A native library cannot be loaded; the message lists what was tried, with the dynamic linker's
 * own reasons, and what to do.
 *
 * <p>Thread safety: immutable but for what {@link Throwable} allows.
 */
public final class LibraryNotLoadedException extends RuntimeException {
    private static final long serialVersionUID = 1L;

    private final String summary;
    private final transient List<LibraryCandidate> candidates;

    /**
     * With the whole story.
     *
     * @param summary one line
     * @param details what was tried and what to do, in lines of their own
     * @param candidates what was tried, in order
     * @param cause what kept the loader from trying, or null
     */
    LibraryNotLoadedException(
            String summary, String details, List<LibraryCandidate> candidates, Throwable cause) {
        super(details.isEmpty() ? summary : summary + "\n" + details, cause);
        this.summary = summary;
        this.candidates = List.copyOf(candidates);
    }

    /**
     * What failed and why, in one line, for a table or a log; {@link #getMessage} has it all.
     *
     * @return the message's first line
     */
    public String summary() {
        return summary;
    }

    /**
     * What was tried, in order.
     *
     * @return the candidates, none if the loader could not even try
     */
    public List<LibraryCandidate> candidates() {
        return candidates == null ? List.of() : candidates;
    }
}
