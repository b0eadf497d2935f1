/** The contract as test cases, for every backend, engine, algorithm and transport. */
package org.nccl4j.contract;
