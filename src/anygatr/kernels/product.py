"""Sparse bilinear products of multivectors, unrolled blade by blade, saving nothing but their inputs."""

from functools import cached_property, lru_cache
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from anygatr.algebra import Algebra
from anygatr.kernels import native
from anygatr.kernels.function import Function
from anygatr.kernels.plans import recall, remember
from anygatr.kernels.precision import lengthened, without_autocast

# axes: g factors, p products, k blades
Entries = tuple[tuple[int, int, int, int], ...]  # target blade, left blade, right blade, sign


class Term(NamedTuple):
    """out[target] += sum over its entries (k, i, j, sign) of sign * a[left]_i * b[right]_j, times the reference if `odd`."""

    entries: Entries
    target: int
    left: int
    right: int
    odd: bool


class BilinearPlan:
    """Sparse bilinear forms of two stacks of multivectors, a stack being equal parts of the channels.

    `wrt_left` and `wrt_right` are the plans of the derivatives: products of the gradient with the other factor by permuted
    tables, so a derivative of any order is again such a plan.
    """

    def __init__(self, terms: tuple[Term, ...], sizes: tuple[int, int, int]):
        self.terms = terms
        self.sizes = sizes  # how many multivectors out, left and right stack
        self.key = remember(self, ("bilinear", terms, sizes))

    @property
    def multiply_adds(self) -> int:
        """Multiply-adds per channel."""
        return sum(len(term.entries) for term in self.terms)

    @cached_property
    def wrt_left(self) -> "BilinearPlan":
        """(gradient, right) -> gradient of left."""
        out, left, right = self.sizes
        terms = tuple(t._replace(entries=_permuted(t.entries, (1, 0, 2)), target=t.left, left=t.target) for t in self.terms)
        return BilinearPlan(terms, (left, out, right))

    @cached_property
    def wrt_right(self) -> "BilinearPlan":
        """(gradient, left) -> gradient of right."""
        out, left, right = self.sizes
        terms = tuple(Term(_permuted(t.entries, (2, 0, 1)), t.right, t.target, t.left, t.odd) for t in self.terms)
        return BilinearPlan(terms, (right, out, left))

    @cached_property
    def wrt_both(self) -> "BilinearPlan":
        """(gradient, h) -> gradient of h, for both factors taken from the same stack h."""
        return BilinearPlan(self.wrt_left.terms + self.wrt_right.terms, self.wrt_left.sizes)


@lru_cache(maxsize=64)
def product_plan(algebra: Algebra, names: tuple[str, ...], odd: tuple[bool, ...] = ()) -> BilinearPlan:
    """The plan of h -> (h_0 * h_1, h_2 * h_3, ...), one pair of factors for each product; `odd` ones times a number."""
    odd = odd or (False,) * len(names)
    terms = tuple(Term(_entries(algebra, name), p, 2 * p, 2 * p + 1, odd[p]) for p, name in enumerate(names))
    return BilinearPlan(terms, (len(names), 2 * len(names), 2 * len(names)))


@lru_cache(maxsize=256)
def narrowed(plan: BilinearPlan, reads: tuple[int, ...], writes: tuple[int, ...], odd: bool = True) -> BilinearPlan:
    """The part of a plan that reads and writes these blades; without the odd products, where their number is zero."""
    terms = []
    for term in plan.terms:
        entries = () if term.odd and not odd else term.entries
        kept = tuple(e for e in entries if e[0] in writes and e[1] in reads and e[2] in reads)
        terms.append(term._replace(entries=kept))
    return BilinearPlan(tuple(terms), plan.sizes)


def products(
    h: Float[Tensor, "k *tokens g*c"], plan: BilinearPlan, reference: Float[Tensor, "*#tokens 1"] | None = None
) -> Float[Tensor, "k *tokens p*c"]:
    """The products of a plan, both factors taken from the stack h, in float32 under autocast.

    `reference` multiplies the odd products; it is not differentiated.
    """
    with without_autocast(h):
        (h,) = lengthened(h)
        number = None if reference is None else per_token(reference, h).flatten()
        flat = h.flatten(1, -2)
        if torch.compiler.is_compiling() and not torch.compiler.is_exporting():
            out = _products(flat, number, plan.key)
        else:
            out = _Products.apply(flat, number, plan)
        return out.unflatten(1, h.shape[1:-1])


def per_token(reference: Float[Tensor, "*#tokens 1"], h: Float[Tensor, "k *tokens c"]) -> Float[Tensor, "*tokens 1"]:
    """A number for each token, one after the other in memory."""
    tokens = h.shape[1:-1]
    ready = reference.shape[:-1] == tokens and reference.dtype is h.dtype and reference.is_contiguous()
    return reference.detach() if ready else reference.detach().to(h.dtype).expand(*tokens, 1).contiguous()


class _Products(Function):
    @staticmethod
    def forward(h: Tensor, number: Tensor | None, plan: BilinearPlan) -> Tensor:
        return _evaluate(h, h, number, plan)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        h, number, ctx.plan = inputs
        ctx.save_for_backward(h, number)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        h, number = ctx.saved_tensors
        return _Bilinear.apply(grads[0], h, number, ctx.plan.wrt_both), None, None


class _Bilinear(Function):
    @staticmethod
    def forward(a: Tensor, b: Tensor, number: Tensor | None, plan: BilinearPlan) -> Tensor:
        return _evaluate(a, b, number, plan)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        a, b, number, ctx.plan = inputs
        ctx.save_for_backward(a, b, number)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        (a, b, number), (grad,), plan = ctx.saved_tensors, grads, ctx.plan
        left = _Bilinear.apply(grad, b, number, plan.wrt_left)
        right = _Bilinear.apply(grad, a, number, plan.wrt_right)
        return left, right, None, None


@torch.library.custom_op("anygatr::products", mutates_args=())
def _products(h: Tensor, number: Tensor | None, key: str) -> Tensor:
    return _evaluate(h, h, number, recall(key))


@torch.library.custom_op("anygatr::products_backward", mutates_args=())
def _products_backward(grad: Tensor, h: Tensor, number: Tensor | None, key: str) -> Tensor:
    return _evaluate(grad, h, number, recall(key).wrt_both)


@_products.register_fake
def _(h: Tensor, number: Tensor | None, key: str) -> Tensor:
    out, left, _ = recall(key).sizes
    return h.new_empty(*h.shape[:-1], h.shape[-1] // left * out)


@_products_backward.register_fake
def _(grad: Tensor, h: Tensor, number: Tensor | None, key: str) -> Tensor:
    return h.new_empty(h.shape)


def _save(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    h, number, ctx.key = inputs
    ctx.save_for_backward(h, number)


def _differentiate(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    h, number = ctx.saved_tensors
    return _products_backward(grad, h, number, ctx.key), None, None


_products.register_autograd(_differentiate, setup_context=_save)


def _evaluate(
    a: Float[Tensor, "k n a*c"], b: Float[Tensor, "k n b*c"], number: Float[Tensor, " n"] | None, plan: BilinearPlan
) -> Float[Tensor, "k n out*c"]:
    a, b = a.contiguous(), b.contiguous()
    tensors = (a, b) if number is None else (a, b, number)
    inside = lanes(a.shape[-1], plan) and native.applies(*tensors)
    return (_evaluate_in_c if inside else _evaluate_in_torch)(a, b, number, plan)


def lanes(channels: int, plan: BilinearPlan) -> int:
    """How many of the channels of the stack C handles together; none where they are few or odd: not worth a build."""
    c = channels // plan.sizes[1]
    return next((some for some in native.LANES if c % some == 0), 0)


def _evaluate_in_c(a: Tensor, b: Tensor, number: Tensor | None, plan: BilinearPlan) -> Tensor:
    blades, n, c = *a.shape[:2], a.shape[-1] // plan.sizes[1]
    out = a.new_empty(blades, n, plan.sizes[0] * c)
    source = _source(plan, blades, native.REALS[a.dtype], lanes(a.shape[-1], plan), number is not None)
    run = native.function(source, "products", 4, 3)
    numbers = 0 if number is None else number.data_ptr()
    run(a.data_ptr(), b.data_ptr(), numbers, out.data_ptr(), n, c, native.threads(n * c))
    return out


def _evaluate_in_torch(a: Tensor, b: Tensor, number: Tensor | None, plan: BilinearPlan) -> Tensor:
    width = a.shape[-1] // plan.sizes[1]
    out = a.new_zeros(*a.shape[:2], plan.sizes[0] * width)
    # all views made once: making a view of a blade costs as much as multiplying it
    lefts, rights, outs = (t.unflatten(-1, (t.shape[-1] // max(width, 1), width)).movedim(-2, 0) for t in (a, b, out))
    for term in plan.terms:
        left, right, target = (t[part] for t, part in ((lefts, term.left), (rights, term.right), (outs, term.target)))
        if term.odd and number is not None:
            left = left * number.unsqueeze(-1)
        one, other = left.unbind(), right.unbind()
        sums = [target[k] for k in range(len(target))]  # one by one: views from unbind are not written in place
        for k, i, j, sign in term.entries:
            sums[k].addcmul_(one[i], other[j], value=sign)
    return out


@lru_cache(maxsize=64)
def _source(plan: BilinearPlan, blades: int, real: str, lanes: int, scaled: bool) -> str:
    """C of `products`, token by token."""
    out, left, right = plan.sizes
    places = f"a + i * c * {left}, n * c * {left}, b + i * c * {right}, n * c * {right}"
    return f"""typedef {real} real;
{product_token("token", plan, blades, real, lanes, scaled)}
void products(const real *a, const real *b, const real *numbers, real *o, long n, long c, long threads) {{
    #pragma omp parallel for num_threads(threads) if (threads > 1)
    for (long i = 0; i < n; i++) token({places}, {"numbers[i]" if scaled else "1"}, o + i * c * {out}, n * c * {out}, c);
}}
"""


def product_token(name: str, plan: BilinearPlan, blades: int, real: str, lanes: int, scaled: bool) -> str:
    """C for the products of a token, blades being A, B or O numbers apart: all sums for every few channels."""
    sums = {(part, k): "" for part in range(plan.sizes[0]) for k in range(blades)}
    for even in (False, True):  # odd entries first, so that one multiplication scales them all
        for term in plan.terms:
            if (term.odd and scaled) is even:
                continue
            for k, i, j, sign in term.entries:
                a, b = f"a[{i} * A + {term.left} * c + l]", f"b[{j} * B + {term.right} * c + l]"
                sums[term.target, k] += f"s = ADD({'' if sign > 0 else '-'}{a}, {b}, s);\n"
        if scaled and not even:
            sums = {place: text and text + "s *= number;\n" for place, text in sums.items()}
    body = "".join(f"EACH {{ real s = 0;\n{text}o[{k} * O + {part} * c + l] = s; }}\n" for (part, k), text in sums.items())
    given = "const real *restrict a, long A, const real *restrict b, long B, real number, real *restrict o, long O, long c"
    return f"""
/* the order and rounding of sums stated, so that leaving zeros out changes no digit */
#if defined(__FMA__) || defined(__ARM_FEATURE_FMA)
#define ADD(a, b, s) {"__builtin_fmaf" if real == "float" else "__builtin_fma"}(a, b, s)
#else
#define ADD(a, b, s) ((a) * (b) + (s))
#endif
#define EACH for (int l = 0; l < {lanes}; l++)
static void {name}_part({given}) {{
{body}}}
static void {name}({given}) {{
    for (long j = 0; j < c; j += {lanes}) {name}_part(a + j, A, b + j, B, number, o + j, O, c);
}}
#undef ADD
#undef EACH
"""


@lru_cache(maxsize=64)
def _entries(algebra: Algebra, product: str) -> Entries:
    index, sign = algebra.table(product)
    return tuple((k, int(index[k, j]), j, int(sign[k, j])) for k, j in sign.nonzero().tolist())


@lru_cache(maxsize=256)
def _permuted(entries: Entries, order: tuple[int, int, int]) -> Entries:
    """Exchange the roles of the three blades; sorted by target, so that the blade being summed stays in cache."""
    return tuple(sorted((e[order[0]], e[order[1]], e[order[2]], e[3]) for e in entries))
