// Drawings: SVG elements by name, and a view of space that is turned by dragging or with the arrow keys.
"use strict";

function svg(name, attributes = {}, text = "") {
  const element = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  element.textContent = text;
  return element;
}

class View {
  // `centre` is the point of space in the middle of the drawing, `scale` the length of a unit; without `changed` it stays
  constructor(canvas, { yaw, pitch, scale, centre, changed }) {
    Object.assign(this, { canvas, yaw, pitch, scale, centre, changed });
    const [, , width, height] = canvas.getAttribute("viewBox").split(" ").map(Number);
    this.middle = [width / 2, height / 2];
    if (!changed) return;
    canvas.addEventListener("pointerdown", event => this.grab(event));
    canvas.addEventListener("keydown", event => this.press(event));
  }

  grab(event) {
    if (event.defaultPrevented) return;
    const turn = move => this.turn(0.01 * move.movementX, 0.01 * move.movementY);
    this.canvas.setPointerCapture(event.pointerId);
    this.canvas.addEventListener("pointermove", turn);
    for (const end of ["pointerup", "pointercancel"]) {
      this.canvas.addEventListener(end, () => this.canvas.removeEventListener("pointermove", turn), { once: true });
    }
  }

  press(event) {
    const steps = { ArrowLeft: [-0.1, 0], ArrowRight: [0.1, 0], ArrowUp: [0, -0.1], ArrowDown: [0, 0.1] }[event.key];
    if (!steps) return;
    event.preventDefault();
    this.turn(...steps);
  }

  turn(yaw, pitch) {
    this.yaw += yaw;
    this.pitch = Math.max(-1.5, Math.min(1.5, this.pitch + pitch));
    this.changed();
  }

  // The place in the drawing of a point of space, whose third axis points up
  place(point) {
    const [x, y, z] = point.map((c, i) => c - this.centre[i]);
    const [s, c] = [Math.sin(this.yaw), Math.cos(this.yaw)];
    const depth = -s * x + c * y;
    return [this.middle[0] + this.scale * (c * x + s * y),
            this.middle[1] - this.scale * (Math.cos(this.pitch) * z + Math.sin(this.pitch) * depth)];
  }

  curve(points, attributes) {
    return svg("polyline", { points: points.map(p => this.place(p).map(c => c.toFixed(2)).join(",")).join(" "), ...attributes });
  }

  dot(point, attributes) {
    const [cx, cy] = this.place(point);
    return svg("circle", { cx, cy, r: 6, ...attributes });
  }

  label(point, text, attributes = {}) {
    const [x, y] = this.place(point);
    return svg("text", { x: x + 6, y: y - 6, ...attributes }, text);
  }
}
