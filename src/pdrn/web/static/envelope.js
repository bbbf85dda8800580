// Least and greatest values of any stretch of a signal, at once: a pyramid of blocks of blocks.

const BLOCK = 16;

export class Envelope {
  constructor(signal) {
    this.levels = [{ size: 1, least: signal, greatest: signal }];
    for (let level = this.levels[0]; level.least.length > BLOCK; level = this.levels.at(-1)) {
      const count = Math.ceil(level.least.length / BLOCK);
      const [least, greatest] = [new Float32Array(count), new Float32Array(count)];
      for (let i = 0; i < count; i++) {
        [least[i], greatest[i]] = extremes(level, i * BLOCK, (i + 1) * BLOCK);
      }
      this.levels.push({ size: level.size * BLOCK, least, greatest });
    }
  }

  /** Of the samples from start to end, to the precision of a sixteenth of the stretch. */
  between(start, end) {
    let level = this.levels[0];
    for (const coarser of this.levels) {
      if (coarser.size * BLOCK <= end - start) level = coarser;
    }
    return extremes(level, Math.floor(start / level.size), Math.ceil(end / level.size));
  }
}

function extremes({ least, greatest }, start, end) {
  let [low, high] = [Infinity, -Infinity];
  for (let i = Math.max(start, 0); i < Math.min(end, least.length); i++) {
    if (least[i] < low) low = least[i];
    if (greatest[i] > high) high = greatest[i];
  }
  return [low, high];
}
