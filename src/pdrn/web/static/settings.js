// What is asked for: how coarse the sound is made, and how it is restored.

const NOTES = {
  bits: "Levels evenly spaced, as in the paper.",
  mulaw: "Telephony in America and Japan: fine near zero.",
  alaw: "Telephony in Europe: fine near zero.",
  "as-is": "The levels that the file has are found from its samples.",
};

const $ = (id) => document.getElementById(id);

export class Settings {
  methods = [];

  offer({ methods, iterations }) {
    this.methods = methods;
    $("method").replaceChildren(...methods.map(({ name, title }) => new Option(title, name)));
    $("iterations").value = iterations;
    this.show();
  }

  get coarse() {
    return document.querySelector('input[name="coarse"]:checked').value;
  }

  get solving() {
    return this.methods.find(({ name }) => name === $("method").value)?.kind === "solver";
  }

  method() {
    const iterations = this.solving ? Number($("iterations").value) : null;
    return { method: $("method").value, iterations, mix: Number($("mix").value) / 100 };
  }

  request() {
    const { coarse } = this;
    return {
      ...this.method(),
      quantize_bits: coarse === "bits" ? Number($("bits").value) : null,
      quantize_law: coarse === "mulaw" || coarse === "alaw" ? coarse : null,
    };
  }

  /** A microphone has no levels of its own: as it is stands for the bit depth too. */
  liveRequest() {
    const asked = this.request();
    if (asked.quantize_law === null) asked.quantize_bits ??= Number($("bits").value);
    return asked;
  }

  show() {
    const { coarse } = this;
    const bits = $("bits").value;
    $("bits").disabled = coarse !== "bits";
    $("bits-out").textContent = coarse === "bits" ? `${bits} bit${bits === "1" ? "" : "s"}` : "";
    $("coarse-note").textContent = NOTES[coarse];
    $("iterations-row").hidden = !this.solving;
    $("iterations-out").textContent = $("iterations").value;
    $("mix-out").textContent = `${$("mix").value} %`;
  }
}
