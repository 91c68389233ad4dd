// Helpers that all pages of the server share; the build puts them before each page's own script. A
// page defines refresh(), which reads and shows its data and throws what goes wrong, and
// askForKey(), and has the elements #key, #state and #notice.
"use strict";
const $ = id => document.getElementById(id);
const make = (tag, classes, text) => {
  const node = document.createElement(tag);
  if (classes) node.className = classes;
  if (text !== undefined) node.textContent = text;
  return node;
};
const shape = (tag, attributes) => {
  const node = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const name in attributes) node.setAttribute(name, attributes[name]);
  return node;
};
const number = value => Number.isFinite(value) ? value : 0;
const rate = value => {
  const x = number(value);
  return x >= 100 ? Math.round(x).toLocaleString("en") : x.toFixed(1);
};
const millis = value => {
  if (!Number.isFinite(value)) return "–";
  if (value >= 10000) return (value / 1000).toFixed(1) + " s";
  return (value >= 100 ? Math.round(value) : value.toPrecision(2)) + " ms";
};
const duration = seconds => {
  const s = Math.floor(number(seconds)), pad = n => String(n).padStart(2, "0");
  return Math.floor(s / 3600) + ":" + pad(Math.floor(s / 60) % 60) + ":" + pad(s % 60);
};

// ---------------------------------------------------------------- key and errors

// The key lives as long as the tab.
try { $("key").value = sessionStorage.getItem("sluice-key") || ""; } catch { /* storage is off */ }
$("key").addEventListener("input", () => {
  try { sessionStorage.setItem("sluice-key", $("key").value); } catch { /* storage is off */ }
});
$("key").addEventListener("change", () => poll());
const headers = more => {
  const key = $("key").value.trim();
  return key ? { ...more, Authorization: "Bearer " + key } : { ...more };
};
// The error message of an answer that is not 2xx.
const errorOf = async answer => {
  let text = "";
  try { text = (await answer.json()).error.message; } catch { /* no error object */ }
  if (answer.status === 401) text = text || "This server requires an API key; enter it in the settings.";
  return answer.status + ": " + (text || answer.statusText || "no reason given");
};

// ---------------------------------------------------------------- gauges and polling

const kSamples = 60;
const series = {};
const push = (name, value) => {
  const list = series[name] = series[name] || [];
  list.push(number(value));
  if (list.length > kSamples) list.shift();
};
// Draws series over each other from a shared zero, the newest at the right edge.
const spark = (id, names, least) => {
  const svg = $(id), top = Math.max(least, ...names.flatMap(name => series[name])) * 1.08;
  const point = (list, value, i) =>
    (kSamples - list.length + i) + " " + (33 - 32 * value / top).toFixed(2);
  const line = list => "M" + list.map((value, i) => point(list, value, i)).join("L");
  const first = series[names[0]];
  const area = line(first) + "V34H" + (kSamples - first.length) + "Z";
  svg.replaceChildren(shape("path", { class: "fill", d: area }),
    ...names.map((name, i) => shape("path", { class: "ab"[i], d: line(series[name]) })));
};

const getJson = async path => {
  const answer = await fetch(path, { headers: headers(), cache: "no-store" });
  if (answer.ok) return answer.json();
  const error = new Error(await errorOf(answer));
  error.status = answer.status;
  throw error;
};
const showState = (text, good) => {
  $("state").textContent = text;
  $("state").className = "pill " + (good ? "ready" : "bad");
};
const trouble = text => {
  $("notice").textContent = text;
  $("notice").hidden = !text;
};
let timer = 0, polling = false, wantsKey = false;
const refused = error => {
  showState(error.status === 401 ? "key needed" : "status " + error.status, false);
  trouble(error.message);
  if (error.status === 401 && !wantsKey) { wantsKey = true; askForKey(); }
};
// Refreshes once a second, also after a failure, but not in a hidden tab.
const poll = async () => {
  if (polling) return;
  polling = true;
  clearTimeout(timer);
  try {
    await refresh();
    trouble("");
    wantsKey = false;
  } catch (error) {
    if (error.status) refused(error);
    else {
      showState("unreachable", false);
      trouble("The server does not answer. Is it still running?");
    }
  }
  polling = false;
  // Until a key is entered, every further poll would be refused.
  if (!document.hidden && !wantsKey) timer = setTimeout(poll, 1000);
};
document.addEventListener("visibilitychange", () => { if (!document.hidden) poll(); });
