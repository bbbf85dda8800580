// The picture: the whole sound above, and below it a stretch, down to single cells.

import { colours, drawCells, drawCurve, drawStairs, fitted, oncePerFrame, redrawnBy } from "./drawing.js";
import { Envelope } from "./envelope.js";

const CELLS_FROM = 2; // pixels per sample
const FITTED_BELOW = 4000; // samples: stretches so short fill the height
const ORDER = ["quantized", "original", "restored"];

export class Waveform {
  constructor(canvas, overview, view) {
    this.canvas = canvas;
    this.overview = overview;
    this.view = view;
    this.signals = null;
    this.playhead = null;
    this.draw = oncePerFrame(() => this.drawNow());
    view.addEventListener("change", this.draw);
    redrawnBy(canvas, this.draw);
    redrawnBy(overview, this.draw);
  }

  show(signals) {
    this.signals = signals;
    this.envelopes = Object.fromEntries(
      Object.entries(signals).map(([name, each]) => [name, new Envelope(each)]),
    );
    const [low, high] = this.envelopes.quantized.between(0, signals.quantized.length);
    this.peak = Math.max(Math.abs(low), Math.abs(high), 1e-3) * 1.08;
    this.draw();
  }

  drawNow() {
    if (!this.signals) return;
    this.drawOverview();
    this.drawStretch();
  }

  drawStretch() {
    const { context, width, height } = fitted(this.canvas);
    const { view, signals } = this;
    const colour = colours();
    const perSample = width / view.length;
    const x = (sample) => (sample - view.start) * perSample;
    const [bottom, top] = this.heights();
    const y = (value) => height - ((value - bottom) / (top - bottom)) * height;
    this.drawSelection(context, x, height, colour);
    context.strokeStyle = colour.line;
    context.lineWidth = 1;
    context.strokeRect(-1, y(0), width + 2, 0);
    if (perSample >= CELLS_FROM) {
      const first = Math.max(Math.floor(view.start) - 1, 0);
      const last = Math.min(Math.ceil(view.end) + 2, signals.quantized.length);
      drawCells(context, signals.lower, signals.upper, first, last, x, y, colour);
      drawStairs(context, signals.quantized, first, last, x, y, colour.quantized);
      if (signals.original)
        drawCurve(context, signals.original, first, last, x, y, colour.original, 1.6, perSample > 9);
      drawCurve(context, signals.restored, first, last, x, y, colour.restored, 2.2, perSample > 9);
    } else {
      this.drawEnvelopes(context, width, view.start, view.length, y, colour);
    }
    this.drawPlayhead(context, x, height, colour);
    this.drawTimes(context, width, height, colour);
  }

  heights() {
    if (this.view.length > FITTED_BELOW) return [-this.peak, this.peak];
    const [low] = this.envelopes.lower.between(this.view.start, this.view.end);
    const [, high] = this.envelopes.upper.between(this.view.start, this.view.end);
    const room = 0.14 * (high - low) || this.peak;
    return [low - room, high + room];
  }

  drawOverview() {
    const { context, width, height } = fitted(this.overview);
    const { view } = this;
    const colour = colours();
    const x = (sample) => (sample / view.frames) * width;
    const y = (value) => height * (0.5 - value / (2 * this.peak));
    this.drawSelection(context, x, height, colour);
    this.drawEnvelopes(context, width, 0, view.frames, y, colour);
    const [left, right] = [x(view.start), x(view.end)];
    const shown = Math.max(right - left, 3);
    context.fillStyle = colour.select;
    context.fillRect(left, 0, shown, height);
    context.strokeStyle = colour.restored;
    context.lineWidth = 1.5;
    context.strokeRect(left, 0.75, shown, height - 1.5);
    this.drawPlayhead(context, x, height, colour);
  }

  drawEnvelopes(context, width, start, length, y, colour) {
    for (const name of ORDER.filter((each) => this.envelopes[each])) {
      context.fillStyle = colour[name];
      context.globalAlpha = name === "original" ? 1 : 0.62;
      for (let pixel = 0; pixel < width; pixel++) {
        const from = start + (pixel / width) * length;
        const [low, high] = this.envelopes[name].between(from, from + Math.max(length / width, 1));
        if (low <= high) context.fillRect(pixel, y(high), 1, Math.max(y(low) - y(high), 1));
      }
    }
    context.globalAlpha = 1;
  }

  drawSelection(context, x, height, colour) {
    const { selection } = this.view;
    if (!selection) return;
    context.fillStyle = colour.select;
    context.fillRect(x(selection.start), 0, Math.max(x(selection.end) - x(selection.start), 1), height);
  }

  drawPlayhead(context, x, height, colour) {
    if (this.playhead === null) return;
    context.fillStyle = colour.ink;
    context.fillRect(x(this.playhead) - 0.75, 0, 1.5, height);
  }

  drawTimes(context, width, height, colour) {
    const { view } = this;
    const span = view.length / view.sampleRate;
    const step = roundStep(span / Math.max(width / 130, 2));
    context.fillStyle = colour.soft;
    context.font = "11px system-ui, sans-serif";
    for (let mark = Math.ceil(view.start / view.sampleRate / step) * step; ; mark += step) {
      const place = (mark * view.sampleRate - view.start) * (width / view.length);
      if (place > width - 50) return;
      context.fillRect(place, height - 5, 1, 5);
      context.fillText(seconds(mark, step), place + 4, height - 5);
    }
  }
}

function roundStep(rough) {
  const power = 10 ** Math.floor(Math.log10(rough));
  return power * [1, 2, 5, 10].find((factor) => factor * power >= rough);
}

function seconds(value, step) {
  return `${value.toFixed(Math.min(Math.max(Math.ceil(-Math.log10(step)), 0), 5))} s`;
}
