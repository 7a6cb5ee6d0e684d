// The texts whose contrast with what is behind them is too low, as "ratio text".
const channels = (colour) => (colour.match(/[\d.]+/g) ?? []).map(Number);
const luminance = ([red, green, blue]) => {
  const linear = [red, green, blue].map((value) => {
    const share = value / 255;
    return share <= 0.04045 ? share / 12.92 : ((share + 0.055) / 1.055) ** 2.4;
  });
  return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2];
};
const ground = (element) => {
  for (let one = element; one; one = one.parentElement) {
    const [red, green, blue, alpha = 1] = channels(getComputedStyle(one).backgroundColor);
    if (alpha === 1 && red !== undefined) return [red, green, blue];
  }
  return [255, 255, 255];
};
const texts = [...document.querySelectorAll("body *")].filter(
  (element) =>
    !element.closest("svg, script, style, noscript, option") &&
    element.checkVisibility() &&
    !element.closest(".unseen, .skip") &&
    [...element.childNodes].some((node) => node.nodeType === Node.TEXT_NODE && node.data.trim()),
);
return texts.flatMap((element) => {
  const [text, behind] = [luminance(channels(getComputedStyle(element).color)), luminance(ground(element))];
  const ratio = (Math.max(text, behind) + 0.05) / (Math.min(text, behind) + 0.05);
  return ratio < 4.5 ? [`${ratio.toFixed(2)} ${element.textContent.trim().slice(0, 40)} (${element.className})`] : [];
});
