// What the search of a built site finds: node site_search.js SITE, with terms on standard input as a list in JSON. The site's own
// scripts parse, score and sort; this gives them a page without elements.
"use strict";
const fs = require("fs");
const path = require("path");
const vm = require("vm");

const site = process.argv[2];
const scripts = path.join(site, "_static");
const page = vm.createContext({
  location: { search: "" }, addEventListener() {},
  document: { readyState: "loading", addEventListener() {}, getElementById: () => null, documentElement: { dataset: {} }, querySelectorAll: () => [] },
  localStorage: { setItem() {}, getItem: () => null, removeItem() {} },
  URLSearchParams, URL, console, _ready() {}, _: (text) => text,
});
page.window = page;
const names = ["documentation_options.js", "doctools.js", "sphinx_highlight.js", "base-stemmer.js", "english-stemmer.js", "language_data.js", "searchtools.js"];
for (const name of names) vm.runInContext(fs.readFileSync(path.join(scripts, name), "utf8"), page, { filename: name });
vm.runInContext(fs.readFileSync(path.join(site, "searchindex.js"), "utf8"), page);
const terms = JSON.parse(fs.readFileSync(0, "utf8"));
const found = vm.runInContext("(term) => Search._performSearch(...Search._parseQuery(term))", page);
const answers = terms.map((term) => {
  // The list shows what comes last first, and may name several places of one page.
  const results = [...found(term)].reverse().map((result) => result[0]);
  return results.filter((name, place) => results.indexOf(name) === place).slice(0, 10);
});
console.log(JSON.stringify(answers));
