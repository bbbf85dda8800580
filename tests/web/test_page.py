"""The page in a real browser: by mouse, keys and touch, on a desktop and on a phone."""

import io
import re

import numpy as np
import pytest
import soundfile
from playwright.sync_api import expect, sync_playwright
from tests.web.browsing import FLAGS, installed
from tests.web.serving import RATE, samples_of, serving, tone, wav

import pdrn
from pdrn.audio.detection import QuantizerOptions, choose_quantizer
from pdrn.audio.files import round_to_subtype
from pdrn.audio.quantizers import MidRise

pytestmark = pytest.mark.browser

SOUND = wav(tone(1.0))
expect.set_options(timeout=90_000)
HOSTILE = '<img src=x onerror="document.title=1">.wav'


@pytest.fixture(scope="module")
def browser():
    path = installed()
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=FLAGS, timeout=90_000)
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def problems():
    return []


@pytest.fixture(scope="module")
def open_page(browser, problems):
    def opened(url):
        page = browser.new_context(permissions=["microphone"], has_touch=True).new_page()
        page.set_default_timeout(90_000)
        page.on("pageerror", lambda error: problems.append(str(error)))
        page.on("console", lambda said: problems.append(said.text) if "Refused" in said.text else None)
        page.goto(url)
        expect(page.locator("#play")).to_be_enabled()
        page.select_option("#method", "cp")
        return page

    return opened


@pytest.fixture(scope="module")
def shared_page(open_page, server):
    return open_page(server.url)


@pytest.fixture
def page(shared_page, problems):
    """The page with a sound; at the end it must have reported no problems."""
    take(shared_page, SOUND)
    expect_done(shared_page)
    yield shared_page
    assert problems == []


def take(page, content, name="tone.wav"):
    page.set_input_files("#file", {"name": name, "mimeType": "audio/wav", "buffer": content})


def expect_done(page, name="tone.wav"):
    expect(page.locator("#source-name")).to_have_text(name)
    expect(page.locator("#message")).to_have_text(re.compile("Done"))


def ear(page, name):
    return page.locator(f"[data-ear={name}]")


def expected(subtype, bits=4):
    quantized = MidRise(bits, full_scale=True).quantize(tone(1.0))
    cells = choose_quantizer(None, QuantizerOptions(bits=bits)).observe(quantized)
    return round_to_subtype(pdrn.Restorer(method="cp").restore(quantized, RATE, bits=bits), cells, subtype)


def test_upload_restore_switch_and_download(page, tmp_path):
    expect(page.locator("#figures")).to_contain_text("Signal over noise")
    expect(page.locator("#figures")).to_contain_text("by 0")
    page.click("#loop")
    page.click("#play")
    for name in ("original", "quantized", "restored"):
        ear(page, name).click()
        expect(ear(page, name)).to_have_attribute("aria-pressed", "true")
        expect(page.locator("#play")).to_have_attribute("aria-label", "Pause")
    page.click("#play")
    page.click("#loop")
    for name, subtype in (("float", "FLOAT"), ("pcm24", "PCM_24")):
        with page.expect_download() as download:
            page.click(f"#download-{name}")
        bits = "_24bit" if name == "pcm24" else ""
        assert download.value.suggested_filename == f"tone_restored{bits}.wav"
        download.value.save_as(tmp_path / name)
        np.testing.assert_array_equal(samples_of((tmp_path / name).read_bytes()), expected(subtype))


def test_switching_signals_has_no_gap_and_no_step(page):
    """Rendered offline by the page's own player: one signal fades into the other."""
    heard = page.evaluate(
        """async () => {
            const { Player } = await import("./player.js");
            const player = new Player();
            const [frames, rate] = [16000, 16000];
            const offline = new OfflineAudioContext(1, frames, rate);
            const resume = offline.resume.bind(offline);
            offline.resume = () => {};
            player.context = offline;
            const flat = (value) => [new Float32Array(frames).fill(value)];
            player.load({ quantized: flat(0.25), restored: flat(0.5) }, rate);
            player.play();
            offline.suspend(0.5).then(() => { player.listen("quantized"); resume(); });
            return Array.from((await offline.startRendering()).getChannelData(0));
        }"""
    )
    samples = np.array(heard)
    assert samples[1000:7900] == pytest.approx(0.5)
    assert samples[9000:] == pytest.approx(0.25, abs=1e-3)
    assert samples[1000:].min() > 0.2499
    assert np.abs(np.diff(samples[1000:])).max() < 0.01


def test_changed_settings_restore_again(page):
    page.locator("label", has_text="µ-law").click()
    expect(page.locator("#figures")).to_contain_text("mu-law")
    page.locator("label", has_text="As it is").click()
    expect(page.locator("#message")).to_contain_text("The levels of this sound cannot be detected")
    page.locator("label", has_text=re.compile("^Bits")).click()
    page.locator("#bits").fill("2")
    expect(page.locator("#figures")).to_contain_text("2 bits")
    expect_done(page)
    page.select_option("#method", "tiny")
    expect(page.locator("#iterations-row")).to_be_hidden()
    expect_done(page)
    page.click("#layers-run")
    expect(page.locator("#layer")).to_have_attribute("max", "3")
    expect(page.locator("#layer-label")).to_have_text("After 3")
    page.select_option("#method", "cp")
    page.locator("#bits").fill("4")


def test_failed_upload_keeps_the_shown_sound(page):
    take(page, b"no sound at all", "broken.wav")
    expect(page.locator("#message")).to_contain_text("is no WAV")
    expect(page.locator("#source-name")).to_have_text("tone.wav")
    page.locator("#bits").fill("5")
    expect_done(page)
    page.locator("#bits").fill("4")
    expect_done(page)


def test_undetected_levels_can_be_chosen(page):
    page.locator("input[value=as-is]").check(force=True)
    expect(page.locator("#status.bad #message")).to_contain_text(
        "The levels of this sound cannot be detected"
    )
    take(page, b"", "empty.wav")
    expect(page.locator("#message")).to_contain_text("empty.wav is empty")
    take(page, wav(np.random.default_rng(0).uniform(-0.5, 0.5, 4000), "FLOAT"), "noise.wav")
    expect(page.locator("#status.bad #message")).to_contain_text(
        "The levels of this sound cannot be detected"
    )
    page.locator("input[value=bits]").check(force=True)
    expect_done(page, "noise.wav")


def test_unplayable_rate_is_reported(page):
    content = io.BytesIO()
    soundfile.write(content, tone(1.0), 2000, "FLOAT", format="WAV")
    take(page, content.getvalue(), "slow.wav")
    expect_done(page, "slow.wav")
    page.click("#play")
    expect(page.locator("#status.bad #message")).to_contain_text("do not play 1 channels at 2000 Hz")


def test_keys_can_be_switched_off(page):
    ear(page, "restored").click()
    page.locator("#keys").uncheck()
    page.keyboard.press("1")
    expect(ear(page, "restored")).to_have_attribute("aria-pressed", "true")
    page.locator("#keys").check()
    page.keyboard.press("1")
    expect(ear(page, "original")).to_have_attribute("aria-pressed", "true")


def test_page_works_by_keys_alone(page):
    page.locator("#bits").focus()
    page.keyboard.press("1")
    expect(ear(page, "original")).to_have_attribute("aria-pressed", "true")
    page.locator("#waveform").focus()
    page.keyboard.press("l")
    expect(page.locator("#loop")).to_have_attribute("aria-pressed", "true")
    page.keyboard.press("Space")
    expect(page.locator("#play")).to_have_attribute("aria-label", "Pause")
    page.keyboard.press("Space")
    expect(page.locator("#play")).to_have_attribute("aria-label", "Play")
    page.keyboard.press("l")
    expect(page.locator("#loop")).to_have_attribute("aria-pressed", "false")
    before = page.locator("#spectrogram-range").text_content()
    for key in ("a", "+", "ArrowRight"):
        page.keyboard.press(key)
    expect(page.locator("#spectrogram-range")).not_to_have_text(before)
    page.locator("#waveform").focus()
    page.keyboard.press("a")
    for _ in range(3):
        page.keyboard.press("Shift+ArrowRight")
    page.keyboard.press("l")
    page.keyboard.press("Enter")
    expect(page.locator("#play")).to_have_attribute("aria-label", "Pause")
    expect(page.locator("#clock")).to_have_text(re.compile("^0.[56]. of 1.00 s"))
    page.keyboard.press("Space")
    page.keyboard.press("l")
    page.locator("input[value=bits]").focus()
    page.keyboard.press("ArrowRight")
    expect(page.locator("input[value=mulaw]")).to_be_checked()
    page.keyboard.press("ArrowLeft")


def test_pointer_zooms_and_selects_a_loop(page):
    page.click("#show-all")
    shown = page.locator("#spectrogram-range")
    expect(shown).to_have_text("0.00 to 1.00 s, 0 to 8.0 kHz")
    page.locator("#waveform").hover()
    page.mouse.wheel(0, -400)
    expect(shown).not_to_have_text(re.compile("^0.00 to 1.00"))
    page.click("#show-all")
    box = page.locator("#waveform").bounding_box()
    page.keyboard.down("Shift")
    page.mouse.move(box["x"] + box["width"] * 0.5, box["y"] + 50)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] * 0.8, box["y"] + 50, steps=3)
    page.mouse.up()
    page.keyboard.up("Shift")
    page.click("#loop")
    page.click("#play")
    expect(page.locator("#clock")).to_have_text(re.compile("^0.[567]. of 1.00 s"))
    page.click("#play")
    page.click("#loop")


def test_blind_test_keeps_a_score(page):
    page.click("#loop")
    page.click("[data-abx=x]")
    expect(page.locator("#play")).to_have_attribute("aria-label", "Pause")
    assert page.locator("[data-ear][aria-pressed=true]").count() == 0
    for number in (1, 2):
        page.click("[data-answer=a]")
        expect(page.locator("#abx-score")).to_have_text(re.compile(f"X was [AB].*of {number} right"))
    page.click("#loop")


def test_microphone_records_and_plays_live(page):
    page.click("#record")
    expect(page.locator("#record")).to_have_text(re.compile(r"Stop, [1-9.]"))
    page.click("#record")
    expect_done(page, "your recording")
    page.click("#live")
    expect(page.locator("#live-facts")).to_have_text(
        re.compile(r"\d+ ms from the microphone"), timeout=20_000
    )
    with page.expect_websocket() as anew:
        page.locator("#bits").fill("2")
    with anew.value.expect_event("framesent") as said:
        pass
    assert '"quantize_bits":2' in said.value
    page.click("#live")
    expect(page.locator("#live-facts")).to_have_text("Stopped.")
    page.locator("#bits").fill("4")


def test_bad_files_are_reported(page):
    for content, sentence in ((b"no sound", "is no WAV"), (b"", "is empty"), (SOUND[:3000], "This file")):
        take(page, content, HOSTILE)
        expect(page.locator("#status.bad #message")).to_contain_text(sentence)
        take(page, SOUND)
        expect_done(page)
    take(page, SOUND, HOSTILE)
    expect_done(page, HOSTILE)
    assert page.locator("img").count() == 0
    assert page.title().startswith("pdrn")


def test_page_fits_a_phone(page):
    before = page.viewport_size
    page.set_viewport_size({"width": 360, "height": 740})
    assert page.evaluate("document.documentElement.scrollWidth") == 360
    heights = page.locator("button").evaluate_all(
        "all => all.map(each => each.getBoundingClientRect().height)"
    )
    assert min(heights) >= 36
    for picture in ("waveform", "layers"):  # a finger on it still scrolls the page
        touch = page.locator(f"#{picture}").evaluate("each => getComputedStyle(each).touchAction")
        assert touch in ("pan-y", "auto")
    ear(page, "quantized").tap()
    expect(ear(page, "quantized")).to_have_attribute("aria-pressed", "true")
    page.set_viewport_size(before)


def test_long_sound_and_killed_server_are_reported(open_page, problems, tmp_path):
    with serving(tmp_path, "--max-seconds", "20") as server:
        page = open_page(server.url)
        take(page, wav(np.zeros(21 * RATE), "PCM_16"))
        expect(page.locator("#message")).to_have_text("The sound is longer than 20 s; send a stretch of it.")
        take(page, wav(np.random.default_rng(0).uniform(-1, 1, 19 * RATE)))
        expect(page.locator("#progress")).not_to_have_js_property("value", 0)
        server.process.kill()
        expect(page.locator("#message")).to_contain_text("The server does not answer any more")
    assert problems == []
