// Buttons with data-seek move the player; a line on the timeline shows where the player is.
(() => {
  const player = () => document.querySelector("#vt-clip video");
  document.addEventListener("click", (event) => {
    const button = event.target.closest?.("[data-seek]");
    const video = player();
    if (button && video) video.currentTime = Number(button.dataset.seek);
  });
  const follow = () => {
    const line = document.querySelector(".vt-timeline");
    const video = player();
    if (line && video) {
      const share = Math.min(video.currentTime / Number(line.dataset.duration), 1);
      line.querySelector(".vt-head").style.left = `${100 * share}%`;
    }
    requestAnimationFrame(follow);
  };
  requestAnimationFrame(follow);
})();
