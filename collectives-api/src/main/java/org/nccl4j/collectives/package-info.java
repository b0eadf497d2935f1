/** The contract that every backend keeps. */
package org.nccl4j.collectives;
