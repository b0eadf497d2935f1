package org.nccl4j.nccl;

import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import org.nccl4j.collectives.DeviceBuffer;
import org.nccl4j.collectives.InvalidArgumentException;
import org.nccl4j.collectives.NativeCallException;
import org.nccl4j.collectives.Registration;
import org.nccl4j.collectives.spi.ArgumentChecks;

/**
 * A buffer that NCCL has prepared for one rank's operations. NCCL may have nothing to prepare, for
 * which it gives no handle. It ends when it is closed, or when its communicator has been aborted;
 * until then memory of this backend is not freed, even if its buffer has been closed.
 *
 * <p>Thread safety: as {@link Registration}; whether it is over may be asked from any thread.
 */
final class NcclRegistration implements Registration {
    /** The first version that can. */
    static final int SINCE_VERSION_CODE = 21901;

    private static final String FUNCTION = "ncclCommRegister";
    private static final int INVALID_ARGUMENT = 4;

    private final Member member;
    private final DeviceBuffer buffer;
    private long handle;
    private boolean closed;

    /** Whether NCCL has forgotten it. */
    private volatile boolean over;

    private NcclRegistration(Member member, DeviceBuffer buffer) {
        this.member = member;
        this.buffer = buffer;
    }

    static NcclRegistration open(Member member, DeviceBuffer buffer) {
        ArgumentChecks.given("register", "buffer", buffer);
        NcclLibrary.require(
                FUNCTION,
                SINCE_VERSION_CODE,
                "registering " + buffer + " with " + member.describe());
        requireFit(member, buffer);
        member.requireUsable("register");
        NcclRegistration registration = new NcclRegistration(member, buffer);
        // Before NCCL knows it, so that the memory cannot go in between.
        NcclMemory.registered(buffer, registration);
        boolean registered = false;
        try {
            PlatformThread.run(registration::register);
            member.registrations.add(registration);
            registered = true;
        } finally {
            registration.over = !registered;
        }
        return registration;
    }

    private static void requireFit(Member member, DeviceBuffer buffer) {
        String wrong = null;
        if (buffer.isClosed()) {
            wrong = "has been closed";
        } else if (buffer.sizeBytes() == 0) {
            wrong = "is empty";
        } else if (!member.device.equals(buffer.device())) {
            wrong =
                    "is not memory of device "
                            + member.device.ordinal()
                            + ", where "
                            + member.describe()
                            + " is";
        }
        if (wrong != null) {
            throw new InvalidArgumentException(
                    "register: " + buffer + " " + wrong + "; nothing was registered");
        }
    }

    private void register() {
        enter("register");
        try (Arena arena = Arena.ofConfined()) {
            // NCCL leaves the cell as it is where there is nothing to register.
            MemorySegment cell = arena.allocate(ValueLayout.JAVA_LONG);
            String doing = "registering " + buffer + " with " + member.describe();
            long before = CurrentDevice.enter(member.device);
            try {
                NcclLibrary.commRegister(
                        member.comm(), buffer.address(), buffer.sizeBytes(), cell, doing);
                requireSettled(FUNCTION, doing);
            } finally {
                CurrentDevice.leave(before);
            }
            handle = cell.get(ValueLayout.JAVA_LONG, 0);
        } catch (NativeCallException e) {
            throw failed(e);
        } finally {
            member.leave();
        }
    }

    private void deregister() {
        enter("the close of a registration");
        try {
            String doing = "ending the registration of " + buffer + " with " + member.describe();
            long before = CurrentDevice.enter(member.device);
            try {
                NcclLibrary.commDeregister(member.comm(), handle, doing);
                requireSettled("ncclCommDeregister", doing);
            } finally {
                CurrentDevice.leave(before);
            }
        } catch (NativeCallException e) {
            throw failed(e);
        } finally {
            member.leave();
        }
    }

    private void enter(String operation) {
        if (!member.enter()) {
            throw member.refusal(operation);
        }
    }

    private void requireSettled(String function, String doing) {
        int state = member.nonBlocking ? member.settle() : NcclLibrary.SUCCESS;
        if (state != NcclLibrary.SUCCESS) {
            throw NcclLibrary.failed(function, state, doing);
        }
    }

    /** A call that NCCL refused has had no effect; after anything else it is to be aborted. */
    private RuntimeException failed(NativeCallException failure) {
        if (failure.code() != INVALID_ARGUMENT) {
            member.clique.fail(failure);
        }
        return failure;
    }

    /** Whether NCCL has nothing of it any more. */
    boolean isOver() {
        return over || member.clique.isOver();
    }

    @Override
    public void close() {
        if (closed) {
            return;
        }
        // What has failed can only be aborted, which ends its registrations.
        if (member.clique.cause() == null) {
            requireUnused();
            member.requireUsable("the close of a registration");
            PlatformThread.run(this::deregister);
            over = true;
        }
        closed = true;
        member.registrations.remove(this);
    }

    private void requireUnused() {
        if (NcclMemory.isInUse(buffer) && member.isBusy()) {
            throw new InvalidArgumentException(
                    "the registration of "
                            + buffer
                            + " with "
                            + member.describe()
                            + " cannot be closed while operations may use the buffer; synchronize"
                            + " their streams, then close it; nothing has changed");
        }
    }

    @Override
    public String toString() {
        return "registration of " + buffer + " with " + member.describe();
    }
}
