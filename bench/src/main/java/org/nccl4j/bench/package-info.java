/** The bench command: nccl-tests' table, flags and JSON for every backend. */
package org.nccl4j.bench;
