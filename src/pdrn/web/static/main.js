// The page: settings in, pictures, sounds and figures out.

import { BlindTest } from "./abx.js";
import * as api from "./api.js";
import { figures } from "./figures.js";
import { gestures } from "./gestures.js";
import { Layers } from "./layers.js";
import { Player } from "./player.js";
import { Settings } from "./settings.js";
import { speaking } from "./speaking.js";
import { Spectrograms } from "./spectrogram.js";
import { View } from "./view.js";
import { Waveform } from "./waveform.js";

const CELL_PIXELS = 10; // at which cells are easily seen
const CELLS_SPANNED = 1.6; // how many of them lie, in the mean, between the signal and zero
const SIGNALS = ["original", "quantized", "lower", "upper", "restored"];
const HEARD = ["original", "quantized", "restored"];

const $ = (id) => document.getElementById(id);
const view = new View();
const player = new Player();
const waveform = new Waveform($("waveform"), $("overview"), view);
const spectrograms = new Spectrograms($("spectrograms"), $("spectrogram-range"), view);
const blindTest = new BlindTest(document, player);
const layers = new Layers(
  {
    canvas: $("layers"),
    slider: $("layer"),
    output: $("layer-out"),
    label: $("layer-label"),
    noun: $("layers-noun"),
    button: $("layers-run"),
    prompt: $("layers-prompt"),
  },
  view,
);

const settings = new Settings();

let offer = null;
let sound = null; // what was opened: its name and content
let result = null; // what the server made of it
let running = null; // the request under way

// What is said

function say(message, kind = "") {
  $("message").textContent = message;
  $("status").className = `status ${kind}`;
}

function complain(error) {
  if (error.name === "AbortError") return;
  if (!(error instanceof api.Refused)) console.error(error);
  say(
    error instanceof api.Refused ? error.message : "Something went wrong in this page. Load it again.",
    "bad",
  );
}

// Restoring

async function restore(previous = null) {
  settings.show();
  if (!sound) return;
  running?.abort();
  const request = new AbortController();
  running = request;
  $("progress").value = 0;
  say(`Restoring ${sound.name} …`, "busy");
  try {
    const answer = await api.explore(
      sound.content,
      settings.request(),
      (share) => ($("progress").value = share),
      request.signal,
    );
    if (running !== request) return;
    show(answer);
    say("Done. Press play, and switch between the signals while it runs.");
  } catch (error) {
    if (running === request) {
      complain(error);
      // What is shown is of the one before; but levels that cannot be told may yet be said.
      if (previous && error instanceof api.Refused && settings.coarse !== "as-is")
        sound = previous;
    }
  } finally {
    if (running === request) running = null;
  }
}

function show(answer) {
  const known = result && result.sound === sound;
  result = { ...answer, sound };
  const { frames, sample_rate_hz: rate, channels } = answer;
  const seconds = frames / rate;
  $("source-name").textContent = sound.name;
  $("source-facts").textContent =
    `${seconds.toFixed(seconds < 10 ? 2 : 1)} s, ${rate / 1000} kHz` +
    `${channels > 1 ? `, ${channels} channels` : ""}`;
  const choices = Array.from({ length: channels }, (_, i) => new Option(`Channel ${i + 1}`, i));
  if ($("channel").options.length !== channels) $("channel").replaceChildren(...choices);
  $("channel").hidden = channels === 1;
  player.load(Object.fromEntries(HEARD.filter(has).map((name) => [name, byChannel(name)])), rate);
  if (!known) {
    player.stop(0);
    player.loopOver(null);
  }
  if (!known || view.frames !== frames) view.reset(frames, rate);
  showChannel();
  if (!known) showCells();
  blindTest.offer(HEARD.filter(has));
  figures($("figures"), answer);
  for (const name of ["float", "pcm24"]) $(`download-${name}`).disabled = !answer.parts[`${name}.wav`];
  for (const id of ["play", "loop", "zoom-in", "zoom-out", "show-cells", "show-all"]) $(id).disabled = false;
}

function has(name) {
  return Boolean(result.parts[name]);
}

function byChannel(name) {
  const { frames, channels } = result;
  return Array.from({ length: channels }, (_, i) =>
    result.parts[name].subarray(i * frames, (i + 1) * frames),
  );
}

function shownSignals() {
  const channel = Number($("channel").value) || 0;
  return Object.fromEntries(SIGNALS.filter(has).map((name) => [name, byChannel(name)[channel]]));
}

function showChannel() {
  const signals = shownSignals();
  $("legend-original").hidden = !signals.original;
  waveform.show(signals);
  spectrograms.show(signals, result.sample_rate_hz);
  layers.reset(signals, result);
}

/** Show single cells where a few of them span the signal: in what is shown, or, if that is all, anywhere. */
function showCells() {
  const { quantized, lower, upper } = shownSignals();
  const count = Math.round($("waveform").clientWidth / CELL_PIXELS);
  let [best, place] = [Infinity, (view.start + view.end) / 2];
  for (let start = Math.floor(view.start); start + count <= view.end; start += Math.ceil(count / 2)) {
    let [height, width] = [0, 0];
    for (let i = start; i < start + count; i++) {
      height += Math.abs(quantized[i]);
      width += upper[i] - lower[i];
    }
    const unlike = Math.abs(Math.log((height + 1e-9) / (CELLS_SPANNED * width)));
    if (unlike < best) [best, place] = [unlike, start + count / 2];
  }
  view.centre(place, count);
}

// Sounds

function take(content, name) {
  if (offer && content.size > offer.upload_bytes) {
    say(
      `${name} is larger than ${Math.floor(offer.upload_bytes / 2 ** 20)} MB. Open a shorter stretch of it.`,
      "bad",
    );
    return;
  }
  if (!content.size) {
    say(`${name} is empty. Open another file.`, "bad");
    return;
  }
  const previous = result?.sound;
  sound = { content, name };
  restore(previous);
}

async function takeSample() {
  try {
    take(await api.sample(), "the sample");
  } catch (error) {
    complain(error);
  }
}

function download(name) {
  const stem = result.sound.name.replace(/\.[^.]*$/, "").replaceAll(" ", "_");
  const link = document.createElement("a");
  link.href = URL.createObjectURL(result.parts[`${name}.wav`]);
  link.download = `${stem}_restored${name === "pcm24" ? "_24bit" : ""}.wav`;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
}

// Listening

/** An action after which something may be heard, or a sentence says why not. */
function listening(action) {
  return (...values) => {
    try {
      action(...values);
    } catch (error) {
      complain(error);
    }
  };
}

function toggleLoop() {
  const stretch = view.selection ?? { start: view.start, end: view.end };
  player.loopOver(player.loop ? null : stretch);
}

function showPlayer() {
  document.body.classList.toggle("playing", player.playing);
  $("play").setAttribute("aria-label", player.playing ? "Pause" : "Play");
  for (const button of document.querySelectorAll("[data-ear]")) {
    button.disabled = !player.signals?.[button.dataset.ear];
    button.setAttribute("aria-pressed", !player.blind && button.dataset.ear === player.ear);
  }
  $("loop").setAttribute("aria-pressed", Boolean(player.loop));
  tick();
}

let drawing = 0;

function tick() {
  cancelAnimationFrame(drawing);
  if (!player.signals) return;
  $("clock").textContent =
    `${player.position.toFixed(2)} of ${(player.frames / player.sampleRate).toFixed(2)} s`;
  waveform.playhead = player.position * player.sampleRate;
  waveform.draw();
  if (player.playing) drawing = requestAnimationFrame(tick);
}

// Wiring

function click(id, action) {
  $(id).addEventListener("click", action);
}

click("open", () => $("file").click());
click("sample", takeSample);
click("play", listening(() => player.toggle()));
click("loop", listening(toggleLoop));
click("zoom-in", () => view.zoom(1 / 2));
click("zoom-out", () => view.zoom(2));
click("show-cells", showCells);
click("show-all", () => view.show(0, view.frames));
click("download-float", () => download("float"));
click("download-pcm24", () => download("pcm24"));
click("layers-run", () => layers.run(settings.method()).catch(complain));
speaking({
  take,
  complain,
  longestSeconds: () => offer.sound_seconds,
  request: () => settings.liveRequest(),
});
$("file").addEventListener("change", () => {
  const [file] = $("file").files;
  $("file").value = "";
  if (file) take(file, file.name);
});
$("channel").addEventListener("change", showChannel);
$("settings").addEventListener("input", () => settings.show());
$("settings").addEventListener("change", () => restore());
$("settings").addEventListener("submit", (event) => event.preventDefault());
for (const button of document.querySelectorAll("[data-ear]")) {
  button.addEventListener("click", () => player.listen(button.dataset.ear));
}
player.addEventListener("change", showPlayer);
gestures($("waveform"), $("overview"), view, {
  play: listening(() => player.toggle()),
  listen: (name) => player.listen(name),
  loop: toggleLoop,
  seek: listening((sample) => player.seek(sample / player.sampleRate)),
  playFrom: listening((sample) => {
    player.stop(sample / player.sampleRate);
    player.play();
  }),
  cells: showCells,
  all: () => view.show(0, view.frames),
  keys: () => $("keys").checked,
});
for (const name of ["dragover", "dragleave", "drop"]) {
  document.addEventListener(name, (event) => {
    event.preventDefault();
    document.body.classList.toggle("dropping", name === "dragover");
    if (name === "drop" && event.dataTransfer.files[0])
      take(event.dataTransfer.files[0], event.dataTransfer.files[0].name);
  });
}

async function begin() {
  try {
    offer = await api.offer();
  } catch (error) {
    complain(error);
    return;
  }
  settings.offer(offer);
  await takeSample();
}

begin();
