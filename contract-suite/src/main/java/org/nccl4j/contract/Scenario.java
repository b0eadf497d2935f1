package org.nccl4j.contract;

import java.util.function.Consumer;

/**
 * A story about more than one operation: who is late, what fails, what must wait.
 *
 * @param id its name; starts with the row's number where it replays a case from the field
 * @param body tells it
 */
record Scenario(String id, Consumer<Stage> body) {}
