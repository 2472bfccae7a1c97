// On narrow screens a table with long sentences in several columns cannot be read: mark those, so
// that site.css sets each row as a block, and tell each cell which column it was in.
"use strict";
document.addEventListener("DOMContentLoaded", () => {
  for (const table of document.querySelectorAll("article table.docutils")) {
    const labels = [...table.querySelectorAll("thead th")].map((head) => head.textContent.trim());
    const rows = [...table.querySelectorAll("tbody tr")];
    const prose = labels.filter((_, place) =>
      rows.some((row) => row.children[place]?.textContent.length > 40));
    if (labels.length < 3 || prose.length < 2) continue;
    table.classList.add("stacked");
    for (const row of rows) {
      [...row.children].forEach((cell, place) => {
        if (place > 0) cell.dataset.label = labels[place] || "";
        if (!cell.textContent.trim()) cell.replaceChildren();
      });
    }
  }
});
