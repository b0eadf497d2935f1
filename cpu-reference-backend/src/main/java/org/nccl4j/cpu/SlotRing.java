package org.nccl4j.cpu;

/**
 * The open matches of one numbering, by number. Grows with the distance between the rank that is
 * furthest ahead and the operation that is furthest behind; matches are used again. Guarded by the
 * scheduler's lock.
 */
final class SlotRing {
    private final Clique clique;
    private final int senderRank;
    private final int receiverRank;
    private Match[] slots = new Match[4];
    private long base;
    private long end;

    SlotRing(Clique clique, int senderRank, int receiverRank) {
        this.clique = clique;
        this.senderRank = senderRank;
        this.receiverRank = receiverRank;
    }

    /** The sender of the pair that it numbers; -1 if it numbers collectives. */
    int senderRank() {
        return senderRank;
    }

    /** The receiver of the pair that it numbers; -1 if it numbers collectives. */
    int receiverRank() {
        return receiverRank;
    }

    /** How many take part in an operation. */
    int participants() {
        return senderRank < 0 ? clique.size : 2;
    }

    /** The first number whose match is open. */
    long base() {
        return base;
    }

    /** The number after the last that anybody has posted. */
    long end() {
        return end;
    }

    /** Whether no match is open. */
    boolean isEmpty() {
        return base == end;
    }

    /** Takes the next number of an empty one for an operation that needs no match. */
    long skip() {
        assert isEmpty();
        base++;
        return end++;
    }

    /** The match of a number, opened if need be. */
    Match at(long number) {
        while (number - base >= slots.length) {
            grow();
        }
        for (; end <= number; end++) {
            int slot = slot(end);
            if (slots[slot] == null) {
                slots[slot] = new Match(clique, senderRank, receiverRank);
            }
            slots[slot].open(end);
        }
        return slots[slot(number)];
    }

    /** Takes back the matches at the front that are no longer used. */
    void retire() {
        while (base < end && slots[slot(base)].isRetired()) {
            base++;
        }
    }

    private int slot(long number) {
        return (int) (number & (slots.length - 1));
    }

    private void grow() {
        Match[] old = slots;
        slots = new Match[2 * old.length];
        for (long number = base; number < base + old.length; number++) {
            slots[slot(number)] = old[(int) (number & (old.length - 1))];
        }
    }
}
