"use strict";
// What the two living pictures share: shapes of SVG, and points that can be dragged.

const svg = {
  // Make an element of SVG inside another one.
  add(parent, name, attributes = {}, text = "") {
    const element = document.createElementNS("http://www.w3.org/2000/svg", name);
    svg.set(element, attributes);
    element.textContent = text;
    parent.append(element);
    return element;
  },

  set(element, attributes) {
    for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  },

  // Make an element of HTML inside another one.
  html(parent, name, attributes = {}, text = "") {
    const element = document.createElement(name);
    svg.set(element, attributes);
    element.textContent = text;
    parent.append(element);
    return element;
  },

  // Let a point of a drawing be dragged by mouse or finger, or turned by the arrow keys.
  // `turned(dx, dy)` gets where the pointer is, from the drawing's upper left corner in its own
  // units; `keyed(angle)` gets by how much a key turns it; `released()` ends either.
  drag(drawing, handle, turned, keyed, released = () => {}) {
    let held = false;
    handle.addEventListener("pointerdown", (event) => {
      held = true;
      handle.setPointerCapture(event.pointerId);
      event.preventDefault();
      handle.focus();
    });
    // Without this a finger on the handle scrolls the page, which ends the drag.
    const stay = (event) => event.preventDefault();
    handle.addEventListener("touchstart", stay, { passive: false });
    handle.addEventListener("pointermove", (event) => {
      if (!held) return;
      const place = new DOMPoint(event.clientX, event.clientY);
      const { x, y } = place.matrixTransform(drawing.getScreenCTM().inverse());
      turned(x, y);
    });
    const end = () => {
      if (held) released();
      held = false;
    };
    handle.addEventListener("pointerup", end);
    handle.addEventListener("pointercancel", end);
    handle.addEventListener("keydown", (event) => {
      const turns = { ArrowLeft: 1, ArrowUp: 1, ArrowRight: -1, ArrowDown: -1 };
      if (!(event.key in turns)) return;
      event.preventDefault();
      event.stopPropagation();
      keyed((turns[event.key] * Math.PI) / 36);
      released();
    });
  },

  // Run `make(place)` above the paragraph of each such picture, and hide the still one.
  bring(picture, make) {
    const start = () => {
      for (const still of document.querySelectorAll(`img[src$="${picture}"]`)) {
        const place = document.createElement("div");
        place.className = "living";
        (still.closest("p, figure") || still).before(place);
        still.classList.add("still");
        make(place);
      }
    };
    if (document.readyState === "loading") document.addEventListener("DOMContentLoaded", start);
    else start();
  },
};
