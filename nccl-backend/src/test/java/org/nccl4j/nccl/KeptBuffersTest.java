package org.nccl4j.nccl;

import static org.assertj.core.api.Assertions.assertThat;

import java.lang.foreign.Arena;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicLong;
import org.junit.jupiter.api.Test;
import org.nccl4j.collectives.DeviceBuffer;

final class KeptBuffersTest {
    private final DeviceBuffer buffer = DeviceBuffer.wrap(Arena.ofAuto().allocate(8));
    private final KeptBuffers kept = new KeptBuffers();

    @Test
    void aBufferIsKeptUntilItsTicketIsPassed() {
        kept.keep(buffer, 1, 0);
        kept.keep(buffer, 1, 0);
        kept.keep(buffer, 2, 0);
        kept.dropPassed(0);
        assertThat(kept.count()).isEqualTo(3);
        kept.dropPassed(1);
        assertThat(kept.count()).isEqualTo(1);
        kept.dropPassed(2);
        assertThat(kept.count()).isZero();
    }

    @Test
    void moreThanEverBeforeAreKeptAsWell() {
        for (int ticket = 1; ticket <= 1000; ticket++) {
            kept.keep(buffer, ticket, 0);
        }
        assertThat(kept.count()).isEqualTo(1000);
        // Only those that are over make room.
        kept.keep(buffer, 1001, 900);
        kept.dropPassed(900);
        assertThat(kept.count()).isEqualTo(101);
        kept.dropPassed(1001);
        assertThat(kept.count()).isZero();
    }

    @Test
    void othersDropWhileOneKeeps() throws InterruptedException {
        AtomicLong passed = new AtomicLong();
        AtomicBoolean over = new AtomicBoolean();
        Thread dropper =
                Thread.ofPlatform()
                        .daemon()
                        .start(() -> {
                            while (!over.get()) {
                                kept.dropPassed(passed.get());
                            }
                        });
        for (int ticket = 1; ticket <= 200_000; ticket++) {
            kept.keep(buffer, ticket, passed.get());
            passed.set(ticket - ticket % 97);
        }
        over.set(true);
        dropper.join();
        kept.dropPassed(200_000 - 1);
        assertThat(kept.count()).isEqualTo(1);
        kept.dropPassed(200_000);
        assertThat(kept.count()).isZero();
    }
}
