// Where points, planes, lines, spheres, circles and motions of R^d live in the algebras E, P and C, and how they are read.
// The three differ by the vector infinity alone: 0 in E, -e0 in P, e- - e+ in C.
"use strict";

class Space {
  constructor(kind, dim) {
    const axes = Array.from({ length: dim }, (_, i) => `e${i + 1}`);
    this.kind = kind;
    this.base = new Algebra(dim);
    this.algebra = { E: new Algebra(dim), P: new Algebra(dim, 0, 1), C: new Algebra(dim + 1, 1, 0, [...axes, "e+", "e-"]) }[kind];
    const { algebra } = this;
    // the generator that a space lacks has no blade of its name, which is zero
    this.infinity = algebra.sum([-1, algebra.blade("e0")], [1, algebra.blade("e-")], [-1, algebra.blade("e+")]);
    this.o = algebra.sum([0.5, algebra.blade("e-")], [0.5, algebra.blade("e+")]);
    this.one = algebra.blade("1");
    this.flats = this.base.blades.map(name => this.lift(this.base.blade(name)));
    this.ideals = this.flats.map(x => algebra.outer(this.infinity, x));
  }

  has(object) {
    const kinds = { E: ["point", "vector"], P: ["point", "vector", "plane", "line", "motor"] };
    return !(this.kind in kinds) || kinds[this.kind].includes(object);
  }

  // A multivector of the algebra of the axes as one of this algebra
  lift(x) {
    const out = this.algebra.zero();
    const shift = this.kind === "P" ? 1 : 0;
    this.base.masks.forEach((mask, k) => { out[this.algebra.position[mask << shift]] = x[k]; });
    return out;
  }

  vector(v) { return this.lift(this.base.blades.map((_, k) => this.base.grades[k] === 1 ? v[k - 1] : 0)); }

  // ---- embeddings

  point(x) {
    if (this.kind === "E") return this.vector(x);
    const seed = this.kind === "P" ? this.flats.at(-1) : this.o;
    return this.algebra.sandwich(this.translation(x), seed);
  }

  freeVector(v) {
    if (this.kind === "E") return this.vector(v);
    const ideal = this.kind === "P" ? this.algebra.blade("e0") : this.infinity;
    return this.algebra.outer(ideal, this.vector(v));
  }

  // The flat through p whose normal blade is B: B + infinity ^ (p . B)
  flat(normals, p) {
    const { algebra } = this, x = this.vector(p);
    const contracted = algebra.sum([0.5, algebra.geometric(x, normals)],
                                   [-0.5, algebra.geometric(algebra.involute(normals), x)]);
    return algebra.sum([1, normals], [1, algebra.outer(this.infinity, contracted)]);
  }

  plane(normal, p) { return this.flat(this.vector(normal), p); }

  line(p, direction) {
    const vector = this.base.blades.map((_, k) => this.base.grades[k] === 1 ? direction[k - 1] : 0);
    return this.flat(this.lift(this.base.dual(vector)), p);
  }

  sphere(centre, radius) {
    return this.algebra.sum([1, this.point(centre)], [-(radius ** 2) / 2, this.infinity]);
  }

  circle(centre, normal, radius) {
    return this.algebra.outer(this.sphere(centre, radius), this.plane(normal, centre));
  }

  // ---- motions

  // From a quaternion (x, y, z, w): w - x e23 - y e31 - z e12
  rotation([x, y, z, w]) {
    const at = name => this.algebra.blade(name);
    return this.algebra.sum([w, this.one], [-x, at("e23")], [y, at("e13")], [-z, at("e12")]);
  }

  translation(t) { return this.algebra.sum([1, this.one], [0.5, this.algebra.geometric(this.infinity, this.vector(t))]); }

  motor(q, t) { return this.algebra.geometric(this.translation(t), this.rotation(q)); }

  // ---- reading coefficients

  // The part of x in the algebra of the axes, and the y of its part infinity ^ y
  read(x) { return this.flats.map(row => project(x, row)); }

  readIdeal(x) { return this.ideals.map(row => project(x, row)); }

  // -(infinity . x): the flat that carries a round
  carrier(x) {
    const { algebra } = this;
    return algebra.sum([-0.5, algebra.geometric(this.infinity, x)],
                       [0.5, algebra.geometric(algebra.involute(x), this.infinity)]);
  }

  // The position w / a of a point of weight a
  readPoint(x) {
    const parts = { E: () => [x, 1], C: () => [x, -this.algebra.inner(x, this.infinity)],
                    P: () => [this.fromMeet(x), this.read(x).at(-1)] };
    const [vector, weight] = parts[this.kind]();
    return this.read(vector).slice(1, 1 + this.base.n).map(c => c / weight);
  }

  // The vector x of the projective point seed + infinity ^ (x . seed)
  fromMeet(x) {
    const seed = this.base.blades.map((_, k) => k === this.base.dim - 1 ? 1 : 0);
    return this.lift(this.base.geometric(this.readIdeal(x), this.base.reverse(seed)));
  }

  // The normal blade of a flat and its point nearest to the origin
  readFlat(x) {
    const normals = this.read(x);
    const square = this.base.inner(normals, normals);
    const foot = this.base.geometric(this.readIdeal(x), this.base.reverse(normals));
    return { normals, foot: foot.slice(1, 1 + this.base.n).map(c => c / square) };
  }

  readPlane(x) {
    const { normals, foot } = this.readFlat(x);
    return { normal: normals.slice(1, 1 + this.base.n), foot };
  }

  readLine(x) {
    const { normals, foot } = this.readFlat(x);
    return { direction: this.base.undual(normals).slice(1, 1 + this.base.n), foot };
  }

  // Centre, radius and (of a circle) normal of a sphere or circle
  readRound(x) {
    const carrier = this.carrier(x), normals = this.read(carrier);
    const square = this.base.inner(normals, normals);
    const parts = this.base.sum([1, this.readIdeal(carrier)], [1, this.read(x)]);
    const centre = this.base.geometric(parts, this.base.reverse(normals)).slice(1, 1 + this.base.n).map(c => c / square);
    return { centre, radius: Math.sqrt(this.algebra.inner(x, x) / square), normal: normals.slice(1, 1 + this.base.n) };
  }
}

function project(x, row) {
  const dot = (a, b) => a.reduce((total, c, k) => total + c * b[k], 0);
  return dot(x, row) / (dot(row, row) || 1);
}
