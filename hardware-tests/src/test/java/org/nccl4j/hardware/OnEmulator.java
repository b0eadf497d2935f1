package org.nccl4j.hardware;

import java.lang.annotation.ElementType;
import java.lang.annotation.Inherited;
import java.lang.annotation.Retention;
import java.lang.annotation.RetentionPolicy;
import java.lang.annotation.Target;
import org.junit.jupiter.api.extension.ExtendWith;

/**
 * Tests that run on the emulator, in a JVM of their own; they fail if they misuse CUDA or NCCL, or
 * leave something behind. A parameter of type {@link EmulatorControls} gives them the controls.
 */
@Target(ElementType.TYPE)
@Retention(RetentionPolicy.RUNTIME)
@Inherited
@ExtendWith(EmulatorExtension.class)
@interface OnEmulator {
    /** The version of NCCL. */
    String nccl() default "2.30";

    /** The number of devices. */
    int devices() default 8;

    /** What goes wrong in each test, in the words of {@link EmulatorControls#inject}. */
    String faults() default "";

    /** Whether nothing may live after the class that did not before; else its tests look. */
    boolean leavesNothing() default true;
}
