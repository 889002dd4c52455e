"use strict";
// Page 00 alive: two examples of three tokens, trained from the start that the reader drags.
// The arithmetic is that of the page; the tests compare it with the library's.

const attention = {
  X: [[[1, 0], [2, 0], [0, 1]], [[0, 1], [2, 1], [1, -1]]], // tokens, (2 examples, 3, 2)
  z: [[1, 0], [0, 1]], // queries: the first token of each example
  scores: [[0, 0, 1], [-1, -1, 1]], // gamma = y u^T x with u = (0, 1) and y = 1, -1
  opt: 2, // the best token of both examples is the last
  W_mm: [[-0.5, 0], [0.5, -0.5]], // the smallest W by which it wins by one
  start: [[1.5, 1.5], [-1, 1]], // in a wrong direction, on purpose
  stepSizes: { NGD: 0.02, GD: 0.5, sign: 0.01 },
  names: { NGD: "normalised GD", GD: "gradient descent", sign: "sign descent" },

  times(matrix, vector) {
    return matrix.map((row) => row[0] * vector[0] + row[1] * vector[1]);
  },

  norm(matrix) {
    return Math.hypot(...matrix.flat());
  },

  // The softmax weights of the tokens of example i.
  weights(W, i) {
    const query = attention.times(W, attention.z[i]);
    const logits = attention.times(attention.X[i], query);
    const largest = Math.max(...logits);
    const powers = logits.map((logit) => Math.exp(logit - largest));
    const sum = powers.reduce((a, b) => a + b);
    return powers.map((power) => power / sum);
  },

  // Minus the gradient of L(W) = (1/2) sum_i exp(-f_i).
  descent(W) {
    const downhill = [[0, 0], [0, 0]];
    for (let i = 0; i < 2; i++) {
      const p = attention.weights(W, i);
      const gamma = attention.scores[i];
      const answer = p.reduce((sum, weight, t) => sum + weight * gamma[t], 0);
      attention.X[i].forEach((token, t) => {
        // gamma_t - f as a sum of differences, which keeps its digits when p_opt is nearly 1.
        const above = p.reduce((sum, weight, s) => sum + weight * (gamma[t] - gamma[s]), 0);
        const pull = (Math.exp(-answer) * p[t] * above) / 2;
        for (let a = 0; a < 2; a++)
          for (let b = 0; b < 2; b++) downhill[a][b] += pull * token[a] * attention.z[i][b];
      });
    }
    return downhill;
  },

  step(W, rule) {
    const downhill = attention.descent(W);
    const length = rule === "NGD" ? attention.norm(downhill) : 1;
    const eta = attention.stepSizes[rule];
    const move = (entry) => (rule === "sign" ? Math.sign(entry) : entry / length);
    return W.map((row, a) => row.map((entry, b) => entry + eta * move(downhill[a][b])));
  },

  // W at each of the given steps, which rise.
  train(start, rule, steps) {
    const path = [];
    let W = start;
    for (let k = 0; k <= steps[steps.length - 1]; k++) {
      if (k === steps[path.length]) path.push(W);
      W = attention.step(W, rule);
    }
    return path;
  },

  // The distance of the direction of W from that of W_mm.
  error(W) {
    const unit = (matrix) => matrix.flat().map((entry) => entry / attention.norm(matrix));
    const target = unit(attention.W_mm);
    return Math.hypot(...unit(W).map((entry, j) => entry - target[j]));
  },
};

svg.bring("turning.gif", (place) => {
  const UNIT = 58; // of the drawing, for a length of one
  const CENTRES = [[190, 170], [560, 170]];
  const STEPS = [...new Set(Array.from({ length: 201 }, (_, k) => Math.round(Math.expm1((k / 200) * Math.log1p(10000)))))];
  const still = matchMedia("(prefers-reduced-motion: reduce)");
  let start = attention.start;
  let path = [];
  let timer = 0;

  svg.html(place, "p", { class: "hint" }, "Drag the round end of a blue arrow to start training from another direction. The best token is green.");
  const drawing = svg.add(place, "svg", { viewBox: "0 0 760 330", role: "group" });
  drawing.setAttribute("aria-label", "Two examples of three tokens; arrows turn to dashed rays");
  const controls = svg.html(place, "div", { class: "controls" });
  const play = svg.html(controls, "button", { type: "button" }, "Play");
  const time = svg.html(controls, "input", { type: "range", min: 0, max: STEPS.length - 1, value: 0 });
  time.setAttribute("aria-label", "training step");
  const step = svg.html(controls, "output");
  const rule = svg.html(controls, "select", { "aria-label": "update rule" });
  for (const [value, name] of Object.entries(attention.names)) svg.html(rule, "option", { value }, name);
  const words = svg.html(place, "p", { class: "words", "aria-live": "polite" });

  // The shapes of each example, from back to front.
  const examples = CENTRES.map((centre, i) => {
    const at = (v) => [centre[0] + UNIT * v[0], centre[1] - UNIT * v[1]];
    const line = (name, length, v) => {
      const [x2, y2] = at(v.map((entry) => (length * entry) / Math.hypot(...v)));
      return svg.add(drawing, "line", { class: name, x1: centre[0], y1: centre[1], x2, y2 });
    };
    line("ray", 2.4, attention.times(attention.W_mm, attention.z[i]));
    const tokens = attention.X[i].map((token, t) => {
      const [x, y] = at(token);
      const circle = svg.add(drawing, "circle", { class: t === attention.opt ? "token opt" : "token", cx: x, cy: y });
      return { circle, label: svg.add(drawing, "text", { class: "weight", x, y }), y };
    });
    const arrow = line("arrow", 1, [0, 1]);
    const handle = svg.add(drawing, "circle", { class: "handle", r: 13, tabindex: 0, role: "slider" });
    handle.setAttribute("aria-label", `direction of the start, example ${i + 1}, in degrees`);
    svg.add(drawing, "text", { class: "name", x: centre[0], y: 322 }, `example ${i + 1}`);
    return { at, tokens, arrow, handle };
  });

  function draw() {
    const W = path[time.value];
    examples.forEach(({ at, tokens, arrow, handle }, i) => {
      attention.weights(W, i).forEach((weight, t) => {
        const radius = 5 + 24 * Math.sqrt(weight);
        svg.set(tokens[t].circle, { r: radius });
        svg.set(tokens[t].label, { y: tokens[t].y - radius - 6 });
        tokens[t].label.textContent = `${Math.round(100 * weight)} %`;
      });
      const turned = attention.times(W, attention.z[i]);
      const length = Math.hypot(...turned);
      const shown = 1.3 + 0.3 * Math.log10(1 + length); // grows slowly, as W grows fast
      const [x, y] = at(turned.map((entry) => (shown * entry) / length));
      svg.set(arrow, { x2: x, y2: y });
      svg.set(handle, { cx: x, cy: y });
      const degrees = Math.round((Math.atan2(turned[1], turned[0]) * 180) / Math.PI);
      svg.set(handle, { "aria-valuenow": degrees, "aria-valuemin": -180, "aria-valuemax": 180 });
    });
    const [distance, size] = [attention.error(W).toFixed(3), attention.norm(W).toFixed(1)];
    step.textContent = `step ${STEPS[time.value].toLocaleString("en")}`;
    words.textContent = `Direction error ${distance}: the distance of the direction of W from that of the max-margin matrix, from 0 to 2. The norm of W is ${size}.`;
  }

  function train() {
    path = attention.train(start, rule.value, STEPS);
    draw();
  }

  function stop() {
    clearInterval(timer);
    timer = 0;
    play.textContent = "Play";
  }

  function run() {
    const last = STEPS.length - 1;
    if (Number(time.value) === last) time.value = 0;
    if (still.matches) time.value = last; // whoever asked for less motion gets the end at once
    draw();
    if (still.matches) return;
    play.textContent = "Pause";
    timer = setInterval(() => {
      time.value = Number(time.value) + 1;
      draw();
      if (Number(time.value) === last) stop();
    }, 25);
  }

  // Start column i of W in another direction, with its length.
  function turn(i, x, y) {
    const length = Math.hypot(...attention.times(attention.start, attention.z[i]));
    const now = Math.hypot(x, y) || 1;
    start = start.map((row, a) => row.map((entry, b) => (b === i ? (length * [x, y][a]) / now : entry)));
    stop();
    time.value = 0;
    train();
  }

  examples.forEach(({ handle }, i) => {
    const [x0, y0] = CENTRES[i];
    const keyed = (angle) => {
      const [x, y] = attention.times(start, attention.z[i]);
      turn(i, x * Math.cos(angle) - y * Math.sin(angle), x * Math.sin(angle) + y * Math.cos(angle));
    };
    svg.drag(drawing, handle, (x, y) => turn(i, x - x0, y0 - y), keyed);
  });
  time.addEventListener("input", () => { stop(); draw(); });
  rule.addEventListener("change", () => { stop(); train(); });
  play.addEventListener("click", () => (timer ? stop() : run()));
  train();
});
