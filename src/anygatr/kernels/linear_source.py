"""C of the equivariant linear map of a plan, forwards and backwards, tile by tile of tokens."""

from functools import lru_cache

from anygatr.kernels.linear_parts import (
    SUM,
    added,
    buffers_of,
    combinations,
    entered,
    expected,
    mixing_source,
    pairs_of,
    sum_of,
)
from anygatr.kernels.linear_plan import LinearPlan
from anygatr.kernels.maps_source import MAP
from anygatr.kernels.prologue import Prologue, prologue_source
from anygatr.kernels.tiles import matrix_product

SOME = 8  # tokens whose inputs stay in the first cache while they are prepared and their gradients taken back
CALLS = '#pragma GCC optimize("O1")\n'
GIVEN = """const real *x, const real *s, const real *numbers, const real *weight, const real *s_to_mv,
            const real *mv_to_s, const real *s_to_s"""
WIDTHS = "long ci, long si, long co, long so"
SIZES = f"long n, {WIDTHS}, long threads"


@lru_cache(maxsize=256)
def linear_source(plan: LinearPlan, before: Prologue, real: str, lanes: int = 0) -> str:
    """C of a map for `maps` and of `linear_backward`: long lists of calls, on which optimising would waste seconds."""
    loops = prologue_source(before, plan.blades, real, lanes), combinations(plan), mixing_source(plan), SUM
    calls = MAP, CALLS, _forward(plan, before), _backward(plan, before)
    return matrix_product(real) + "".join((*loops, *calls))


def _forward(plan: LinearPlan, before: Prologue) -> str:
    """C of what `maps` calls: numbers of prepared weights, preparing them, numbers that a tile needs, a tile."""
    pairs, entries = pairs_of(plan)
    body = ""
    for blade in range(plan.blades):
        row, terms = "0", [f"ci, X({i}), ci, 1, w + {p} * ci * cop, cop" for p, o, i in entries if o == blade]
        if blade in plan.writes and blade in plan.invariant:
            j = plan.invariant.index(blade)
            row = f"bm ? bm + {j} * cop : 0"
            terms.insert(0, f"si, S, si, 1, sm + {j} * si * cop, cop")
        begin = f"begin({row}, ONTO({blade}), m, co, part, &ld)"
        filled = f"fill(Y({blade}), ONTO({blade}), m * co);\n"
        body += expected("x", blade, "cx")
        body += sum_of(terms, f"Y({blade})", "co", begin, "past") if terms else filled
    terms = ["si, S, si, 1, ss, sop"]
    terms += [f"ci, X({plan.invariant[j]}), ci, 1, ms + {j} * ci * sop, sop" for j in plan.inner]
    body += expected("s", 0, "si")
    if plan.scalars:
        body += sum_of(terms, "t", "so", "begin(bs, onto_s, m, so, part, &ld)", "0")
    else:
        body += "fill(t, onto_s, m * so);\n"
    j = len(plan.invariant)
    buffers = buffers_of(plan, before, ("xn", "sn", "xs", "ys"))
    weights = f"""
    long cop = HALVES(co), sop = HALVES(so);
    real *sm = w + {len(pairs)} * ci * cop, *ms = sm + {j} * si * cop, *ss = ms + {j} * ci * sop, *bm = 0, *bs = 0;
    if (biased) bm = ss + si * sop, bs = bm + {j} * cop;"""
    return f"""
long linear_room({WIDTHS}) {{
    long cop = HALVES(co), sop = HALVES(so);
    return {len(pairs)} * ci * cop + {j} * si * cop + {j} * ci * sop + si * sop + {j} * cop + sop;
}}
void linear_prepare(const weights *given, long piece, real *w, {WIDTHS}) {{
    long biased = given->bias_mv || given->bias_s;{weights}
    if (piece) {{
        transposed(given->s_to_s, si, so, si, ss, sop);
        if (bm) padded(given->bias_mv, {j}, co, bm, cop);
        if (bs) padded(given->bias_s, 1, so, bs, sop);
        return;
    }}
    memset(w, 0, {len(pairs)} * ci * cop * sizeof(real));
    mix(given->mv, co, ci, w, 1, cop, ci * cop);
    for (long j = 0; j < {j}; j++) {{
        transposed(given->s_to_mv + j * co * si, si, co, si, sm + j * si * cop, cop);
        transposed(given->mv_to_s + j * so * ci, ci, so, ci, ms + j * ci * sop, sop);
    }}
}}
long linear_scratch({WIDTHS}) {{ return {buffers.numbers} + TOKENS * (co > so ? co : so); }}
void linear_tile(const place *p, real *w, long biased, real *own, {WIDTHS}) {{{weights}
    const real *x = p->x, *s = p->s, *numbers = p->numbers, *onto_x = p->onto_x, *onto_s = p->onto_s, *start;
    real *y = p->y, *t = p->t;
    long n = p->apart, at = 0, m = p->tokens, next = p->next, past = {0 if plan.leave else "p->past"};
    long cx = {before.channels("ci")}, ld;
    lines soon;
    {buffers.parted}
    real *part = own;
    {entered(plan, before)}
#define ONTO({"b"}) {"0" if plan.leave else "(onto_x ? onto_x + (b) * p->onto_apart * co : 0)"}
#define Y({"b"}) {"(ys + (b) * TOKENS * co)" if plan.leave else "(y + (b) * p->y_apart * co)"}
{body}
#undef X
#undef Y
#undef ONTO
    {_left(plan)}
}}
"""


def _left(plan: LinearPlan) -> str:
    """C that takes the results of a tile out of the map's frame."""
    if not plan.leave:
        return ""
    return f"""leave(ys, TOKENS * co, y, p->y_apart * co, m * co);
    if (onto_x) {added("onto_x", "p->onto_apart * co", "y", "p->y_apart * co", "m * co", plan)}"""


def _backward(plan: LinearPlan, before: Prologue) -> str:
    pairs, entries = pairs_of(plan)
    direct = not plan.enter and not before.changes
    below = weights = ""
    for blade in range(plan.blades):
        terms = [f"co, G({o}), co, 1, w + {p} * co * cip, cip" for p, o, i in entries if i == blade]
        if blade in plan.reads and blade in plan.invariant and plan.scalars:
            terms.insert(0, f"so, GT, so, 1, ms + {plan.invariant.index(blade)} * so * cip, cip")
        begin = f"begin(0, PLUS({blade}), m, ci, part, &ld)"
        filled = f"fill(GX({blade}), PLUS({blade}), m * ci);\n"
        below += expected("grad_y", blade, "co")
        below += sum_of(terms, f"GX({blade})", "ci", begin, "past" if direct else "0") if terms else filled
    terms = ["so, GT, so, 1, ss, sip"] if plan.scalars else []
    terms += [f"co, G({plan.invariant[j]}), co, 1, sm + {j} * co * sip, sip" for j in plan.outer]
    onto = "0" if before.scalars else "plus_s ? plus_s + at * si : 0"
    filled = f"fill(GS, {onto}, m * si);\n"
    below += expected("grad_t", 0, "so")
    below += sum_of(terms, "GS", "si", f"begin(0, {onto}, m, si, part, &ld)", "0") if terms else filled
    for i, (p, target, source) in enumerate(entries):
        weights += expected("x", i, "cx") if i < plan.blades else ""
        weights += f"COLLECT({p}, G({target}), X({source}), XB({source}))\n"
    weights += expected("s", 0, "si")
    for j in plan.outer:
        target, total = plan.invariant[j], f"gsm + {j} * co * sip, sip"
        weights += f"multiply(co, sip, m, G({target}), 1, co, SB, sip, {total}, {total}, 0, &soon);\n"
        weights += f"add_rows(G({target}), m, co, gbm + {j} * co);\n"
    if plan.scalars:
        for j in plan.inner:
            total = f"gms + {j} * so * cip, cip"
            weights += f"multiply(so, cip, m, GT, 1, so, XB({plan.invariant[j]}), cip, {total}, {total}, 0, &soon);\n"
        weights += "multiply(so, sip, m, GT, 1, so, SB, sip, gss, sip, gss, sip, 0, &soon);\n"
        weights += "add_rows(GT, m, so, gbs);\n"
    padded = " ".join(f"padded(X({b}), m, ci, xb + {b} * TOKENS * cip, cip);" for b in plan.reads)
    j, blades = len(plan.invariant), plan.blades
    buffer = "gxs" if plan.enter else "gxn" if before.changes else None
    made = f"({buffer} + (b) * TOKENS * ci)" if buffer else "(gx + ((b) * n + at) * ci)"
    buffers = buffers_of(plan, before, ("xn", "sn", "xs", "ys", "gxn", "gsn", "gxs"))
    return f"""
void linear_backward({GIVEN},
                     const real *grad_y, const real *grad_t, const real *plus_x, const real *plus_s, real *gx, real *gs,
                     real *g_weight, real *g_s_to_mv, real *g_mv_to_s, real *g_s_to_s, real *g_bias_mv, real *g_bias_s,
                     {SIZES}) {{
    long cx = {before.channels("ci")}, past = {plan.blades} * n * cx * (long)sizeof(real) >= PAST_BYTES;
    long cip = HALVES(ci), sip = HALVES(si), tile_count = (n + TOKENS - 1) / TOKENS;
    long turned = co > ci && co == HALVES(co);  /* columns are the wider side: fewer loads for as many sums */
    long wide = {len(pairs)} * co * cip + {j} * co * sip + {j} * so * cip + so * sip;
    real *w = buffer(wide), *after = w + {len(pairs)} * co * cip;
    const real *sm = 0, *ms = 0, *ss = 0;
    /* the first thread adds up in the results themselves where their rows need no padding */
    long all = wide + {j} * co + so, straight_s = si == sip, straight_x = ci == cip;
    real *sums = buffer(threads * all);
    #pragma omp parallel num_threads(threads) if (threads > 1)
    {{
        long thread = omp_get_thread_num();
        real *gw = sums + thread * all, *gsm = gw + {len(pairs)} * co * cip, *gms = gsm + {j} * co * sip;
        real *gss = gms + {j} * so * cip, *gbm = gss + so * sip, *gbs = gbm + {j} * co;
        if (!thread && straight_s) gsm = g_s_to_mv, gss = g_s_to_s;
        if (!thread && straight_x) gms = g_mv_to_s;
        memset(gw, 0, {len(pairs)} * co * cip * sizeof(real));
        memset(gsm, 0, {j} * co * sip * sizeof(real));
        memset(gms, 0, {j} * so * cip * sizeof(real));
        memset(gss, 0, so * sip * sizeof(real));
        memset(gbm, 0, ({j} * co + so) * sizeof(real));
        #pragma omp single nowait
        if (gx || gs) {{
            memset(w, 0, {len(pairs)} * co * cip * sizeof(real));
            mix(weight, co, ci, w, cip, 1, co * cip);
        }}
        #pragma omp single
        if (gx || gs) {{
            sm = fitting(s_to_mv, {j} * co, si, after, sip);
            ms = fitting(mv_to_s, {j} * so, ci, after + {j} * co * sip, cip);
            ss = fitting(s_to_s, so, si, after + {j} * (co * sip + so * cip), sip);
        }}
        real *sb = si < sip ? buffer(TOKENS * sip) : 0, *xb = ci < cip ? buffer({blades} * TOKENS * cip) : 0;
        real *part = buffer(TOKENS * (ci > si ? ci : si)), *one = past ? buffer({blades} * {SOME} * cx) : 0;
        {buffers.made}
        #pragma omp for schedule(static)
        for (long tile = 0; tile < tile_count; tile++) {{
            long at = tile * TOKENS, m = LEAST(TOKENS, n - at), next = LEAST(TOKENS, n - at - m), ld;
            const real *start, *GT = grad_t + at * so;
            lines soon;
            {"leave_backward(grad_y + at * co, n * co, ys, TOKENS * co, m * co);" if plan.leave else ""}
#define G({"b"}) {"(ys + (b) * TOKENS * co)" if plan.leave else "(grad_y + ((b) * n + at) * co)"}
#define GX(b) {made}
#define PLUS({"b"}) {"(plus_x ? plus_x + ((b) * n + at) * ci : 0)" if direct else "0"}
#define GS {"gsn" if before.scalars else "(gs + at * si)"}
#define COLLECT(p, g, x, b) {{ \\
    real *total = gw + (p) * co * cip; \\
    if (turned) multiply(ci, co, m, x, 1, ci, g, co, total, co, total, co, 0, &soon); \\
    else multiply(co, cip, m, g, 1, co, b, cip, total, cip, total, cip, 0, &soon); }}
#define XB({"b"}) (xb ? xb + (b) * TOKENS * cip : X(b))
            if (gx || gs) {{
{below}
            }}
            {_returned(plan, before)}
            {entered(plan, before, ready=True)}
            const real *SB = sb ? sb : S;
            if (sb) padded(S, m, si, sb, sip);
            if (xb) {{ {padded} }}
{weights}
#undef X
#undef G
#undef GX
#undef PLUS
#undef GS
#undef COLLECT
#undef XB
        }}
        free(sb); free(xb); free(part); free(one);
        {buffers.freed}
        SETTLE;
        long present = omp_get_num_threads();  /* it may be fewer than were asked for */
        #pragma omp single nowait
        {{
            for (long who = 1; who < present; who++) add(sums + who * all, sums, {len(pairs)} * co * cip);
            unmix(sums, co, ci, g_weight, turned ? 1 : cip, turned ? co : 1, co * cip);
        }}
        #pragma omp single nowait
        for (long who = 0; who < present; who++) {{
            real *psm = sums + who * all + {len(pairs)} * co * cip, *pms = psm + {j} * co * sip;
            real *pss = pms + {j} * so * cip, *pbm = pss + so * sip;
            if (who || !straight_s) add_part(psm, {j} * co, si, sip, g_s_to_mv, !who);
            if (who || !straight_x) add_part(pms, {j} * so, ci, cip, g_mv_to_s, !who);
            if (who || !straight_s) add_part(pss, so, si, sip, g_s_to_s, !who);
            if (g_bias_mv) add_part(pbm, 1, {j} * co, 0, g_bias_mv, !who);
            if (g_bias_s) add_part(pbm + {j} * co, 1, so, 0, g_bias_s, !who);
        }}
    }}
    free(w); free(sums);
}}
"""


def _returned(plan: LinearPlan, before: Prologue) -> str:
    """C that takes the gradients of a tile in front of the map back to the inputs, and the prologue on the way."""
    text, to = "", "gx + at * cx, n * cx"
    if plan.enter:
        entered = f"enter_backward(gxs, TOKENS * ci, {'gxn, TOKENS * ci' if before.changes else to}, m * ci);\n"
        text += f"if (gx) {entered}"
        if not before.changes:
            text += f"if (gx && plus_x) {added('plus_x + at * ci', 'n * ci', 'gx + at * ci', 'n * ci', 'm * ci', plan)}"
    if before.changes:
        given = "x + (at + i) * cx, n * cx, numbers + at + i"
        text += f"""for (long i = 0, some; i < m; i += some) {{
            some = LEAST({SOME}, m - i);
            before({given}, xn + i * ci, TOKENS * ci, ci, some);
            if (!gx) continue;
            real *to = gx + (at + i) * cx, *near = past ? one : to;
            long apart = past ? {SOME} * cx : n * cx;
            before_backward({given}, gxn + i * ci, TOKENS * ci, near, apart, ci, some);
            if (plus_x) {added("plus_x + (at + i) * cx", "n * cx", "near", "apart", "some * cx", plan)}
            if (past) for (long b = 0; b < {plan.blades}; b++) copy_past(one + b * {SOME} * cx, to + b * n * cx, some * cx);
        }}
"""
    if before.scalars:
        text += """if (si) {
            if (gs) scalars_before_backward(s + at * si, gsn, gs + at * si, sn, si, m);
            else scalars_before(s + at * si, sn, si, m);
            if (gs && plus_s) add(plus_s + at * si, gs + at * si, m * si);
        }
"""
    return text
