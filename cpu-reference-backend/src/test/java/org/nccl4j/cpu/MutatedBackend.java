package org.nccl4j.cpu;

import java.lang.reflect.InvocationHandler;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.lang.reflect.Proxy;
import java.util.ArrayList;
import java.util.List;
import java.util.Optional;
import java.util.function.Consumer;
import org.nccl4j.collectives.Backend;
import org.nccl4j.collectives.Capabilities;
import org.nccl4j.collectives.Communicator;
import org.nccl4j.collectives.Group;
import org.nccl4j.collectives.Operations;

/** A backend whose operations pass through somebody who may spoil them. */
final class MutatedBackend {

    /** One call of an operation. */
    interface Call {
        /** The operation's name in the API. */
        String operation();

        /** The rank that calls. */
        Communicator caller();

        /** The arguments, which may be changed. */
        Object[] arguments();

        /** The first argument of a type. */
        default <T> T first(Class<T> type) {
            for (Object argument : arguments()) {
                if (type.isInstance(argument)) {
                    return type.cast(argument);
                }
            }
            throw new IllegalStateException(operation() + " has no " + type);
        }

        /** An argument by its place, or nothing if it is null or of another type. */
        default <T> Optional<T> at(int index, Class<T> type) {
            Object argument = arguments()[index];
            return type.isInstance(argument) ? Optional.of(type.cast(argument)) : Optional.empty();
        }

        /** Makes the real call. */
        void proceed();
    }

    private final Backend real;
    private final Consumer<Call> mutation;
    private final Capabilities claimed;

    private MutatedBackend(Backend real, Consumer<Call> mutation, Capabilities claimed) {
        this.real = real;
        this.mutation = mutation;
        this.claimed = claimed;
    }

    static Backend of(Backend real, Consumer<Call> mutation) {
        return of(real, mutation, real.capabilities());
    }

    /** With other capabilities than the real ones. */
    static Backend of(Backend real, Consumer<Call> mutation, Capabilities claimed) {
        MutatedBackend mutated = new MutatedBackend(real, mutation, claimed);
        return proxy(Backend.class, mutated::backendCall);
    }

    private static <T> T proxy(Class<T> type, InvocationHandler handler) {
        return type.cast(
                Proxy.newProxyInstance(type.getClassLoader(), new Class<?>[] {type}, handler));
    }

    private static Object call(Object target, Method method, Object[] arguments) throws Throwable {
        try {
            return method.invoke(target, arguments);
        } catch (InvocationTargetException e) {
            throw e.getCause();
        }
    }

    @SuppressWarnings("unchecked")
    private Object backendCall(Object self, Method method, Object[] arguments) throws Throwable {
        switch (method.getName()) {
            case "createLocal" -> {
                List<Communicator> communicators = new ArrayList<>();
                for (Communicator made : (List<Communicator>) call(real, method, arguments)) {
                    communicators.add(wrap(made));
                }
                return communicators;
            }
            case "group", "record" -> {
                Consumer<Group> body = (Consumer<Group>) arguments[0];
                Consumer<Group> wrapped = group -> body.accept(wrap(group));
                return call(real, method, new Object[] {body == null ? null : wrapped});
            }
            case "capabilities" -> {
                return claimed;
            }
            case "closeAll", "split", "exchangeCounts" -> {
                Object[] unwrapped = arguments.clone();
                if (arguments[0] instanceof List<?> communicators) {
                    unwrapped[0] = communicators.stream().map(MutatedBackend::unwrap).toList();
                }
                return call(real, method, unwrapped);
            }
            default -> {
                return call(real, method, arguments);
            }
        }
    }

    private Group wrap(Group group) {
        return communicator -> operations(group.on(unwrap(communicator)), unwrap(communicator));
    }

    private Operations operations(Operations target, Communicator caller) {
        return proxy(Operations.class, new Operation(target, caller));
    }

    private Communicator wrap(Communicator communicator) {
        return proxy(Communicator.class, new Operation(communicator, communicator));
    }

    /** The real communicator; those that a split has made, and null, are not wrapped. */
    private static Communicator unwrap(Object wrapped) {
        return wrapped != null && Proxy.isProxyClass(wrapped.getClass())
                ? ((Operation) Proxy.getInvocationHandler(wrapped)).caller
                : (Communicator) wrapped;
    }

    private final class Operation implements InvocationHandler {
        private final Operations target;
        private final Communicator caller;

        private Operation(Operations target, Communicator caller) {
            this.target = target;
            this.caller = caller;
        }

        @Override
        public Object invoke(Object self, Method method, Object[] arguments) throws Throwable {
            if (!method.getDeclaringClass().equals(Operations.class)) {
                return call(target, method, arguments);
            }
            mutation.accept(
                    new Call() {
                        @Override
                        public String operation() {
                            return method.getName();
                        }

                        @Override
                        public Communicator caller() {
                            return caller;
                        }

                        @Override
                        public Object[] arguments() {
                            return arguments;
                        }

                        @Override
                        public void proceed() {
                            try {
                                call(target, method, arguments);
                            } catch (RuntimeException | Error e) {
                                throw e;
                            } catch (Throwable e) {
                                throw new IllegalStateException(e);
                            }
                        }
                    });
            return null;
        }
    }
}
