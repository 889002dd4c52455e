"use strict";
// Page 30 alive: the ball of an l_p norm that just touches the half-plane c^T w >= 1.

const mirror = {
  c: [-0.5, 1], // the best token minus the other one

  // The vector of smallest l_p norm with c^T w >= 1: equality in Hoelder's inequality.
  shortest(c, p) {
    const q = p / (p - 1);
    const sum = c.reduce((total, entry) => total + Math.abs(entry) ** q, 0);
    return c.map((entry) => (Math.sign(entry) * Math.abs(entry) ** (q - 1)) / sum);
  },

  norm(w, p) {
    return w.reduce((total, entry) => total + Math.abs(entry) ** p, 0) ** (1 / p);
  },

  // Points of the circle of a radius in the l_p norm.
  circle(radius, p) {
    return Array.from({ length: 361 }, (_, degree) => {
      const angle = (degree * Math.PI) / 180;
      const towards = [Math.cos(angle), Math.sin(angle)];
      const length = mirror.norm(towards, p);
      return towards.map((entry) => (radius * entry) / length);
    });
  },
};

svg.bring("balls.svg", (place) => {
  const UNIT = 120;
  const [WIDTH, HEIGHT] = [560, 400];
  const at = (v) => [WIDTH / 2 + UNIT * v[0], HEIGHT / 2 + 40 - UNIT * v[1]];
  const points = (vectors) => vectors.map((v) => at(v).join(",")).join(" ");
  let c = mirror.c;

  svg.html(place, "p", { class: "hint" }, "Move the exponent, or drag the blue point, which is c.");
  const drawing = svg.add(place, "svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "group", class: "cut" });
  drawing.setAttribute("aria-label", "A ball of a norm touches a half-plane; a dashed ray goes through the touching point");
  const [x0, y0] = at([0, 0]);
  const half = svg.add(drawing, "polygon", { class: "half" });
  const ball = svg.add(drawing, "polygon", { class: "ball" });
  const ray = svg.add(drawing, "line", { class: "ray", x1: x0, y1: y0 });
  const touch = svg.add(drawing, "circle", { class: "token opt", r: 7 });
  const arrow = svg.add(drawing, "line", { class: "arrow", x1: x0, y1: y0 });
  const handle = svg.add(drawing, "circle", { class: "handle", r: 11, tabindex: 0, role: "slider" });
  svg.set(handle, { "aria-label": "direction of c in degrees", "aria-valuemin": -180, "aria-valuemax": 180 });
  const controls = svg.html(place, "div", { class: "controls" });
  const exponent = svg.html(controls, "input", { type: "range", min: 1.1, max: 6, step: 0.05, value: 2 });
  exponent.setAttribute("aria-label", "exponent p");
  const shown = svg.html(controls, "output");
  const words = svg.html(place, "p", { class: "words", "aria-live": "polite" });

  function draw() {
    const p = Number(exponent.value);
    const w = mirror.shortest(c, p);
    const length = Math.hypot(...c);
    const foot = c.map((entry) => entry / length ** 2);
    const along = [-c[1] / length, c[0] / length];
    const corner = (side, depth) => foot.map((entry, j) => entry + side * along[j] + (depth * c[j]) / length);
    svg.set(half, { points: points([corner(-9, 0), corner(9, 0), corner(9, 9), corner(-9, 9)]) });
    svg.set(ball, { points: points(mirror.circle(mirror.norm(w, p), p)) });
    const [rayX, rayY] = at(w.map((entry) => (2 * entry) / Math.hypot(...w)));
    svg.set(ray, { x2: rayX, y2: rayY });
    const [x, y] = at(w);
    svg.set(touch, { cx: x, cy: y });
    const [cx, cy] = at(c);
    svg.set(arrow, { x2: cx, y2: cy });
    svg.set(handle, { cx, cy, "aria-valuenow": Math.round((Math.atan2(c[1], c[0]) * 180) / Math.PI) });
    shown.textContent = `p = ${p.toFixed(2)}`;
    words.textContent = `The ball touches at w = (${w.map((entry) => entry.toFixed(3)).join(", ")}): the shortest vector in this norm that wins by one.`;
  }

  // c in another direction, with its length.
  function turn(x, y) {
    const scale = Math.hypot(...mirror.c) / (Math.hypot(x, y) || 1);
    c = [x * scale, y * scale];
    draw();
  }

  const keyed = (angle) => {
    const [x, y] = c;
    turn(x * Math.cos(angle) - y * Math.sin(angle), x * Math.sin(angle) + y * Math.cos(angle));
  };
  svg.drag(drawing, handle, (x, y) => turn(x - x0, y0 - y), keyed);
  exponent.addEventListener("input", draw);
  draw();
});
