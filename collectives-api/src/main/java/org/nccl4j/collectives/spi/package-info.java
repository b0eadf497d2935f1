/**
 * What backends share: argument checks and buffer ownership. Programs that only use collectives
 * need nothing from here.
 */
package org.nccl4j.collectives.spi;
