"""What a linear map does to its inputs first, tile by tile in the cache instead of in a pass of its own."""

from typing import NamedTuple

from jaxtyping import Float
from torch import Tensor
from torch.nn import functional

from anygatr.kernels.gate import gate_tiles, gated_gelu
from anygatr.kernels.gelu import gelu_source
from anygatr.kernels.norm import NormPlan, norm_tiles, normalise
from anygatr.kernels.precision import lengthened, without_autocast
from anygatr.kernels.product import BilinearPlan, product_token, products

GELU = {"exact": "none", "tanh": "tanh"}
"""What torch calls the forms."""
EPS = 1e-5
"""Added to the variance of scalars, as torch does where it is not told otherwise."""


class Prologue(NamedTuple):
    """Multivectors divided by their size, gated by their scalar part or multiplied; scalars normalised or through GELU."""

    norm: NormPlan | None = None
    gate: bool = False
    scalars: str | None = None  # "norm", "exact" or "tanh"
    products: BilinearPlan | None = None
    referred: bool = False  # whether odd products are multiplied by a reference

    def __call__(
        self, x: Float[Tensor, "k *tokens c_x"], s: Float[Tensor, "*tokens c_s"], reference: Tensor | None = None
    ) -> tuple[Float[Tensor, "k *tokens c"], Float[Tensor, "*tokens c_s"]]:
        """In a pass of its own; norms and products are float32 under autocast."""
        if self.products is not None:
            x = products(x, self.products, reference)
        with without_autocast(x):
            if self.norm is not None:
                (x,) = lengthened(x)
                x = normalise(x, self.norm)
            if self.scalars == "norm":
                (s,) = lengthened(s)
                s = functional.layer_norm(s, s.shape[-1:]) if s.shape[-1] else s
        if self.scalars in GELU:
            s = functional.gelu(s, approximate=GELU[self.scalars])
        return gated_gelu(x) if self.gate else x, s

    @property
    def changes(self) -> bool:
        """Whether multivectors are changed."""
        return self.norm is not None or self.gate or self.products is not None

    def channels(self, of: str) -> str:
        """C for how many channels multivectors have in front of it, where they have `of` behind."""
        return of if self.products is None else f"{of} / {self.products.sizes[0]} * {self.products.sizes[1]}"


NOTHING = Prologue()


def prologue_source(prologue: Prologue, blades: int, real: str, lanes: int) -> str:
    """C of `before` and its derivative for a tile of multivectors, blades some numbers apart, and of `scalars_before`, whose
    derivative gives their results again.

    Products take `lanes` channels together.
    """
    source = gelu_source(real) if prologue.gate or prologue.scalars in GELU else ""
    if prologue.norm is not None:
        source += norm_tiles(prologue.norm, blades) + _before("norm_tile", "c, tokens")
    if prologue.gate:
        source += gate_tiles(blades) + _before("gate_tile", "tokens * c")
    if prologue.products is not None:
        source += _products_before(prologue.products, blades, real, lanes, prologue.referred)
    if prologue.scalars == "norm":
        source += LEVEL.replace("EPS", repr(EPS))
    return source + (BEND.replace("GELU", f"gelu_{prologue.scalars}") if prologue.scalars in GELU else "")


FORWARDS = "static void before(const real *x, long lx, const real *numbers, real *o, long lo, long c, long tokens)"
BACKWARDS = """static void before_backward(const real *x, long lx, const real *numbers, const real *y, long ly,
                            real *o, long lo, long c, long tokens)"""


def _before(tile: str, sizes: str) -> str:
    return f"""
{FORWARDS} {{
    if (c) {tile}(x, lx, o, lo, {sizes});
}}
{BACKWARDS} {{
    if (c) {tile}_backward(x, lx, y, ly, o, lo, {sizes});
}}
"""


def _products_before(plan: BilinearPlan, blades: int, real: str, lanes: int, referred: bool) -> str:
    """C of the products of a tile, c channels of them from a stack of multivectors."""
    out, stack, _ = plan.sizes
    number, each = "numbers[i]" if referred else "1", f"c / {out}"
    forwards = product_token("token", plan, blades, real, lanes, referred)
    backwards = product_token("token_backward", plan.wrt_both, blades, real, lanes, referred)
    tokens = f"for (long i = 0, d = {each} * {stack}; i < tokens; i++)"
    return f"""{forwards}{backwards}
{FORWARDS} {{
    {tokens} token(x + i * d, lx, x + i * d, lx, {number}, o + i * c, lo, {each});
}}
{BACKWARDS} {{
    {tokens} token_backward(y + i * c, ly, x + i * d, lx, {number}, o + i * d, lo, {each});
}}
"""


LEVEL = """
#define EACH for (long i = 0; i < c; i++)
static inline real level_of(const real *x, long c, real *mean) {
    real sum = 0, square = 0;
    EACH sum += x[i];
    *mean = sum / c;
    EACH square += (x[i] - *mean) * (x[i] - *mean);
    return 1 / (real)sqrt(square / c + EPS);
}
static void scalars_before(const real *restrict x, real *restrict o, long c, long rows) {
    for (long r = 0; r < rows; r++, x += c, o += c) {
        real mean, scale = level_of(x, c, &mean);
        EACH o[i] = (x[i] - mean) * scale;
    }
}
static void scalars_before_backward(const real *restrict x, const real *restrict y, real *restrict o, real *restrict made,
                                    long c, long rows) {
    for (long r = 0; r < rows; r++, x += c, y += c, o += c, made += c) {
        real mean, scale = level_of(x, c, &mean), sum = 0, dot = 0;
        EACH sum += y[i];
        EACH dot += y[i] * (made[i] = (x[i] - mean) * scale);
        sum /= c;
        dot /= c;
        EACH o[i] = scale * (y[i] - sum - made[i] * dot);
    }
}
#undef EACH
"""
BEND = """
static void scalars_before(const real *restrict x, real *restrict o, long c, long rows) {
    long n = c * rows, whole = n / LANES * LANES;
    for (long i = 0; i < whole; i += LANES) AT(o + i) = GELU(AT(x + i), 0);
    vec rest = {0};
    memcpy(&rest, x + whole, (n - whole) * sizeof(real));
    rest = GELU(rest, 0);
    memcpy(o + whole, &rest, (n - whole) * sizeof(real));
}
static void scalars_before_backward(const real *restrict x, const real *restrict y, real *restrict o, real *restrict made,
                                    long c, long rows) {
    long n = c * rows, whole = n / LANES * LANES;
    vec slope, rest = {0}, given = {0};
    for (long i = 0; i < whole; i += LANES) { AT(made + i) = GELU(AT(x + i), &slope); AT(o + i) = slope * AT(y + i); }
    memcpy(&rest, x + whole, (n - whole) * sizeof(real));
    memcpy(&given, y + whole, (n - whole) * sizeof(real));
    rest = GELU(rest, &slope);
    memcpy(made + whole, &rest, (n - whole) * sizeof(real));
    given = slope * given;
    memcpy(o + whole, &given, (n - whole) * sizeof(real));
}
"""
