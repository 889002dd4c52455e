// MathJax comes from a package, with its fonts: a page asks nothing of the network.
// A formula may not open a link or run anything: \href and \require are unknown to it.
window.MathJax = {
  tex: {
    inlineMath: [["\\(", "\\)"], ["$", "$"]],
    packages: { "[-]": ["autoload", "html", "require"] },
  },
  chtml: { displayAlign: "left", displayIndent: "1.5em" },
  options: {
    enableMenu: false,
    ignoreHtmlClass: "content",
    processHtmlClass: "math|text_html",
  },
};
