// Computes spectrograms: columns of levels, 0 to 255 for the lowest to the highest decibels.

const SIZE = 512;
const LOWEST_DB = -90;
const signals = {};
const window = Float64Array.from(
  { length: SIZE },
  (_, i) => 0.5 - 0.5 * Math.cos((2 * Math.PI * (i + 0.5)) / SIZE),
);
const reversed = Uint16Array.from({ length: SIZE }, (_, i) => {
  let bits = 0;
  for (let bit = 1, mirrored = SIZE >> 1; bit < SIZE; bit <<= 1, mirrored >>= 1)
    if (i & bit) bits |= mirrored;
  return bits;
});
const cosines = Float64Array.from({ length: SIZE / 2 }, (_, i) => Math.cos((2 * Math.PI * i) / SIZE));
const sines = Float64Array.from({ length: SIZE / 2 }, (_, i) => -Math.sin((2 * Math.PI * i) / SIZE));
const real = new Float64Array(SIZE);
const imaginary = new Float64Array(SIZE);
const waiting = new Map();

onmessage = ({ data }) => {
  if ("signal" in data) {
    signals[data.name] = data.signal;
    return;
  }
  if (!waiting.size) setTimeout(answer);
  waiting.set(data.name, data); // of several requests for a signal, only the last counts
};

function answer() {
  const requests = [...waiting.values()];
  waiting.clear();
  for (const request of requests) if (signals[request.name]) compute(request);
}

function compute({ name, start, length, columns }) {
  const rows = SIZE / 2;
  const levels = new Uint8Array(rows * columns);
  for (let column = 0; column < columns; column++) {
    transform(signals[name], Math.round(start + ((column + 0.5) / columns) * length - SIZE / 2));
    for (let row = 0; row < rows; row++) {
      const power = (real[row] ** 2 + imaginary[row] ** 2) / (SIZE / 4) ** 2;
      const level = 255 * (1 - (10 * Math.log10(power + 1e-12)) / LOWEST_DB);
      levels[(rows - 1 - row) * columns + column] = Math.min(Math.max(level, 0), 255);
    }
  }
  postMessage({ name, start, length, columns, rows, levels }, [levels.buffer]);
}

function transform(signal, first) {
  for (let i = 0; i < SIZE; i++) {
    real[reversed[i]] = (signal[first + i] ?? 0) * window[i];
    imaginary[i] = 0;
  }
  for (let half = 1; half < SIZE; half *= 2) {
    const stride = SIZE / (2 * half);
    for (let block = 0; block < SIZE; block += 2 * half) {
      for (let i = 0; i < half; i++) {
        const c = cosines[i * stride];
        const s = sines[i * stride];
        const a = block + i;
        const b = a + half;
        const re = real[b] * c - imaginary[b] * s;
        const im = real[b] * s + imaginary[b] * c;
        real[b] = real[a] - re;
        imaginary[b] = imaginary[a] - im;
        real[a] += re;
        imaginary[a] += im;
      }
    }
  }
}
