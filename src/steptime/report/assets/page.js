// The ink of the plots follows the page: dark on paper, light at night, dark again in print.
// A finger that moves up or down scrolls the page, on a plot as elsewhere.
(() => {
  const night = matchMedia("(prefers-color-scheme: dark)");

  const grid = "rgba(128, 128, 128, 0.2)";

  const plots = () => Bokeh.documents.flatMap((shown) => shown.roots());
  const viewOf = (plot) => Bokeh.index.get_one(plot);

  const paint = (isDark) => {
    const text = isDark ? "#b6bdc7" : "#4b525c";
    const line = isDark ? "#59626d" : "#b3bac3";
    for (const plot of plots()) {
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
  };

  const paintForPrint = () => {
    paint(false);
    plots().forEach((plot) => viewOf(plot)?.repaint?.()); // at once: the printer does not wait
  };

  const letScroll = () => {
    for (const plot of plots()) {
      const layer = viewOf(plot)?.canvas_view?.events_el;
      if (layer) {
        layer.style.touchAction = "pan-y pinch-zoom";
      }
    }
  };

  const once = (isReady, act, tries = 500) => {
    if (isReady()) {
      act();
    } else if (tries > 0) {
      setTimeout(() => once(isReady, act, tries - 1), 20);
    }
  };

  document.addEventListener("DOMContentLoaded", () => {
    once(() => Bokeh.documents.length > 0, () => {
      paint(night.matches);
      night.addEventListener("change", () => paint(night.matches));
      addEventListener("beforeprint", paintForPrint);
      addEventListener("afterprint", () => paint(night.matches));
    });
    const isDrawn = () => Bokeh.documents.length > 0 && Bokeh.documents.every((d) => d.is_idle);
    once(isDrawn, letScroll);
  });
})();
