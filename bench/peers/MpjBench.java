import java.io.File;
import java.util.Arrays;

import mpi.MPI;

/**
 * One collective at one size through MPJ Express, ranks as threads of one JVM (its multicore
 * device); rows, rounds and sizes as in mpi_bench.c. Buffers are float[] on the heap, the API's own
 * kind, of just the length that is sent: Allreduce and Reduce_scatter allocate and copy by the array's
 * length, not by the count.
 *
 * <p>MpjBench OPERATION BYTES GATE SECONDS
 */
public final class MpjBench {
    private static final int ROUND_WAIT_MS = 10;
    private static final long GIVE_UP_MS = 300_000;

    public static void main(String[] argv) throws Exception {
        String[] a = MPI.Init(argv);
        int rank = MPI.COMM_WORLD.Rank();
        int n = MPI.COMM_WORLD.Size();
        String op = a[0];
        long bytes = Long.parseLong(a[1]);
        File gate = new File(a[2]);
        double cap = Double.parseDouble(a[3]);
        int elems = (int) (bytes / 4);
        float[] snd = new float[elems];
        float[] rcv = new float[elems];
        fill(snd, rank);
        double one = timed(op, snd, rcv, elems, n, rank, 3);
        // The JIT's share: 3000 calls, or what fits into 1.5 s.
        timed(op, snd, rcv, elems, n, rank, (int) Math.max(2, Math.min(3000, 1.5 / one)));
        one = timed(op, snd, rcv, elems, n, rank, bytes <= 16 << 20 ? 5 : 1);
        int iters = operations(bytes, one, cap);
        if (rank == 0) {
            System.out.println("ready");
            System.out.flush();
        }
        for (int k = 0; roundBegins(gate, k); k++) {
            timed(op, snd, rcv, elems, n, rank, (iters + 3) / 4);
            double t = timed(op, snd, rcv, elems, n, rank, iters);
            if (rank == 0) {
                System.out.printf("%s,%d,%d,%.3f%n", op, n, bytes, t * 1e6);
                System.out.flush();
            }
        }
        // MPJ's Reduce_scatter overwrites its send buffer: one call on a fresh input is checked.
        fill(snd, rank);
        Arrays.fill(rcv, 0);
        timed(op, snd, rcv, elems, n, rank, 1);
        if (!right(op, rcv, elems, n, rank)) {
            System.err.println(op + " of " + bytes + " bytes gave wrong values at rank " + rank);
            System.exit(3);
        }
        MPI.Finalize();
    }

    private static void fill(float[] snd, int rank) {
        for (int i = 0; i < snd.length; i++) {
            snd[i] = in(rank, i);
        }
    }

    private static int operations(long bytes, double one, double cap) {
        double it = bytes <= 64 << 10 ? 200 : bytes <= 1 << 20 ? 50 : bytes <= 64 << 20 ? 20 : 5;
        it = Math.max(it, 0.03 / one);
        return (int) Math.max(1, Math.min(Math.min(it, 20_000), cap / one));
    }

    private static boolean roundBegins(File gate, int k) throws InterruptedException {
        for (long waitedMs = 0; gate.exists(); waitedMs += ROUND_WAIT_MS) {
            if (gate.length() > k) {
                return true;
            }
            if (waitedMs > GIVE_UP_MS) {
                System.err.println("no round has begun for 300 s");
                System.exit(4);
            }
            Thread.sleep(ROUND_WAIT_MS);
        }
        return false;
    }

    private static double timed(String op, float[] s, float[] r, int elems, int n, int rank, int iters)
            throws Exception {
        int c = elems / n;
        int[] counts = new int[n];
        Arrays.fill(counts, c);
        MPI.COMM_WORLD.Barrier();
        long t0 = System.nanoTime();
        for (int i = 0; i < iters; i++) {
            switch (op) {
                case "allreduce": MPI.COMM_WORLD.Allreduce(s, 0, r, 0, elems, MPI.FLOAT, MPI.SUM); break;
                case "allgather": MPI.COMM_WORLD.Allgather(s, 0, c, MPI.FLOAT, r, 0, c, MPI.FLOAT); break;
                case "reduce_scatter": MPI.COMM_WORLD.Reduce_scatter(s, 0, r, 0, counts, MPI.FLOAT, MPI.SUM); break;
                case "alltoall": MPI.COMM_WORLD.Alltoall(s, 0, c, MPI.FLOAT, r, 0, c, MPI.FLOAT); break;
                case "broadcast": MPI.COMM_WORLD.Bcast(rank == 0 ? s : r, 0, elems, MPI.FLOAT, 0); break;
                case "sendrecv":
                    MPI.COMM_WORLD.Sendrecv(s, 0, elems, MPI.FLOAT, (rank + 1) % n, 1, r, 0, elems, MPI.FLOAT, (rank + n - 1) % n, 1);
                    break;
                default: throw new IllegalArgumentException("there is no " + op);
            }
        }
        double[] mine = {(System.nanoTime() - t0) * 1e-9 / iters};
        double[] most = new double[1];
        MPI.COMM_WORLD.Allreduce(mine, 0, most, 0, 1, MPI.DOUBLE, MPI.MAX);
        return most[0];
    }

    private static float in(int r, int i) {
        return (r + 1) + (i & 7);
    }

    private static boolean right(String op, float[] v, int elems, int n, int rank) {
        if (op.equals("broadcast") && rank == 0) return true;
        int c = elems / n, got = op.equals("reduce_scatter") ? c : elems;
        float sum = n * (n + 1) / 2;
        for (int i = 0; i < got; i += got > 65536 ? 61 : 1) {
            float want;
            switch (op) {
                case "allreduce": want = sum + n * (i & 7); break;
                case "allgather": want = in(i / c, i % c); break;
                case "reduce_scatter": want = sum + n * ((rank * c + i) & 7); break;
                case "alltoall": want = in(i / c, rank * c + i % c); break;
                case "broadcast": want = in(0, i); break;
                default: want = in((rank + n - 1) % n, i);
            }
            if (v[i] != want) return false;
        }
        return true;
    }
}
