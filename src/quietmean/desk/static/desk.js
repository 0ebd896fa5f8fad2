// The page of a node is asked for anew every second while it runs.
const part = document.getElementById("part");
async function renew() {
  try {
    const answer = await fetch(`${location.pathname}/part`);
    if (answer.ok) part.innerHTML = await answer.text();
  } catch (error) {
    // The desk was left, or is busy.
  }
  if (document.querySelector("[data-running]")) setTimeout(renew, 1000);
}
if (part && document.querySelector("[data-running]")) setTimeout(renew, 1000);
// The words are ticked in order: each one can be ticked once those before it are, and is then where the keyboard is.
const ticks = [...document.querySelectorAll(".code input")];
function order() {
  ticks.forEach((tick, place) => {
    tick.disabled = place > 0 && !ticks[place - 1].checked;
    if (tick.disabled) tick.checked = false;
  });
}
ticks.forEach((tick, place) =>
  tick.addEventListener("change", () => {
    order();
    if (tick.checked && ticks[place + 1]) ticks[place + 1].focus();
  })
);
order();
// What must be seen before the yes, with what is ticked by now: the site itself says it.
const marks = document.getElementById("marks");
let asked = 0;
async function remark() {
  const turn = (asked += 1);
  try {
    const ticked = [...new FormData(marks.closest("form"))].filter(([name]) => /^(word|compared)\.\d+$/.test(name));
    const answer = await fetch(`${marks.dataset.from}?${new URLSearchParams(ticked)}`);
    const text = await answer.text();
    if (answer.ok && turn === asked) marks.innerHTML = text;
  } catch (error) {
    // The desk was left, or is busy: all of it stays.
  }
}
if (marks) {
  marks.closest("form").addEventListener("change", remark);
  remark();
}
