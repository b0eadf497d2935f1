package org.nccl4j.nccl;

import static org.assertj.core.api.Assertions.assertThat;

import java.io.IOException;
import java.net.StandardProtocolFamily;
import java.net.UnixDomainSocketAddress;
import java.nio.channels.ServerSocketChannel;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Map;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

final class NcclEnvironmentTest {
    @TempDir private Path folder;

    @Test
    void aConfigurationFileIsReadAsNcclDoes() throws IOException {
        Path file =
                Files.writeString(
                        folder.resolve("nccl.conf"),
                        """
                        # NCCL_ALGO=Tree
                        NCCL_DEBUG=WARN
                        NCCL_DEBUG=INFO
                        NCCL_COMM_BLOCKING=0
                        nonsense
                        NCCL_SOCKET_IFNAME==eth0
                        """);

        assertThat(NcclEnvironment.read(file))
                .containsOnly(
                        Map.entry("NCCL_DEBUG", "WARN"),
                        Map.entry("NCCL_COMM_BLOCKING", "0"),
                        Map.entry("NCCL_SOCKET_IFNAME", "=eth0"));
    }

    @Test
    void nobodyNeedsAConfigurationFile() {
        assertThat(NcclEnvironment.read(folder.resolve("absent"))).isEmpty();
    }

    @Test
    void aFileAsStandardErrorIsNotEmptied() throws IOException {
        Path file = Files.writeString(folder.resolve("log"), "kept");

        assertThat(NcclEnvironment.debugFile(file, folder))
                .isEqualTo(file.toRealPath() + ".nccl.%p");
        assertThat(file).content().isEqualTo("kept");
    }

    /** NCCL could not open it, and would write to standard output. */
    @Test
    void aSocketAsStandardErrorIsReplacedByAFile() throws IOException {
        Path socket = folder.resolve("socket");
        try (ServerSocketChannel server = ServerSocketChannel.open(StandardProtocolFamily.UNIX)) {
            server.bind(UnixDomainSocketAddress.of(socket));

            assertThat(NcclEnvironment.debugFile(socket, folder))
                    .isEqualTo(folder.resolve("nccl4j.%h.%p.log").toString());
        }
    }

    @Test
    void aFileThatCannotBeWrittenIsNotLeftToNccl() {
        assertThat(NcclEnvironment.isWritable(folder.resolve("nccl.%h.%p").toString())).isTrue();
        assertThat(NcclEnvironment.isWritable("/dev/null")).isTrue();
        assertThat(NcclEnvironment.isWritable(folder.toString())).as("a folder").isFalse();
        assertThat(NcclEnvironment.isWritable(folder.resolve("absent/file").toString())).isFalse();
    }

    @Test
    void whatCanBeOpenedIsUsed() {
        assertThat(NcclEnvironment.debugFile(Path.of("/dev/null"), folder)).isEqualTo("/dev/null");
    }
}
