// Figures of a restoration, for people.

export function figures(list, facts) {
  const { quantized, restored, heard_seconds: heard } = facts.figures ?? {};
  const rows = [];
  const beginning = facts.frames > heard * facts.sample_rate_hz ? `, first ${heard} s` : "";
  if (quantized?.snr_db != null && restored.snr_db != null) {
    const gain = restored.snr_db - quantized.snr_db;
    const change = `${number(quantized.snr_db, 1)} → ${number(restored.snr_db, 1)} dB`;
    rows.push(["Signal over noise", `${gain < 0 ? "−" : "+"}${number(Math.abs(gain), 1)} dB`, change]);
  }
  if (quantized?.mse) {
    const left = restored.mse / quantized.mse;
    rows.push([
      "Error left",
      `${number(100 * left, 0)} %`,
      `of the quantized signal's; ratio ${number(left, 3)}`,
    ]);
  }
  if (restored?.pesq != null && quantized.pesq != null) {
    const best = facts.sample_rate_hz === 8000 ? "narrow band, 4.55" : "4.64";
    rows.push([
      `PESQ${beginning}`,
      number(restored.pesq, 2),
      `from ${number(quantized.pesq, 2)}; ${best} is best`,
    ]);
  }
  if (restored?.stoi != null && quantized.stoi != null) {
    rows.push([`STOI${beginning}`, number(restored.stoi, 3), `from ${number(quantized.stoi, 3)}; 1 is best`]);
  }
  rows.push(["Outside a cell", `by ${facts.violation}`, "the largest violation of all samples"]);
  rows.push([
    "Speed",
    `${number(facts.times_real_time, facts.times_real_time < 10 ? 1 : 0)}×`,
    `real time, by ${facts.restored_by}`,
  ]);
  rows.push([
    "Levels",
    levels(facts.levels),
    facts.step ? `a step of ${Number(facts.step.toPrecision(3))}` : "cells grow with the signal",
  ]);
  list.replaceChildren(...rows.map(card));
}

function card([title, value, note]) {
  const [box, term, figure, small] = ["div", "dt", "dd", "small"].map((name) => document.createElement(name));
  term.textContent = title;
  figure.textContent = value;
  small.textContent = note;
  figure.append(small);
  box.append(term, figure);
  return box;
}

function number(value, digits) {
  return value.toFixed(digits);
}

function levels(text) {
  return text.split(",")[0];
}
