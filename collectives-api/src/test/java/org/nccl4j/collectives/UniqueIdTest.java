package org.nccl4j.collectives;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import java.util.HexFormat;
import org.junit.jupiter.api.Test;

final class UniqueIdTest {
    @Test
    void bytesAreCopiedInAndOut() {
        byte[] bytes = distinct();
        UniqueId id = new UniqueId(bytes);
        bytes[0]++;
        id.toBytes()[1]++;

        assertThat(id.toBytes()).isEqualTo(distinct());
    }

    @Test
    void equalBytesAreOneId() {
        byte[] other = distinct();
        other[127]++;

        assertThat(new UniqueId(distinct()))
                .isEqualTo(new UniqueId(distinct()))
                .hasSameHashCodeAs(new UniqueId(distinct()))
                .isNotEqualTo(new UniqueId(other))
                .isNotEqualTo(null);
    }

    @Test
    void theTextTellsNoByteAndTellsIdsApart() {
        byte[] other = distinct();
        other[127]++;
        String text = new UniqueId(distinct()).toString();

        assertThat(text).matches("UniqueId\\[fingerprint [0-9a-f]{8}]");
        String hex = HexFormat.of().formatHex(distinct());
        for (int i = 0; i + 6 <= hex.length(); i += 2) {
            assertThat(text).doesNotContain(hex.substring(i, i + 6));
        }
        assertThat(text)
                .isEqualTo(new UniqueId(distinct()).toString())
                .isNotEqualTo(new UniqueId(other).toString());
    }

    @Test
    void anotherLengthIsRefused() {
        assertThatThrownBy(() -> new UniqueId(new byte[127]))
                .isInstanceOf(InvalidArgumentException.class)
                .hasMessage(
                        "a unique id has 128 bytes, got 127; pass the bytes that newUniqueId()"
                                + " gave, whole");
        assertThatThrownBy(() -> new UniqueId(null))
                .isInstanceOf(InvalidArgumentException.class)
                .hasMessage("a unique id needs its bytes, got null");
    }

    private static byte[] distinct() {
        byte[] bytes = new byte[UniqueId.SIZE_BYTES];
        for (int i = 0; i < bytes.length; i++) {
            bytes[i] = (byte) (17 + 37 * i);
        }
        return bytes;
    }
}
