// The blind test: X is A or B, by chance; how many answers were right, and how likely that is by guessing.

const PAIRS = [
  ["quantized", "restored"],
  ["original", "restored"],
  ["original", "quantized"],
];

export class BlindTest {
  constructor(root, player) {
    this.player = player;
    this.pair = root.querySelector("#abx-pair");
    this.score = root.querySelector("#abx-score");
    this.ears = [...root.querySelectorAll("[data-abx]")];
    this.controls = [...this.ears, ...root.querySelectorAll("[data-answer], #abx-reset")];
    for (const button of this.ears) button.addEventListener("click", () => this.listen(button.dataset.abx));
    for (const button of root.querySelectorAll("[data-answer]")) {
      button.addEventListener("click", () => this.answer(button.dataset.answer));
    }
    root.querySelector("#abx-reset").addEventListener("click", () => this.reset());
    this.pair.addEventListener("change", () => this.reset());
  }

  offer(names) {
    const pairs = PAIRS.filter((pair) => pair.every((name) => names.includes(name)));
    this.pair.replaceChildren(...pairs.map(([a, b]) => new Option(`${a} or ${b}`, `${a} ${b}`)));
    for (const control of this.controls) control.disabled = false;
    this.reset();
  }

  reset() {
    this.right = 0;
    this.asked = 0;
    this.score.textContent = "No answers yet.";
    this.draw();
  }

  draw() {
    this.x = crypto.getRandomValues(new Uint8Array(1))[0] & 1;
    this.mark(null);
  }

  listen(which) {
    const [a, b] = this.pair.value.split(" ");
    this.player.listen({ a, b, x: [a, b][this.x] }[which], { blind: true });
    this.player.play();
    this.mark(which);
  }

  mark(which) {
    for (const button of this.ears) button.setAttribute("aria-pressed", button.dataset.abx === which);
  }

  answer(which) {
    this.asked += 1;
    const right = which === "ab"[this.x];
    this.right += right;
    const chance = byGuessing(this.right, this.asked);
    const percent = Math.round(100 * chance);
    const verdict = chance < 0.05 ? "You hear the difference." : "This may still be luck.";
    this.score.textContent =
      `${right ? "Right" : "Wrong"}: X was ${"AB"[this.x]}. ` +
      `${this.right} of ${this.asked} right, by guessing in ${percent} % of cases. ${verdict}`;
    this.player.stop();
    this.player.listen("restored");
    this.draw();
  }
}

/** How likely so many right answers, or more, are by guessing. */
function byGuessing(right, asked) {
  let [sum, ways] = [0, 1];
  for (let k = 0; k <= asked; k++) {
    if (k >= right) sum += ways;
    ways = (ways * (asked - k)) / (k + 1);
  }
  return sum / 2 ** asked;
}
