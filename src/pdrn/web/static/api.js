// The server's answers: lines of JSON as the work goes on, then binary parts.

export class Refused extends Error {}

const GONE = "The server does not answer any more. Start it again with “pdrn serve”, then try once more.";

async function ask(path, options = {}) {
  let response;
  try {
    response = await fetch(path, options);
  } catch (error) {
    throw error.name === "AbortError" ? error : new Refused(GONE);
  }
  if (response.ok) return response;
  let detail = `The server answered with error ${response.status}.`;
  try {
    detail = (await response.json()).detail ?? detail;
  } catch {
    /* no JSON: the status has to do */
  }
  throw new Refused(detail);
}

export async function offer() {
  return (await ask("api/models")).json();
}

export async function sample() {
  return (await ask("api/sample")).blob();
}

export function explore(sound, request, onProgress, signal) {
  return framed(`api/explore?${query(request)}`, sound, onProgress, signal);
}

export function layers(lower, upper, request, signal) {
  return framed(`api/layers?${query(request)}`, new Blob([lower, upper]), () => {}, signal);
}

function query(request) {
  return new URLSearchParams(Object.entries(request).filter(([, value]) => value !== null));
}

async function framed(path, body, onProgress, signal) {
  const headers = { "Content-Type": "application/octet-stream" };
  const response = await ask(path, { method: "POST", body, headers, signal });
  const reader = new ByteReader(response.body.getReader());
  try {
    for (;;) {
      const message = JSON.parse(await reader.line());
      if (message.detail) throw new Refused(message.detail);
      if (message.result) return await withParts(message.result, reader);
      onProgress(message.progress);
    }
  } catch (error) {
    if (error instanceof Refused || error.name === "AbortError") throw error;
    throw new Refused(GONE);
  }
}

async function withParts(facts, reader) {
  const parts = {};
  for (const { name, bytes } of facts.parts) {
    const content = await reader.exactly(bytes);
    parts[name] = name.endsWith(".wav")
      ? new Blob([content], { type: "audio/wav" })
      : new Float32Array(content);
  }
  return { ...facts, parts };
}

class ByteReader {
  constructor(reader) {
    this.reader = reader;
    this.chunk = new Uint8Array(0);
  }

  async more() {
    const { done, value } = await this.reader.read();
    if (done) throw new Error("cut off");
    this.chunk = value;
  }

  async line() {
    const decoder = new TextDecoder();
    let text = "";
    for (;;) {
      const end = this.chunk.indexOf(10);
      text += decoder.decode(end < 0 ? this.chunk : this.chunk.subarray(0, end), { stream: true });
      if (end >= 0) {
        this.chunk = this.chunk.subarray(end + 1);
        return text;
      }
      await this.more();
    }
  }

  async exactly(bytes) {
    const content = new Uint8Array(bytes);
    let filled = 0;
    while (filled < bytes) {
      if (!this.chunk.length) await this.more();
      const piece = this.chunk.subarray(0, bytes - filled);
      content.set(piece, filled);
      filled += piece.length;
      this.chunk = this.chunk.subarray(piece.length);
    }
    return content.buffer;
  }
}
