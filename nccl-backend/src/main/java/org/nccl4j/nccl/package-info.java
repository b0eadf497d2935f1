/** The contract over NCCL and CUDA streams. */
package org.nccl4j.nccl;
