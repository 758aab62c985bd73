// What every page does: parts that change by themselves, copying, confirming.
import { follow } from "./live.js";
import { planAsChosen } from "./switch.js";

document.addEventListener("click", async (event) => {
  const button = event.target.closest("[data-copy]");
  if (!button) return;
  try {
    await navigator.clipboard.writeText(button.dataset.copy);
    button.textContent = "Copied";
  } catch {
    getSelection().selectAllChildren(button.previousElementSibling);
    button.textContent = "Selected";
  }
  setTimeout(() => (button.textContent = "Copy"), 1500);
});

for (const input of document.querySelectorAll("[data-expect]")) {
  const button = input.form.querySelector("button");
  const check = () => (button.disabled = input.value.trim() !== input.dataset.expect);
  input.addEventListener("input", check);
  check();
}

document.addEventListener("submit", (event) => {
  if (event.target.method !== "post") return;
  // after the submission has taken the button's value
  setTimeout(() => event.target.querySelectorAll("button").forEach((each) => (each.disabled = true)));
});
addEventListener("pageshow", (event) => {
  if (event.persisted) location.reload();
});

const form = document.getElementById("switch");
if (form) planAsChosen(form, document.getElementById("plan"));
follow();
