// Spectrograms of all signals, on one scale; a worker computes them, so that nothing stutters meanwhile.

import { fitted, oncePerFrame, redrawnBy } from "./drawing.js";

const SHORTEST_SECONDS = 0.4;

// Dark to light through purple and orange, evenly in lightness.
const STOPS = [
  [0, 0, 4],
  [66, 10, 104],
  [147, 38, 103],
  [221, 81, 58],
  [252, 165, 10],
  [252, 255, 164],
];

export class Spectrograms {
  constructor(root, note, view) {
    this.figures = Object.fromEntries(
      [...root.querySelectorAll("figure")].map((each) => [each.dataset.signal, each]),
    );
    this.note = note;
    this.view = view;
    this.images = {};
    this.worker = new Worker(new URL("spectrogram-worker.js", import.meta.url), { type: "module" });
    this.worker.onmessage = ({ data }) => this.computed(data);
    this.draw = oncePerFrame(() => this.drawNow());
    this.ask = oncePerFrame(() => this.askNow());
    view.addEventListener("change", () => this.changed());
    for (const figure of Object.values(this.figures))
      redrawnBy(figure.querySelector("canvas"), () => this.changed());
  }

  changed() {
    this.draw();
    this.ask();
  }

  show(signals, sampleRate) {
    this.sampleRate = sampleRate;
    this.images = {};
    for (const [name, figure] of Object.entries(this.figures)) {
      figure.hidden = !signals[name];
      this.worker.postMessage({ name, signal: signals[name] ?? null });
    }
    this.changed();
  }

  /** What is shown, but never less than a spectrogram can tell apart. */
  range() {
    const length = Math.min(Math.max(this.view.length, SHORTEST_SECONDS * this.sampleRate), this.view.frames);
    const middle = (this.view.start + this.view.end) / 2;
    const start = Math.min(Math.max(middle - length / 2, 0), this.view.frames - length);
    return { start, length };
  }

  askNow() {
    if (!this.sampleRate) return;
    const { start, length } = this.range();
    const [from, to] = [start, start + length].map((sample) => (sample / this.sampleRate).toFixed(2));
    this.note.textContent = `${from} to ${to} s, 0 to ${(this.sampleRate / 2000).toFixed(1)} kHz`;
    for (const [name, figure] of Object.entries(this.figures)) {
      const columns = Math.round(Math.min(figure.querySelector("canvas").clientWidth, 700));
      if (!figure.hidden && columns) this.worker.postMessage({ name, start, length, columns });
    }
  }

  computed({ name, start, length, columns, rows, levels }) {
    const image = new ImageData(columns, rows);
    for (let i = 0; i < levels.length; i++) image.data.set(RAMP[levels[i]], 4 * i);
    const bitmap = new OffscreenCanvas(columns, rows);
    bitmap.getContext("2d").putImageData(image, 0, 0);
    this.images[name] = { bitmap, start, length };
    this.draw();
  }

  drawNow() {
    if (!this.sampleRate) return;
    const { start, length } = this.range();
    for (const [name, figure] of Object.entries(this.figures)) {
      if (figure.hidden) continue;
      const { context, width, height } = fitted(figure.querySelector("canvas"));
      const image = this.images[name];
      if (!image) continue;
      const left = ((image.start - start) / length) * width;
      context.imageSmoothingEnabled = true;
      context.drawImage(image.bitmap, left, 0, (image.length / length) * width, height);
      this.drawShown(context, start, length, width, height);
    }
  }

  drawShown(context, start, length, width, height) {
    if (this.view.length >= 0.98 * length) return;
    const left = ((this.view.start - start) / length) * width;
    context.strokeStyle = "rgb(255 255 255 / 0.85)";
    context.lineWidth = 1;
    context.strokeRect(left, 0.5, Math.max((this.view.length / length) * width, 2), height - 1);
  }
}

const RAMP = Array.from({ length: 256 }, (_, level) => {
  const place = (level / 255) * (STOPS.length - 1);
  const below = Math.min(Math.floor(place), STOPS.length - 2);
  const mixed = STOPS[below].map((value, i) => value + (place - below) * (STOPS[below + 1][i] - value));
  return [...mixed.map(Math.round), 255];
});
