/** Programs to start from. */
package org.nccl4j.examples;
