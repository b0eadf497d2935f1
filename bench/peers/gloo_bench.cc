// One collective at one size through Gloo, one process a rank over its TCP transport on the
// loopback; rows, rounds and sizes as in mpi_bench.c.
//
// Option objects and registered buffers are made once, outside the timed loop, which favours Gloo
// over what torch.distributed does with it.
//
// Gloo of 2022 has no reduce_scatter of its newer kind, and its older algorithm classes work in
// place: for reduce_scatter, and for allreduce by halving and doubling, the copy from the send buffer
// is inside the timed loop.
//
// -a hd, -a bcube: allreduce by another algorithm than the default, a ring
#include "rounds.h"

#include <gloo/algorithm.h>
#include <gloo/allgather.h>
#include <gloo/allreduce.h>
#include <gloo/allreduce_halving_doubling.h>
#include <gloo/alltoall.h>
#include <gloo/barrier.h>
#include <gloo/broadcast.h>
#include <gloo/math.h>
#include <gloo/reduce_scatter.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/transport/tcp/device.h>

#include <sys/mman.h>
#include <sys/wait.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <vector>

static int rank_, n_;
static float *snd, *rcv;
static double *shared; // one slot a rank, in memory that all ranks map
static std::shared_ptr<gloo::Context> ctx;

static void barrier() {
    gloo::BarrierOptions o(ctx);
    o.setTag(9999);
    gloo::barrier(o);
}
static float in(int r, size_t i) { return float(r + 1) + float(i & 7); }
static float total(size_t i) { return float(n_ * (n_ + 1) / 2) + float(n_) * float(i & 7); }

static float* buffer(size_t bytes) {
    void* p = nullptr;
    if (posix_memalign(&p, 2 << 20, bytes < 4096 ? 4096 : bytes)) exit(1);
    return static_cast<float*>(p);
}

using Step = std::function<void()>;
static Step prepare(const std::string& op, const std::string& algo, size_t elems) {
    size_t c = elems / n_;
    if (op == "allreduce" && algo == "hd") {
        auto a = std::make_shared<gloo::AllreduceHalvingDoubling<float>>(ctx, std::vector<float*>{rcv}, int(elems));
        return [=] { memcpy(rcv, snd, elems * 4); a->run(); };
    }
    if (op == "allreduce") {
        auto o = std::make_shared<gloo::AllreduceOptions>(ctx);
        o->setInput<float>(snd, elems);
        o->setOutput<float>(rcv, elems);
        o->setReduceFunction([](void* c, const void* a, const void* b, size_t k) { gloo::sum<float>(c, a, b, k); });
        if (algo == "bcube") o->setAlgorithm(gloo::AllreduceOptions::Algorithm::BCUBE);
        return [=] { gloo::allreduce(*o); };
    }
    if (op == "allgather") {
        auto o = std::make_shared<gloo::AllgatherOptions>(ctx);
        o->setInput<float>(snd, c);
        o->setOutput<float>(rcv, elems);
        return [=] { gloo::allgather(*o); };
    }
    if (op == "reduce_scatter") {
        auto a = std::make_shared<gloo::ReduceScatterHalvingDoubling<float>>(ctx, std::vector<float*>{rcv}, int(elems),
                                                                           std::vector<int>(n_, int(c)));
        return [=] { memcpy(rcv, snd, elems * 4); a->run(); };
    }
    if (op == "alltoall") {
        auto o = std::make_shared<gloo::AlltoallOptions>(ctx);
        o->setInput<float>(snd, elems);
        o->setOutput<float>(rcv, elems);
        return [=] { gloo::alltoall(*o); };
    }
    if (op == "broadcast") {
        auto o = std::make_shared<gloo::BroadcastOptions>(ctx);
        if (rank_ == 0) o->setOutput<float>(snd, elems); // as MPI_Bcast: the root has one buffer
        else o->setOutput<float>(rcv, elems);
        o->setRoot(0);
        return [=] { gloo::broadcast(*o); };
    }
    if (op == "sendrecv") {
        std::shared_ptr<gloo::transport::UnboundBuffer> s = ctx->createUnboundBuffer(snd, elems * 4);
        std::shared_ptr<gloo::transport::UnboundBuffer> r = ctx->createUnboundBuffer(rcv, elems * 4);
        int to = (rank_ + 1) % n_, from = (rank_ + n_ - 1) % n_;
        return [=] { r->recv(from, 77); s->send(to, 77); r->waitRecv(); s->waitSend(); };
    }
    fprintf(stderr, "there is no %s\n", op.c_str());
    _exit(2);
}

static long wrong(const std::string& op, size_t elems) {
    size_t c = elems / n_, got = op == "reduce_scatter" ? c : elems, bad = 0;
    if (op == "broadcast" && rank_ == 0) return 0;
    for (size_t i = 0; i < got; i += got > 65536 ? 61 : 1) {
        float want = op == "allreduce" ? total(i)
                   : op == "allgather" ? in(int(i / c), i % c)
                   : op == "reduce_scatter" ? total(rank_ * c + i)
                   : op == "alltoall" ? in(int(i / c), rank_ * c + i % c)
                   : op == "broadcast" ? in(0, i) : in((rank_ + n_ - 1) % n_, i);
        if (rcv[i] != want) bad++;
    }
    return long(bad);
}

// the largest, or the sum, of every rank's value
static double all(double t, bool sum = false) {
    shared[rank_] = t;
    barrier();
    double m = 0;
    for (int r = 0; r < n_; r++) m = sum ? m + shared[r] : shared[r] > m ? shared[r] : m;
    barrier();
    return m;
}
static double timed(const Step& f, int iters) {
    barrier();
    double t = clock_seconds();
    for (int i = 0; i < iters; i++) f();
    return all((clock_seconds() - t) / iters);
}

int main(int argc, char** argv) {
    size_t bytes = 1024;
    double cap = 0.3;
    int batches = 5, o;
    std::string op = "allreduce", algo;
    const char* gate = nullptr;
    n_ = 2;
    while ((o = getopt(argc, argv, "b:c:k:o:g:p:a:")) != -1) switch (o) {
        case 'b': bytes = parse_bytes(optarg); break;
        case 'c': cap = atof(optarg); break;
        case 'k': batches = atoi(optarg); break;
        case 'o': op = optarg; break;
        case 'g': gate = optarg; break;
        case 'p': n_ = atoi(optarg); break;
        case 'a': algo = optarg; break;
        default:
            fprintf(stderr, "gloo_bench [-p ranks] [-o operation] [-a algorithm] [-b bytes] [-k batches, or -g gate] [-c seconds]\n");
            return 2;
    }
    shared = static_cast<double*>(mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
    char dir[] = "/tmp/gloo_bench_XXXXXX";
    if (shared == MAP_FAILED || !mkdtemp(dir)) return 1;
    std::vector<pid_t> kids;
    for (int r = 1; r < n_; r++) {
        pid_t p = fork();
        if (p < 0) return 1;
        if (!p) { rank_ = r; kids.clear(); break; }
        kids.push_back(p);
    }
    size_t elems = bytes / 4;
    snd = buffer(bytes);
    rcv = buffer(bytes);
    for (size_t i = 0; i < elems; i++) snd[i] = in(rank_, i);
    memset(rcv, 0, bytes);

    gloo::transport::tcp::attr attr;
    attr.hostname = "127.0.0.1";
    auto dev = gloo::transport::tcp::CreateDevice(attr);
    auto c = std::make_shared<gloo::rendezvous::Context>(rank_, n_);
    gloo::rendezvous::FileStore store(dir);
    c->connectFullMesh(store, dev);
    ctx = c;

    Step step = prepare(op, algo, elems);
    timed(step, 1);
    int iters = batch_operations(bytes, timed(step, bytes <= (16u << 20) ? 5 : 1), cap);
    if (!rank_) {
        printf("ready\n");
        fflush(stdout);
    }
    for (int k = 0; round_begins(gate, k, batches); k++) {
        timed(step, (iters + 3) / 4);
        double t = timed(step, iters);
        if (rank_) continue;
        printf("%s,%d,%zu,%.3f\n", op.c_str(), n_, bytes, t * 1e6);
        fflush(stdout);
    }
    barrier();
    memset(rcv, 0, bytes);
    step();
    int status = 0;
    if (all(double(wrong(op, elems)), true) != 0) {
        if (!rank_) fprintf(stderr, "%s of %zu bytes gave wrong values\n", op.c_str(), bytes);
        status = 3;
    }
    barrier();
    if (rank_) { usleep(100000); _exit(status); }
    for (pid_t p : kids) waitpid(p, nullptr, 0);
    std::string rm = std::string("rm -rf ") + dir;
    if (system(rm.c_str())) {}
    _exit(status);
}
