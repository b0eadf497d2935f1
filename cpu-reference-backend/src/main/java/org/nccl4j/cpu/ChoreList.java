package org.nccl4j.cpu;

/**
 * Chores in order, linked through {@link Chore#next}: a chore is in one list at a time, and putting
 * it there needs no memory. Guarded by the scheduler's lock.
 */
final class ChoreList<T extends Chore> {
    private T first;
    private T last;

    boolean isEmpty() {
        return first == null;
    }

    void add(T chore) {
        if (last == null) {
            first = chore;
        } else {
            last.next = chore;
        }
        last = chore;
    }

    void addFirst(T chore) {
        chore.next = first;
        first = chore;
        if (last == null) {
            last = chore;
        }
    }

    /** The first, taken out, or null. */
    T poll() {
        T chore = first;
        if (chore != null) {
            first = following(chore);
            if (first == null) {
                last = null;
            }
            chore.next = null;
        }
        return chore;
    }

    /** Takes one out that is somewhere in it. */
    boolean remove(T chore) {
        T before = null;
        for (T each = first; each != null; before = each, each = following(each)) {
            if (each.equals(chore)) {
                if (before == null) {
                    first = following(each);
                } else {
                    before.next = each.next;
                }
                if (last.equals(each)) {
                    last = before;
                }
                each.next = null;
                return true;
            }
        }
        return false;
    }

    /** All of them, still linked, or null. */
    T takeAll() {
        T all = first;
        first = null;
        last = null;
        return all;
    }

    // Whatever is in the list came as a T.
    @SuppressWarnings("unchecked")
    private T following(T chore) {
        return (T) chore.next;
    }
}
