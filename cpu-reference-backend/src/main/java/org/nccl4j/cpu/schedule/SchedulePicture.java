package org.nccl4j.cpu.schedule;

import java.util.ArrayList;
import java.util.List;
import java.util.Locale;

/**
 * A schedule for people: a table of text and a picture in SVG. Both are functions of the schedule
 * and a size alone.
 *
 * <p>Thread safety: no state.
 */
public final class SchedulePicture {
    private static final int COLUMN_WIDTH = 110;
    private static final int ROW_HEIGHT = 64;
    private static final int LEFT = 70;
    private static final int TOP = 70;
    private static final int HEADING_WIDTH = 520;

    /** Labels of more messages than this in a step would hide each other. */
    private static final int MOST_LABELS = 32;

    private SchedulePicture() {}

    /**
     * A table: a line per step, a column per rank with what it sends, {@code 2>1} being chunk 2 to
     * rank 1; {@code 2>1+} if it is reduced there; and the bytes of each rank and pair at the end.
     *
     * @param schedule what to show
     * @param sizeBytes of the full buffer
     * @param elementBytes of an element, because chunks are whole elements
     * @return lines, each with a line feed at its end
     */
    public static String text(Schedule schedule, long sizeBytes, int elementBytes) {
        int ranks = schedule.ranks();
        long elements = sizeBytes / elementBytes;
        List<List<String>> rows = new ArrayList<>();
        List<String> head = new ArrayList<>(List.of("step"));
        for (int rank = 0; rank < ranks; rank++) {
            head.add("rank " + rank);
        }
        head.add("most bytes of a rank");
        rows.add(head);
        for (int step = 0; step < schedule.steps(); step++) {
            List<String> row = new ArrayList<>(List.of(Integer.toString(step)));
            long most = 0;
            for (int rank = 0; rank < ranks; rank++) {
                StringBuilder cell = new StringBuilder();
                long sent = 0;
                for (Action action : schedule.program(rank)) {
                    if (action.kind() == Action.Kind.SEND && action.step() == step) {
                        cell.append(cell.isEmpty() ? "" : " ")
                                .append(chunks(schedule, action))
                                .append('>')
                                .append(action.peer())
                                .append(isReduced(schedule, rank, action) ? "+" : "");
                        sent +=
                                schedule.rangeElements(action.chunk(), action.chunks(), elements)
                                        * elementBytes;
                    }
                }
                row.add(cell.isEmpty() ? "-" : cell.toString());
                most = Math.max(most, sent);
            }
            row.add(Long.toString(most));
            rows.add(row);
        }
        rows.add(totals("sent", schedule, elements, elementBytes, true));
        rows.add(totals("received", schedule, elements, elementBytes, false));
        return heading(schedule, sizeBytes)
                + "\n"
                + legend(schedule)
                + table(rows)
                + pairs(schedule, elements, elementBytes);
    }

    private static List<String> totals(
            String title, Schedule schedule, long elements, int elementBytes, boolean sent) {
        List<String> row = new ArrayList<>(List.of(title));
        long most = 0;
        for (int rank = 0; rank < schedule.ranks(); rank++) {
            long bytes =
                    elementBytes
                            * (sent
                                    ? schedule.sentElements(rank, elements)
                                    : schedule.receivedElements(rank, elements));
            row.add(Long.toString(bytes));
            most = Math.max(most, bytes);
        }
        row.add(Long.toString(most));
        return row;
    }

    private static String heading(Schedule schedule, long sizeBytes) {
        return String.format(
                Locale.ROOT,
                "%s by %s, %d ranks, %d bytes in %d chunk%s: %d step%s",
                schedule.collective().title(),
                schedule.algorithm(),
                schedule.ranks(),
                sizeBytes,
                schedule.chunks(),
                schedule.chunks() == 1 ? "" : "s",
                schedule.steps(),
                schedule.steps() == 1 ? "" : "s");
    }

    private static String legend(Schedule schedule) {
        return switch (schedule.collective()) {
            case ALL_TO_ALL ->
                    "from:to>rank: what rank from has for rank to is sent to that rank\n";
            case ALL_REDUCE, REDUCE_SCATTER, REDUCE ->
                    "chunk>rank: that chunk is sent to that rank; +: and reduced there\n";
            case ALL_GATHER, BROADCAST -> "chunk>rank: that chunk is sent to that rank\n";
        };
    }

    private static String pairs(Schedule schedule, long elements, int elementBytes) {
        StringBuilder text = new StringBuilder("bytes from rank to rank:");
        int written = 0;
        for (int from = 0; from < schedule.ranks(); from++) {
            for (int to = 0; to < schedule.ranks(); to++) {
                long bytes = schedule.sentElements(from, to, elements) * elementBytes;
                if (bytes > 0) {
                    text.append(written++ % 8 == 0 ? "\n  " : "  ")
                            .append(from)
                            .append("->")
                            .append(to)
                            .append(": ")
                            .append(bytes);
                }
            }
        }
        return written == 0 ? "" : text.append('\n').toString();
    }

    private static String table(List<List<String>> rows) {
        int[] widths = new int[rows.getFirst().size()];
        for (List<String> row : rows) {
            for (int i = 0; i < widths.length; i++) {
                widths[i] = Math.max(widths[i], row.get(i).length());
            }
        }
        StringBuilder text = new StringBuilder();
        for (List<String> row : rows) {
            StringBuilder line = new StringBuilder();
            for (int i = 0; i < widths.length; i++) {
                String cell = row.get(i);
                line.append(i == 0 ? "" : "  ").append(cell);
                line.append(" ".repeat(widths[i] - cell.length()));
            }
            text.append(line.toString().stripTrailing()).append('\n');
        }
        return text.toString();
    }

    /** In all-to-all a chunk is named by its origin and its destination. */
    private static String chunks(Schedule schedule, Action action) {
        if (schedule.collective() == Collective.ALL_TO_ALL) {
            return action.chunk() / schedule.ranks() + ":" + action.chunk() % schedule.ranks();
        }
        return action.chunks() == 1
                ? Integer.toString(action.chunk())
                : action.chunk() + "-" + (action.chunk() + action.chunks() - 1);
    }

    private static boolean isReduced(Schedule schedule, int from, Action sent) {
        for (Action action : schedule.program(sent.peer())) {
            if (action.receives()
                    && action.peer() == from
                    && action.step() == sent.step()
                    && action.chunk() == sent.chunk()) {
                return action.kind() == Action.Kind.REDUCE;
            }
        }
        return false;
    }

    /**
     * A picture: a column per rank, a row per step, an arrow per message from sender to receiver,
     * solid where it is reduced, dashed where it is stored.
     *
     * @param schedule what to show
     * @param sizeBytes of the full buffer
     * @param elementBytes of an element
     * @return a whole SVG document
     */
    public static String svg(Schedule schedule, long sizeBytes, int elementBytes) {
        int ranks = schedule.ranks();
        int width = Math.max(HEADING_WIDTH, LEFT + COLUMN_WIDTH * ranks);
        int bottom = TOP + ROW_HEIGHT * schedule.steps();
        int height = bottom + 50;
        StringBuilder svg = new StringBuilder();
        svg.append(
                String.format(
                        Locale.ROOT,
                        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\""
                                + " width=\"%d\" height=\"%d\" font-family=\"sans-serif\""
                                + " font-size=\"12\">\n",
                        width,
                        height,
                        width,
                        height));
        svg.append("<title>").append(heading(schedule, sizeBytes)).append("</title>\n");
        svg.append("<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n");
        svg.append(
                "<defs><marker id=\"head\" viewBox=\"0 0 8 8\" refX=\"8\" refY=\"4\""
                        + " markerWidth=\"8\" markerHeight=\"8\" orient=\"auto\">"
                        + "<path d=\"M0 0 L8 4 L0 8 z\" fill=\"context-stroke\"/></marker></defs>\n");
        label(svg, 10, 20, "start", heading(schedule, sizeBytes));
        label(svg, 10, 38, "start", "solid: reduced at the receiver; dashed: stored");
        long elements = sizeBytes / elementBytes;
        for (int rank = 0; rank < ranks; rank++) {
            int x = x(rank);
            label(svg, x, TOP - 10, "middle", "rank " + rank);
            line(svg, x, TOP, x, bottom, "stroke=\"#bbbbbb\"");
            label(
                    svg,
                    x,
                    bottom + 20,
                    "middle",
                    schedule.sentElements(rank, elements) * elementBytes + " B sent");
        }
        for (int step = 0; step < schedule.steps(); step++) {
            step(svg, schedule, step);
        }
        return svg.append("</svg>\n").toString();
    }

    private static void step(StringBuilder svg, Schedule schedule, int step) {
        int y = TOP + ROW_HEIGHT * step;
        label(svg, 10, y + ROW_HEIGHT / 2, "start", "step " + step);
        int messages = 0;
        for (int rank = 0; rank < schedule.ranks(); rank++) {
            for (Action action : schedule.program(rank)) {
                if (action.kind() == Action.Kind.SEND && action.step() == step) {
                    messages++;
                }
            }
        }
        for (int rank = 0; rank < schedule.ranks(); rank++) {
            for (Action action : schedule.program(rank)) {
                if (action.kind() != Action.Kind.SEND || action.step() != step) {
                    continue;
                }
                boolean reduced = isReduced(schedule, rank, action);
                int from = x(rank);
                int to = x(action.peer());
                line(
                        svg,
                        from,
                        y + 6,
                        to,
                        y + ROW_HEIGHT - 6,
                        reduced
                                ? "stroke=\"#b03000\" marker-end=\"url(#head)\""
                                : "stroke=\"#0050a0\" stroke-dasharray=\"5 3\""
                                        + " marker-end=\"url(#head)\"");
                if (messages <= MOST_LABELS) {
                    // Near the sender, where arrows have not crossed yet, and the farther the
                    // longer the arrow is, for a rank may send several.
                    int along = 20 + 8 * Math.abs(to - from) / COLUMN_WIDTH;
                    int down = along * (ROW_HEIGHT - 12) / Math.abs(to - from);
                    label(
                            svg,
                            from + Integer.signum(to - from) * along,
                            y + 10 + down,
                            "middle",
                            chunks(schedule, action));
                }
            }
        }
    }

    private static int x(int rank) {
        return LEFT + COLUMN_WIDTH / 2 + COLUMN_WIDTH * rank;
    }

    private static void line(
            StringBuilder svg, int fromX, int fromY, int toX, int toY, String style) {
        svg.append(
                String.format(
                        Locale.ROOT,
                        "<line x1=\"%d\" y1=\"%d\" x2=\"%d\" y2=\"%d\" %s/>\n",
                        fromX,
                        fromY,
                        toX,
                        toY,
                        style));
    }

    private static void label(StringBuilder svg, int x, int y, String anchor, String text) {
        svg.append(
                String.format(
                        Locale.ROOT,
                        "<text x=\"%d\" y=\"%d\" text-anchor=\"%s\">%s</text>\n",
                        x,
                        y,
                        anchor,
                        text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")));
    }
}
