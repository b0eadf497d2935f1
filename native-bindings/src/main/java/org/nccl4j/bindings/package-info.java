/** The loader of native libraries, and the few functions that jextract's output does not have. */
package org.nccl4j.bindings;
