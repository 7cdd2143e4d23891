// Runs before the first paint: applies the theme chosen earlier, so that the page does not flash.
try {
  const chosen = localStorage.getItem("tessera-theme");
  if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
} catch {
  // Some browsers give pages opened from a file no storage: the system's theme holds.
}
