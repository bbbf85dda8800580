// The two buttons for a microphone: record a sound, or have it restored live.

import { Live } from "./live.js";
import { Microphone, wavOf } from "./microphone.js";

const RATE = 16000;

export function speaking({ take, complain, longestSeconds, request }) {
  const [recordButton, liveButton, facts] = ["record", "live", "live-facts"].map((id) =>
    document.getElementById(id),
  );
  const live = new Live(document.getElementById("live-picture"), facts);
  let recording = null;

  async function record() {
    if (recording) {
      finish();
      return;
    }
    const chunks = [];
    recordButton.disabled = true;
    try {
      const microphone = await Microphone.open((chunk) => {
        if (!recording) return;
        chunks.push(chunk.map((sample) => Math.min(Math.max(sample, -1), 1)));
        const seconds = (chunks.length * chunk.length) / microphone.sampleRate;
        recordButton.textContent = `Stop, ${seconds.toFixed(1)} s`;
        if (seconds > longestSeconds() - 1) finish();
      }, RATE);
      recording = { microphone, chunks };
      pressed(recordButton, "Stop");
    } catch (error) {
      complain(error);
    } finally {
      recordButton.disabled = false;
    }
  }

  function finish() {
    const { microphone, chunks } = recording;
    recording = null;
    released(recordButton, "Record");
    const { sampleRate } = microphone;
    microphone.close();
    take(wavOf(chunks, sampleRate), "your recording");
  }

  async function toggleLive() {
    if (live.running) {
      live.stop("Stopped.");
      return;
    }
    liveButton.disabled = true;
    try {
      await live.start(request(), () => released(liveButton, "Start"));
      pressed(liveButton, "Stop");
    } catch (error) {
      facts.textContent = error.message;
    } finally {
      liveButton.disabled = false;
    }
  }

  /** Go on with other settings, if it runs. */
  async function restart() {
    if (!live.running) return;
    live.stop();
    await toggleLive();
  }

  recordButton.addEventListener("click", record);
  document.getElementById("settings").addEventListener("change", restart);
  liveButton.addEventListener("click", toggleLive);
}

function pressed(button, text) {
  button.setAttribute("aria-pressed", "true");
  button.textContent = text;
}

function released(button, text) {
  button.setAttribute("aria-pressed", "false");
  button.textContent = text;
}
