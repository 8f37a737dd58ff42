// The geometric algebra G(p, q, r). A multivector is an array of numbers, one per blade, in the order of the library:
// generators null, positive, negative; blades by grade, then lexicographically.
"use strict";

class Algebra {
  constructor(p, q = 0, r = 0, names = null) {
    this.squares = [...Array(r).fill(0), ...Array(p).fill(1), ...Array(q).fill(-1)];
    this.n = this.squares.length;
    this.dim = 2 ** this.n;
    this.names = names ?? this.squares.map((_, i) => `e${i + (r === 1 ? 0 : 1)}`);
    const generators = mask => this.names.map((_, i) => i).filter(i => mask >> i & 1);
    this.masks = Array.from({ length: this.dim }, (_, mask) => mask).sort((a, b) => {
      const [x, y] = [generators(a), generators(b)];
      return x.length - y.length || x.map((i, place) => i - y[place]).find(d => d) || 0;
    });
    this.position = Array(this.dim);
    this.masks.forEach((mask, k) => { this.position[mask] = k; });
    this.grades = this.masks.map(mask => generators(mask).length);
    this.blades = this.masks.map(mask => mask ? "e" + generators(mask).map(i => this.names[i].slice(1)).join("") : "1");
  }

  zero() { return Array(this.dim).fill(0); }

  blade(name) { return this.blades.map(blade => blade === name ? 1 : 0); }

  // The sum of c_i x_i for pairs [c_i, x_i]
  sum(...terms) { return this.blades.map((_, k) => terms.reduce((total, [c, x]) => total + c * x[k], 0)); }

  // Each pair of blades contributes one blade, with the sign of sorting its generators, times their squares
  product(x, y, keeps) {
    const out = this.zero();
    for (const [i, a] of this.masks.entries()) if (x[i]) for (const [j, b] of this.masks.entries()) {
      if (y[j] && keeps(a, b)) out[this.position[a ^ b]] += x[i] * y[j] * this.sign(a, b);
    }
    return out;
  }

  sign(a, b) {
    let sign = this.squares.reduce((s, square, i) => a & b & 1 << i ? s * square : s, 1);
    for (let rest = a >> 1; rest; rest >>= 1) for (let both = rest & b; both; both &= both - 1) sign = -sign;
    return sign;
  }

  geometric(x, y) { return this.product(x, y, () => true); }

  outer(x, y) { return this.product(x, y, (a, b) => !(a & b)); }

  reverse(x) { return x.map((c, k) => this.grades[k] % 4 > 1 ? -c : c); }

  involute(x) { return x.map((c, k) => this.grades[k] % 2 ? -c : c); }

  inner(x, y) { return this.geometric(x, this.reverse(y))[0]; }

  // e_S ^ dual(e_S) is the pseudoscalar
  dual(x) {
    const out = this.zero();
    this.masks.forEach((mask, k) => { out[this.position[this.dim - 1 ^ mask]] = x[k] * this.sign(mask, this.dim - 1 ^ mask); });
    return out;
  }

  undual(x) {
    return this.masks.map(mask => x[this.position[this.dim - 1 ^ mask]] * this.sign(mask, this.dim - 1 ^ mask));
  }

  // u x u^-1 for an even versor u, u involute(x) u^-1 for an odd one
  sandwich(u, x) {
    const odd = u.some((c, k) => c && this.grades[k] % 2);
    const inverse = this.sum([1 / this.inner(u, u), this.reverse(u)]);
    return this.geometric(this.geometric(u, odd ? this.involute(x) : x), inverse);
  }

  format(x, digits = 3) {
    const terms = x.map((c, k) => [Number(c.toFixed(digits)), this.blades[k]]).filter(([c]) => c);
    const text = terms.map(([c, blade]) => {
      const size = blade === "1" ? `${Math.abs(c)}` : Math.abs(c) === 1 ? blade : `${Math.abs(c)} ${blade}`;
      return (c < 0 ? " − " : " + ") + size;
    }).join("");
    return text.replace(/^ \+ /, "").replace(/^ − /, "−") || "0";
  }
}
