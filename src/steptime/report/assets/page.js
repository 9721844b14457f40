// The ink of the plots follows the page: dark on paper, light at night, dark again in print.
(() => {
  const night = matchMedia("(prefers-color-scheme: dark)");

  const paint = (isDark) => {
    const text = isDark ? "#b6bdc7" : "#4b525c";
    const line = isDark ? "#59626d" : "#b3bac3";
    const grid = isDark ? "#2b3139" : "#e8ebef";
    for (const shown of Bokeh.documents) {
      for (const plot of shown.roots()) {
        for (const axis of [...plot.below, ...plot.left]) {
          axis.setv({
            axis_label_text_color: text,
            major_label_text_color: text,
            axis_line_color: line,
            major_tick_line_color: line,
            minor_tick_line_color: null,
          });
        }
        for (const part of plot.center) {
          if (part.type === "Grid" && part.grid_line_color !== null) {
            part.grid_line_color = grid;
          }
        }
      }
    }
  };

  const start = (tries) => {
    if (Bokeh.documents.length === 0) {
      if (tries > 0) {
        setTimeout(() => start(tries - 1), 20);
      }
      return;
    }
    paint(night.matches);
    night.addEventListener("change", () => paint(night.matches));
    addEventListener("beforeprint", () => paint(false));
    addEventListener("afterprint", () => paint(night.matches));
  };

  document.addEventListener("DOMContentLoaded", () => start(500));
})();
