package org.nccl4j.bindings;

import static org.assertj.core.api.Assertions.assertThat;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** The folders of installers, and their order. */
final class WellKnownFoldersTest {
    @TempDir Path root;

    private final Map<String, String> variables = new HashMap<>();
    private String machine = "amd64";

    @Test
    void toolkitsComeBeforeTheDistributionBeforePython() throws IOException {
        variables.put("CUDA_HOME", "/opt/cuda-13");
        variables.put("CUDA_PATH", "/opt/cuda-12");
        variables.put("VIRTUAL_ENV", python("venv", "3.12", "site-packages"));
        variables.put("CONDA_PREFIX", python("conda", "3.11", "site-packages"));
        variables.put("HOME", root.resolve("home").toString());
        python("home/.local", "3.10", "site-packages");
        python("usr", "3", "dist-packages");

        assertThat(folders(LibraryKind.NCCL))
                .containsExactly(
                        "/opt/cuda-13/lib64",
                        "/opt/cuda-13/lib",
                        "/opt/cuda-13/targets/x86_64-linux/lib",
                        "/opt/cuda-12/lib64",
                        "/opt/cuda-12/lib",
                        "/opt/cuda-12/targets/x86_64-linux/lib",
                        "ROOT/usr/local/cuda/lib64",
                        "ROOT/usr/local/cuda/lib",
                        "ROOT/usr/local/cuda/targets/x86_64-linux/lib",
                        "ROOT/usr/lib/x86_64-linux-gnu",
                        "ROOT/lib/x86_64-linux-gnu",
                        "ROOT/usr/lib64",
                        "ROOT/lib64",
                        "ROOT/usr/lib",
                        "ROOT/usr/local/lib",
                        "ROOT/usr/lib/wsl/lib",
                        "ROOT/venv/lib/python3.12/site-packages/nvidia/nccl/lib",
                        "ROOT/conda/lib",
                        "ROOT/conda/lib/python3.11/site-packages/nvidia/nccl/lib",
                        "ROOT/home/.local/lib/python3.10/site-packages/nvidia/nccl/lib",
                        "ROOT/usr/lib/python3/dist-packages/nvidia/nccl/lib");
    }

    @Test
    void theNewestPythonComesFirstByNumber() throws IOException {
        variables.put("VIRTUAL_ENV", python("venv", "3.9", "site-packages"));
        python("venv", "3.13", "site-packages");
        python("venv", "3.x", "site-packages");

        assertThat(folders(LibraryKind.NCCL))
                .endsWith(
                        "ROOT/venv/lib/python3.13/site-packages/nvidia/nccl/lib",
                        "ROOT/venv/lib/python3.9/site-packages/nvidia/nccl/lib");
    }

    @Test
    void theRuntimeHasWheelsOfItsOwn() throws IOException {
        variables.put("VIRTUAL_ENV", python("venv", "3.12", "site-packages"));

        assertThat(folders(LibraryKind.CUDA_RUNTIME))
                .endsWith(
                        "ROOT/venv/lib/python3.12/site-packages/nvidia/cu13/lib",
                        "ROOT/venv/lib/python3.12/site-packages/nvidia/cuda_runtime/lib");
    }

    @Test
    void armHasFoldersOfItsOwn() {
        machine = "aarch64";

        assertThat(folders(LibraryKind.CUDA_RUNTIME))
                .contains(
                        "ROOT/usr/local/cuda/targets/sbsa-linux/lib",
                        "ROOT/usr/local/cuda/targets/aarch64-linux/lib",
                        "ROOT/usr/lib/aarch64-linux-gnu")
                .noneMatch(folder -> folder.contains("x86_64"));
    }

    /** Which has a stub of it, and a copy for other kernels. */
    @Test
    void theDriverIsNotTakenFromAToolkit() throws IOException {
        variables.put("CUDA_HOME", "/opt/cuda-13");
        variables.put("VIRTUAL_ENV", python("venv", "3.12", "site-packages"));

        assertThat(folders(LibraryKind.CUDA_DRIVER))
                .noneMatch(folder -> folder.contains("cuda") || folder.contains("venv"))
                .contains("ROOT/usr/lib/x86_64-linux-gnu", "ROOT/usr/lib/wsl/lib");
    }

    private String python(String prefix, String version, String packages) throws IOException {
        Files.createDirectories(
                root.resolve(prefix + "/lib/python" + version + "/" + packages + "/nvidia"));
        return root.resolve(prefix).toString();
    }

    private List<String> folders(LibraryKind kind) {
        Surroundings surroundings =
                new Surroundings(
                        name -> name.equals("os.arch") ? machine : null, variables::get, root);
        return WellKnownFolders.of(kind, surroundings).keySet().stream()
                .map(folder -> folder.toString().replace(root.toString(), "ROOT"))
                .toList();
    }
}
