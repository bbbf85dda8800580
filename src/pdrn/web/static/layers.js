// How it works: the estimate after every layer or iteration, on the stretch that is shown.

import * as api from "./api.js";
import { colours, drawCells, drawCurve, fitted, oncePerFrame, redrawnBy } from "./drawing.js";

const LONGEST_SHOWN = 240;
const AROUND = 6000; // samples to either side that take part
const PAUSE_MS = 220;

export class Layers {
  constructor(elements, view) {
    Object.assign(this, elements); // canvas, slider, output, label, noun, button, prompt
    this.view = view;
    this.stretch = null;
    this.draw = oncePerFrame(() => this.drawNow());
    redrawnBy(this.canvas, this.draw);
    this.slider.addEventListener("input", () => {
      this.halt();
      this.draw();
    });
  }

  /** Forget what was animated: there is another sound, or another method. */
  reset(signals, facts) {
    this.halt();
    this.asked?.abort();
    Object.assign(this, { signals, facts, stretch: null });
    this.noun.textContent = facts.model ? "layer" : "iteration";
    this.button.disabled = false;
    this.slider.disabled = true;
    this.output.textContent = "";
    this.prompt.hidden = false;
    fitted(this.canvas);
  }

  async run(request) {
    this.halt();
    this.asked?.abort();
    this.asked = new AbortController();
    const { lower, upper, quantized, original } = this.signals;
    const middle = Math.round((this.view.start + this.view.end) / 2);
    const length = Math.round(Math.min(this.view.length, LONGEST_SHOWN));
    const first = Math.max(middle - Math.round(length / 2), 0);
    const last = Math.min(first + length, quantized.length);
    const from = Math.max(first - AROUND, 0);
    const to = Math.min(last + AROUND, quantized.length);
    const { sample_rate_hz, step } = this.facts;
    const answer = await api.layers(
      lower.slice(from, to),
      upper.slice(from, to),
      { ...request, sample_rate_hz, step },
      this.asked.signal,
    );
    const all = answer.parts.estimates;
    const cut = (signal) => signal.slice(first, last);
    const lowest = cut(lower);
    const highest = cut(upper);
    const middles = lowest.map((value, i) => (value + highest[i]) / 2);
    const estimates = answer.numbers.map((_, i) =>
      all.slice(i * (to - from) + first - from, i * (to - from) + last - from),
    );
    this.stretch = {
      lower: lowest,
      upper: highest,
      original: original && cut(original),
      numbers: [0, ...answer.numbers],
      estimates: [middles, ...estimates],
    };
    this.slider.max = estimates.length;
    this.slider.value = 0;
    this.slider.disabled = false;
    this.prompt.hidden = true;
    this.draw();
    this.timer = setInterval(() => this.advance(), PAUSE_MS);
  }

  advance() {
    if (Number(this.slider.value) >= Number(this.slider.max)) this.halt();
    else this.slider.value = Number(this.slider.value) + 1;
    this.draw();
  }

  halt() {
    clearInterval(this.timer);
  }

  drawNow() {
    if (!this.stretch) return;
    const { lower, upper, original, estimates, numbers } = this.stretch;
    const { context, width, height } = fitted(this.canvas);
    const colour = colours();
    const count = lower.length;
    const [low, high] = [Math.min(...lower), Math.max(...upper)];
    const room = 0.08 * (high - low);
    const x = (i) => ((i + 0.5) / count) * width;
    const y = (value) => height - ((value - low + room) / (high - low + 2 * room)) * height;
    const chosen = Number(this.slider.value);
    drawCells(context, lower, upper, 0, count, x, y, colour);
    if (original) drawCurve(context, original, 0, count, x, y, colour.original, 1.4, false);
    for (let before = Math.max(chosen - 3, 0); before < chosen; before++) {
      context.globalAlpha = 0.12 + 0.08 * (before - chosen + 3);
      drawCurve(context, estimates[before], 0, count, x, y, colour.restored, 1.4, false);
    }
    context.globalAlpha = 1;
    drawCurve(context, estimates[chosen], 0, count, x, y, colour.restored, 2.3, width / count > 9);
    this.label.textContent = chosen ? `After ${numbers[chosen]}` : "Start";
    this.output.textContent = original?.some(Boolean)
      ? `${ratio(original, estimates[chosen]).toFixed(1)} dB`
      : "";
  }
}

function ratio(original, estimate) {
  let [signal, error] = [0, 1e-12];
  original.forEach((value, i) => {
    signal += value ** 2;
    error += (value - estimate[i]) ** 2;
  });
  return 10 * Math.log10(signal / error);
}
