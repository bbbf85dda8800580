// Beside the page, by the sound card's clock: what the microphone hears goes out, what is played comes in.

const CHUNK = 512;

class Capture extends AudioWorkletProcessor {
  chunk = new Float32Array(CHUNK);
  filled = 0;

  process([channels]) {
    for (const sample of channels[0] ?? []) {
      this.chunk[this.filled++] = sample;
      if (this.filled === CHUNK) {
        this.port.postMessage(this.chunk.slice());
        this.filled = 0;
      }
    }
    return true;
  }
}

class Playback extends AudioWorkletProcessor {
  waiting = [];
  place = 0;

  constructor() {
    super();
    this.port.onmessage = ({ data }) => {
      this.waiting.push(data);
      if (this.waiting.length > 12) this.waiting.splice(0, 6); // fallen behind: catch up
    };
  }

  process(_, [[output]]) {
    for (let i = 0; i < output.length && this.waiting.length; i++) {
      output[i] = this.waiting[0][this.place++];
      if (this.place === this.waiting[0].length) {
        this.waiting.shift();
        this.place = 0;
      }
    }
    return true;
  }
}

registerProcessor("capture", Capture);
registerProcessor("playback", Playback);
