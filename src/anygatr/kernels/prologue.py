"""What a linear map does to its inputs first, tile by tile in the cache instead of in a pass of its own."""

from typing import NamedTuple

from jaxtyping import Float
from torch import Tensor
from torch.nn import functional

from anygatr.kernels.gate import gate_tiles, gated_gelu
from anygatr.kernels.gelu import gelu_source
from anygatr.kernels.norm import NormPlan, norm_tiles, normalise
from anygatr.kernels.precision import lengthened, without_autocast

GELU = {"exact": "none", "tanh": "tanh"}
"""What torch calls the forms."""
EPS = 1e-5
"""Added to the variance of scalars, as `torch.nn.LayerNorm` does."""


class Prologue(NamedTuple):
    """Multivectors divided by their size or gated by their scalar part, or neither; scalars normalised or through GELU."""

    norm: NormPlan | None = None
    gate: bool = False
    scalars: str | None = None  # "norm", "exact" or "tanh"

    def __call__(
        self, x: Float[Tensor, "k *tokens c"], s: Float[Tensor, "*tokens c_s"]
    ) -> tuple[Float[Tensor, "k *tokens c"], Float[Tensor, "*tokens c_s"]]:
        """In a pass of its own; norms are float32 under autocast."""
        with without_autocast(x):
            if self.norm is not None:
                (x,) = lengthened(x)
                x = normalise(x, self.norm)
            if self.scalars == "norm":
                (s,) = lengthened(s)
                s = functional.layer_norm(s, s.shape[-1:], eps=EPS) if s.shape[-1] else s
        if self.scalars in GELU:
            s = functional.gelu(s, approximate=GELU[self.scalars])
        return gated_gelu(x) if self.gate else x, s

    @property
    def changes(self) -> bool:
        """Whether multivectors are changed."""
        return self.norm is not None or self.gate


NOTHING = Prologue()


def prologue_source(prologue: Prologue, blades: int, real: str) -> str:
    """C of `before` and `level` and their derivatives: a tile of multivectors, blades some numbers apart, and of scalars."""
    source = gelu_source(real) if prologue.gate or prologue.scalars in GELU else ""
    if prologue.norm is not None:
        source += norm_tiles(prologue.norm, blades) + _before("norm_tile", "c, tokens")
    if prologue.gate:
        source += gate_tiles(blades) + _before("gate_tile", "tokens * c")
    if prologue.scalars == "norm":
        source += LEVEL.replace("EPS", repr(EPS))
    return source + (BEND.replace("GELU", f"gelu_{prologue.scalars}") if prologue.scalars in GELU else "")


def _before(tile: str, sizes: str) -> str:
    return f"""
static void before(const real *x, long lx, real *o, long lo, long c, long tokens) {{
    if (c) {tile}(x, lx, o, lo, {sizes});
}}
static void before_backward(const real *x, long lx, const real *y, long ly, real *o, long lo, long c, long tokens) {{
    if (c) {tile}_backward(x, lx, y, ly, o, lo, {sizes});
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
static void level(const real *restrict x, real *restrict o, long c, long rows) {
    for (long r = 0; r < rows; r++, x += c, o += c) {
        real mean, scale = level_of(x, c, &mean);
        EACH o[i] = (x[i] - mean) * scale;
    }
}
static void level_backward(const real *restrict x, const real *restrict y, real *restrict o, long c, long rows) {
    for (long r = 0; r < rows; r++, x += c, y += c, o += c) {
        real mean, scale = level_of(x, c, &mean), sum = 0, dot = 0;
        EACH sum += y[i];
        EACH dot += y[i] * (x[i] - mean);
        sum /= c;
        dot *= scale * scale / c;
        EACH o[i] = scale * (y[i] - sum - (x[i] - mean) * dot);
    }
}
#undef EACH
"""
BEND = """
static void level(const real *restrict x, real *restrict o, long c, long rows) {
    long n = c * rows, whole = n / LANES * LANES;
    for (long i = 0; i < whole; i += LANES) AT(o + i) = GELU(AT(x + i), 0);
    vec rest = {0};
    memcpy(&rest, x + whole, (n - whole) * sizeof(real));
    rest = GELU(rest, 0);
    memcpy(o + whole, &rest, (n - whole) * sizeof(real));
}
static void level_backward(const real *restrict x, const real *restrict y, real *restrict o, long c, long rows) {
    long n = c * rows, whole = n / LANES * LANES;
    vec slope, rest = {0}, given = {0};
    for (long i = 0; i < whole; i += LANES) { GELU(AT(x + i), &slope); AT(o + i) = slope * AT(y + i); }
    memcpy(&rest, x + whole, (n - whole) * sizeof(real));
    memcpy(&given, y + whole, (n - whole) * sizeof(real));
    GELU(rest, &slope);
    rest = slope * given;
    memcpy(o + whole, &rest, (n - whole) * sizeof(real));
}
"""
