// How the search ranks. The numbers are Sphinx's own; a result gains the more, the more of
// the words that one looks for begin a word of its title, and more if its title begins with
// them. The title of a section comes after that of its page and " > ".
var Scorer = {
  score: ([docname, title, anchor, description, score]) => {
    const query = new URLSearchParams(location.search).get("q") || "";
    const wanted = query.toLowerCase().split(/\s+/).filter(Boolean);
    const own = title.split(" > ").pop().toLowerCase().replace(/^\d+ /, "");
    const known = own.match(/[\p{L}\p{N}_]+/gu) || [];
    const found = wanted.filter((word) => known.some((one) => one.startsWith(word)));
    const first = known.slice(0, wanted.length).join(" ") === wanted.join(" ");
    return score + (20 * found.length) / wanted.length + (first ? 20 : 0);
  },
  objNameMatch: 11,
  objPartialMatch: 6,
  objPrio: { 0: 15, 1: 5, 2: -5 },
  objPrioDefault: 0,
  title: 15,
  partialTitle: 7,
  term: 5,
  partialTerm: 2,
};
