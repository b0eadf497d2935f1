"""The programs that compare and growth let run in turns: ours, the peers' and the bound.

Each is started once for a cell (an operation, a size, a number of ranks) and then runs a warm-up and
one batch, ours a sequence of batches, whenever it is its turn. In between it uses no processor: a peer
waits for its gate, a file that grows by a byte for each round, and ours is stopped by a signal, since it
is the benchmark as anybody runs it.
"""
import ctypes
import os
import select
import shutil
import signal
import statistics
import subprocess
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
BUILD = os.path.join(ROOT, "bench", "target", "peers")
BENCH = os.path.join(ROOT, "bench", "bench")
CORES = len(os.sched_getaffinity(0))

OURS = "nccl4j"
THREADS = "nccl4j -t N"
WAITING = "nccl4j -z 2"
BFLOAT16 = "nccl4j bfloat16"
BOUND = "bound"
PEERS = ("openmpi-keep", "mpich-keep", "gloo", "mpj")
MORE_PEERS = ("openmpi", "mpich", "gloo-hd", "gloo-bcube")

MPJ = "/usr/share/mpj/lib"
JARS = "/usr/share/java"

# A malloc that keeps what it freed, and asks for huge pages: without it, every call of MPI on 64 MiB and
# more faults its temporary buffers in anew, which is the kernel's time and not the library's.
KEEP = ("glibc.malloc.mmap_threshold=8589934592:glibc.malloc.trim_threshold=17179869184"
        ":glibc.malloc.top_pad=268435456:glibc.malloc.hugetlb=1")

START_SECONDS = 120
ROUND_SECONDS = 60
END_SECONDS = 20
CAP_SECONDS = 0.3  # what a peer's batch may take, if several operations fit
WARM_UP_SECONDS = 4.0
TURN_SECONDS = 0.06  # what ours runs in a round: the time of a peer's warm-up and of its batch of 30 ms
LEAST_ROWS = 5  # and at least so many rows, if they take no longer than
LONGEST_TURN_SECONDS = 1.5


class Failure(Exception):
    """A program ended, hung or was wrong; the text says how."""


def kind(peer):
    return peer.split("-")[0]


# What each kind of peer needs: what tells that it is there, and Debian's packages.
NEEDS = {
    "bound": (("gcc",), ("gcc", "libc6-dev")),
    "openmpi": (("gcc", "mpicc.openmpi", "mpirun.openmpi"), ("gcc", "libopenmpi-dev", "openmpi-bin")),
    "mpich": (("gcc", "mpicc.mpich", "mpiexec.mpich"), ("gcc", "libmpich-dev", "mpich")),
    "gloo": (("g++", "/usr/include/gloo/allreduce.h"), ("g++", "libgloo-dev")),
    "mpj": ((MPJ + "/mpj.jar", MPJ + "/starter.jar", JARS + "/commons-cli.jar"), ("libmpj-java",)),
}
VERSION_PACKAGES = {"openmpi": "openmpi-bin", "mpich": "mpich", "gloo": "libgloo0", "mpj": "libmpj-java",
                    "bound": "gcc"}


def missing(kinds):
    """The packages that are missing, by kind of peer."""
    absent = {}
    for k in kinds:
        parts, packages = NEEDS[k]
        if not all(os.path.exists(p) if p.startswith("/") else shutil.which(p) for p in parts):
            absent[k] = packages
    return absent


def install_command(packages):
    sudo = [] if os.geteuid() == 0 else ["sudo"]
    return sudo + ["apt-get", "install", "-y", "--no-install-recommends"] + sorted(set(packages))


def version(k):
    shown = subprocess.run(["dpkg-query", "-W", "-f", "${Version}", VERSION_PACKAGES[k]], text=True,
                           stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) if shutil.which("dpkg-query") else None
    return shown.stdout if shown and shown.returncode == 0 else "unknown version"


def java_home():
    found = subprocess.run(["sh", "-c", '. "$1/.mvn/jdk25.sh" && use_jdk25 && echo "$JAVA_HOME"', "sh", ROOT],
                           text=True, stdout=subprocess.PIPE)
    if found.returncode:
        raise SystemExit(1)  # use_jdk25 has said what to do
    return found.stdout.strip()


def facts(kinds):
    cpu = "unknown"
    with open("/proc/cpuinfo", encoding="utf-8") as lines:
        found = dict([p.strip() for p in line.split(":", 1)] for line in lines if ":" in line)
    if "model name" in found:
        cpu = f'"{found["model name"]}", model {found.get("model", "unknown")}'
    release = os.path.join(java_home(), "release")
    java = next((line.split('"')[1] for line in open(release, encoding="utf-8") if line.startswith("JAVA_VERSION=")), "unknown")
    algorithm = os.environ.get("NCCL4J_CPU_ALGORITHM")
    return {
        "machine": f"{cpu}, {CORES} cores, {os.sysconf('SC_PHYS_PAGES') * os.sysconf('SC_PAGE_SIZE') >> 30} GiB",
        **({"peers": ", ".join(f"{'gcc' if k == 'bound' else k} {version(k)}" for k in kinds)} if kinds else {}),
        "java": java + (f", NCCL4J_CPU_ALGORITHM={algorithm}" if algorithm else ""),
    }


def commit():
    said = subprocess.run(["git", "-C", ROOT, "describe", "--always", "--dirty", "--abbrev=9"], text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    return said.stdout.strip() if said.returncode == 0 else "unknown"


def build(kinds, say):
    """Builds what is missing or older than its sources, ours included."""
    os.makedirs(os.path.join(BUILD, "classes"), exist_ok=True)
    gcc = ["-O2", "-march=native", "-Wall"]
    steps = {
        "bound": ("bound.c", "bound", ["gcc", "-std=c11", *gcc, "-pthread", "-o", "bound"]),
        "openmpi": ("mpi_bench.c", "mpi_bench.openmpi", ["mpicc.openmpi", *gcc, "-o", "mpi_bench.openmpi"]),
        "mpich": ("mpi_bench.c", "mpi_bench.mpich", ["mpicc.mpich", *gcc, "-o", "mpi_bench.mpich"]),
        "gloo": ("gloo_bench.cc", "gloo_bench",
                 ["g++", "-std=c++17", "-O3", "-march=native", "-pthread", "-o", "gloo_bench"]),
        "mpj": ("MpjBench.java", "classes/MpjBench.class",
                ["javac", "-nowarn", "-cp", MPJ + "/mpj.jar", "-d", "classes"]),
    }
    for k in kinds:
        source, result, command = steps[k]
        result = os.path.join(BUILD, result)
        sources = [os.path.join(HERE, s) for s in (source, "rounds.h")]
        if os.path.exists(result) and all(os.path.getmtime(s) <= os.path.getmtime(result) for s in sources):
            continue
        if k == "mpj":
            command = [os.path.join(java_home(), "bin", "javac"), *command[1:]]
        say("building " + os.path.relpath(result, ROOT))
        done = subprocess.run([*command, sources[0], *(["-lgloo"] if k == "gloo" else [])], cwd=BUILD, text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=600)
        if done.returncode:
            raise SystemExit(f"{' '.join(command)} failed:\n{done.stdout}")
    say("building nccl4j, if it is stale")
    if subprocess.run([BENCH, "--help"], stdout=subprocess.DEVNULL, timeout=1200).returncode:
        raise SystemExit("bench/bench could not be built")


def die_with_parent():
    """In the child: be killed when the script that started it is."""
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)


def busy_ticks():
    """What all cores did since boot, others of the same machine's host included."""
    with open("/proc/stat", encoding="ascii") as lines:
        t = [int(x) for x in lines.readline().split()[1:9]]
    return t[0] + t[1] + t[2] + t[5] + t[6] + t[7]


class Program:
    """One program of a cell; close() ends it, whatever state it is in."""

    def __init__(self, folder, command, environment, stdout):
        self.errors = tempfile.TemporaryFile(dir=folder)
        self.said = []
        self.process = subprocess.Popen(
            command, cwd=folder, env={**os.environ, **environment}, stdin=subprocess.DEVNULL, stdout=stdout,
            stderr=self.errors, start_new_session=True, preexec_fn=die_with_parent)

    def failure(self, what):
        self.errors.seek(0)
        said = self.errors.read().decode(errors="replace").strip().splitlines()
        told = [s for s in self.said + said if s.strip() and s != "ready" and not s.startswith("Picked up")][-3:]
        return Failure(" ".join([what, *told])[:300])

    def family(self):
        """The process ids of the program and of all that it started, with their processor time in ticks."""
        parents, ticks = {}, {}
        for name in os.listdir("/proc"):
            if name.isdigit():
                try:
                    with open(f"/proc/{name}/stat", encoding="utf-8", errors="replace") as line:
                        fields = line.read().rsplit(")", 1)[1].split()
                except (FileNotFoundError, ProcessLookupError):
                    continue
                parents[int(name)] = int(fields[1])
                ticks[int(name)] = int(fields[11]) + int(fields[12])
        found = {}
        for pid in parents:
            above = pid
            while above != self.process.pid and above in parents:
                above = parents[above]
            if above == self.process.pid:
                found[pid] = ticks[pid]
        return found

    def ticks(self):
        return sum(self.family().values())

    def turn(self):
        """A round; returns (series, microseconds) of each row, and the percentage that others had of all cores."""
        start, own, busy = time.monotonic(), self.ticks(), busy_ticks()
        measured = self.round()
        busy, own, seconds = busy_ticks() - busy, self.ticks() - own, time.monotonic() - start
        return measured, max(0.0, 100 * (busy - own) / (seconds * os.sysconf("SC_CLK_TCK") * os.cpu_count()))

    def kill(self):
        """Ends the program and all that it started, politely first."""
        family = self.family()
        for sign, seconds in ((signal.SIGTERM, 3), (signal.SIGKILL, 10)):
            for pid in family if sign == signal.SIGKILL else [self.process.pid]:
                for s in (sign, signal.SIGCONT):
                    try:
                        os.kill(pid, s)
                    except ProcessLookupError:
                        pass
            try:
                self.process.wait(seconds)
            except subprocess.TimeoutExpired:
                continue
            family.pop(self.process.pid, None)
            if not family:
                return


class Peer(Program):
    """A program with a gate, which prints a row for each series and round."""

    def __init__(self, folder, peer, op, ranks, size):
        self.gate = tempfile.NamedTemporaryFile(dir=folder, delete=False).name
        self.peer = peer
        ops = op
        if op == "reduce_scatter" and kind(peer) in ("openmpi", "mpich"):
            ops = "reduce_scatter,reduce_scatter_block"
        command, environment = self.command(peer, ops, ranks, size)
        super().__init__(folder, command, environment, subprocess.PIPE)
        self.rows = len(ops.split(",")) + (kind(peer) == "bound")
        self.op = op
        self.unread = b""
        try:
            while self.line(START_SECONDS) != "ready":
                pass
        except Failure:
            self.kill()
            raise

    def command(self, peer, ops, ranks, size):
        args = ["-o", ops, "-b", str(size), "-g", self.gate, "-c", str(CAP_SECONDS)]
        environment = {}
        if peer.endswith("-keep"):
            environment["GLIBC_TUNABLES"] = KEEP
        k = kind(peer)
        if k == "bound":
            return [os.path.join(BUILD, "bound"), "-p", str(ranks), *args], environment
        if k == "openmpi":
            if os.geteuid() == 0:
                environment.update(OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")
            bind = ["--bind-to", "core"] if ranks <= CORES else ["--oversubscribe", "--bind-to", "none"]
            keep = ["-x", "GLIBC_TUNABLES"] if environment.get("GLIBC_TUNABLES") else []
            return ["mpirun.openmpi", "-np", str(ranks), *bind, *keep,
                    os.path.join(BUILD, "mpi_bench.openmpi"), *args], environment
        if k == "mpich":
            bind = ["-bind-to", "core"] if ranks <= CORES else []
            return ["mpiexec.mpich", *bind, "-np", str(ranks), os.path.join(BUILD, "mpi_bench.mpich"), *args], environment
        if k == "gloo":
            algorithm = ["-a", peer.split("-")[1]] if "-" in peer else []
            return [os.path.join(BUILD, "gloo_bench"), "-p", str(ranks), *algorithm, *args], environment
        home = java_home()
        classes = os.path.join(BUILD, "classes")
        more = ":".join(f"{JARS}/{j}.jar" for j in ("log4j-1.2", "commons-cli", "commons-codec", "commons-io"))
        heap = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2 >> 20
        environment.update(MPJ_HOME=os.path.dirname(MPJ), JAVA_TOOL_OPTIONS="-Xbootclasspath/a:" + more,
                           JAVA_HOME=home, PATH=os.path.join(home, "bin") + ":" + os.environ["PATH"])
        return [os.path.join(home, "bin", "java"), "-cp", f"{MPJ}/starter.jar:{MPJ}/runtimecommon.jar",
                "runtime.starter.MPJRun", "-np", str(ranks), "-dev", "multicore", f"-Xmx{heap}m", "-cp", classes,
                "MpjBench", ops, str(size), self.gate, str(CAP_SECONDS)], environment

    def line(self, seconds):
        deadline = time.monotonic() + seconds
        out = self.process.stdout
        while b"\n" not in self.unread:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([out], [], [], left)[0]:
                raise self.failure(f"no answer for {seconds} s;")
            piece = os.read(out.fileno(), 65536)
            if not piece:
                status = self.process.wait(END_SECONDS)
                raise self.failure(f"ended with status {status};")
            self.unread += piece
        line, self.unread = self.unread.split(b"\n", 1)
        line = line.decode(errors="replace").strip()
        self.said = [*self.said[-2:], line]
        return line

    def round(self):
        with open(self.gate, "ab") as gate:
            gate.write(b".")
        measured = []
        while len(measured) < self.rows:
            fields = self.line(ROUND_SECONDS).split(",")
            if len(fields) == 4 and fields[0].startswith(self.op):
                measured.append((self.peer + fields[0][len(self.op):].replace("_", "-"), float(fields[3])))
        return measured

    def close(self):
        """Lets the program check its results and end."""
        if os.path.exists(self.gate):
            os.remove(self.gate)
        try:
            status = self.process.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            self.kill()
            raise self.failure(f"did not end within {END_SECONDS} s;") from None
        if status:
            raise self.failure(f"ended with status {status};")


class Ours(Program):
    """bench/bench, with endless cycles of one size, stopped while others have their turn."""

    ARGUMENTS = {
        OURS: lambda n: ["-g", str(n)],
        THREADS: lambda n: ["-t", str(n), "-g", "1"],
        WAITING: lambda n: ["-g", str(n), "-z", "2"],
        BFLOAT16: lambda n: ["-g", str(n), "-d", "bfloat16"],
    }

    def __init__(self, folder, series, op, ranks, size, iterations=20, environment=()):
        self.series = series
        # A peer's broadcast is in place at the root: out of place the root's own buffer would be written, too.
        self.column = 9 if op == "broadcast" else 5
        self.out = tempfile.TemporaryFile(dir=folder)
        self.times = []
        command = [BENCH, op, "--backend", "cpu", *self.ARGUMENTS[series](ranks), "-b", str(size), "-e", str(size),
                   "-n", str(iterations), "-c", "0", "-N", "0"]
        super().__init__(folder, command, dict(environment), self.out)
        self.unread = b""
        self.read_at = 0
        try:
            self.wait_for_rows(1, START_SECONDS)
            # The turns are too short for a JVM to compile what it needs.
            if self.times[-1] < 25_000:
                time.sleep(WARM_UP_SECONDS)
            self.stop()
        except Failure:
            self.kill()
            raise

    def read(self):
        data = os.pread(self.out.fileno(), 1 << 24, self.read_at)
        self.read_at += len(data)
        *lines, self.unread = (self.unread + data).split(b"\n")
        for line in lines:
            fields = line.split()
            if len(fields) >= 13 and not line.startswith(b"#"):
                self.times.append(float(fields[self.column]))

    def wait_for_rows(self, count, seconds):
        deadline = time.monotonic() + seconds
        while True:
            self.read()
            if len(self.times) >= count:
                return
            if self.process.poll() is not None:
                raise self.failure(f"ended with status {self.process.returncode};")
            if time.monotonic() > deadline:
                raise self.failure(f"no row for {seconds} s;")
            time.sleep(0.005)

    def stop(self):
        os.kill(self.process.pid, signal.SIGSTOP)
        time.sleep(0.005)
        self.read()

    def round(self):
        before, start = len(self.times), time.monotonic()
        # The first row is the one that was interrupted. Where operations take long, that was the
        # one before the clock starts, as the row before had just ended.
        least = 1 if self.times[-1] > 25_000 else 2
        os.kill(self.process.pid, signal.SIGCONT)
        time.sleep(TURN_SECONDS)
        self.wait_for_rows(before + least, ROUND_SECONDS)
        while len(self.times) < before + LEAST_ROWS and time.monotonic() - start < LONGEST_TURN_SECONDS:
            self.wait_for_rows(len(self.times) + 1, ROUND_SECONDS)
        self.stop()
        # As a peer's batch comes after a warm-up: at the beginning caches hold what others left and threads sleep.
        rows = self.times[before:]
        return [(self.series, statistics.median(rows[len(rows) // 2:]))]

    def close(self):
        self.kill()


def start(folder, series, op, ranks, size):
    if series in Ours.ARGUMENTS:
        return Ours(folder, series, op, ranks, size)
    return Peer(folder, series, op, ranks, size)


def memory_bytes(series, ranks, size):
    """About what a program of a cell needs at most."""
    all_ranks = ranks * size
    if series == BOUND or kind(series) == "gloo":
        return 2 * all_ranks
    if series in Ours.ARGUMENTS:
        return 2 * all_ranks + (300 << 20)
    # MPJ's own buffers are larger than the user's.
    return (12 if kind(series) == "mpj" else 4) * all_ranks + (300 << 20)


def available_bytes():
    with open("/proc/meminfo", encoding="ascii") as lines:
        for line in lines:
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) << 10
    raise SystemExit("/proc/meminfo does not tell MemAvailable")
