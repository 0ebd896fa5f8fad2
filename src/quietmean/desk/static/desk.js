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
