// Moving the view by pointer, wheel and keys.

export function gestures(canvas, overview, view, actions) {
  const pointers = new Map();
  let selectFrom = null;

  const place = (event) => (event.clientX - canvas.getBoundingClientRect().left) / canvas.clientWidth;
  const sampleAt = (event) => view.start + place(event) * view.length;

  canvas.addEventListener("pointerdown", (event) => {
    canvas.setPointerCapture(event.pointerId);
    pointers.set(event.pointerId, event);
    selectFrom = event.shiftKey ? sampleAt(event) : null;
  });
  canvas.addEventListener("pointermove", (event) => {
    const before = pointers.get(event.pointerId);
    if (!before) return;
    if (selectFrom !== null) {
      view.select(selectFrom, sampleAt(event));
    } else if (pointers.size === 2) {
      const [other] = [...pointers.values()].filter((each) => each.pointerId !== event.pointerId);
      const distance = (each) => Math.max(Math.abs(each.clientX - other.clientX), 10);
      view.zoom(distance(before) / distance(event), (place(event) + place(other)) / 2);
    } else {
      view.pan(((before.clientX - event.clientX) / canvas.clientWidth) * view.length);
    }
    pointers.set(event.pointerId, event);
  });
  for (const end of ["pointerup", "pointercancel"]) {
    canvas.addEventListener(end, (event) => pointers.delete(event.pointerId));
  }
  canvas.addEventListener(
    "wheel",
    (event) => {
      event.preventDefault();
      if (Math.abs(event.deltaX) > Math.abs(event.deltaY))
        view.pan((event.deltaX / canvas.clientWidth) * view.length);
      else view.zoom(1.0025 ** event.deltaY, place(event));
    },
    { passive: false },
  );
  canvas.addEventListener("dblclick", (event) => actions.seek(sampleAt(event)));

  let overviewFrom = null;
  const onOverview = (event) => {
    const sample =
      ((event.clientX - overview.getBoundingClientRect().left) / overview.clientWidth) * view.frames;
    if (event.shiftKey && overviewFrom !== null) view.select(overviewFrom, sample);
    else view.centre(sample, view.length);
    return sample;
  };
  overview.addEventListener("pointerdown", (event) => {
    overview.setPointerCapture(event.pointerId);
    overviewFrom = onOverview(event);
  });
  overview.addEventListener("pointermove", (event) => event.buttons && onOverview(event));

  const moves = {
    ArrowLeft: () => view.pan(-view.length / 8),
    ArrowRight: () => view.pan(view.length / 8),
    ArrowUp: () => view.zoom(1 / 1.5),
    ArrowDown: () => view.zoom(1.5),
    Home: () => view.show(0, view.length),
    End: () => view.show(view.frames, view.length),
    "+": () => view.zoom(1 / 1.5),
    "=": () => view.zoom(1 / 1.5),
    "-": () => view.zoom(1.5),
    Enter: () => actions.playFrom((view.start + view.end) / 2),
  };
  const selects = {
    ArrowLeft: () => view.extend(-view.length / 16),
    ArrowRight: () => view.extend(view.length / 16),
  };
  for (const element of [canvas, overview]) {
    element.addEventListener("keydown", (event) => {
      const action = (event.shiftKey && selects[event.key]) || moves[event.key];
      if (!action || !view.frames) return;
      event.preventDefault();
      action();
    });
  }

  const everywhere = {
    " ": actions.play,
    1: () => actions.listen("original"),
    2: () => actions.listen("quantized"),
    3: () => actions.listen("restored"),
    l: actions.loop,
    c: actions.cells,
    a: actions.all,
    "+": moves["+"],
    "-": moves["-"],
  };
  document.addEventListener("keydown", (event) => {
    const typed = event.target.closest("select");
    const pressed = event.key === " " && event.target.closest("button, a, input");
    if (!actions.keys() || typed || pressed || event.defaultPrevented) return;
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const action = everywhere[event.key.toLowerCase()];
    if (!action || !view.frames) return;
    event.preventDefault();
    action();
  });
}
