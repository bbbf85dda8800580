// What all pictures share: crisp canvases, colours of the theme, curves.

export function colours() {
  const style = getComputedStyle(document.documentElement);
  const names = [
    "ink",
    "soft",
    "line",
    "panel",
    "original",
    "quantized",
    "restored",
    "cell",
    "cell-edge",
    "select",
  ];
  return Object.fromEntries(names.map((name) => [name, style.getPropertyValue(`--${name}`).trim()]));
}

/** Fit the bitmap of a canvas to its size on screen; returns a context that draws in CSS pixels. */
export function fitted(canvas) {
  const ratio = window.devicePixelRatio || 1;
  const { width, height } = canvas.getBoundingClientRect();
  const [across, down] = [Math.max(Math.round(width * ratio), 1), Math.max(Math.round(height * ratio), 1)];
  if (canvas.width !== across || canvas.height !== down) {
    canvas.width = across;
    canvas.height = down;
  }
  const context = canvas.getContext("2d");
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.clearRect(0, 0, width, height);
  return { context, width, height };
}

/** Call again when the canvas has another size, or the theme changes. */
export function redrawnBy(canvas, draw) {
  new ResizeObserver(draw).observe(canvas);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
}

/** At most one call per frame of the screen. */
export function oncePerFrame(draw) {
  let asked = false;
  return () => {
    if (asked) return;
    asked = true;
    requestAnimationFrame(() => {
      asked = false;
      draw();
    });
  };
}

export function drawCells(context, lower, upper, first, last, x, y, colour) {
  context.fillStyle = colour.cell;
  context.strokeStyle = colour["cell-edge"];
  context.lineWidth = 1;
  for (let i = first; i < last; i++) {
    const [left, right, top, bottom] = [x(i - 0.5), x(i + 0.5), y(upper[i]), y(lower[i])];
    context.fillRect(left, top, right - left, bottom - top);
    if (right - left > 5) context.strokeRect(left, top, right - left, bottom - top);
  }
}

export function drawStairs(context, signal, first, last, x, y, colour) {
  context.beginPath();
  for (let i = first; i < last; i++) {
    context.lineTo(x(i - 0.5), y(signal[i]));
    context.lineTo(x(i + 0.5), y(signal[i]));
  }
  context.strokeStyle = colour;
  context.lineWidth = 1.8;
  context.stroke();
}

export function drawCurve(context, signal, first, last, x, y, colour, width, dots) {
  context.beginPath();
  for (let i = first; i < last; i++) context.lineTo(x(i), y(signal[i]));
  context.strokeStyle = colour;
  context.lineWidth = width;
  context.lineJoin = "round";
  context.stroke();
  if (!dots) return;
  context.fillStyle = colour;
  for (let i = first; i < last; i++) {
    context.beginPath();
    context.arc(x(i), y(signal[i]), width + 0.9, 0, 7);
    context.fill();
  }
}
