// Live: chunks of the microphone go to the server and come back restored; how long that takes is measured.

import { colours, drawCurve, drawStairs, fitted } from "./drawing.js";
import { Microphone } from "./microphone.js";

const RATE = 16000;
const SHOWN = 320;

export class Live {
  constructor(canvas, facts) {
    Object.assign(this, { canvas, facts });
  }

  get running() {
    return Boolean(this.socket);
  }

  async start(request, onEnd) {
    this.onEnd = onEnd;
    this.sent = []; // when each chunk was heard, and how many samples there were after it
    this.samples = 0;
    this.returned = 0;
    this.delays = [];
    this.ready = false;
    this.microphone = await Microphone.open((chunk) => this.send(chunk), RATE);
    this.play = this.microphone.speaker();
    const scheme = location.protocol === "https:" ? "wss" : "ws";
    this.socket = new WebSocket(`${scheme}://${location.host}/api/live`);
    this.socket.binaryType = "arraybuffer";
    const settings = { ...request, sample_rate_hz: this.microphone.sampleRate };
    this.socket.onopen = () => this.socket.send(JSON.stringify(settings));
    this.socket.onmessage = ({ data }) =>
      typeof data === "string" ? this.told(JSON.parse(data)) : this.got(data);
    this.socket.onclose = () =>
      this.stop(this.reason ?? (this.returned ? "The server has stopped." : "The server does not answer."));
  }

  send(chunk) {
    if (!this.ready || this.socket?.readyState !== WebSocket.OPEN) return;
    this.samples += chunk.length;
    this.sent.push({ samples: this.samples, at: performance.now() });
    this.socket.send(chunk);
  }

  told(message) {
    if (message.detail) {
      this.reason = message.detail;
      return;
    }
    this.ready = true;
    this.least = message.latency_seconds;
    this.facts.textContent = "Speak.";
  }

  got(data) {
    const both = new Float32Array(data);
    const count = both.length / 2;
    if (!count) return;
    const [quantized, restored] = [both.subarray(0, count), both.subarray(count)];
    const hear = document.querySelector('input[name="hear"]:checked').value;
    if (hear !== "none") this.play((hear === "restored" ? restored : quantized).slice());
    this.measure(count);
    this.draw(quantized, restored);
  }

  /** How long ago the first sample of what came back was heard. */
  measure(count) {
    while (this.sent.length && this.sent[0].samples <= this.returned) this.sent.shift();
    const heardAt = this.sent[0]?.at ?? performance.now();
    this.returned += count;
    this.delays.push(performance.now() - heardAt);
    if (this.delays.length > 50) this.delays.shift();
    const mean = this.delays.reduce((sum, each) => sum + each, 0) / this.delays.length;
    this.facts.textContent =
      `${Math.round(mean)} ms from the microphone to the restored sample, measured; ` +
      `the method looks ${Math.round(1000 * this.least)} ms ahead.`;
  }

  draw(quantized, restored) {
    const { context, width, height } = fitted(this.canvas);
    const colour = colours();
    const count = Math.min(SHOWN, quantized.length);
    const peak = Math.max(0.1, ...quantized.subarray(0, count).map(Math.abs)) * 1.15;
    const x = (i) => (i / count) * width;
    const y = (value) => height * (0.5 - value / (2 * peak));
    drawStairs(context, quantized, 0, count, x, y, colour.quantized);
    drawCurve(context, restored, 0, count, x, y, colour.restored, 2, false);
  }

  stop(reason = "") {
    if (!this.socket) return;
    const socket = this.socket;
    this.socket = null;
    this.reason = null;
    socket.onclose = null;
    socket.close();
    this.microphone.close();
    if (reason) this.facts.textContent = reason;
    this.onEnd();
  }
}
