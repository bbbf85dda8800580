// The ear: all signals run at once, from one clock, and only one is let through. No signal is ever rescaled.

import { Refused } from "./api.js";

const FADE_SECONDS = 0.004;
const LOOP_SECONDS = 0.25; // shorter loops are a buzz

export class Player extends EventTarget {
  constructor() {
    super();
    this.context = null;
    this.buffers = {};
    this.ear = "restored";
    this.offset = 0;
    this.loop = null;
    this.sources = null;
  }

  get playing() {
    return this.sources !== null;
  }

  /** Signals by name, each an array of channels; what played plays on. */
  load(signals, sampleRate) {
    const again = this.playing;
    const position = this.position;
    this.stop();
    this.sampleRate = sampleRate;
    this.signals = signals;
    this.buffers = null;
    this.frames = Object.values(signals)[0][0].length;
    this.offset = Math.min(position, this.frames / sampleRate);
    if (!signals[this.ear]) this.ear = "restored";
    if (again) this.play();
    this.tell();
  }

  /** Seconds from the start. */
  get position() {
    if (!this.playing) return this.offset;
    const passed = this.offset + this.context.currentTime - this.began;
    if (!this.loop) return Math.min(passed, this.frames / this.sampleRate);
    const { start, end } = this.loop;
    return passed < end ? passed : start + ((passed - start) % (end - start));
  }

  play() {
    if (!this.signals || this.playing) return;
    this.context ??= new AudioContext();
    this.context.resume();
    this.buffers ??= Object.fromEntries(
      Object.entries(this.signals).map(([name, each]) => [name, this.buffer(each)]),
    );
    const length = this.frames / this.sampleRate;
    if (this.offset >= length - 0.01) this.offset = 0;
    if (this.loop && (this.offset < this.loop.start || this.offset >= this.loop.end))
      this.offset = this.loop.start;
    this.began = this.context.currentTime + 0.02;
    this.sources = Object.fromEntries(
      Object.entries(this.buffers).map(([name, buffer]) => {
        const source = new AudioBufferSourceNode(this.context, { buffer });
        const gain = new GainNode(this.context, { gain: name === this.ear ? 1 : 0 });
        if (this.loop)
          Object.assign(source, { loop: true, loopStart: this.loop.start, loopEnd: this.loop.end });
        source.connect(gain).connect(this.context.destination);
        source.start(this.began, this.offset);
        return [name, { source, gain }];
      }),
    );
    const last = this.sources[this.ear].source;
    last.onended = () => {
      if (this.sources && Object.values(this.sources).some(({ source }) => source === last)) this.stop(0);
    };
    this.tell();
  }

  stop(at = this.position) {
    if (this.playing) {
      for (const { source } of Object.values(this.sources)) source.stop();
      this.sources = null;
    }
    this.offset = at;
    this.tell();
  }

  toggle() {
    if (this.playing) this.stop();
    else this.play();
  }

  seek(seconds) {
    const again = this.playing;
    this.stop(seconds);
    if (again) this.play();
  }

  /** Switch over without a gap and without a click; in a blind test, nobody is told to what. */
  listen(name, { blind = false } = {}) {
    if (!this.signals?.[name]) return;
    this.ear = name;
    this.blind = blind;
    for (const [each, { gain }] of Object.entries(this.sources ?? {})) {
      gain.gain.setTargetAtTime(each === name ? 1 : 0, this.context.currentTime, FADE_SECONDS);
    }
    this.tell();
  }

  /** Loop over samples from start to end, or not at all. */
  loopOver(stretch) {
    const again = this.playing;
    const position = this.position;
    this.stop(position);
    this.loop = stretch && this.atLeast(stretch.start / this.sampleRate, stretch.end / this.sampleRate);
    if (again) this.play();
    this.tell();
  }

  atLeast(start, end) {
    const missing = Math.max(LOOP_SECONDS - (end - start), 0) / 2;
    const length = this.frames / this.sampleRate;
    return { start: Math.max(start - missing, 0), end: Math.min(end + missing, length) };
  }

  buffer(channels) {
    const options = { length: this.frames, numberOfChannels: channels.length, sampleRate: this.sampleRate };
    let buffer;
    try {
      buffer = new AudioBuffer(options);
    } catch {
      throw new Refused(
        `Browsers do not play ${channels.length} channels at ${this.sampleRate} Hz. Download it to hear it.`,
      );
    }
    channels.forEach((samples, channel) => buffer.copyToChannel(samples, channel));
    return buffer;
  }

  tell() {
    this.dispatchEvent(new Event("change"));
  }
}
