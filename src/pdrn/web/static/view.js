// The stretch of sound that is shown, in samples, and the stretch that is selected.

const SHORTEST = 16;

export class View extends EventTarget {
  reset(frames, sampleRate) {
    this.frames = frames;
    this.sampleRate = sampleRate;
    this.selection = null;
    this.start = 0;
    this.end = frames;
    this.changed();
  }

  get length() {
    return this.end - this.start;
  }

  show(start, length) {
    const shown = Math.min(Math.max(length, SHORTEST), Math.max(this.frames, SHORTEST));
    this.start = Math.min(Math.max(start, 0), Math.max(this.frames - shown, 0));
    this.end = this.start + shown;
    this.changed();
  }

  pan(samples) {
    this.show(this.start + samples, this.length);
  }

  zoom(factor, at = 0.5) {
    const length = Math.min(Math.max(this.length * factor, SHORTEST), Math.max(this.frames, SHORTEST));
    this.show(this.start + at * (this.length - length), length);
  }

  centre(sample, length) {
    this.show(sample - length / 2, length);
  }

  select(from, to) {
    [this.anchor, this.caret] = [from, to];
    const [start, end] = [Math.max(Math.min(from, to), 0), Math.min(Math.max(from, to), this.frames)];
    this.selection = end - start > 1 ? { start, end } : null;
    this.changed();
  }

  /** Move the end of the selection, which begins in the middle of what is shown. */
  extend(samples) {
    const middle = (this.start + this.end) / 2;
    const [from, to] = this.selection ? [this.anchor, this.caret] : [middle, middle];
    this.select(from, to + samples);
  }

  changed() {
    this.dispatchEvent(new Event("change"));
  }
}
