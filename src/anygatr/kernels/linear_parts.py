"""What the C of a linear map forwards and backwards is made of: its weights, its buffers, the way in front of it."""

from collections.abc import Sequence
from typing import NamedTuple

from anygatr.kernels.linear_plan import LinearPlan
from anygatr.kernels.prologue import Prologue
from anygatr.kernels.runs import Run, listed, transposed

LINES = 16  # of the next tile that are fetched before each product of a few rows
SUM = """
static void add(const real *restrict x, real *restrict o, long n) { for (long i = 0; i < n; i++) o[i] += x[i]; }
/* the first of some parts is written over what was there */
static void add_part(const real *x, long rows, long width, long ld, real *sum, long first) {
    for (long r = 0; r < rows; r++) for (long i = 0; i < width; i++)
        sum[r * width + i] = (first ? 0 : sum[r * width + i]) + x[r * ld + i];
}
static void fill(real *to, const real *onto, long n) {
    if (onto) memcpy(to, onto, n * sizeof(real)); else memset(to, 0, n * sizeof(real));
}
/* what a sum begins with: a row for all tokens and a matrix, either may be absent; *ld is how far its rows are apart */
static const real *begin(const real *row, const real *onto, long m, long n, real *part, long *ld) {
    *ld = onto ? n : 0;
    if (!onto || !row) return onto ? onto : row;
    for (long r = 0; r < m; r++) for (long i = 0; i < n; i++) part[r * n + i] = row[i] + onto[r * n + i];
    return part;
}
"""


def sum_of(terms: Sequence[str], target: str, width: str, start: str, past: str) -> str:
    """C of a sum of products, each given by its length and matrices, that begins with `start`.

    It grows in `part`, which stays in the cache: only the last product writes to the target.
    """
    text = f"start = {start};\n"
    for term in terms[:-1]:
        text += f"multiply(m, {width}, {term}, part, {width}, start, ld, 0, &soon); start = part; ld = {width};\n"
    return f"{text}multiply(m, {width}, {terms[-1]}, {target}, {width}, start, ld, {past}, &soon);\n"


def expected(what: str, blade: int, width: str) -> str:
    """C that says which lines are needed soon: those of a blade, or of scalars, of the next tile."""
    return f"soon = LINES({what} + ({blade} * n + at + m) * {width}, next * {width}, 0, 1, {LINES}, 0);\n"


def pairs_of(plan: LinearPlan) -> tuple[list[tuple[int, float]], list[tuple[int, int, int]]]:
    """The distinct (effective weight, factor), and each product as (pair, target blade, source blade)."""
    # the pairs of the whole map even for a narrowed plan: then the compiler mixes weights, and rounds, alike in both
    whole = plan if plan.whole is None else plan.whole
    pairs = sorted({(e, factor) for e, factor, _, _ in _terms(whole)})
    return pairs, [(pairs.index((e, factor)), target, source) for e, factor, target, source in _terms(plan)]


def _terms(plan: LinearPlan) -> list[tuple[int, float, int, int]]:
    """Each product as (effective weight, factor, target blade, source blade)."""
    joint = [(e, factor, plan.invariant[o], plan.invariant[i]) for e, factor, o, i in plan.joint]
    return joint + listed(plan.products)


def mixing_source(plan: LinearPlan) -> str:
    """C of the effective weights times their factors, one matrix per pair, and of the transpose."""
    pairs, _ = pairs_of(plan)
    there = back = ""
    place = "w[{p} * each + o * lo + i * li]"
    for p, (e, factor) in enumerate(pairs):
        terms = [f"(real){c * factor!r} * at[{m}]" for m, c in enumerate(plan.mixing[:, e].tolist()) if c]
        there += f"{place.format(p=p)} = {' + '.join(terms)};\n"
    for m, row in enumerate(plan.mixing.tolist()):
        terms = [f"(real){row[e] * factor!r} * {place.format(p=p)}" for p, (e, factor) in enumerate(pairs) if row[e]]
        back += f"at[{m}] = {' + '.join(terms) or '0'};\n"
    loop = f"for (long o = 0; o < co; o++) for (long i = 0; i < ci; i++, at += {len(plan.mixing)})"
    return f"""
static void mix(const real *restrict at, long co, long ci, real *restrict w, long lo, long li, long each) {{
    {loop} {{ {there} }}
}}
static void unmix(const real *restrict w, long co, long ci, real *restrict at, long lo, long li, long each) {{
    {loop} {{ {back} }}
}}
"""


class Buffers(NamedTuple):
    """C that makes and frees buffers, or parts them from `own`, and how many numbers they have."""

    made: str
    freed: str
    parted: str
    numbers: str


def buffers_of(plan: LinearPlan, before: Prologue, names: Sequence[str]) -> Buffers:
    """Those of these buffers for a tile that are needed."""
    sizes = {
        "x": f"{plan.blades} * TOKENS * ci",
        "y": f"{plan.blades} * TOKENS * co",
        "s": "TOKENS * si",
    }
    needed = {"xn": before.changes, "sn": before.scalars, "xs": plan.enter, "ys": plan.leave}
    some = {name: sizes[name.removeprefix("g")[0]] for name in names if needed[name.removeprefix("g")]}
    made = "".join(f"real *{name} = buffer({size});\n" for name, size in some.items())
    parted = "".join(f"real *{name} = own; own += {size};\n" for name, size in some.items())
    return Buffers(made, "".join(f"free({name});" for name in some), parted, " + ".join((*some.values(), "0")))


def entered(plan: LinearPlan, before: Prologue, ready: bool = False) -> str:
    """C that brings the inputs of a tile in front of the map, with what X(blade) and S are; `ready` after the prologue."""
    at = "x + at * cx, n * cx"
    text, place = "", "(x + ((b) * n + at) * ci)"
    if before.changes:
        text += "" if ready else f"before({at}, numbers + at, xn, TOKENS * ci, ci, m);\n"
        at, place = "xn, TOKENS * ci", "(xn + (b) * TOKENS * ci)"
    if plan.enter:
        text += f"enter({at}, xs, TOKENS * ci, m * ci);\n"
        place = "(xs + (b) * TOKENS * ci)"
    if before.scalars and not ready:
        text += "if (si) scalars_before(s + at * si, sn, si, m);\n"
    return f"{text}const real *S = {'sn' if before.scalars else 's + at * si'};\n#define X(b) {place}\n"


def added(given: str, apart: str, to: str, to_apart: str, count: str, plan: LinearPlan) -> str:
    """C that adds `count` numbers of each blade."""
    return f"for (long b = 0; b < {plan.blades}; b++) add({given} + b * {apart}, {to} + b * {to_apart}, {count});\n"


def combinations(plan: LinearPlan) -> str:
    """C of the changes of frame of a tile, blades being `lx` and `lo` numbers apart."""
    changes = {
        "enter": plan.enter,
        "leave": plan.leave,
        "enter_backward": transposed(plan.enter),
        "leave_backward": transposed(plan.leave),
    }
    return "".join(_combination(name, change, plan.blades) for name, change in changes.items() if change)


def _combination(name: str, change: tuple[Run, ...], blades: int) -> str:
    sums: list[list[str]] = [[] for _ in range(blades)]
    for run in change:
        for j in range(run.length):
            sums[run.target + j].append(f"(real){run.factor!r} * x[{run.source + j} * lx + i]")
    body = "".join(
        f"for (long i = 0; i < n; i++) o[{blade} * lo + i] = {' + '.join(terms) or '0'};\n"
        for blade, terms in enumerate(sums)
    )
    return f"static void {name}(const real *restrict x, long lx, real *restrict o, long lo, long n) {{\n{body}}}\n"
