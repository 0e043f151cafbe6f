// chat.js - the chat page: keeps a conversation, streams answers from
// /v1/chat/completions, stops them. State lives in this browser alone.
"use strict";

const $ = id => document.getElementById(id);
const SETTINGS = ["system", "temperature", "top_p", "top_k", "min_p", "max_tokens", "seed",
    "api_key"];
const DEFAULTS = {temperature: "0.7", top_p: "0.95", top_k: "40", min_p: "0.05",
    max_tokens: "512"};

let messages = load("messages", []);   // {role, content}, without the system prompt
let controller = null;                 // of the answer under way

function load(key, fallback) {
    try {
        return JSON.parse(localStorage.getItem("evenkeel." + key)) ?? fallback;
    } catch {
        return fallback;
    }
}

function save(key, value) {
    try {
        localStorage.setItem("evenkeel." + key, JSON.stringify(value));
    } catch { /* private window or full: the page works without */ }
}

// ---- settings ----

function showSettings(values) {
    for (const id of SETTINGS) $(id).value = values[id] ?? "";
}

function readSettings() {
    return Object.fromEntries(SETTINGS.map(id => [id, $(id).value]));
}

function requestBody() {
    const s = readSettings();
    const body = {messages: [...messages], stream: true,
        stream_options: {include_usage: true}};
    if (s.system.trim()) body.messages.unshift({role: "system", content: s.system});
    for (const id of ["temperature", "top_p", "top_k", "min_p", "max_tokens", "seed"])
        if (s[id] !== "") body[id] = Number(s[id]);
    return body;
}

function headers() {
    const key = $("api_key").value;
    return {"Content-Type": "application/json", ...(key && {Authorization: "Bearer " + key})};
}

// ---- the conversation on screen ----

function isAtEnd() {
    const log = $("log");
    return log.scrollHeight - log.scrollTop - log.clientHeight < 80;
}

function scrollToEnd() {
    $("log").scrollTop = $("log").scrollHeight;
}

function button(text, onclick) {
    const b = document.createElement("button");
    b.type = "button";
    b.className = "link";
    b.textContent = text;
    b.onclick = onclick;
    return b;
}

function addTurn(role, text) {
    document.querySelector(".empty")?.remove();
    const turn = document.createElement("div");
    turn.className = "turn " + role;
    const who = document.createElement("div");
    who.className = "who";
    who.textContent = {user: "You", assistant: "Model", error: "Error"}[role];
    const body = document.createElement("div");
    body.className = "text";
    turn.append(who, body);
    if (role === "assistant") markdown(body, text);
    else body.textContent = text;
    $("log").append(turn);
    return turn;
}

function addTools(turn, index) {
    const tools = document.createElement("div");
    tools.className = "tools";
    tools.append(
        button("Copy", () => navigator.clipboard?.writeText(messages[index].content)),
        button("Again", () => {
            if (controller) return;
            messages.length = index;
            showAll();
            answer();
        }));
    turn.append(tools);
}

function showAll() {
    $("log").replaceChildren();
    if (messages.length === 0) {
        const empty = document.createElement("p");
        empty.className = "empty";
        empty.textContent = "Ask a question below. Enter sends, Shift+Enter makes a new line.";
        $("log").append(empty);
    }
    messages.forEach((m, i) => {
        const turn = addTurn(m.role, m.content);
        if (m.role === "assistant") addTools(turn, i);
    });
    scrollToEnd();
}

function status(text, isBad) {
    $("status").textContent = text;
    $("status").classList.toggle("bad", Boolean(isBad));
}

// ---- the answer ----

// Yields the data of each server-sent event until [DONE].
async function* events(response) {
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
    let held = "";
    for (;;) {
        const {value, done} = await reader.read();
        if (done) return;
        held += value;
        const blocks = held.split("\n\n");
        held = blocks.pop();
        for (const block of blocks) {
            const data = block.split("\n").filter(l => l.startsWith("data:"))
                .map(l => l.slice(5).trimStart()).join("\n");
            if (data === "[DONE]") return;
            if (data) yield JSON.parse(data);
        }
    }
}

async function failure(response) {
    try {
        return (await response.json()).error.message;
    } catch {
        return `the server answered ${response.status}`;
    }
}

function rate(tokens, firstMs, lastMs) {
    const seconds = (lastMs - firstMs) / 1000;
    return tokens > 1 && seconds > 0 ? `${((tokens - 1) / seconds).toFixed(1)} tokens/s` : "";
}

// Streams one answer into `turn`; returns what was said.
async function stream(turn, said) {
    const start = performance.now();
    let first = 0, last = 0, chunks = 0, usage = null, reason = null;
    const response = await fetch("v1/chat/completions", {method: "POST", headers: headers(),
        body: JSON.stringify(requestBody()), signal: controller.signal});
    if (!response.ok) throw new Error(await failure(response));
    for await (const event of events(response)) {
        if (event.error) throw new Error(event.error.message);
        usage = event.usage ?? usage;
        const choice = event.choices?.[0];
        reason = choice?.finish_reason ?? reason;
        if (!choice?.delta?.content) continue;
        last = performance.now();
        first ||= last;
        chunks++;
        said.text += choice.delta.content;
        const follow = isAtEnd();
        markdown(turn.querySelector(".text"), said.text);
        if (follow) scrollToEnd();
        status(rate(chunks, first, last));
    }
    const n = usage?.completion_tokens ?? chunks;
    const parts = [`${n} tokens`, rate(n, first, last),
        first ? `first after ${((first - start) / 1000).toFixed(2)} s` : "",
        usage ? `${usage.prompt_tokens} in the prompt` : "",
        reason === "length" ? "cut at the longest answer" : ""];
    status(parts.filter(Boolean).join(" · "));
}

function setBusy(isBusy) {
    $("send").hidden = isBusy;
    $("stop").hidden = !isBusy;
    $("new").disabled = isBusy;
}

async function answer() {
    controller = new AbortController();
    setBusy(true);
    status("Waiting for the model …");
    const turn = addTurn("assistant", "");
    turn.classList.add("streaming");
    scrollToEnd();
    const said = {text: ""};
    let error = null;
    try {
        await stream(turn, said);
    } catch (e) {
        error = e;
    }
    turn.classList.remove("streaming");
    if (error?.name === "AbortError") status("Stopped.");
    else if (error) {
        status("");
        addTurn("error", error instanceof TypeError ? "The server cannot be reached."
            : error.message);
    }
    if (said.text) {
        messages.push({role: "assistant", content: said.text});
        save("messages", messages);
        addTools(turn, messages.length - 1);
    } else {
        turn.remove();
    }
    controller = null;
    setBusy(false);
    scrollToEnd();
    $("input").focus();
}

function send() {
    const text = $("input").value.trim();
    if (!text || controller) return;
    $("input").value = "";
    fitInput();
    messages.push({role: "user", content: text});
    save("messages", messages);
    addTurn("user", text);
    answer();
}

function fitInput() {
    const input = $("input");
    input.style.height = "auto";
    input.style.height = input.scrollHeight + 2 + "px";
}

// ---- start ----

function setTheme(theme) {
    if (theme) document.documentElement.dataset.theme = theme;
    else delete document.documentElement.dataset.theme;
}

function toggleTheme() {
    const isDark = document.documentElement.dataset.theme
        ? document.documentElement.dataset.theme === "dark"
        : matchMedia("(prefers-color-scheme: dark)").matches;
    setTheme(isDark ? "light" : "dark");
    save("theme", isDark ? "light" : "dark");
}

async function showModel() {
    try {
        const response = await fetch("v1/models", {headers: headers()});
        if (response.status === 401) {
            status("This server asks for an API key: see Settings.", true);
            return;
        }
        const model = (await response.json()).data[0];
        $("model").textContent = `${model.id} · ${model.max_model_len} tokens of context`;
        document.title = `${model.id} · Evenkeel`;
        if ($("status").classList.contains("bad")) status("");
    } catch {
        status("The server cannot be reached.", true);
    }
}

$("form").addEventListener("submit", e => {
    e.preventDefault();
    send();
});
$("input").addEventListener("input", fitInput);
$("input").addEventListener("keydown", e => {
    if (e.key === "Enter" && !e.shiftKey && !e.isComposing) {
        e.preventDefault();
        send();
    }
});
document.addEventListener("keydown", e => {
    if (e.key === "Escape") controller?.abort();
});
$("stop").onclick = () => controller?.abort();
$("new").onclick = () => {
    messages = [];
    save("messages", messages);
    showAll();
    status("");
    $("input").focus();
};
$("theme").onclick = toggleTheme;
$("open-settings").onclick = () => {
    const isOpen = $("settings").hidden;
    $("settings").hidden = !isOpen;
    $("open-settings").setAttribute("aria-expanded", String(isOpen));
};
$("settings").addEventListener("change", e => {
    save("settings", readSettings());
    if (e.target.id === "api_key") showModel();
});
$("defaults").onclick = () => {
    showSettings(DEFAULTS);
    save("settings", readSettings());
};

showSettings({...DEFAULTS, ...load("settings", {})});
setTheme(load("theme", null));
showAll();
showModel();
