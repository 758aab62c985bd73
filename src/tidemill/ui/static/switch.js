// The plan of what is chosen, asked again a moment after the last change.

const MOMENT = 500;

export function planAsChosen(form, place) {
  let timer, asked;

  const show = () => {
    const how = form.elements.how.value;
    for (const each of form.querySelectorAll("[data-for]")) {
      each.hidden = !each.dataset.for.split(" ").includes(how);
    }
  };
  const ask = async () => {
    asked?.abort();
    asked = new AbortController();
    const query = new URLSearchParams(new FormData(form));
    query.delete("form_token");
    place.setAttribute("aria-busy", "true");
    try {
      const answer = await fetch(`${form.dataset.plan}?${query}`, { signal: asked.signal });
      place.innerHTML = await answer.text();
      place.setAttribute("aria-busy", "false");
    } catch (error) {
      if (error.name === "AbortError") return;
      place.textContent = "The page's server does not answer.";
      place.setAttribute("aria-busy", "false");
    }
  };
  form.addEventListener("keydown", (event) => {
    // Enter in a field plans; only the button starts
    if (event.key !== "Enter" || !event.target.matches("input")) return;
    event.preventDefault();
    clearTimeout(timer);
    ask();
  });
  form.addEventListener("input", () => {
    show();
    clearTimeout(timer);
    timer = setTimeout(ask, MOMENT);
  });
  show();
  ask();
}
