"use strict";
// A field that filters a table of claims, and folds that open before a page is printed.

document.addEventListener("DOMContentLoaded", () => {
  for (const table of document.querySelectorAll("table.claims")) {
    const rows = [...table.tBodies[0].rows];
    if (rows.length < 12) continue;
    const field = document.createElement("input");
    const count = document.createElement("output");
    const bar = document.createElement("p");
    field.type = "search";
    field.placeholder = "Filter: Lemma 5, fails, norm ...";
    field.setAttribute("aria-label", "Filter the claims");
    bar.className = "filter";
    bar.append(field, " ", count);
    (table.closest(".text_html") || table).before(bar);

    const texts = rows.map((row) => row.textContent.toLowerCase());
    // A statement is shown with all its claims if its own words match.
    const filter = () => {
      const words = field.value.toLowerCase().split(/\s+/).filter(Boolean);
      const claims = rows.filter((row) => !row.classList.contains("statement"));
      let statement = null;
      for (const row of rows) row.hidden = true;
      rows.forEach((row, k) => {
        if (row.classList.contains("statement")) statement = { row, text: texts[k] };
        const text = (statement ? statement.text : "") + texts[k];
        if (row === statement?.row || !words.every((word) => text.includes(word))) return;
        row.hidden = false;
        if (statement) statement.row.hidden = false;
      });
      count.textContent = `${claims.filter((row) => !row.hidden).length} of ${claims.length} claims`;
    };
    field.addEventListener("input", filter);
    filter();
  }
});

window.addEventListener("beforeprint", () => {
  for (const fold of document.querySelectorAll("details")) fold.open = true;
});
