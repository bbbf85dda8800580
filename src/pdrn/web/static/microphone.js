// The microphone, chunk by chunk, as it is: no echo or noise is taken out of it.

import { Refused } from "./api.js";

const PLAIN = { echoCancellation: false, noiseSuppression: false, autoGainControl: false, channelCount: 1 };

export class Microphone {
  /** Ask for the microphone and hand over every chunk; a sample rate is asked for and may not be had. */
  static async open(onChunk, sampleRate) {
    if (!window.isSecureContext)
      throw new Refused(
        "Browsers lend a microphone only to pages of this machine, at localhost, or by HTTPS. This is neither.",
      );
    const microphone = new Microphone();
    try {
      microphone.stream = await navigator.mediaDevices.getUserMedia({ audio: PLAIN });
    } catch {
      throw new Refused(
        "There is no microphone, or this page may not use it. Allow it in the browser, then try again.",
      );
    }
    microphone.context = microphone.contextAt(sampleRate);
    await microphone.context.audioWorklet.addModule("worklets.js");
    const capture = new AudioWorkletNode(microphone.context, "capture", { numberOfOutputs: 0 });
    capture.port.onmessage = ({ data }) => onChunk(data);
    microphone.source.connect(capture);
    return microphone;
  }

  contextAt(sampleRate) {
    try {
      const context = new AudioContext({ sampleRate });
      this.source = context.createMediaStreamSource(this.stream);
      return context;
    } catch {
      // some browsers do not resample a microphone
      const context = new AudioContext();
      this.source = context.createMediaStreamSource(this.stream);
      return context;
    }
  }

  get sampleRate() {
    return this.context.sampleRate;
  }

  speaker() {
    const node = new AudioWorkletNode(this.context, "playback", {
      numberOfInputs: 0,
      outputChannelCount: [1],
    });
    node.connect(this.context.destination);
    return (samples) => node.port.postMessage(samples);
  }

  close() {
    for (const track of this.stream.getTracks()) track.stop();
    this.context.close();
  }
}

/** Chunks as a WAV file of floats. */
export function wavOf(chunks, sampleRate) {
  const bytes = 4 * chunks.reduce((sum, chunk) => sum + chunk.length, 0);
  const header = new DataView(new ArrayBuffer(44));
  const text = (place, word) =>
    [...word].forEach((letter, i) => header.setUint8(place + i, letter.charCodeAt(0)));
  text(0, "RIFF");
  header.setUint32(4, 36 + bytes, true);
  text(8, "WAVEfmt ");
  header.setUint32(16, 16, true);
  header.setUint16(20, 3, true); // floats
  header.setUint16(22, 1, true);
  header.setUint32(24, sampleRate, true);
  header.setUint32(28, 4 * sampleRate, true);
  header.setUint16(32, 4, true);
  header.setUint16(34, 32, true);
  text(36, "data");
  header.setUint32(40, bytes, true);
  return new Blob([header.buffer, ...chunks], { type: "audio/wav" });
}
