"""What compare measured, as rows of a CSV file, and what follows from them."""
import math
import statistics

from programs import BFLOAT16, BOUND, OURS, THREADS, WAITING, kind

OPS = ("allreduce", "reduce_scatter", "allgather", "alltoall", "broadcast", "sendrecv")
FIELDS = ("op", "ranks", "bytes", "round", "series", "time_us", "disturbed_pct", "commit", "time", "failure")
BOUND_NT = BOUND + "-nt"
OF_BOUND = 0.8  # of the speed of the bound with plain stores
NEAR_BOUND = 0.9  # a ratio counts as met at this share of the one that the bound reaches
K, M = 1 << 10, 1 << 20


def bus_factor(op, ranks):
    if op == "allreduce":
        return 2 * (ranks - 1) / ranks
    return (ranks - 1) / ranks if op in ("reduce_scatter", "allgather", "alltoall") else 1


def target(op, ranks, size):
    """How many times as fast as the best peer we want to be; None where nothing is asked."""
    reduces = op in ("allreduce", "reduce_scatter")
    if ranks > 2:
        return 2.0 if reduces else 1.2
    if size < 64 * K:
        # A peer's broadcast is not synchronised between operations, so its figure is a rate.
        return None if op == "broadcast" or size > K else 1.0
    if reduces:
        return 2.0
    return 1.2 if size <= 16 * M else 1.0


def size_text(size):
    for unit, letter in ((1 << 30, "G"), (M, "M"), (K, "K")):
        if size % unit == 0:
            return f"{size // unit}{letter}"
    return str(size)


def number(x):
    """Three digits."""
    if x >= 100:
        return f"{x:.0f}"
    digits = 2 - math.floor(math.log10(x)) if x > 0 else 0
    return f"{x:.{min(3, max(0, digits))}f}"


class Spread:
    """A median with the lowest and the highest."""

    def __init__(self, values):
        self.median = statistics.median(values)
        self.lowest, self.highest = min(values), max(values)

    def __str__(self):
        return f"{number(self.median)} ({number(self.lowest)}-{number(self.highest)})"


class Cell:
    """All rounds of an operation, a number of ranks and a size."""

    def __init__(self, op, ranks, size):
        self.op, self.ranks, self.size = op, ranks, size
        self.times = {}  # series: {round: microseconds}
        self.failures = {}  # series: text

    def series(self):
        return [s for s in self.times if s not in self.failures]

    def time(self, series):
        return Spread(self.times[series].values()) if series in self.series() else None

    def peers(self):
        return [s for s in self.series() if kind(s) in ("openmpi", "mpich", "gloo", "mpj")]

    def best(self, among):
        among = list(among)
        return min(among, key=lambda s: self.time(s).median) if among else None

    def ratio(self, slower, faster):
        """Paired by round: how many times as fast the second is."""
        a, b = self.times[slower], self.times[faster]
        common = a.keys() & b.keys()
        if common:
            return Spread([a[r] / b[r] for r in common])
        # Both did not fit into memory at once: the i-th rounds of each.
        return Spread([x / y for x, y in zip(a.values(), b.values())])

    def verdict(self, ours=OURS, among=None, wanted=None):
        """(best peer, ratio, what it must be, whether the bound sets that, whether it is met)"""
        best = self.best(self.peers() if among is None else among)
        if best is None or ours not in self.series():
            return None
        ratio = self.ratio(best, ours)
        wanted = target(self.op, self.ranks, self.size) if wanted is None else wanted
        if wanted is None:
            return best, ratio, None, False, True
        limited = False
        if BOUND in self.series():
            reachable = NEAR_BOUND * self.ratio(best, BOUND).median
            if reachable < wanted:
                wanted, limited = reachable, True
        return best, ratio, wanted, limited, ratio.median >= wanted

    def bfloat16(self):
        """Against the best MPI with float32, at equal bytes."""
        mpi = [s for s in self.peers() if kind(s) in ("openmpi", "mpich")]
        return self.verdict(BFLOAT16, mpi, 1.0) if BFLOAT16 in self.series() and mpi else None

    def of_bound(self):
        """(share of the bound's speed, whether it is met)"""
        if BOUND not in self.series() or OURS not in self.series():
            return None
        share = self.ratio(BOUND, OURS)
        return share, share.median >= OF_BOUND


class Results:
    """The rounds of a file."""

    def __init__(self, facts, rows):
        self.facts = facts
        self.cells = {}
        self.commits = []
        self.began = self.ended = None
        for each in rows:
            self.add(each)

    def add(self, row):
        key = (row["op"], int(row["ranks"]), int(row["bytes"]))
        cell = self.cells.setdefault(key, Cell(*key))
        if row["failure"]:
            cell.failures[row["series"]] = row["failure"]
        else:
            cell.times.setdefault(row["series"], {})[row["round"]] = float(row["time_us"])
        if row["commit"] not in self.commits:
            self.commits.append(row["commit"])
        self.began = self.began or row["time"]
        self.ended = row["time"]

    def tables(self):
        """(operation, ranks, cells by size) in the order that the operations are listed."""
        for ranks in sorted({k[1] for k in self.cells}):
            for op in OPS:
                cells = [self.cells[k] for k in sorted(self.cells) if k[0] == op and k[1] == ranks]
                if cells:
                    yield op, ranks, cells


def yes(met):
    return "yes" if met else "**no**"


def header(cells):
    """Columns of a table, those of peers and variants as far as they were measured."""
    seen = {s for c in cells for s in [*c.times, *c.failures]}
    order = [s for c in cells for s in [*c.times, *c.failures]]
    peers = [s for s in dict.fromkeys(order) if kind(s) in ("openmpi", "mpich", "gloo", "mpj")]
    variants = [s for s in (THREADS, WAITING, BFLOAT16) if s in seen]
    return peers, variants


def row(cell, peers, variants):
    def time(series, brief=True):
        if series in cell.failures:
            return "failed"
        shown = cell.time(series)
        return "" if not shown else number(shown.median) if brief else str(shown)

    fields = [size_text(cell.size), time(OURS, brief=False), *(time(s) for s in peers)]
    found = cell.verdict()
    if found:
        best, ratio, wanted, limited, met = found
        fields += [f"{ratio} {best}", "" if wanted is None else number(wanted) + (" (bound)" if limited else ""),
                   "" if wanted is None else yes(met)]
    else:
        fields += ["", "", ""]
    fields += [time(BOUND, brief=False), time(BOUND_NT)]
    share = cell.of_bound()
    fields += [str(share[0]), yes(share[1])] if share else ["", ""]
    fields += [time(s) for s in variants]
    if BFLOAT16 in variants:
        found = cell.bfloat16()
        fields += [f"{found[1]} {found[0]}", yes(found[4])] if found else ["", ""]
    return fields


def table(cells):
    """Header and rows."""
    peers, variants = header(cells)
    columns = ["bytes", OURS, *peers, "times the best peer", "wanted", "met", "bound, plain", "bound, non-temporal",
               f"of the bound (>= {OF_BOUND})", "met", *(v.replace("nccl4j ", "") for v in variants)]
    if BFLOAT16 in variants:
        columns += ["bfloat16 times MPI (>= 1)", "met"]
    return columns, [row(c, peers, variants) for c in cells]


def title(op, ranks):
    return f"{op}, {ranks} ranks: microseconds, median (lowest-highest) or median"


def facts(results):
    about = [f"{k}: {v}" for k, v in results.facts.items()]
    if results.began:
        about.append(f"measured: {results.began} to {results.ended}, commit {', '.join(results.commits)}")
    return about


def summary(results):
    """Sentences: how much is met, and each cell that is not."""
    asked, bound, lines = [0, 0], [0, 0], []
    for op, ranks, cells in results.tables():
        for cell in cells:
            where = f"{op}, {ranks} ranks, {size_text(cell.size)}"
            for what, found in (("", cell.verdict()), ("bfloat16 ", cell.bfloat16())):
                if found and found[2] is not None:
                    asked[0] += found[4]
                    asked[1] += 1
                    if not found[4]:
                        lines.append(f"not met: {where}: {what}{found[1]} times {found[0]}, wanted {number(found[2])}")
            share = cell.of_bound()
            if share:
                bound[0] += share[1]
                bound[1] += 1
                if not share[1]:
                    lines.append(f"not met: {where}: {share[0]} of the bound, wanted {OF_BOUND}")
            lines += [f"failed: {where}: {s}: {text}" for s, text in cell.failures.items()]
    return [f"ratios met: {asked[0]} of {asked[1]}; share of the bound met: {bound[0]} of {bound[1]}", *lines]


def text(results):
    parts = ["\n".join("# " + f for f in facts(results))]
    for op, ranks, cells in results.tables():
        columns, rows = table(cells)
        rows = [[f.replace("**", "") for f in r] for r in rows]
        widths = [max(len(r[i]) for r in [columns, *rows]) for i in range(len(columns))]
        shown = ["  ".join(f.ljust(w) for f, w in zip(r, widths)).rstrip() for r in [columns, *rows]]
        parts.append("\n".join([title(op, ranks), *shown]))
    return "\n\n".join([*parts, "\n".join(summary(results))]) + "\n"


def markdown(results):
    parts = ["\n".join("- " + f for f in facts(results))]
    for op, ranks, cells in results.tables():
        columns, rows = table(cells)
        lines = ["| " + " | ".join(r) + " |" for r in [columns, *rows]]
        lines.insert(1, "|" + "---|" * len(columns))
        parts.append("\n".join([title(op, ranks), "", *lines]))
    return "\n\n".join([*parts, "\n".join("- " + s for s in summary(results))]) + "\n"


COLOURS = {OURS: "#d62728", BOUND: "#7f7f7f", "openmpi": "#1f77b4", "mpich": "#2ca02c", "gloo": "#9467bd", "mpj": "#8c564b"}


def svg(results):
    """Bus bandwidth against size, a panel for each table, both axes logarithmic."""
    panels = list(results.tables())
    width, height, across = 300, 220, 3
    rows = -(-len(panels) // across)
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{width * across}" height="{height * rows + 30}" '
           'font-family="sans-serif" font-size="10">', '<rect width="100%" height="100%" fill="white"/>']
    for i, (op, ranks, cells) in enumerate(panels):
        left, top = i % across * width + 40, i // across * height + 45
        w, h = width - 55, height - 60
        lines = {}
        for cell in cells:
            for s in [OURS, BOUND, *cell.peers()]:
                if s in cell.series():
                    gbps = cell.size / cell.time(s).median / 1e3 * bus_factor(op, ranks)
                    lines.setdefault(s, []).append((math.log2(cell.size), math.log10(gbps)))
        points = [p for line in lines.values() for p in line]
        if not points:
            continue
        x0, x1 = min(p[0] for p in points), max(p[0] for p in points)
        y0, y1 = math.floor(min(p[1] for p in points)), math.ceil(max(p[1] for p in points))

        def at(p, x0=x0, x1=x1, y0=y0, y1=y1, left=left, top=top, w=w, h=h):
            return (left + (p[0] - x0) / max(1, x1 - x0) * w, top + h - (p[1] - y0) / max(1, y1 - y0) * h)

        out.append(f'<text x="{left}" y="{top - 6}" font-weight="bold">{op}, {ranks} ranks, busbw GB/s</text>')
        out.append(f'<rect x="{left}" y="{top}" width="{w}" height="{h}" fill="none" stroke="#ccc"/>')
        for y in range(y0, y1 + 1):
            _, py = at((x0, y))
            out.append(f'<path d="M{left} {py:.1f}h{w}" stroke="#eee"/>'
                       f'<text x="{left - 4}" y="{py + 3:.1f}" text-anchor="end">{10.0 ** y:g}</text>')
        for cell in cells:
            px, _ = at((math.log2(cell.size), y0))
            out.append(f'<text x="{px:.1f}" y="{top + h + 12}" text-anchor="middle">{size_text(cell.size)}</text>')
        for s, line in lines.items():
            colour = COLOURS.get(s, COLOURS.get(kind(s), "black"))
            path = " ".join(f"{x:.1f},{y:.1f}" for x, y in map(at, line))
            dash = ' stroke-dasharray="4 3"' if s == BOUND else ""
            thick = 2.5 if s == OURS else 1.3
            out.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="{thick}"{dash}>'
                       f"<title>{s}</title></polyline>")
    for j, (s, colour) in enumerate(COLOURS.items()):
        out.append(f'<path d="M{20 + j * 110} 14h20" stroke="{colour}" stroke-width="2"/>'
                   f'<text x="{44 + j * 110}" y="18">{"bound, plain stores" if s == BOUND else s}</text>')
    return "\n".join([*out, "</svg>"]) + "\n"
