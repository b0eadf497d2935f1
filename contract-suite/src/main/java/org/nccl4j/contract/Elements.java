package org.nccl4j.contract;

import java.lang.invoke.MethodHandles;
import java.lang.invoke.VarHandle;
import java.nio.ByteOrder;

/** Elements as stored, in native byte order, in byte arrays. */
final class Elements {
    private static final VarHandle SHORT =
            MethodHandles.byteArrayViewVarHandle(short[].class, ByteOrder.nativeOrder());
    private static final VarHandle INT =
            MethodHandles.byteArrayViewVarHandle(int[].class, ByteOrder.nativeOrder());
    private static final VarHandle LONG =
            MethodHandles.byteArrayViewVarHandle(long[].class, ByteOrder.nativeOrder());

    private Elements() {}

    static long get(int widthBytes, byte[] memory, int offsetBytes) {
        return switch (widthBytes) {
            case 1 -> memory[offsetBytes] & 0xffL;
            case 2 -> (short) SHORT.get(memory, offsetBytes) & 0xffffL;
            case 4 -> (int) INT.get(memory, offsetBytes) & 0xffff_ffffL;
            case 8 -> (long) LONG.get(memory, offsetBytes);
            default -> throw new IllegalArgumentException("width " + widthBytes);
        };
    }

    static void put(int widthBytes, byte[] memory, int offsetBytes, long bits) {
        switch (widthBytes) {
            case 1 -> memory[offsetBytes] = (byte) bits;
            case 2 -> SHORT.set(memory, offsetBytes, (short) bits);
            case 4 -> INT.set(memory, offsetBytes, (int) bits);
            case 8 -> LONG.set(memory, offsetBytes, bits);
            default -> throw new IllegalArgumentException("width " + widthBytes);
        }
    }

    static byte[] int32(int... values) {
        byte[] memory = new byte[4 * values.length];
        for (int i = 0; i < values.length; i++) {
            INT.set(memory, 4 * i, values[i]);
        }
        return memory;
    }

    static int[] toInt32(byte[] memory) {
        int[] values = new int[memory.length / 4];
        for (int i = 0; i < values.length; i++) {
            values[i] = (int) INT.get(memory, 4 * i);
        }
        return values;
    }
}
