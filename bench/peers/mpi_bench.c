/*
 * One collective at one size through any MPI, timed as nccl-tests does it: a row per round,
 *
 *   op,ranks,bytes,time_us
 *
 * bytes      one rank's buffer (allreduce, broadcast, sendrecv), or one rank's whole n-block buffer
 *            (allgather, reduce_scatter, alltoall)
 * time_us    the largest over the ranks of each rank's mean over a batch of operations
 *
 * Out of place; MPI_Bcast has one buffer by its definition, so the root sends from its send buffer.
 * Several operations, with commas between, have a batch each in every round. The results of all are
 * checked at the end; a wrong one is status 3.
 */
#include "rounds.h"
#include <mpi.h>

static int rank, n, *counts;
static float *snd, *rcv;

enum { ALLREDUCE, ALLGATHER, REDUCE_SCATTER, REDUCE_SCATTER_BLOCK, ALLTOALL, BROADCAST, SENDRECV, OPS };
static const char *names[OPS] = {"allreduce", "allgather", "reduce_scatter", "reduce_scatter_block",
                                 "alltoall", "broadcast", "sendrecv"};

static void once(int op, size_t elems) {
    int c = (int)(elems / n), all = (int)elems;
    switch (op) {
    case ALLREDUCE:
        MPI_Allreduce(snd, rcv, all, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
        break;
    case ALLGATHER:
        MPI_Allgather(snd, c, MPI_FLOAT, rcv, c, MPI_FLOAT, MPI_COMM_WORLD);
        break;
    case REDUCE_SCATTER:
        for (int r = 0; r < n; r++) counts[r] = c;
        MPI_Reduce_scatter(snd, rcv, counts, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
        break;
    case REDUCE_SCATTER_BLOCK:
        MPI_Reduce_scatter_block(snd, rcv, c, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
        break;
    case ALLTOALL:
        MPI_Alltoall(snd, c, MPI_FLOAT, rcv, c, MPI_FLOAT, MPI_COMM_WORLD);
        break;
    case BROADCAST:
        MPI_Bcast(rank == 0 ? snd : rcv, all, MPI_FLOAT, 0, MPI_COMM_WORLD);
        break;
    case SENDRECV:
        MPI_Sendrecv(snd, all, MPI_FLOAT, (rank + 1) % n, 0, rcv, all, MPI_FLOAT, (rank + n - 1) % n, 0,
                     MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        break;
    }
}

/* The input of rank r at index i: small integers, so that float sums are exact. */
static float in(int r, size_t i) { return (float)(r + 1) + (float)(i & 7); }
static float total(size_t i) { return (float)(n * (n + 1) / 2) + (float)n * (float)(i & 7); }

static long wrong(int op, size_t elems) {
    size_t c = elems / n, got = elems;
    long bad = 0;
    if (op == REDUCE_SCATTER || op == REDUCE_SCATTER_BLOCK) got = c;
    if (op == BROADCAST && rank == 0) return 0;
    size_t step = got > 65536 ? 61 : 1; /* an odd stride sees every lane and page */
    for (size_t i = 0; i < got; i += step) {
        float want = 0;
        switch (op) {
        case ALLREDUCE: want = total(i); break;
        case ALLGATHER: want = in((int)(i / c), i % c); break;
        case REDUCE_SCATTER:
        case REDUCE_SCATTER_BLOCK: want = total(rank * c + i); break;
        case ALLTOALL: want = in((int)(i / c), rank * c + i % c); break;
        case BROADCAST: want = in(0, i); break;
        case SENDRECV: want = in((rank + n - 1) % n, i); break;
        }
        if (rcv[i] != want) bad++;
    }
    return bad;
}

static double timed(int op, size_t elems, int iters) {
    MPI_Barrier(MPI_COMM_WORLD);
    double t = MPI_Wtime(), most;
    for (int i = 0; i < iters; i++) once(op, elems);
    t = (MPI_Wtime() - t) / iters;
    MPI_Allreduce(&t, &most, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    return most;
}

static float *buffer(size_t bytes) {
    void *p = NULL;
    if (posix_memalign(&p, 2 << 20, bytes < 4096 ? 4096 : bytes)) {
        fprintf(stderr, "no memory\n");
        exit(1);
    }
    return p;
}

int main(int argc, char **argv) {
    size_t bytes = 1024;
    double cap = 0.3;
    int batches = 5, o, iters[OPS] = {0};
    const char *ops = "allreduce", *gate = NULL;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &n);
    while ((o = getopt(argc, argv, "b:c:k:o:g:")) != -1) switch (o) {
        case 'b': bytes = parse_bytes(optarg); break;
        case 'c': cap = atof(optarg); break;
        case 'k': batches = atoi(optarg); break;
        case 'o': ops = optarg; break;
        case 'g': gate = optarg; break;
        default:
            if (!rank) fprintf(stderr, "mpi_bench [-o operations] [-b bytes] [-k batches, or -g gate] [-c seconds]\n");
            MPI_Abort(MPI_COMM_WORLD, 2);
    }
    size_t elems = bytes / 4;
    snd = buffer(bytes);
    rcv = buffer(bytes);
    counts = malloc((size_t)n * sizeof(int));
    for (size_t i = 0; i < elems; i++) snd[i] = in(rank, i);
    memset(rcv, 0, bytes);

    char list[512];
    snprintf(list, sizeof list, ",%s,", ops);
    for (int k = 0; k == 0 || round_begins(gate, k - 1, batches); k++) {
        for (int op = 0; op < OPS; op++) {
            char name[64];
            snprintf(name, sizeof name, ",%s,", names[op]);
            if (!strstr(list, name)) continue;
            if (k == 0) { /* before the first round: how long one takes */
                timed(op, elems, 1);
                iters[op] = batch_operations(bytes, timed(op, elems, bytes <= (16u << 20) ? 5 : 1), cap);
                continue;
            }
            timed(op, elems, (iters[op] + 3) / 4);
            double t = timed(op, elems, iters[op]);
            if (!rank) {
                printf("%s,%d,%zu,%.3f\n", names[op], n, bytes, t * 1e6);
                fflush(stdout);
            }
        }
        if (!rank && k == 0) {
            printf("ready\n");
            fflush(stdout);
        }
    }
    for (int op = 0; op < OPS; op++) {
        if (!iters[op]) continue;
        memset(rcv, 0, bytes);
        once(op, elems);
        long bad = wrong(op, elems), sum;
        MPI_Allreduce(&bad, &sum, 1, MPI_LONG, MPI_SUM, MPI_COMM_WORLD);
        if (sum) {
            if (!rank) fprintf(stderr, "%s of %zu bytes gave %ld wrong values\n", names[op], bytes, sum);
            MPI_Abort(MPI_COMM_WORLD, 3);
        }
    }
    MPI_Finalize();
    return 0;
}
