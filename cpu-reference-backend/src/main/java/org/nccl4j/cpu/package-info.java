/** The contract in pure Java. */
package org.nccl4j.cpu;
