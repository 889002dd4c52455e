// The ledger's filter; without this script every statement can still be opened by hand.
"use strict";

for (const form of document.querySelectorAll(".filters")) {
  const rows = [...document.querySelectorAll("details.statement tbody tr")];
  const filter = () => {
    const verdict = form.elements.verdict.value;
    const words = form.elements.words.value.toLowerCase().split(/\s+/).filter(Boolean);
    for (const row of rows) {
      const text = row.closest("details").textContent.toLowerCase();
      row.hidden = (verdict && row.querySelector(".verdict").textContent !== verdict) || !words.every((word) => text.includes(word));
    }
    for (const statement of document.querySelectorAll("details.statement")) {
      statement.hidden = !statement.querySelector("tbody tr:not([hidden])");
      statement.open = !statement.hidden && Boolean(verdict || words.length);
    }
    form.querySelector("output").textContent = `${rows.filter((row) => !row.hidden).length} of ${rows.length} rows`;
  };
  form.addEventListener("input", filter);
  form.addEventListener("submit", (event) => event.preventDefault());
}
